//! The agent with additional channels, a guard before each model call, and an additional route.
//!
//! Shows: the drawn graph, the notes of the additional nodes in their channel, and a complete conversation although a human took
//! over a call.
//!
//! `cargo run -p superstep --example own_state_and_nodes`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use schemars::JsonSchema;
use serde::Deserialize;
use superstep::agent::{
    deps::AgentDeps,
    graph::{Next, ReactNodes, should_continue},
};
use superstep::{llm::tool_fn, prelude::*};
use superstep_testing::{
    script::{call, txt},
    scripted::{ScriptedModel, tool_result},
};

/// The agent's channels, and those of this program.
#[derive(State, Clone, Debug, Default)]
struct Desk {
    #[channel(flatten)]
    agent: AgentState,
    customer: String,
    #[channel(append)]
    notes: Log<String>,
}

#[derive(Route, Clone, Copy)]
enum Choice {
    Tools,
    Again,
    Compact,
    Human,
    End,
}

/// Reads both kinds of channels, and writes its own.
async fn guard(desk: Desk, _: Cx) -> DeskUpdate {
    Desk::update().notes([format!("{} said {} messages", desk.customer, desk.agent.messages.len())])
}

/// Notes a refund before it is paid.
async fn human(desk: Desk, _: Cx) -> DeskUpdate {
    let call = desk.agent.messages.last().and_then(|last| last.tool_calls.first());
    Desk::update().notes([format!("a human saw {}", call.map_or("nothing", |call| &call.arguments))])
}

fn choose(desk: &Desk) -> Choice {
    let last = desk.agent.messages.last();
    let refunds = last.is_some_and(|last| last.tool_calls.iter().any(|call| call.name == "refund"));
    match should_continue(desk) {
        Next::Tools if refunds => Choice::Human,
        Next::Tools => Choice::Tools,
        Next::Agent => Choice::Again,
        Next::Compact => Choice::Compact,
        Next::Finalize => Choice::End,
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
    graph.add_conditional_edges(nodes.agent, choose, |choice| match choice {
        Choice::Tools => nodes.tools,
        Choice::Again => guard,
        Choice::Compact => nodes.target(Next::Compact),
        Choice::Human => human,
        Choice::End => nodes.finalize,
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

/// Calls `refund` once and then repeats its result. A real model is `superstep::llm::OpenAiModel`.
fn parrot() -> ScriptedModel {
    ScriptedModel::from_fn(|request| match tool_result(request) {
        Some(result) => txt(result),
        None => call("call_1", "refund", r#"{"amount":2000}"#),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let spec = ToolSpec::of::<Refund>("refund", "Gives money back.");
    let refund =
        tool_fn(spec, |args: Refund, _| async move { Ok(format!("Gave back {} cents.", args.amount)) });
    let deps = Agent::builder(parrot()).tool(refund).config(ReactConfig::graph(5)).deps()?;
    let agent = Agent::of(desk(&deps).compile()?, &deps.config);
    print!("{}", agent.graph().drawing().text());

    let input = agent.input("My kettle leaks. I want my money back.").customer("Ada");
    let end = agent.without_thread().run(input).await?;
    for note in end.state.notes.iter() {
        println!("note: {note}");
    }
    assert_eq!(end.state.notes.len(), 3);
    let reply = Reply::from(end);
    println!("{}", reply.text);
    assert_eq!(reply.text, "Gave back 2000 cents.");
    Ok(())
}
