//! Expense claims: small ones are paid at once, large ones need an approval.

use superstep::prelude::*;

/// The state of a claim. Its fields are the channels that nodes write.
#[derive(State, Clone, Debug, Default)]
pub(crate) struct Claim {
    pub(crate) purpose: String,
    pub(crate) euros: u32,
    pub(crate) receipt: Option<String>,
    /// One line for each step; updates append to it.
    #[channel(append)]
    pub(crate) log: Log<String>,
}

#[derive(Route, Clone, Copy)]
enum Size {
    Small,
    Large,
}

#[derive(Route, Clone, Copy)]
enum Decision {
    Approved,
    Refused,
}

async fn review(claim: Claim, _: Cx) -> Result<ClaimUpdate, NodeError> {
    if claim.purpose.is_empty() {
        return Err(NodeError::new("the claim has no purpose").fatal());
    }
    Ok(Claim::update().log([format!("reviewed: {}", claim.purpose)]))
}

/// Chooses the node after `review`. It reads the state and nothing else.
fn size(claim: &Claim) -> Size {
    if claim.euros > 100 {
        Size::Large
    } else {
        Size::Small
    }
}

/// Asks a person. The run ends here, and resumes with the answer in any process.
async fn approve(claim: Claim, cx: Cx) -> Command<Claim, Decision> {
    let question = format!("pay {} € for {}?", claim.euros, claim.purpose);
    let (log, decision) = if cx.interrupt("approve", &question).await {
        ("approved", Decision::Approved)
    } else {
        ("refused", Decision::Refused)
    };
    Command::update(Claim::update().log([log])).goto(decision)
}

async fn pay(claim: Claim, cx: Cx) -> Result<ClaimUpdate, NodeError> {
    // The result is stored, so the payment is not repeated when the node runs again.
    let receipt = cx
        .once("pay", async |key| transfer(claim.euros, &key).await)
        .await?;
    Ok(Claim::update().receipt(receipt).log(["paid"]))
}

/// Stands for the service that pays. `key` is the same in each attempt of one payment.
async fn transfer(euros: u32, _key: &str) -> Result<String, NodeError> {
    Ok(format!("receipt for {euros} €"))
}

/// Builds the graph.
pub(crate) fn expenses() -> Result<CompiledGraph<Claim>, CompileError> {
    let mut graph = StateGraph::new("expenses");
    let review = graph.add_node("review", review);
    let approve = graph.add_routing_node("approve", approve);
    let pay = graph.add_node("pay", pay);
    graph.add_edge(START, review);
    graph.add_conditional_edges(review, size, |size| match size {
        Size::Small => pay,
        Size::Large => approve.into(),
    });
    graph.add_routes(approve, |decision| match decision {
        Decision::Approved => pay,
        Decision::Refused => END,
    });
    graph.add_edge(pay, END);
    graph.compile()
}
