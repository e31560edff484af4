//! X11: what the model is told once.

use std::sync::Arc;

use serde_json::Value;
use superstep::{
    MemoryCheckpointer, RunConfig, State,
    agent::{AgentState, EmptyPolicy, ReactConfig},
    llm::Message,
};
use superstep_testing::{
    script::{Answer, Script, call, http, txt},
    scripted::ScriptedModel,
};

use super::{Scenario, kit::Kit, paused};

/// How often each request says the hint, and whether it is the last thing it says.
fn hinted(requests: &[Value]) -> Vec<(usize, bool)> {
    let says = |message: &Value| message["content"] == "be brief";
    let of = |request: &Value| {
        let messages = request["messages"].as_array().unwrap();
        (messages.iter().filter(|message| says(message)).count(), says(messages.last().unwrap()))
    };
    requests.iter().map(of).collect()
}

/// Plays a turn whose input queues a hint; gives what was asked and the state in the end.
fn hint(answers: Vec<Answer>, config: impl Fn(ReactConfig) -> ReactConfig) -> (Vec<Value>, AgentState) {
    paused(async {
        let scenario = Scenario::new([]).config(config);
        let model = ScriptedModel::new(Script::new(answers));
        let agent = scenario.agent(Arc::new(model.clone()), &Kit::default());
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        let input = AgentState::update().messages([Message::user("go")]).hints(["be brief".to_owned()]);
        agent.graph().invoke(input, RunConfig::thread("t")).await.unwrap();
        // Whatever happened, the thread can go on.
        let reply = agent.resume(RunConfig::thread("t")).await.unwrap();
        assert_eq!(reply.final_reply, "ok");
        model.check().unwrap();
        let requests: Vec<Value> = model
            .requests()
            .iter()
            .map(|request| serde_json::to_value(scenario.wire.body(request)).unwrap())
            .collect();
        let state = agent.graph().get_state(&"t".into(), None).await.unwrap().values;
        (requests, state)
    })
}

#[test]
fn x11_a_hint_is_in_the_next_request_only_and_not_in_the_conversation() {
    let (requests, state) = hint(vec![call("c1", "echo", r#"{"x":"1"}"#), txt("ok")], |config| config);
    assert_eq!(hinted(&requests), [(1, true), (0, false)]);
    assert!(state.hints.is_empty());
    assert!(state.messages.iter().all(|message| message.content != "be brief"));
}

#[test]
fn x11_a_hint_stays_until_its_request_is_answered() {
    let cut = Answer::stream().text(["o"]).cut();
    let (requests, _) = hint(vec![http(503, &[], ""), cut, txt("ok")], |config| config);
    assert_eq!(hinted(&requests), [(1, true); 3]);

    let empty = Answer::stream().end("stop").done();
    let retried = |config| ReactConfig {
        empty: EmptyPolicy::Retry { max: 2, nudge: None, then: superstep::agent::AfterEmpty::Stop },
        ..config
    };
    let (requests, _) = hint(vec![empty, txt("ok")], retried);
    assert_eq!(hinted(&requests), [(1, true); 2]);
}

#[test]
fn x11_a_hint_stays_for_a_turn_that_is_resumed() {
    let refused = http(401, &[], "{}");
    let (requests, state) = hint(vec![refused, txt("ok")], |config| config);
    assert_eq!(hinted(&requests), [(1, true); 2]);
    assert!(state.hints.is_empty());
}

#[test]
fn x11_whoever_updates_the_state_may_queue_a_hint() {
    paused(async {
        let model = ScriptedModel::new(Script::new([txt("one"), txt("two")]));
        let scenario = Scenario::new([]);
        let agent = scenario.agent(Arc::new(model.clone()), &Kit::default());
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        agent.process_message("go", RunConfig::thread("t")).await.unwrap();
        let hint = AgentState::update().hints(["be brief".to_owned()]);
        agent.graph().update_state(RunConfig::thread("t"), hint, None).await.unwrap();
        agent.process_message("on", RunConfig::thread("t")).await.unwrap();
        let last: Vec<_> =
            model.requests().iter().map(|request| request.messages.last().unwrap().content.clone()).collect();
        assert_eq!(last, ["go", "be brief"]);
    });
}
