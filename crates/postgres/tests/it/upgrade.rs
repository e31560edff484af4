//! Two versions of a program on one database.

use std::sync::Arc;

use superstep_graph::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, Log, START, State, StateGraph, ThreadId,
};
use superstep_postgres::PostgresCheckpointer;

use crate::{
    format::fixture,
    server::shared,
    support::{Other, fresh, load, open, superstep, updates},
};

/// The program before the upgrade.
mod old {
    use super::*;

    #[derive(State, Clone, Debug, Default)]
    pub(super) struct Refund {
        #[channel(append)]
        pub(super) log: Log<String>,
    }

    pub(super) fn graph() -> CompiledGraph<Refund> {
        let mut graph = StateGraph::<Refund>::new("refund");
        let pay =
            graph.add_node("pay", async |_: Refund, _: Cx| Refund::update().log(["old pay".to_owned()]));
        graph.add_edge(START, pay);
        graph.add_edge(pay, END);
        graph.compile().unwrap()
    }
}

/// The same program with one more channel and one more node.
mod new {
    use super::*;

    #[derive(State, Clone, Debug, Default)]
    pub(super) struct Refund {
        #[channel(append)]
        pub(super) log: Log<String>,
        pub(super) checked: u32,
    }

    pub(super) fn graph() -> CompiledGraph<Refund> {
        let mut graph = StateGraph::<Refund>::new("refund");
        let pay =
            graph.add_node("pay", async |_: Refund, _: Cx| Refund::update().log(["new pay".to_owned()]));
        let check =
            graph.add_node("check", async |state: Refund, _: Cx| Refund::update().checked(state.checked + 1));
        graph.add_edge(START, pay);
        graph.add_edge(pay, check);
        graph.add_edge(check, END);
        graph.compile().unwrap()
    }
}

#[tokio::test]
async fn two_versions_of_a_graph_continue_each_others_threads() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let old = old::graph().with_checkpointer(open(&options));
    let new = new::graph().with_checkpointer(open(&options));
    let begun =
        old.thread("t").break_before(["pay"]).run(old::Refund::update().log(["one".to_owned()])).await;
    assert_eq!(begun.unwrap().state.log, ["one".to_owned()]);
    let upgraded = new.thread("t").resume().await.unwrap().state;
    assert_eq!((upgraded.log.len(), upgraded.checked), (2, 1));
    // An old worker gets the next job: the channel that it does not know remains.
    let back = old.thread("t").run(old::Refund::update().log(["two".to_owned()])).await.unwrap().state;
    assert_eq!(back.log, ["one", "new pay", "two", "old pay"].map(str::to_owned));
    let again = new.thread("t").state().await.unwrap().values;
    assert_eq!((again.log.len(), again.checked), (4, 1));
    // A thread that waits at a node of the new version only is refused by the old one, and not changed.
    let waiting = new.thread("w").break_before(["check"]).run(new::Refund::update()).await.unwrap();
    assert_eq!(waiting.state.checked, 0);
    let refused = old.thread("w").resume().await.unwrap_err().to_string();
    assert!(refused.starts_with("SS114") && refused.contains("check"), "{refused}");
    assert_eq!(new.thread("w").resume().await.unwrap().state.checked, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_waits_for_the_writes_of_older_programs_which_continue_after_it() {
    let Some(server) = shared() else { return };
    let options = fixture(server, 1);
    let (old, watch) = (Other::connect(server, &options).await, Other::connect(server, &options).await);
    let lease =
        "INSERT INTO leases VALUES (sha256('old'), 'old', 'old program', nextval('lease_tokens'), now())";
    old.sql(&format!("BEGIN; {lease}")).await;
    let migrating = std::thread::spawn({
        let options = options.clone();
        move || Arc::new(open(&options))
    });
    watch.until_waiting(1).await;
    old.sql("COMMIT").await;
    let store = migrating.join().unwrap();
    // The statements of the older version still work, and so do those of this one beside them.
    old.sql("UPDATE leases SET expires_at = now() WHERE name = 'old'; DELETE FROM leases WHERE name = 'old'")
        .await;
    let (thread, head) = (ThreadId::from("t"), Some(CheckpointId(2)));
    let _lease = store.lease(&thread).await.unwrap();
    store.commit(&thread, head, superstep(head, "3")).await.unwrap();
    assert_eq!(updates(&load(&*store, &thread).await), ["1", "2", "3"]);
}

#[tokio::test]
async fn a_program_that_runs_while_a_newer_one_migrates_continues_and_is_refused_when_it_is_started_again() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let (store, thread) = (open(&options), ThreadId::from("t"));
    let first = store.commit(&thread, None, superstep(None, "1")).await.unwrap();
    // Simulates the migration by a newer version.
    server.sql(&format!(
        "ALTER TABLE {schema}.checkpoints ADD COLUMN of_a_newer_version text;
         UPDATE {schema}.versions SET version = 99",
        schema = options.schema
    ));
    let _lease = store.lease(&thread).await.unwrap();
    store.commit(&thread, Some(first), superstep(Some(first), "2")).await.unwrap();
    assert_eq!(updates(&load(&store, &thread).await), ["1", "2"]);
    for read_only in [false, true] {
        let mut options = options.clone();
        options.read_only = read_only;
        let again = PostgresCheckpointer::find(options);
        let error = again.unwrap_err().to_string();
        assert!(error.contains("its tables were written by a newer superstep (version 99"), "{error}");
        assert!(error.ends_with("update superstep or use another schema"), "{error}");
    }
}
