//! Tools that need approval by a person.

use serde_json::json;
use superstep::agent::{
    AgentOutcome, Approval, ReactConfig,
    approval::ApprovalRequest,
    config::{ApprovalConfig, ToolMode},
};
use superstep_testing::script::{call, calls, txt};

use super::{Cancel, Scenario, kit::Decide};

/// Creates a call that needs approval and one that does not.
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
            form: None,
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
fn a_call_is_denied_without_an_approver() {
    let ran = asking(None).play();
    assert_eq!(ran.result("c1"), "Error: Permission denied: nobody is there to approve it");
    assert_eq!(ran.kit.n("send"), 0);
}

#[test]
fn a_turn_cancelled_during_an_approval_ends_at_once() {
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
fn invalid_arguments_never_wait_for_approval() {
    let two = calls([("c1", "send", r#"{"to":1}"#), ("c2", "send", "{to")]);
    let scenario = Scenario::new([two, txt("ok")]).tools(&["send"]);
    let ran = Scenario { decide: Some(|_| Some(Approval::Approve)), ..scenario }.play();
    assert!(ran.kit.asked().is_empty());
    assert_eq!(ran.kit.n("send"), 0);
    assert_eq!(ran.result("c1"), "Error: invalid args for 'send': `to`: expected string, got a number");
}

#[test]
fn parallel_calls_are_approved_one_after_the_other() {
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
    assert_eq!(ran.result("c1"), "Error: Permission denied: the approver panicked: gone");
    assert_eq!((ran.kit.n("send"), ran.result("c2"), ran.reply()), (0, "r:1", "ok"));

    let two = calls([("c1", "unsure", "{}"), ("c2", "echo", r#"{"x":"1"}"#)]);
    let ran = Scenario::new([two, txt("ok")]).tools(&["echo", "unsure"]).play();
    assert_eq!(ran.result("c1"), "Error executing 'unsure': the tool panicked: what to ask?");
    assert_eq!((ran.kit.n("unsure"), ran.result("c2"), ran.reply()), (0, "r:1", "ok"));
}

#[test]
fn permanent_grants_are_stored_on_the_thread() {
    for tool_mode in [ToolMode::Sequential, ToolMode::Parallel { max: 8 }] {
        let both = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "send", r#"{"to":"b"}"#)]);
        let answers = [both, txt("ok"), call("c3", "send", r#"{"to":"c"}"#), txt("ok")];
        let scenario = Scenario::new(answers).tools(&["send"]).turns(&["go", "again"]);
        let scenario = Scenario { decide: Some(|_| Some(Approval::Always)), ..scenario };
        let ran = scenario.config(|config| ReactConfig { tool_mode, ..config }).play();
        // Includes the sibling call, which waited meanwhile.
        assert_eq!((ran.kit.asked().len(), ran.kit.n("send")), (1, 3));
        assert_eq!(ran.state().permissions.len(), 1);
    }
}

#[test]
fn granted_patterns_are_stored_for_matching_calls() {
    let answers = ["a1", "a2", "b"].map(|to| call(to, "send", &json!({ "to": to }).to_string()));
    let scenario = Scenario::new(answers.into_iter().chain([txt("ok")])).tools(&["send"]);
    let decide: Decide = |_| Some(Approval::always_for([("to", "a?")]));
    let ran = Scenario { decide: Some(decide), ..scenario }.play();
    let asked: Vec<_> = ran.kit.asked().into_iter().map(|request| request.call_id).collect();
    assert_eq!((asked, ran.kit.n("send")), (vec!["a1".to_owned(), "b".to_owned()], 3));
}

#[test]
fn a_round_may_wait_for_an_approver() {
    let hold = ApprovalConfig { hold_batch: true, ..ApprovalConfig::default() };
    let first = calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "send", r#"{"to":"a"}"#)]);
    let scenario = Scenario::new([first, txt("ok")]).tools(&["echo", "send"]);
    let scenario = Scenario { decide: Some(|_| Some(Approval::Approve)), ..scenario };
    let play = |approval| scenario.clone().config(|config| ReactConfig { approval, ..config }).play_here();
    // The approval takes a millisecond.
    assert_eq!(play(hold).turn().times("tool_start"), [1, 1]);
    assert_eq!(play(ApprovalConfig::default()).turn().times("tool_start"), [0, 1]);
    assert_eq!((play(hold).result("c1"), play(hold).result("c2")), ("r:1", "sent"));
}

#[test]
fn a_denial_of_an_approver_may_end_the_turn() {
    let stop = ApprovalConfig { stop_on_deny: true, ..ApprovalConfig::default() };
    let denied = asking(Some(|_| Some(Approval::Deny("no mail".into()))));
    let mut scenario = denied.config(|config| ReactConfig { approval: stop, ..config });
    scenario.script.answers.pop();
    let ran = scenario.play();
    assert_eq!((ran.outcome(), ran.requests.len(), ran.result("c2")), (AgentOutcome::Denied, 1, "r:1"));
    assert_eq!(ran.result("c1"), "Error: Permission denied: no mail");
    // A call without approval ends nothing.
    let nobody = asking(None).config(|config| ReactConfig { approval: stop, ..config }).play();
    assert_eq!(nobody.outcome(), AgentOutcome::Completed);
}
