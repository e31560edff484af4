//! The fragments of SS315.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use superstep::{
    Cx, START, State,
    postgres::{PostgresCheckpointer, PostgresOptions},
};

use super::setup::{Done, Fields as Chat, empty, fails};
use crate::postgres::server;

#[tokio::test]
async fn ss315() -> Done {
    let Some(server) = server::shared() else { return Ok(()) };
    let options = PostgresOptions::new(server.url()).schema(server.schema());
    let schema = &options.schema;
    let taken =
        format!("UPDATE {schema}.leases SET token = 0, owner = 'other', expires_at = clock_timestamp()");
    let is_asleep = AtomicBool::new(true);
    let sleep = Arc::new(move || {
        if is_asleep.swap(false, Ordering::Relaxed) {
            server.sql(&taken);
        }
    });
    let mut graph = empty();
    let agent = graph.add_node("agent", move |_: Chat, _: Cx| {
        sleep();
        std::future::ready(())
    });
    graph.add_edge(START, agent);
    let graph = graph.compile()?;
    fails("SS315", async {
        let (graph, options, question) = (graph.clone(), options.clone(), Chat::update());
        let threads = PostgresCheckpointer::open(options)?;
        let graph = graph.with_checkpointer(Arc::new(threads));
        graph.thread("support-17").run(question).await?; // The machine sleeps, and another process takes over.
        Ok(())
    })
    .await;

    let options = options.lease(Duration::from_secs(120));
    let threads = PostgresCheckpointer::open(options)?;
    let graph = graph.with_checkpointer(Arc::new(threads));
    graph.thread("support-17").resume().await?;
    Ok(())
}
