//! Tests of the graph: a node, a route, and the threads in `threads/`.

use std::error::Error;

use superstep_testing::{assert_transition, node, replay_all, route_table};

use super::expenses::{Claim, expenses};

fn claim(euros: u32) -> Claim {
    Claim {
        purpose: "chairs".to_owned(),
        euros,
        ..Claim::default()
    }
}

#[tokio::test]
async fn a_claim_waits_for_an_approval() -> Result<(), Box<dyn Error>> {
    let graph = expenses()?;
    assert_transition!(graph, "approve", claim(240), @r#"
    node `approve` in superstep 1
    questions
      approve "pay 240 € for chairs?"
    "#);

    let approved = node(&graph, "approve")
        .state(claim(240))
        .answer("approve", true);
    assert_transition!(approved.run().await?, @r#"
    node `approve` in superstep 1
    update
      log ["approved"]
    state
      log + "approved"
    next
      pay
    "#);
    Ok(())
}

#[test]
fn large_claims_need_an_approval() -> Result<(), Box<dyn Error>> {
    let claims = [100, 101].map(|euros| (format!("{euros} €"), claim(euros)));
    let table = route_table(&expenses()?, "review", claims)?;
    insta::assert_snapshot!(table, @r"
    100 € → pay
    101 € → approve
    ");
    Ok(())
}

/// Each stored thread runs again with its recorded answers and payments, and has to do the same.
#[tokio::test]
async fn stored_threads_are_replayed() -> Result<(), Box<dyn Error>> {
    let threads = concat!(env!("CARGO_MANIFEST_DIR"), "/threads");
    replay_all(&expenses()?, threads).await?.assert_same();
    Ok(())
}
