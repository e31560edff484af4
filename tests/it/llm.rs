//! The contracts of a model on the wire, and of the retry layer around any model.

mod anthropic;
mod bodies;
mod gemini;
mod hostile;
mod openai;
mod openai_faults;
mod responses;
mod retry;
mod rounds;
mod servers;
pub(crate) mod strict;
mod threads;

use futures::StreamExt;
use superstep::llm::{ApiKey, ChatModel, Delta, Message, ModelError, OpenAiConfig, OpenAiModel, Request};
use superstep_testing::{
    script::{Answer, Script},
    wire::WireServer,
};

const KEY: &str = "sk-test-0123456789";

/// Starts a server with this script and creates a model for it, with a clock fixed at 0.
async fn served(answers: impl IntoIterator<Item = Answer>) -> (WireServer, OpenAiModel) {
    served_as(answers, |_| ()).await
}

async fn served_as(
    answers: impl IntoIterator<Item = Answer>,
    change: impl FnOnce(&mut OpenAiConfig),
) -> (WireServer, OpenAiModel) {
    let server = WireServer::start(Script::new(answers)).await.expect("a loopback port is free");
    let mut config = OpenAiConfig::new(server.base_url(), ApiKey::new(KEY), "m");
    change(&mut config);
    let model = OpenAiModel::new(config).expect("the server has a base URL").with_clock(|| 0);
    (server, model)
}

/// Creates a request.
fn hi() -> Request {
    Request { messages: vec![Message::user("hi")], ..Request::default() }
}

/// Collects all items of a stream up to its end.
async fn drain(model: &dyn ChatModel, request: Request) -> Vec<Result<Delta, ModelError>> {
    model.stream(request).collect().await
}

/// Returns the text deltas among them.
fn texts(deltas: &[Result<Delta, ModelError>]) -> Vec<&str> {
    let text = |delta| match delta {
        &Ok(Delta::Text(ref text)) => Some(text.as_str()),
        _ => None,
    };
    deltas.iter().filter_map(text).collect()
}
