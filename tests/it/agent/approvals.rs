//! Tools that somebody is asked about.

use serde_json::json;
use superstep::agent::{AgentOutcome, Approval, ApprovalRequest, ReactConfig, ToolMode};
use superstep_testing::script::{calls, txt};

use super::{Cancel, Scenario, kit::Decide};

/// A call that needs approval and one that does not.
fn asking(decide: Option<Decide>) -> Scenario {
    let two = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "echo", r#"{"x":"1"}"#)]);
    Scenario { decide, ..Scenario::new([two, txt("ok")]).tools(&["echo", "send"]) }
}

#[test]
fn an_approved_call_runs() {
    let ran = asking(Some(|_| Some(Approval::Approve))).play();
    assert_eq!((ran.kit.n("send"), ran.result("c1"), ran.result("c2")), (1, "sent", "r:1"));
    assert_eq!(
        ran.kit.asked(),
        [ApprovalRequest {
            call_id: "c1".into(),
            tool: "send".into(),
            args: json!({"to": "a"}),
            question: "Send to a?".into(),
            problem: None
        }]
    );
}

#[test]
fn a_denied_call_does_not_run_and_the_model_reads_why() {
    let ran = asking(Some(|_| Some(Approval::Deny("no mail".into())))).play();
    assert_eq!(ran.kit.n("send"), 0);
    assert_eq!(ran.result("c1"), "Error: Permission denied: no mail");
    assert_eq!(
        ran.events(),
        concat!(
            r#"a▸ ◂a tool_start{send,{"to":"a"},c1} tool_end{send,c1,"Error: Permission denied: no mail"} "#,
            r#"tool_start{echo,{"x":"1"},c2} tool_end{echo,c2,"r:1"} a▸ tok(ok) ◂a"#
        )
    );
    assert_eq!(ran.state().tools_used, ["echo".to_owned()]);
    assert_eq!(ran.outcome(), AgentOutcome::Completed);
}

#[test]
fn a_call_is_denied_if_nobody_is_there_to_approve_it() {
    let ran = asking(None).play();
    assert_eq!(ran.result("c1"), "Error: Permission denied: nobody is there to approve it");
    assert_eq!(ran.kit.n("send"), 0);
}

#[test]
fn a_turn_that_is_cancelled_while_somebody_is_asked_ends_at_once() {
    for tool_mode in [ToolMode::Sequential, ToolMode::Parallel { max: 8 }] {
        let scenario = asking(Some(|_| None)).config(|config| ReactConfig { tool_mode, ..config });
        let mut scenario = Scenario { cancel: Cancel::At(50), ..scenario };
        scenario.script.answers.pop();
        let ran = scenario.play_here();
        assert_eq!((ran.turn().ended, ran.kit.n("send")), (50, 0));
        assert_eq!(ran.result("c1"), "The tool call has been interrupted by the user.");
        assert_eq!(ran.outcome(), AgentOutcome::Cancelled);
    }
}

#[test]
fn nobody_is_asked_about_arguments_that_cannot_be_used() {
    let two = calls([("c1", "send", r#"{"to":1}"#), ("c2", "send", "{to")]);
    let scenario = Scenario::new([two, txt("ok")]).tools(&["send"]);
    let ran = Scenario { decide: Some(|_| Some(Approval::Approve)), ..scenario }.play();
    assert!(ran.kit.asked().is_empty());
    assert_eq!(ran.kit.n("send"), 0);
    assert_eq!(ran.result("c1"), "Error: invalid args for 'send': `to`: expected string, got a number");
}

#[test]
fn parallel_calls_are_asked_about_one_after_the_other() {
    let three = calls([
        ("c1", "send", r#"{"to":"a"}"#),
        ("c2", "send", r#"{"to":"b"}"#),
        ("c3", "send", r#"{"to":"c"}"#),
    ]);
    let decide: Decide = |request| {
        let approved = request.args["to"] != "b";
        Some(if approved { Approval::Approve } else { Approval::Deny("not b".into()) })
    };
    let scenario = Scenario { decide: Some(decide), ..Scenario::new([three, txt("ok")]).tools(&["send"]) };
    let scenario =
        scenario.config(|config| ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..config });
    let ran = scenario.play();
    let asked: Vec<_> = ran.kit.asked().into_iter().map(|request| request.call_id).collect();
    assert_eq!(asked, ["c1", "c2", "c3"]);
    assert_eq!(ran.kit.n("send"), 2);
    assert_eq!(ran.result("c2"), "Error: Permission denied: not b");
}

#[test]
fn a_call_is_not_executed_if_the_question_about_it_panics() {
    let ran = asking(Some(|_| std::panic::resume_unwind(Box::new("gone")))).play();
    assert_eq!(ran.result("c1"), "Error: Permission denied: whoever was asked panicked: gone");
    assert_eq!((ran.kit.n("send"), ran.result("c2"), ran.reply()), (0, "r:1", "ok"));

    let two = calls([("c1", "unsure", "{}"), ("c2", "echo", r#"{"x":"1"}"#)]);
    let ran = Scenario::new([two, txt("ok")]).tools(&["echo", "unsure"]).play();
    assert_eq!(ran.result("c1"), "Error executing 'unsure': the tool panicked: what to ask?");
    assert_eq!((ran.kit.n("unsure"), ran.result("c2"), ran.reply()), (0, "r:1", "ok"));
}
