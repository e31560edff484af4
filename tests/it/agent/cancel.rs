//! Cancelled turns.

use std::{sync::Arc, time::Duration};

use superstep::{
    RunOptions,
    agent::{
        AgentOutcome, ReactConfig,
        config::{Budget, ToolMode},
        state::ToolStatus,
    },
    llm::Usage,
};
use superstep_testing::{
    script::{Answer, Script, calls, txt},
    scripted::ScriptedModel,
};

use super::{Cancel, Ran, Scenario, kit::Kit, paused};

const INTERRUPTED: &str = "The tool call has been interrupted by the user.";

/// Creates a scenario of echo, then `tool`, then echo; cancelled while `tool` runs, after which the user
/// continues.
fn cancelled(tool: &'static str, tool_mode: ToolMode) -> Scenario {
    let three = calls([("c0", "echo", r#"{"x":"1"}"#), ("c1", tool, "{}"), ("c2", "echo", r#"{"x":"2"}"#)]);
    let scenario = Scenario::new([three, txt("fine")]).tools(&["deaf", "echo", "hang"]);
    let scenario = scenario.turns(&["go", "go on"]).config(|config| ReactConfig { tool_mode, ..config });
    Scenario { cancel: Cancel::At(50), ..scenario }
}

fn the_next_turn_is_accepted(ran: &Ran, third: &str) {
    let tool = &ran.turns[0].told.iter().find(|told| told.text("id") == "c1").unwrap().text("tool");
    assert_eq!(
        ran.messages(),
        format!(
            r#"u:"go", a:[c0 echo{{"x":"1"}}, c1 {tool}{{}}, c2 echo{{"x":"2"}}], t(c0):"r:1", t(c1):"{INTERRUPTED}", t(c2):"{third}", u:"go on", a:"fine""#
        )
    );
    assert_eq!((ran.reply(), ran.outcome()), ("fine", AgentOutcome::Completed));
    assert_eq!(ran.requests.len(), 2);
}

fn the_turn_is_cancelled(ran: &Ran) {
    let state = &ran.turns[0].state;
    assert_eq!(state.outcome, Some(AgentOutcome::Cancelled));
    assert_eq!((state.stop, state.stop_reason.as_str()), (true, "cancelled"));
    assert_eq!(state.final_reply, "No answer: the run was cancelled (cancelled).");
    assert_eq!((state.llm_calls, state.model_requests), (1, 1));
}

#[test]
fn sequential_calls_after_the_cancelled_one_are_not_begun() {
    let scenario = cancelled("hang", ToolMode::Sequential);
    let by_event = Scenario { cancel: Cancel::On("tool_start", "c1"), ..scenario.clone() };
    for ran in [scenario.play_here(), by_event.play_here(), by_event.play_wired()] {
        assert_eq!(
            ran.turns[0].shown(),
            format!(
                concat!(
                    r#"a▸ ◂a tool_start{{echo,{{"x":"1"}},c0}} tool_end{{echo,c0,"r:1"}} "#,
                    r#"tool_start{{hang,{{}},c1}} tool_end{{hang,c1,"{}"}} "#,
                    "+tool_skipped{{echo,c2,cancelled}} a▸ ◂a"
                ),
                INTERRUPTED
            )
        );
        assert_eq!(ran.kit.n("echo"), 1);
        the_turn_is_cancelled(&ran);
        the_next_turn_is_accepted(&ran, INTERRUPTED);
    }
    assert_eq!(scenario.play_here().turns[0].ended, 50);
}

#[test]
fn finished_parallel_calls_retain_their_results() {
    let ran = cancelled("hang", ToolMode::Parallel { max: 8 }).play_here();
    assert_eq!((ran.turns[0].ended, ran.kit.n("echo")), (50, 2));
    the_turn_is_cancelled(&ran);
    the_next_turn_is_accepted(&ran, "r:2");
}

#[test]
fn a_call_that_waits_for_one_beside_it_is_not_begun() {
    let behind = |first, second| {
        let scenario = Scenario::new([calls([first, second])]).tools(&["echo", "hang", "solo"]);
        let parallel =
            scenario.config(|config| ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..config });
        Scenario { cancel: Cancel::At(50), ..parallel }.play_here()
    };
    for (ran, waited) in [
        (behind(("c0", "hang", "{}"), ("c1", "solo", r#"{"x":"c"}"#)), "solo"),
        (behind(("c0", "solo", r#"{"x":"a"}"#), ("c1", "echo", r#"{"x":"1"}"#)), "echo"),
    ] {
        assert_eq!((ran.kit.n(waited), ran.result("c0"), ran.result("c1")), (0, INTERRUPTED, INTERRUPTED));
        let skipped = format!("+tool_skipped{{{waited},c1,cancelled}}");
        assert!(ran.events().contains(&skipped), "{}", ran.events());
        the_turn_is_cancelled(&ran);
    }
}

#[test]
fn a_tool_that_ignores_cancellation_holds_the_turn_for_its_grace_only() {
    for tool_mode in [ToolMode::Sequential, ToolMode::Parallel { max: 8 }] {
        let ran = cancelled("deaf", tool_mode).play_here();
        assert_eq!(ran.turns[0].ended, 300);
        the_turn_is_cancelled(&ran);
    }
}

#[test]
fn a_cancelled_answer_leaves_no_text() {
    let slow = Answer::stream().text(["Once"]).delay(100).text([" upon"]).end("stop").done();
    let scenario = Scenario::new([slow, txt("fine")]).turns(&["go", "go on"]);
    let ran = Scenario { cancel: Cancel::At(50), ..scenario }.play_here();
    assert_eq!(ran.turns[0].ended, 50);
    assert_eq!(ran.turns[0].shown(), "a▸ tok(Once) +attempt_discarded{1} ◂a");
    assert_eq!(ran.turns[0].state.outcome, Some(AgentOutcome::Cancelled));
    assert_eq!(ran.messages(), r#"u:"go", u:"go on", a:"fine""#);
}

#[test]
fn text_read_before_a_cancel_is_part_of_the_conversation() {
    for name in ["default", "opencode", "agentscope"] {
        let slow = Answer::stream()
            .text(["Once", " upon"])
            .call(0, "c1", "echo", [r#"{"x":"1"}"#])
            .call(1, "c2", "echo", [r#"{"x":"#])
            .delay(100)
            .end("tool_calls")
            .done();
        let scenario = Scenario::new([slow, txt("fine")]).turns(&["go", "go on"]);
        let scenario = scenario.config(|_| ReactConfig::preset(name).unwrap());
        let ran = Scenario { cancel: Cancel::At(50), ..scenario }.play_here();
        let state = &ran.turns[0].state;
        assert_eq!((state.outcome, ran.kit.n("echo")), (Some(AgentOutcome::Cancelled), 0), "{name}");
        let said: Vec<_> = state.messages.iter().skip(1).take(2).cloned().collect();
        assert_eq!(
            super::show::messages(&said),
            format!(r#"a:"Once upon"[c1 echo{{"x":"1"}}], t(c1):"{INTERRUPTED}""#),
            "{name}"
        );
        assert!(said[0].interrupted);
        assert!(!ran.turns[0].shown().contains("attempt_discarded"), "{}", ran.turns[0].shown());
        let sent = ran.requests[1]["messages"].as_array().unwrap();
        let at = sent.iter().position(|message| message["content"] == "Once upon").unwrap();
        assert_eq!(
            (&sent[at + 1]["tool_call_id"], &sent[at + 1]["content"]),
            (&"c1".into(), &INTERRUPTED.into())
        );
        assert_eq!(ran.reply(), "fine", "{name}");
        if name == "opencode" {
            let part = state.parts.iter().find(|part| part.tool.is_some()).unwrap();
            let call = part.state.as_ref().unwrap();
            assert_eq!((call.status, call.output.as_deref()), (ToolStatus::Error, Some(INTERRUPTED)));
        }
    }
}

#[test]
fn a_complete_call_is_retained_and_a_partial_one_is_not() {
    let cancelled = |arguments: &str| {
        let slow = Answer::stream().call(0, "c1", "echo", [arguments]).delay(100).end("tool_calls").done();
        let scenario = Scenario::new([slow, txt("fine")]).turns(&["go", "go on"]);
        let scenario = scenario.config(|_| ReactConfig::default());
        Scenario { cancel: Cancel::At(50), ..scenario }.play_here().messages()
    };
    let whole = format!(r#"u:"go", a:[c1 echo{{"x":"1"}}], t(c1):"{INTERRUPTED}", u:"go on", a:"fine""#);
    assert_eq!(cancelled(r#"{"x":"1"}"#), whole);
    assert_eq!(cancelled(r#"{"x":"1""#), r#"u:"go", u:"go on", a:"fine""#);
}

#[test]
fn a_turn_cancelled_before_it_begins_makes_no_request() {
    paused(async {
        let scenario = Scenario::new([]);
        let model = ScriptedModel::new(Script::default());
        let agent = scenario.agent(Arc::new(model.clone()), &Kit::default()).build().unwrap();
        let config = RunOptions::new();
        config.get_cancel().cancel();
        let reply = agent.configured(config).ask("go").await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::Cancelled);
        assert_eq!(model.requests(), []);
    });
}

#[test]
fn the_unreported_tokens_of_a_stopped_response_are_estimated() {
    let slow = || Answer::stream().text(["Hel"]).delay(100).text(["lo"]).end("stop");
    let scenario = |answers: Vec<Answer>| Scenario { tokens: Some(|_| 10), ..Scenario::new(answers) };
    let whole = scenario(vec![slow().done()]).play_here().state().usage;
    assert!(whole.input_tokens > 0 && whole.output_tokens > 0);
    let wall = Budget { wall: Some(Duration::from_millis(50)), reserve_final: false, ..Budget::default() };
    let by_budget = scenario(vec![slow().done()]).config(|config| ReactConfig { budget: wall, ..config });
    let by_user = Scenario { cancel: Cancel::At(50), ..scenario(vec![slow().usage(30, 5).done()]) };
    for (scenario, outcome) in [(by_budget, AgentOutcome::Budget), (by_user, AgentOutcome::Cancelled)] {
        let ran = scenario.play_here();
        assert_eq!((ran.outcome(), ran.state().usage, ran.state().answer.estimated), (outcome, whole, true));
    }
    // A provider reports the tokens at the end, so that those of earlier calls do not count for this one.
    let first =
        Answer::stream().call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("tool_calls").usage(30, 5).done();
    let ran = Scenario { cancel: Cancel::At(50), ..scenario(vec![first, slow().done()]) }.play_here();
    assert!(ran.state().usage.input_tokens > 30 && ran.state().usage.output_tokens > 5);
    assert!(ran.state().answer.estimated);
    // Some report them as they grow.
    let told = Answer::stream().usage(30, 1).text(["Hel"]).delay(100).text(["lo"]).end("stop").done();
    let ran = Scenario { cancel: Cancel::At(50), ..scenario(vec![told]) }.play_here();
    let reported = Usage::new(30, 1);
    assert_eq!((ran.state().usage, ran.state().answer.estimated), (reported, false));
}
