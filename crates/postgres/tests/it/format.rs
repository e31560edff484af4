//! Schemas that earlier versions wrote.

use superstep_graph::{
    CheckpointId, Checkpointer, Store, ThreadId,
    store::{Namespace, StoreOptions},
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions, PostgresStore};

use crate::{
    server::{Server, shared},
    support::{fresh, load, open, superstep, updates},
};

/// Returns a schema of an earlier version under a fresh name.
pub(crate) fn fixture(server: &Server, version: u32) -> PostgresOptions {
    let options = fresh(server);
    let (name, text) = match version {
        1 => ("version_1", include_str!("version_1.sql")),
        _ => ("version_2", include_str!("version_2.sql")),
    };
    server.sql(&text.replace(name, &options.schema));
    options
}

/// The data of the fixtures is that of version 1, and a lease that has ended since.
async fn reads_and_continues(options: &PostgresOptions, store: &PostgresCheckpointer) {
    let thread = ThreadId::from("t");
    let loaded = load(store, &thread).await;
    let once = loaded.tasks[0].1.once().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!((updates(&loaded), once), (vec!["1".into(), "2".into()], vec!["paid".into(), "sent".into()]));
    assert_eq!(store.children(&thread).await.unwrap().len(), 1);
    let items = PostgresStore::beside(store, StoreOptions::default());
    assert!(items.get(&Namespace::parse("notes").unwrap(), "k").await.unwrap().is_some());
    let (_lease, head) = (store.lease(&thread).await.unwrap(), Some(CheckpointId(2)));
    store.commit(&thread, head, superstep(head, "3")).await.unwrap();
    assert_eq!(load(&open(options), &thread).await.head, CheckpointId(3));
}

#[tokio::test]
async fn version_1_is_migrated_once_when_it_is_opened_for_writing() {
    let Some(server) = shared() else { return };
    let options = fixture(server, 1);
    let reading = PostgresOptions { read_only: true, ..options.clone() };
    let error = PostgresCheckpointer::find(reading.clone()).unwrap_err().to_string();
    assert!(error.ends_with("its tables are of an older version; open it for writing once"), "{error}");
    let openings = [(); 2].map(|()| {
        let options = options.clone();
        std::thread::spawn(move || open(&options))
    });
    let [store, other] = openings.map(|opening| opening.join().unwrap());
    assert!(PostgresCheckpointer::find(reading).unwrap().is_some());
    assert_eq!(store.identity(), other.identity());
    reads_and_continues(&options, &store).await;
}

#[tokio::test]
async fn version_2_is_read_and_written() {
    let Some(server) = shared() else { return };
    let options = fixture(server, 2);
    let store = open(&options);
    assert!(!store.is_new());
    assert_eq!(store.identity(), "1f2a7f6e-0000-4000-8000-000000000002");
    reads_and_continues(&options, &store).await;
}
