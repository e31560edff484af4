//! The facade `cococat`.

use serde_json::json;
use superstep::agent::{
    ReactConfig,
    facades::cococat::{AgentLoop, CococatReply},
};
use superstep_testing::script::{Answer, http, txt};

use super::{Asked, at_once, both, echo};

async fn run(asked: Asked) -> CococatReply {
    let agent = asked.agent.config(at_once(ReactConfig::cococat()));
    AgentLoop::new(agent).unwrap().run("go", "u-1").await.unwrap()
}

fn reply(content: &str, iterations: u32) -> CococatReply {
    CococatReply { content: content.to_owned(), iterations }
}

#[test]
fn a_reply_has_a_content_and_iterations_and_nothing_else() {
    let (made, sent) = both(&[txt("Hello")], run);
    assert_eq!(serde_json::to_value(&made).unwrap(), json!({"content": "Hello", "iterations": 0}));
    assert_eq!(sent.last, ["user: go"]);
}

#[test]
fn its_preset_is_cococat_unless_it_is_given_another() {
    let call = echo(1);
    let answers: Vec<Answer> = (0..20).map(|_| call.clone()).collect();
    let (made, sent) = both(&answers, async |asked: Asked| {
        AgentLoop::new(asked.agent).unwrap().run("go", "u-1").await.unwrap()
    });
    assert_eq!((made, sent.requests), (reply("r:1", 20), 20));
}

#[test]
fn at_the_limit_the_last_message_is_the_content() {
    let (made, sent) = both(&[echo(1), echo(2), echo(3)], async |asked: Asked| {
        AgentLoop::new(asked.agent.max_steps(3)).unwrap().run("go", "u-1").await.unwrap()
    });
    assert_eq!((made, sent.requests, sent.echoed), (reply("r:3", 3), 3, 3));
}

#[test]
fn a_failed_model_call_is_content() {
    let down = http(503, &[], r#"{"error":{"message":"down for repairs"}}"#);
    let (made, sent) = both(&[down.clone(), down.clone(), down], async |asked: Asked| {
        let made = run(asked).await;
        (made.content.contains("down for repairs"), made.iterations)
    });
    assert_eq!((made, sent.requests), ((true, 0), 3));
}

#[test]
fn a_continuation_is_not_an_iteration() {
    let cut = Answer::stream().text(["The answer "]).end("length").done();
    let (made, sent) = both(&[cut, txt("is 42.")], run);
    assert_eq!(made, reply("The answer is 42.", 0));
    assert_eq!(sent.last, ["user: go", "assistant: The answer ", "user: continue"]);
}

#[test]
fn an_empty_response_is_retried() {
    let empty = Answer::stream().end("stop").done();
    let (made, sent) = both(&[empty, txt("ok")], run);
    assert_eq!((made, sent.requests), (reply("ok", 0), 2));
}
