//! The ReAct agent with tools of its own, around a model that needs no network.
//!
//! See: a tool made of an async function, with what it works with, what it tells while it runs, and what it writes beside its
//! result; the agent's events as they happen; the reply.
//!
//! `cargo run -p superstep --example custom_tool`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{collections::BTreeMap, error::Error, sync::Arc};

use futures::{StreamExt, stream};
use superstep::{
    Event, StreamMode,
    agent::{Agent, AgentState, ReactConfig},
    llm::{
        ChatModel, Delta, FinishReason, Request, ResponseStream, Role, ToolCx, ToolError, ToolReply, tool,
    },
    prelude::*,
};

type Stations = Arc<BTreeMap<&'static str, i32>>;

/// Tells the temperature in a city.
#[tool(idempotent)]
async fn weather(
    /// The city, by its English name.
    city: String,
    /// What the tool works with: the model does not see it.
    #[dep]
    stations: Stations,
    cx: ToolCx,
) -> Result<String, ToolError> {
    cx.output("asking the station …");
    let celsius = stations.get(city.as_str());
    let celsius = celsius.ok_or_else(|| ToolError::failed(format!("there is no station in {city}")))?;
    Ok(format!("It is {celsius} °C in {city}."))
}

/// Remembers whose weather it is.
#[tool]
async fn introduce(name: String) -> ToolReply {
    ToolReply::text("Hello!").with_update(AgentState::update().user_id(name))
}

/// Calls both tools once and then says what it was told. A real one is `superstep::llm::OpenAiModel`.
struct Parrot;

impl ChatModel for Parrot {
    fn name(&self) -> &str {
        "parrot"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let call = |index, name: &str, arguments: &str| Delta::ToolCall {
            index,
            id: Some(format!("call_{index}")),
            name: Some(name.into()),
            arguments: arguments.into(),
        };
        let told = request.messages.last().filter(|last| last.role == Role::Tool);
        let deltas = match told {
            Some(result) => vec![Delta::Text(result.content.clone()), Delta::Finish(FinishReason::Stop)],
            None => vec![
                call(0, "introduce", r#"{"name":"ada"}"#),
                call(1, "weather", r#"{"city":"Paris"}"#),
                Delta::Finish(FinishReason::ToolCalls),
            ],
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let stations = Stations::new([("Paris", 21), ("Rome", 27)].into());
    let agent = Agent::builder(Arc::new(Parrot))
        .tools([weather(stations), introduce()])
        .config(ReactConfig::graph(5))
        .build()?;

    let mut run = agent.without_thread().ask_stream("How is Paris?", [StreamMode::Custom]);
    while let Some(event) = run.next().await {
        if let Event::Custom { name, data, .. } = event {
            println!("{name:12} {data}");
        }
    }
    let state = run.outcome().await?.state;
    println!("{}", state.final_reply);
    assert_eq!(state.final_reply, "It is 21 °C in Paris.");
    assert_eq!(
        (state.metadata.tools_used, state.user_id),
        (vec!["introduce".into(), "weather".into()], "ada".into())
    );
    Ok(())
}
