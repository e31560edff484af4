//! A node that fails, and an error handler.
//!
//! Shows: the handler runs in the superstep of the failed node, receives the failure, and chooses the next node.
//!
//! `cargo run -p superstep --example error_handler`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use serde_json::json;
use superstep::{FailureKind, prelude::*};

#[derive(State, Clone, Debug, Default)]
struct Weather {
    city: String,
    report: String,
    #[channel(append)]
    log: Log<String>,
}

#[derive(Route, Clone, Copy)]
enum Next {
    AskAnother,
    GiveUp,
}

async fn ask(state: Weather, _: Cx) -> Result<WeatherUpdate, NodeError> {
    match state.city.as_str() {
        "Atlantis" => Err(NodeError::new("no such city").with_data(json!({"status": 404}))),
        "Nowhere" => panic!("the earth is flat"),
        city => Ok(Weather::update().report(format!("sun in {city}"))),
    }
}

async fn recover(failure: NodeFailure, _: Weather, _: Cx) -> Command<Weather, Next> {
    let line = format!("`{}` failed: {}, {:?}", failure.node, failure.message, failure.data);
    let next = if failure.kind == FailureKind::Panic { Next::AskAnother } else { Next::GiveUp };
    Command::update(Weather::update().log([line])).goto(next)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The panic is caught; the hook only hides its default message.
    std::panic::set_hook(Box::new(|_| ()));
    let mut graph = StateGraph::new("weather");
    let ask = graph.add_node("ask", ask);
    let another = graph.add_node("ask_another", async |state: Weather, _: Cx| {
        Weather::update().report(format!("the other one says: fog in {}", state.city))
    });
    let recover = graph.add_routing_error_handler(ask, "recover", recover);
    graph.add_edge(START, ask);
    graph.add_edge(ask, END);
    graph.add_edge(another, END);
    graph.add_routes(recover, |next| match next {
        Next::AskAnother => another,
        Next::GiveUp => END,
    });
    let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());
    println!("{}", graph.topology().text());

    let mut reports = Vec::new();
    for city in ["Bern", "Atlantis", "Nowhere"] {
        let input = Weather::update().city(city);
        let end = graph.thread(city).run(input).await?.state;
        println!("{city}: {:?} {:?}", end.report, end.log);
        reports.push(end.report);
    }
    assert_eq!(reports, ["sun in Bern", "", "the other one says: fog in Nowhere"]);
    Ok(())
}
