//! A graph inside a node of another: it interrupts the run, and receives the answer when the run is resumed.
//!
//! `cargo run -p superstep --example subgraph`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use superstep::prelude::*;

/// The state of the outer graph.
#[derive(State, Clone, Debug, Default)]
struct Order {
    item: String,
    #[channel(append)]
    log: Log<String>,
}

/// The state of the inner graph.
#[derive(State, Clone, Debug, Default)]
struct Approval {
    what: String,
    granted: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut approval = StateGraph::<Approval>::new("approval");
    let ask = approval.add_node("ask", async |state: Approval, cx: Cx| {
        let granted: bool = cx.interrupt("grant", format!("order {}?", state.what)).await;
        Approval::update().granted(granted)
    });
    approval.add_edge(START, ask);
    approval.add_edge(ask, END);
    let approval = approval.compile()?;

    let mut order = StateGraph::<Order>::new("order");
    let approve = order.add_subgraph_with(
        "approve",
        &approval,
        |order: &Order| Approval::update().what(order.item.clone()),
        |approval: &Approval| {
            let verdict = if approval.granted { "granted" } else { "refused" };
            Order::update().log([verdict])
        },
    );
    let send = order
        .add_node("send", async |state: Order, _: Cx| Order::update().log([format!("sent {}", state.item)]));
    order.add_edge(START, approve);
    order.add_edge(approve, send);
    order.add_edge(send, END);
    let order = order.compile()?.with_checkpointer(MemoryCheckpointer::new());

    let interrupted = order.thread("7").run(Order::update().item("a kettle")).await?;
    let [question] = &interrupted.interrupts[..] else { return Err("there is one question".into()) };
    println!("{} asks: {}", question.id, question.question);

    let answers = Answers::new().answer("grant", true);
    let end = order.thread("7").answers(answers).resume().await?;
    assert_eq!(end.status, Status::Completed);
    for line in end.state.log.iter() {
        println!("{line}");
    }
    Ok(())
}
