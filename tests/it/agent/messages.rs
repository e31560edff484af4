//! The agent's messages in `StreamMode::Messages`.

use std::sync::Arc;

use futures::StreamExt;
use superstep::{Event, State, StreamMode, agent::AgentState, llm::Message};
use superstep_testing::{
    script::{Answer, Script, call, txt},
    scripted::ScriptedModel,
};

use super::{Scenario, kit::Kit};

/// Returns the message events of a turn, one per line.
async fn told(answers: impl IntoIterator<Item = Answer>) -> Vec<String> {
    let scenario = Scenario::new([]);
    let model = Arc::new(ScriptedModel::new(Script::new(answers)));
    let agent = scenario.agent(model, &Kit::new(&[])).build().unwrap();
    let input = AgentState::update().messages([Message::user("go")]);
    let stream = agent.graph().stream(input, [StreamMode::Messages]);
    let line = |event| match event {
        Event::Message { step, node, id, kind, data, .. } => format!("{step} {node} {id} {kind:?} {data}"),
        other => panic!("{other:?}"),
    };
    stream.map(line).collect().await
}

#[tokio::test(start_paused = true)]
async fn tokens_and_tool_results_have_their_nodes() {
    let answer = Answer::stream().text(["fi", "ve"]).end("stop").done();
    let lines = told([call("c1", "add", r#"{"a":2,"b":3}"#), answer]).await;
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn streamed_text_of_a_failed_request_is_void() {
    let broken = Answer::stream().text(["fo"]).cut();
    let lines = told([broken, txt("five")]).await;
    insta::assert_snapshot!(lines.join("\n"));
}
