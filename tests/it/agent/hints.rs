//! One-time hints for the model.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep::{
    MemoryCheckpointer, State,
    agent::{
        AgentState, ReactConfig,
        config::{AfterEmpty, EmptyPolicy},
    },
    llm::ModelRetry,
};
use superstep_testing::{
    script::{Answer, Script, call, http, txt},
    scripted::ScriptedModel,
};

use super::{
    Ran, Scenario,
    facades::{Asked, both},
    kit::Kit,
    paused,
};
use crate::support::head;

/// Returns the number of hints in each request, and whether the hint is at its end.
fn hinted(requests: &[Value]) -> Vec<(usize, bool)> {
    let says = |message: &Value| message["content"] == "be brief";
    let of = |request: &Value| {
        let messages = request["messages"].as_array().unwrap();
        (messages.iter().filter(|message| says(message)).count(), says(messages.last().unwrap()))
    };
    requests.iter().map(of).collect()
}

fn hinting(answers: impl IntoIterator<Item = Answer>) -> Scenario {
    let scenario = Scenario { hints: vec!["be brief"], ..Scenario::new(answers) };
    scenario.config(|config| ReactConfig {
        retry: ModelRetry { base: Duration::from_millis(1), ..config.retry },
        ..config
    })
}

/// Asserts that a hint is not stored.
fn is_not_stored(ran: &Ran) {
    assert!(ran.state().hints.is_empty());
    assert!(ran.state().messages.iter().all(|message| message.content != "be brief"));
}

#[test]
fn a_hint_is_in_the_next_request_only_and_not_in_the_conversation() {
    let ran = hinting([call("c1", "echo", r#"{"x":"1"}"#), txt("ok")]).play();
    assert_eq!(hinted(&ran.requests), [(1, true), (0, false)]);
    is_not_stored(&ran);
    let ran = hinting([txt("one"), txt("two")]).turns(&["go", "on"]).play();
    assert_eq!(hinted(&ran.requests), [(1, true), (0, false)]);
    is_not_stored(&ran);
}

#[test]
fn several_hints_are_sent_in_order() {
    let hinting = Scenario { hints: vec!["be kind", "be brief"], ..hinting([txt("ok")]) };
    let ran = hinting.play();
    let said: Vec<_> = ran.requests[0]["messages"].as_array().unwrap().iter().collect();
    let told = ["go", "be kind", "be brief"].map(|text| json!({"role": "user", "content": text}));
    assert!(said.into_iter().eq(&told), "{:?}", ran.requests[0]);
}

#[test]
fn a_hint_stays_until_its_request_is_answered() {
    let cut = Answer::stream().text(["o"]).cut();
    let ran = hinting([http(503, &[], ""), cut, txt("ok")]).play();
    assert_eq!(hinted(&ran.requests), [(1, true); 3]);
    is_not_stored(&ran);

    let empty = || Answer::stream().end("stop").done();
    let retried = |nudge: Option<&str>| {
        let nudge = nudge.map(str::to_owned);
        hinting([empty(), empty(), txt("ok")]).config(|config| ReactConfig {
            empty: EmptyPolicy::Retry { max: 2, nudge, then: AfterEmpty::Stop },
            ..config
        })
    };
    assert_eq!(hinted(&retried(None).play().requests), [(1, true); 3]);
    // It comes last, after all other texts that only this request has.
    assert_eq!(hinted(&retried(Some("say something")).play().requests), [(1, true); 3]);
}

#[test]
fn a_hint_stays_for_a_fallback_model() {
    let ran = hinting([http(401, &[], "{}")]).fallback([txt("ok")]).play();
    assert_eq!((hinted(&ran.requests), hinted(&ran.fell_back[0])), (vec![(1, true)], vec![(1, true)]));
    is_not_stored(&ran);
}

#[test]
fn a_hint_stays_for_a_turn_that_is_resumed() {
    let (asked, sent) = both(&[http(401, &[], "{}"), txt("ok")], async |asked: Asked| {
        let agent = asked.agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        let input = agent.input("go").hints(["be brief".to_owned()]);
        let failed = agent.thread("t").run(input).await.unwrap();
        let reply = agent.thread("t").resume().await.unwrap();
        (failed.state.hints.len(), reply.text, head(agent.graph()).await.values.hints.len())
    });
    assert_eq!(asked, (1, "ok".to_owned(), 0));
    assert_eq!(sent.last, ["user: go", "user: be brief"]);
}

#[test]
fn an_external_update_may_queue_a_hint() {
    paused(async {
        let model = ScriptedModel::new(Script::new([txt("one"), txt("two")]));
        let scenario = Scenario::new([]);
        let agent = scenario.agent(Arc::new(model.clone()), &Kit::default());
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        agent.thread("t").ask("go").await.unwrap();
        let hint = AgentState::update().hints(["be brief".to_owned()]);
        agent.graph().thread("t").update(hint).await.unwrap();
        agent.thread("t").ask("on").await.unwrap();
        let last: Vec<_> =
            model.requests().iter().map(|request| request.messages.last().unwrap().content.clone()).collect();
        assert_eq!(last, ["go", "be brief"]);
    });
}
