//! The end of a turn, and the start of the next one.

use serde_json::json;
use superstep::agent::{
    AgentOutcome, Approval, ReactConfig,
    config::{AfterEmpty, EmptyPolicy, LengthPolicy, Limit, OutputMode},
    hooks::Hooks,
    state::Metadata,
};
use superstep_testing::script::{Answer, Script, call, calls, http, txt};

use super::{Cancel, Scenario};

#[test]
fn the_text_is_the_reply_for_any_finish_reason() {
    let scenario = Scenario::new([call("c1", "echo", r#"{"x":"1"}"#), txt("ok")]);
    let ran = scenario
        .config(|config| ReactConfig { limit: Limit { max: 1, ..config.limit.clone() }, ..config })
        .play();
    assert_eq!((ran.reply(), ran.state().stop_reason.as_str()), ("ok", "max_steps"));
}

#[test]
fn metadata_covers_all_rounds_and_an_update_only_its_own() {
    let two = calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "add", r#"{"a":1,"b":1}"#)]);
    let ran = Scenario::new([two, call("c3", "echo", r#"{"x":"2"}"#), txt("ok")]).play();
    let metadata = &ran.state().metadata;
    assert_eq!(metadata.steps_taken, 2);
    assert_eq!(metadata.tools_used, ["echo", "add", "echo"]);
    let updates = ran.turn().updates("tools");
    assert_eq!(updates[0]["tools_used"], json!(["echo", "add"]));
    assert_eq!(updates[1]["tools_used"], json!(["echo"]));
    assert_eq!(updates[1]["tool_result_history"], json!(["r:2"]));
    assert_eq!(updates[1]["tool_call_history"], json!([{"name": "echo", "args": {"x": "2"}}]));
    assert_eq!(updates[1]["current_step"], 2);
    assert_eq!(updates[1]["messages"].as_array().unwrap().len(), 1);
}

#[test]
fn the_next_turn_begins_anew_and_retains_the_conversation() {
    let search = |id| call(id, "search", r#"{"q":"rust"}"#);
    let scenario = Scenario::new([search("c1"), search("c2"), txt("hello")]).tools(&["search"]);
    let scenario = Scenario { found: vec!["a", "a"], ..scenario.turns(&["go", "hi"]) };
    let ran = scenario.play();
    assert_eq!(ran.turns[0].state.outcome, Some(AgentOutcome::LoopDetected));
    let state = ran.state();
    assert_eq!((ran.reply(), ran.outcome()), ("hello", AgentOutcome::Completed));
    assert_eq!((state.stop, state.stop_reason.as_str(), state.current_step), (false, "", 0));
    assert_eq!((state.llm_calls, state.model_requests), (1, 1));
    assert!(state.tool_call_history.is_empty() && state.tool_result_history.is_empty());
    assert!(state.tools_used.is_empty() && state.ignored_tool_calls.is_empty());
    assert_eq!(state.metadata, Metadata { llm_calls: 1, ..Metadata::default() });
    assert_eq!(
        ran.messages(),
        r#"u:"go", a:[c1 search{"q":"rust"}], t(c1):"a", a:[c2 search{"q":"rust"}], t(c2):"a", u:"hi", a:"hello""#
    );
}

#[test]
fn an_error_does_not_outlive_its_turn() {
    let refused = http(401, &[], "{}");
    let ran = Scenario::new([refused, txt("hello")]).turns(&["go", "hi"]).play();
    assert!(ran.turns[0].state.error.is_some());
    assert_eq!((ran.state().error.as_ref(), ran.outcome()), (None, AgentOutcome::Completed));
    assert_eq!(ran.messages(), r#"u:"go", u:"hi", a:"hello""#);
}

#[test]
fn a_text_of_another_turn_is_not_a_reply() {
    let refused = http(401, &[], r#"{"error":{"message":"bad key"}}"#);
    let ran = Scenario::new([txt("first"), refused]).turns(&["go", "again"]).play();
    assert_eq!(ran.turns[0].state.final_reply, "first");
    assert!(ran.reply().starts_with("No answer: the model call failed (llm_error): "), "{}", ran.reply());
}

/// Returns first turns, each with its end and its scenario.
fn first_turns() -> Vec<(AgentOutcome, Scenario)> {
    let echo = |id| call(id, "echo", r#"{"x":"1"}"#);
    let with = |answers: Vec<Answer>, change: fn(&mut ReactConfig)| {
        let mut scenario = Scenario::new(answers);
        change(&mut scenario.config);
        scenario
    };
    let dear =
        || Answer::stream().call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("tool_calls").usage(40, 20).done();
    let empty = || Answer::stream().end("stop").done();
    let cut = || Answer::stream().text(["part "]).end("length").done();
    let send = || call("c1", "send", r#"{"to":"a"}"#);
    let denied = with(vec![send()], |config| config.approval.stop_on_deny = true).tools(&["send"]);
    let hangs = with(vec![call("c1", "hang", "{}")], |_| {}).tools(&["hang"]);
    let failing = |_: &super::Kit| {
        let mut hooks = Hooks::default();
        hooks.acting.pre(|_| std::future::ready(Err("no".into())));
        hooks
    };
    vec![
        (AgentOutcome::Completed, with(vec![echo("c1"), txt("one")], |_| {})),
        (AgentOutcome::Limit, with(vec![echo("c1"), txt("one")], |config| config.limit.max = 1)),
        (AgentOutcome::LoopDetected, with(vec![echo("c1"), echo("c2")], |_| {})),
        (AgentOutcome::LlmError, with(vec![http(401, &[], "{}")], |_| {})),
        (
            AgentOutcome::Budget,
            with(vec![dear()], |config| {
                (config.budget.tokens, config.budget.reserve_final) = (Some(50), false);
            }),
        ),
        (
            AgentOutcome::Empty,
            with(vec![empty(), empty()], |config| {
                config.empty = EmptyPolicy::Retry { max: 1, nudge: None, then: AfterEmpty::Stop };
            }),
        ),
        (
            AgentOutcome::Length,
            with(vec![cut(), cut()], |config| {
                config.length = LengthPolicy::Continue { max: 1, prompt: "continue".into() };
            }),
        ),
        (
            AgentOutcome::InvalidOutput,
            with(vec![txt("a")], |config| {
                config.finish.schema = Some(json!({"type": "integer"}));
                (config.finish.output, config.finish.retries) = (OutputMode::Native, 0);
            }),
        ),
        (AgentOutcome::HookFailed, Scenario { hooks: failing, ..with(vec![echo("c1")], |_| {}) }),
        (AgentOutcome::Denied, Scenario { decide: Some(|_| Some(Approval::Deny("no".into()))), ..denied }),
        (AgentOutcome::Cancelled, Scenario { cancel: Cancel::On("tool_start", "c1"), ..hangs }),
    ]
}

#[test]
fn the_next_turn_begins_anew_after_every_outcome() {
    for (outcome, first) in first_turns() {
        let reply = if outcome == AgentOutcome::InvalidOutput { "7" } else { "hello" };
        let answer = Answer::stream().text([reply]).end("stop").usage(5, 1).done();
        let fresh = Scenario { cancel: Cancel::Never, ..first.clone() }.turns(&["hi"]);
        let fresh = Scenario { script: Script::new([answer.clone()]), ..fresh }.play();
        let answers = first.script.answers.iter().cloned().chain([answer]);
        let ran = Scenario { script: Script::new(answers), ..first }.turns(&["go", "hi"]).play();
        assert_eq!(ran.turns[0].state.outcome, Some(outcome));
        let told = fresh.events();
        assert_eq!((ran.reply(), ran.events()), (reply, told), "{outcome:?}");
        // Apart from the conversation and its known size, the state is that of a first turn.
        let (wanted, mut state) = (fresh.state().clone(), ran.state().clone());
        assert!(state.messages.iter().next().unwrap().content == "go", "{outcome:?}");
        state.messages.clone_from(&wanted.messages);
        state.request_size.clone_from(&wanted.request_size);
        assert_eq!(state, wanted, "{outcome:?}");
    }
}
