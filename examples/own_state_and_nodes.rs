//! The agent with channels of one's own, a guard before each model call, and an own way out.
//!
//! See: the graph as it is wired, what the own nodes noted in the own channel, and a conversation that is whole although a
//! human took over a call.
//!
//! `cargo run -p superstep --example own_state_and_nodes`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Arc};

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep::{
    agent::{Agent, AgentDeps, AgentState, Next, ReactConfig, ReactNodes, Reply, should_continue},
    llm::{ChatModel, Delta, FinishReason, Request, ResponseStream, Role, Tool, ToolSpec, tool_fn},
    prelude::*,
};

/// The agent's channels, and what this program wants to know beside.
#[derive(State, Clone, Debug, Default)]
struct Desk {
    #[channel(flatten)]
    agent: AgentState,
    customer: String,
    #[channel(append)]
    notes: Log<String>,
}

#[derive(Route, Clone, Copy)]
enum Way {
    Tools,
    Again,
    Room,
    Human,
    End,
}

/// Reads channels of both, and writes its own.
async fn guard(desk: Desk, _: Cx) -> DeskUpdate {
    Desk::update().notes([format!("{} said {} messages", desk.customer, desk.agent.messages.len())])
}

/// Somebody is told before money leaves.
async fn human(desk: Desk, _: Cx) -> DeskUpdate {
    let call = desk.agent.messages.last().and_then(|last| last.tool_calls.first());
    Desk::update().notes([format!("a human saw {}", call.map_or("nothing", |call| &call.arguments))])
}

fn way(desk: &Desk) -> Way {
    let last = desk.agent.messages.last();
    let refunds = last.is_some_and(|last| last.tool_calls.iter().any(|call| call.name == "refund"));
    match should_continue(desk) {
        Next::Tools if refunds => Way::Human,
        Next::Tools => Way::Tools,
        Next::Agent => Way::Again,
        Next::Compact => Way::Room,
        Next::Finalize => Way::End,
    }
}

fn desk(deps: &AgentDeps) -> StateGraph<Desk> {
    let mut graph = StateGraph::new("desk");
    let nodes = ReactNodes::add(&mut graph, deps);
    let guard = graph.add_node("guard", guard);
    let human = graph.add_node("human", human);
    graph.add_edge(START, nodes.init_state);
    graph.add_edge(nodes.init_state, nodes.memory_trigger);
    graph.add_edge(nodes.memory_trigger, guard);
    graph.add_edge(guard, nodes.agent);
    graph.add_conditional_edges(nodes.agent, way, |way| match way {
        Way::Tools => nodes.tools,
        Way::Again => guard,
        Way::Room => nodes.target(Next::Compact),
        Way::Human => human,
        Way::End => nodes.finalize,
    });
    graph.add_edge(human, nodes.tools);
    graph.add_edge(nodes.tools, guard);
    graph.add_edge(nodes.finalize, END);
    graph
}

#[derive(Deserialize, JsonSchema)]
struct Refund {
    /// In cents.
    amount: u32,
}

/// Calls `refund` once and then says what it was told. A real one is `superstep::llm::OpenAiModel`.
struct Parrot;

impl ChatModel for Parrot {
    fn name(&self) -> &str {
        "parrot"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let told = request.messages.last().filter(|last| last.role == Role::Tool);
        let deltas = match told {
            Some(result) => vec![Delta::Text(result.content.clone()), Delta::Finish(FinishReason::Stop)],
            None => vec![
                Delta::ToolCall {
                    index: 0,
                    id: Some("call_1".into()),
                    name: Some("refund".into()),
                    arguments: r#"{"amount":2000}"#.into(),
                },
                Delta::Finish(FinishReason::ToolCalls),
            ],
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let spec = ToolSpec::of::<Refund>("refund", "Gives money back.");
    let refund =
        tool_fn(spec, |args: Refund, _| async move { Ok(format!("Gave back {} cents.", args.amount)) });
    let deps = Agent::builder(Arc::new(Parrot))
        .tools([Arc::new(refund) as Arc<dyn Tool>])
        .config(ReactConfig::graph(5))
        .deps()?;
    let agent = Agent::of(desk(&deps).compile()?, &deps.config);
    print!("{}", agent.graph().drawing().text());

    let input = agent.input("My kettle leaks. I want my money back.").customer("Ada");
    let end = agent.without_thread().run(input).await?;
    for note in end.state.notes.iter() {
        println!("note: {note}");
    }
    assert_eq!(end.state.notes.len(), 3);
    let reply = Reply::from(end);
    println!("{}", reply.final_reply);
    assert_eq!(reply.final_reply, "Gave back 2000 cents.");
    Ok(())
}
