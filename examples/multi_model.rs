//! Several models in one graph: an unavailable one, its fallback, and a small one with its own node.
//!
//! Shows: the events of the retry and the fallback, the model that replied, the tokens of each, and the small model's title.
//!
//! `cargo run -p superstep --example multi_model`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc, time::Duration};

use futures::StreamExt;
use superstep::llm::{ModelRetry, Named, complete, retries::Retrying};
use superstep::{llm::Request, prelude::*};
use superstep_testing::{
    script::{Answer, http},
    scripted::ScriptedModel,
};

/// A conversation with a title.
#[derive(State, Clone, Debug, Default)]
struct Titled {
    question: String,
    answer: String,
    title: String,
}

/// Runs the agent, which has its own graph.
async fn answer(agent: Agent, state: Titled, _: Cx) -> Result<TitledUpdate, NodeError> {
    let reply = agent.ask(&state.question).await?;
    Ok(Titled::update().answer(reply.text))
}

/// Calls the small model directly.
async fn title(model: Arc<dyn ChatModel>, state: Titled, _: Cx) -> Result<TitledUpdate, NodeError> {
    let messages = vec![Message::user(format!("A title of three words for: {}", state.answer))];
    let response = complete(&model, Request::new(messages)).await?;
    Ok(Titled::update().title(response.message.into_data().content))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Models with one response, or with an unavailable server. Real ones are `superstep::llm::OpenAiModel`.
    let model = |name, answer: Answer| Named::new(name, ScriptedModel::from_fn(move |_| answer.clone()));
    let says = |text| Answer::stream().text([text]).end("stop").usage(10, 3).done();
    let retry = ModelRetry { base: Duration::from_millis(10), max_attempts: 2, ..ModelRetry::default() };
    let agent = Agent::builder(model("large", http(503, &[], "the server is down")))
        .fallback(model("spare", says("Rust compiles to machine code.")))
        .config(ReactConfig { retry, ..ReactConfig::default() })
        .build()?;

    let question = "What does Rust compile to?";
    let mut turn = agent.without_thread().ask_stream(question);
    while let Some(event) = turn.next().await {
        println!("{:14} {}", event.name(), event.data());
    }
    let Reply { text, metadata, .. } = turn.reply().await?;
    println!("{} replied: {text}", metadata.model);
    assert_eq!(metadata.model, "spare");
    assert_eq!(metadata.usage_by_model["spare"].output_tokens, 3);

    let small = Arc::new(Retrying::new(model("small", says("Rust and machines")), retry));
    let mut graph = StateGraph::<Titled>::new("titled");
    let answer = graph.add_node_with("answer", agent, answer);
    let title = graph.add_node_with("title", small as Arc<dyn ChatModel>, title);
    graph.add_edge(START, answer);
    graph.add_edge(answer, title);
    graph.add_edge(title, END);
    let titled = graph.compile()?.run(Titled::update().question(question)).await?;
    println!("{}: {}", titled.state.title, titled.state.answer);
    assert_eq!(titled.state.title, "Rust and machines");
    Ok(())
}
