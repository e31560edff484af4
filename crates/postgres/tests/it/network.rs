//! Connections that break, and networks that swallow answers.

use std::{sync::Arc, time::Duration};

use superstep_graph::{CheckpointId, Checkpointer, ThreadId};

use crate::{
    proxy::Proxy,
    server::shared,
    support::{Other, fresh, line, load, open, superstep, through, updates},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_connection_is_cut_while_it_is_at_work_is_stored_once_and_acknowledged() {
    let Some(server) = shared() else { return };
    let proxy = Proxy::start(server.folder());
    let options = through(proxy.folder(), fresh(server));
    let (store, thread) = (Arc::new(open(&options)), ThreadId::from("t"));
    line(&*store, &thread, 1).await;
    for (thread, head, lock) in [
        ("t", Some(CheckpointId(1)), "SELECT FROM threads FOR UPDATE"),
        // Another transaction is about to create the thread, and does not.
        ("new", None, "INSERT INTO threads VALUES (-1, 'new', NULL, 1, 1, 0, 0, 0)"),
    ] {
        let (other, thread) = (Other::connect(server, &options).await, ThreadId::from(thread));
        other.sql(&format!("BEGIN; {lock}")).await;
        let mut commit = tokio::spawn({
            let (store, thread) = (store.clone(), thread.clone());
            async move { store.commit(&thread, head, superstep(head, "2")).await }
        });
        other.until_waiting(1).await;
        proxy.cut();
        // The second attempt waits behind the first one, which the server has not ended.
        tokio::select! {
            () = other.until_waiting(2) => {}
            early = &mut commit => panic!("{early:?}"),
        }
        other.sql("ROLLBACK").await;
        let id = CheckpointId(head.map_or(1, |id| id.0 + 1));
        assert_eq!(commit.await.unwrap().unwrap(), id);
        let stored = load(&*store, &thread).await;
        assert_eq!((stored.head, updates(&stored).last().unwrap().as_str()), (id, "2"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_swallows_answers_costs_the_limit_of_one_statement() {
    let Some(server) = shared() else { return };
    let proxy = Proxy::start(server.folder());
    // A limit of 6 s for an answer, longer than the time for repetitions: a second connection that is lost would be too much.
    let limits = fresh(server).statement_timeout(Duration::from_secs(3)).reconnect(Duration::from_secs(3));
    let options = through(proxy.folder(), limits);
    let (store, thread) = (open(&options), ThreadId::from("t"));
    line(&store, &thread, 1).await;
    let (a, b, c) = tokio::join!(store.names(), store.names(), store.names());
    assert_eq!((a.unwrap().len(), b.unwrap().len(), c.unwrap().len()), (1, 1, 1));
    proxy.silence();
    let head = Some(CheckpointId(1));
    store.commit(&thread, head, superstep(head, "2")).await.unwrap();
    assert_eq!(updates(&load(&store, &thread).await), ["1", "2"]);
}
