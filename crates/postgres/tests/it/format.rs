//! Schemas that earlier versions wrote.

use superstep_graph::{
    CheckpointId, Checkpointer, Store, ThreadId,
    store::{Namespace, StoreOptions},
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions, PostgresStore};

use crate::{
    server::shared,
    support::{fresh, load, open, superstep, updates},
};

#[tokio::test]
async fn version_1_is_migrated_once_when_it_is_opened_for_writing() {
    let Some(server) = shared() else { return };
    server.sql(include_str!("version_1.sql"));
    let options = PostgresOptions { schema: "version_1".to_owned(), ..fresh(server) };
    let reading = PostgresOptions { read_only: true, ..options.clone() };
    let error = PostgresCheckpointer::find(reading.clone()).unwrap_err().to_string();
    assert!(error.ends_with("its tables are of an older version; open it for writing once"), "{error}");
    let openings = [(); 2].map(|()| {
        let options = options.clone();
        std::thread::spawn(move || open(&options))
    });
    let [store, other] = openings.map(|opening| opening.join().unwrap());
    assert!(PostgresCheckpointer::find(reading).unwrap().is_some());
    let thread = ThreadId::from("t");
    let loaded = load(&store, &thread).await;
    let once = loaded.tasks[0].1.once().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!((updates(&loaded), once), (vec!["1".into(), "2".into()], vec!["paid".into(), "sent".into()]));
    assert_eq!(store.children(&thread).await.unwrap().len(), 1);
    let items = PostgresStore::beside(&other, StoreOptions::default());
    assert!(items.get(&Namespace::parse("notes").unwrap(), "k").await.unwrap().is_some());
    let (_lease, head) = (store.lease(&thread).await.unwrap(), Some(CheckpointId(2)));
    store.commit(&thread, head, superstep(head, "3")).await.unwrap();
    assert_eq!(load(&other, &thread).await.head, CheckpointId(3));
}
