//! A refund that requires approval.
//!
//! Shows: the run ends with an interrupt; a second run, possibly in another process days later, resumes it with the answer.
//!
//! `cargo run -p superstep --example human_approval`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use superstep::prelude::*;

#[derive(State, Clone, Debug, Default)]
struct Refund {
    euros: u32,
    #[channel(append)]
    log: Log<String>,
}

#[derive(Route, Clone, Copy)]
enum Size {
    Small,
    Large,
}

async fn approve(refund: Refund, cx: Cx) -> RefundUpdate {
    let question = format!("refund {} €?", refund.euros);
    let approved: bool = cx.interrupt("approve", &question).await;
    Refund::update().log([format!("{question} {}", if approved { "yes" } else { "no" })])
}

async fn pay(refund: Refund, _: Cx) -> RefundUpdate {
    let refused = refund.log.iter().any(|line| line.ends_with("no"));
    Refund::update().log([if refused {
        "nothing is paid".to_owned()
    } else {
        format!("paid {} €", refund.euros)
    }])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut graph = StateGraph::new("refund");
    let approve = graph.add_node("approve", approve);
    let pay = graph.add_node("pay", pay);
    let size = |refund: &Refund| if refund.euros > 50 { Size::Large } else { Size::Small };
    graph.add_conditional_edges(START, size, |size| match size {
        Size::Small => pay,
        Size::Large => approve,
    });
    graph.add_edge(approve, pay);
    graph.add_edge(pay, END);
    let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());

    let interrupted = graph.thread("order-7").run(Refund::update().euros(120)).await?;
    assert_eq!(interrupted.status, Status::Interrupted);
    println!("question: {}", interrupted.interrupts[0].question);

    let answers = Answers::new().answer("approve", true);
    let end = graph.thread("order-7").answers(answers).resume().await?;
    println!("{:?}", end.state.log);
    assert_eq!(end.state.log, ["refund 120 €? yes", "paid 120 €"]);

    let small = graph.thread("order-8").run(Refund::update().euros(20)).await?;
    assert_eq!(small.status, Status::Completed);
    Ok(())
}
