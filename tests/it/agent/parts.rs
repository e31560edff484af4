//! The parts of answers.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::json;
use superstep::{
    Checkpointer, Event, MemoryCheckpointer, StreamMode,
    agent::{
        AgentOutcome, ReactConfig,
        config::ToolMode,
        state::{Part, PartKind, ToolStatus},
    },
    sqlite::SqliteCheckpointer,
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};

use super::{Cancel, Ran, Scenario, kit::Kit, paused, preset};

fn with_parts(answers: impl IntoIterator<Item = Answer>) -> Scenario {
    Scenario::new(answers).config(|config| ReactConfig { parts: true, ..config })
}

fn status(part: &Part) -> Option<ToolStatus> {
    part.state.as_ref().map(|state| state.status)
}

/// Returns the tool parts of a run: the calls and their states.
fn tools(ran: &Ran) -> Vec<(&str, ToolStatus, &str)> {
    let tools = ran.state().parts.iter().filter_map(|part| {
        let state = part.state.as_ref()?;
        Some((part.tool.as_deref()?, state.status, state.output.as_deref().unwrap_or_default()))
    });
    tools.collect()
}

/// Returns the events of the parts, in order.
fn told(ran: &Ran) -> String {
    let shown = ran.events();
    shown.split(' ').filter(|event| event.starts_with("+part")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_call_is_pending_when_it_is_named_running_when_it_is_whole_and_then_completed() {
    let answer = Answer::stream().reasoning("hm").text(["let me add"]);
    let answer = answer.call(0, "c1", "add", [r#"{"a":2,"#, r#""b":3}"#]).end("tool_calls").done();
    let ran = with_parts([answer, txt("5")]).play();
    assert_eq!(
        told(&ran),
        concat!(
            "+part{3.0.message.tool.0,pending} +part{3.0.message.reasoning,whole} +part{3.0.message.text,whole} ",
            "+part{3.0.message.tool.0,running} +part{3.0.message.tool.0,completed} +part{5.0.message.text,whole}"
        )
    );
    let parts: Vec<&Part> = ran.state().parts.iter().collect();
    assert_eq!(
        parts.iter().map(|part| part.kind).collect::<Vec<_>>(),
        [PartKind::Reasoning, PartKind::Text, PartKind::Tool, PartKind::Text]
    );
    assert_eq!(
        serde_json::to_value(parts[2]).unwrap(),
        json!({
            "id": "3.0.message.tool.0", "session_id": "t", "message_id": "3.0.message", "type": "tool", "tool": "add",
            "state": {"status": "completed", "input": {"a": 2, "b": 3}, "output": "5"},
        })
    );
    for part in parts {
        assert!(ran.state().messages.get(&part.message_id).is_some(), "{part:?}");
    }
}

#[test]
fn parts_are_stored_only_if_configured() {
    for preset in superstep::agent::presets::PRESETS {
        let ran = Scenario { config: (preset.config)(), ..Scenario::new([txt("hi")]) }.play_here();
        assert_eq!(!ran.state().parts.is_empty(), preset.name == "opencode", "{}", preset.name);
        assert_eq!(!told(&ran).is_empty(), preset.name == "opencode", "{}", preset.name);
    }
}

#[test]
fn a_failed_call_is_an_error_part() {
    use ToolStatus::{Completed, Error};
    let four = calls([
        ("c0", "boom", "{}"),
        ("c1", "nope", "{}"),
        ("c2", "add", r#"{"a":"x"}"#),
        ("c3", "echo", r#"{"x":"1"}"#),
        ("c4", "send", r#"{"to":"a"}"#),
        ("c5", "add", "{x"),
    ]);
    let ran = with_parts([four, txt("ok")]).tools(&["add", "boom", "echo", "send"]).play();
    assert_eq!(
        tools(&ran),
        [
            ("boom", Error, ran.result("c0")),
            ("nope", Error, ran.result("c1")),
            ("add", Error, ran.result("c2")),
            ("echo", Completed, "r:1"),
            ("send", Error, ran.result("c4")),
            ("add", Error, ran.result("c5")),
        ]
    );
    let broken = ran.state().parts.iter().nth(5).unwrap();
    assert_eq!(broken.state.as_ref().unwrap().input, Some("{x".into()));
}

#[test]
fn a_call_that_was_cut_off_never_ran() {
    let cut = Answer::stream().call(0, "c1", "echo", [r#"{"x":"a"#]).end("length").done();
    let ran = with_parts([cut, txt("ok")]).play();
    let part = ran.state().parts.iter().next().unwrap();
    let state = part.state.as_ref().unwrap();
    assert_eq!((state.status, &state.input), (ToolStatus::Error, &None));
    assert_eq!(state.output.as_deref(), Some(ran.result("c1")));
    assert!(!told(&ran).contains("running"), "{}", told(&ran));
}

#[test]
fn the_parts_of_a_discarded_attempt_go_away() {
    let cut = Answer::stream().call(0, "c1", "echo", [r#"{"x":"#]).cut();
    let ran = with_parts([cut, txt("ok")]).play();
    assert!(
        ran.events().contains("+part{3.0.message.tool.0,pending} +attempt_discarded{1}"),
        "{}",
        ran.events()
    );
    let parts: Vec<_> = ran.state().parts.iter().map(|part| (part.kind, status(part))).collect();
    assert_eq!(parts, [(PartKind::Text, None)]);
}

#[test]
fn a_call_that_is_still_written_when_the_turn_is_cancelled_leaves_no_part() {
    let slow = Answer::stream().call(0, "c1", "echo", [r#"{"x":"#]).delay(100).end("tool_calls").done();
    let ran = Scenario { cancel: Cancel::At(50), ..with_parts([slow]) }.play_here();
    assert!(
        ran.events().ends_with("+part{3.0.message.tool.0,pending} +attempt_discarded{1} ◂a"),
        "{}",
        ran.events()
    );
    assert!(ran.state().parts.is_empty());
}

#[test]
fn calls_of_a_cancelled_turn_are_over() {
    use ToolStatus::{Completed, Error};
    let interrupted = "The tool call has been interrupted by the user.";
    let three = calls([("c0", "echo", r#"{"x":"1"}"#), ("c1", "hang", "{}"), ("c2", "echo", r#"{"x":"2"}"#)]);
    let scenario = with_parts([three]).tools(&["echo", "hang"]);
    for (tool_mode, third) in [
        (ToolMode::Sequential, ("echo", Error, interrupted)),
        (ToolMode::Parallel { max: 8 }, ("echo", Completed, "r:2")),
    ] {
        let scenario = scenario.clone().config(|config| ReactConfig { tool_mode, ..config });
        let ran = Scenario { cancel: Cancel::At(50), ..scenario }.play_here();
        assert_eq!(tools(&ran), [("echo", Completed, "r:1"), ("hang", Error, interrupted), third]);
        assert_eq!(ran.outcome(), AgentOutcome::Cancelled);
    }
}

#[test]
fn stored_parts_reload_equal_and_continue_after_a_crash() {
    paused(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("threads.db");
        let agent = |answers: Vec<Answer>, kit: &Kit| {
            let config = ReactConfig { parts: true, ..preset() };
            let scenario = Scenario { config, ..Scenario::new([]) }.tools(&["again", "echo"]);
            let model = ScriptedModel::new(Script::new(answers));
            let store: Arc<dyn Checkpointer> = Arc::new(SqliteCheckpointer::open(&path).unwrap());
            scenario.agent(Arc::new(model), kit).checkpointer(store).build().unwrap()
        };
        let kit = Kit::default();
        let crashed = agent(vec![calls([("c0", "echo", r#"{"x":"1"}"#), ("c1", "again", "{}")])], &kit);
        let mut stream = crashed.thread("t").stream(crashed.input("go"), [StreamMode::Custom]);
        while let Some(event) = stream.next().await {
            // The second tool does not return: the run is dropped with the first result stored.
            if matches!(&event, Event::Custom { name: "tool_start", data, .. } if data["id"] == "c1") {
                break;
            }
        }
        drop(stream);
        let stored = crashed.graph().thread("t").state().await.unwrap().values.parts;
        assert_eq!(
            stored.iter().map(|part| status(part).unwrap()).collect::<Vec<_>>(),
            [ToolStatus::Running; 2]
        );
        drop(crashed);

        let recovered = agent(vec![txt("ok")], &kit);
        assert_eq!(recovered.graph().thread("t").state().await.unwrap().values.parts, stored);
        recovered.thread("t").resume().await.unwrap();
        let parts = recovered.graph().thread("t").state().await.unwrap().values.parts;
        let ended: Vec<_> = parts.iter().filter_map(status).collect();
        assert_eq!(ended, [ToolStatus::Completed; 2]);
        assert_eq!(parts.iter().filter(|part| part.kind == PartKind::Text).count(), 1);
    });
}

#[test]
fn parts_may_be_switched_on_later() {
    paused(async {
        let store = Arc::new(MemoryCheckpointer::new());
        let agent = |parts, answers: Vec<Answer>| {
            let config = ReactConfig { parts, ..preset() };
            let scenario = Scenario { config, ..Scenario::new([]) }.tools(&["hang", "send"]);
            let model = ScriptedModel::new(Script::new(answers));
            let agent = scenario.agent(Arc::new(model), &Kit::default());
            agent.approve_by_interrupt().checkpointer(store.clone()).build().unwrap()
        };
        let asked = agent(false, vec![call("c0", "send", r#"{"to":"a"}"#)]);
        asked.thread("t").ask("go").await.unwrap();
        let answers = superstep::Answers::new().answer("c0", superstep::agent::Approval::Approve);
        let agent = agent(true, vec![txt("ok")]);
        agent.thread("t").answers(answers).resume().await.unwrap();
        let parts = agent.graph().thread("t").state().await.unwrap().values.parts;
        assert_eq!(parts.iter().map(status).collect::<Vec<_>>(), [Some(ToolStatus::Completed), None]);
    });
}

#[test]
fn the_part_of_an_edited_call_has_the_arguments_that_ran() {
    paused(async {
        let store = Arc::new(MemoryCheckpointer::new());
        let agent = |answers: Vec<Answer>| {
            let config = ReactConfig { parts: true, ..preset() };
            let scenario = Scenario { config, ..Scenario::new([]) }.tools(&["echo", "send"]);
            let agent = scenario.agent(Arc::new(ScriptedModel::new(Script::new(answers))), &Kit::default());
            agent.approve_by_interrupt().checkpointer(store.clone()).build().unwrap()
        };
        let round = calls([("c0", "send", r#"{"to":"a"}"#), ("c1", "echo", r#"{"x":"1"}"#)]);
        agent(vec![round]).thread("t").ask("go").await.unwrap();
        let edited = superstep::agent::Approval::Edit(json!({"to": "b"}));
        let agent = agent(vec![txt("ok")]);
        agent.thread("t").answer("c0", edited).resume().await.unwrap();
        let state = agent.graph().thread("t").state().await.unwrap().values;
        let inputs: Vec<_> =
            state.parts.iter().filter_map(|part| part.state.as_ref()?.input.clone()).collect();
        assert_eq!(inputs, [json!({"to": "b"}), json!({"x": "1"})]);
        // The provider gets back what its model wrote.
        let asked = state.messages.iter().find(|message| !message.tool_calls.is_empty()).unwrap();
        assert_eq!(asked.tool_calls[0].arguments, r#"{"to":"a"}"#);
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    });
}
