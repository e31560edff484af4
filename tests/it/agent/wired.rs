//! Loopback runs on the real clock: the assertions of other files with a paused clock, as far as they are
//! independent of time.

use superstep::agent::{
    AgentOutcome, ReactConfig,
    config::{ResultOrder, ToolMode},
};
use superstep_testing::script::{Answer, calls, txt};

use super::{
    Cancel, Ran, Scenario,
    facades::{Asked, both},
    kit::Memory,
};

const INTERRUPTED: &str = "The tool call has been interrupted by the user.";

fn three_slow() -> Answer {
    calls([("c0", "slow", r#"{"x":"a"}"#), ("c1", "slow", r#"{"x":"b"}"#), ("c2", "slow", r#"{"x":"c"}"#)])
}

fn slow(tool_mode: ToolMode) -> Scenario {
    let scenario = Scenario::new([three_slow(), txt("ok")]).tools(&["slow"]);
    scenario.config(|config| ReactConfig { tool_mode, ..config })
}

/// Returns the results in their stored form, as the model reads them.
fn results(ran: &Ran) -> Vec<String> {
    let messages = ran.requests[1]["messages"].as_array().unwrap();
    let read = messages.iter().filter(|message| message["role"] == "tool");
    let read: Vec<_> = read.map(|message| message["content"].as_str().unwrap().to_owned()).collect();
    assert!(ran.state().tool_result_history.iter().eq(&read));
    read
}

#[test]
fn parallel_results_are_stored_as_they_were_called() {
    let ran = slow(ToolMode::Parallel { max: 8 }).play();
    assert_eq!(results(&ran), ["r:a", "r:b", "r:c"]);
    assert_eq!((ran.state().current_step, ran.kit.most_at_once()), (1, 3));
    let ends: Vec<_> = ran.turn().told.iter().filter(|told| told.name == "tool_end").collect();
    assert_eq!(ends.iter().map(|told| told.text("id")).collect::<Vec<_>>(), ["c2", "c1", "c0"]);
}

#[test]
fn sequential_calls_begin_when_the_one_before_has_ended() {
    let ran = slow(ToolMode::Sequential).play();
    assert_eq!(
        (results(&ran), ran.kit.most_at_once()),
        (["r:a", "r:b", "r:c"].map(str::to_owned).to_vec(), 1)
    );
    let told = ran.turn().told.iter().filter(|told| told.name.starts_with("tool_"));
    assert_eq!(told.map(|told| told.text("id")).collect::<Vec<_>>(), ["c0", "c0", "c1", "c1", "c2", "c2"]);
}

#[test]
fn one_design_stores_results_as_they_come() {
    // This option gives up the order of calls.
    let (stored, _) = both(&[three_slow(), txt("ok")], async |asked: Asked| {
        let config = ReactConfig { result_order: ResultOrder::Completion, ..ReactConfig::cococat() };
        let agent = asked.agent.config(config).build().unwrap();
        let end = agent.without_thread().run(agent.input("go")).await.unwrap();
        let ids = end.state.messages.iter().map(|message| message.tool_call_id.clone());
        ids.filter(|id| !id.is_empty()).collect::<Vec<_>>()
    });
    assert_eq!(stored, ["c2", "c1", "c0"]);
}

/// Runs a round that is cancelled when its second call starts, and the next turn.
fn cancelled(tool: &'static str, config: ReactConfig) -> Ran {
    let round = calls([("c0", "echo", r#"{"x":"1"}"#), ("c1", tool, "{}"), ("c2", "echo", r#"{"x":"2"}"#)]);
    let scenario =
        Scenario { config, ..Scenario::new([round, txt("fine")]) }.tools(&["deaf", "echo", "hang"]);
    let scenario = Scenario { cancel: Cancel::On("tool_start", "c1"), ..scenario };
    let ran = scenario.turns(&["go", "go on"]).play();
    assert_eq!(ran.turns[0].state.outcome, Some(AgentOutcome::Cancelled));
    assert_eq!((ran.reply(), ran.outcome(), ran.requests.len()), ("fine", AgentOutcome::Completed, 2));
    ran
}

#[test]
fn calls_after_the_cancelled_one_are_answered_whatever_it_does() {
    for tool in ["hang", "deaf"] {
        let ran = cancelled(tool, super::preset());
        assert_eq!((ran.result("c0"), ran.result("c1"), ran.result("c2")), ("r:1", INTERRUPTED, INTERRUPTED));
        assert_eq!(ran.kit.n("echo"), 1);
    }
}

#[test]
fn finished_parallel_calls_retain_their_results() {
    let parallel = ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..super::preset() };
    let ran = cancelled("hang", parallel);
    assert_eq!((ran.result("c0"), ran.result("c1")), ("r:1", INTERRUPTED));
}

#[test]
fn one_design_adds_a_reply() {
    let ran = cancelled("hang", ReactConfig::agentscope());
    let first = &ran.turns[0].state;
    let halt = "I noticed that you have interrupted me. What can I do for you?";
    assert_eq!((first.messages.last().unwrap().content.as_str(), first.final_reply.as_str()), (halt, halt));
    assert!(first.metadata.is_interrupted && !ran.state().metadata.is_interrupted);
}

#[test]
fn a_memory_that_goes_wrong_does_not_reach_the_run() {
    for how in [Memory::Fails, Memory::Panics, Memory::Puzzled] {
        let scenario = Scenario::new([txt("noted")]).turns(&["remember that I like tea"]);
        let ran = Scenario { memory: Some(how), ..scenario }.play_wired();
        assert_eq!((ran.reply(), ran.outcome()), ("noted", AgentOutcome::Completed), "{how:?}");
        assert_eq!(ran.turn().told.iter().filter(|told| told.name == "memory_failed").count(), 1, "{how:?}");
        assert_eq!(ran.turn().updates("memory_trigger"), [serde_json::json!({})]);
    }
}
