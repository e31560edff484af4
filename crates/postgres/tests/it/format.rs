//! Schemas that earlier versions wrote.

use superstep_graph::{
    CheckpointId, Checkpointer, Store, ThreadId,
    store::{Namespace, StoreOptions},
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions, PostgresStore};

use crate::{
    server::{Server, shared},
    support::{Other, fresh, load, open, superstep, updates},
};

/// Returns a schema of an earlier version under a fresh name.
pub(crate) fn fixture(server: &Server, version: u32) -> PostgresOptions {
    let options = fresh(server);
    let (name, text) = match version {
        1 => ("version_1", include_str!("version_1.sql")),
        2 => ("version_2", include_str!("version_2.sql")),
        _ => ("version_3", include_str!("version_3.sql")),
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
async fn older_versions_are_migrated_once_when_they_are_opened_for_writing() {
    let Some(server) = shared() else { return };
    for version in [1, 2] {
        let options = fixture(server, version);
        let reading = options.clone().read_only();
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
}

#[tokio::test]
async fn version_3_is_read_and_written() {
    let Some(server) = shared() else { return };
    let options = fixture(server, 3);
    let store = open(&options);
    assert!(!store.is_new());
    assert_eq!(store.identity(), "1f2a7f6e-0000-4000-8000-000000000003");
    reads_and_continues(&options, &store).await;
}

#[tokio::test]
async fn a_migration_has_no_limit_of_time_except_for_locks() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    // Triggers of events are for whole databases.
    let fixture = include_str!("version_2.sql").replace("version_2", &options.schema);
    server.sql(&format!(
        r"CREATE DATABASE {0};
        \connect {0}
        {fixture}
        CREATE TABLE public.seen (tag text, statement text, lock text);
        CREATE FUNCTION public.see() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO public.seen VALUES (tg_tag, current_setting('statement_timeout'), current_setting('lock_timeout'));
        END $$;
        CREATE EVENT TRIGGER see ON ddl_command_start EXECUTE FUNCTION public.see();",
        options.schema
    ));
    let url = server.url().replace("/postgres", &format!("/{}", options.schema));
    drop(open(&options.clone().url(url)));
    let seen = server.sql(&format!("\\connect {}\nSELECT DISTINCT * FROM public.seen", options.schema));
    assert_eq!(seen, "CREATE INDEX|0|5s");
}

#[tokio::test]
async fn a_migration_does_not_wait_long_for_tables_that_others_use() {
    let Some(server) = shared() else { return };
    let options = fixture(server, 2);
    let other = Other::connect(server, &options).await;
    other.sql("BEGIN; LOCK TABLE checkpoints IN ROW EXCLUSIVE MODE").await;
    let error = PostgresCheckpointer::open(options.clone()).unwrap_err().to_string();
    let advice = "another program holds a lock for too long; wait until it is done, or end it";
    assert!(
        error.starts_with("SS303: cannot open the tables in database") && error.contains(advice),
        "{error}"
    );
    other.sql("ROLLBACK").await;
    let version = format!("SELECT version FROM {}.versions", options.schema);
    assert_eq!(server.sql(&version), "2");
    drop(open(&options));
    assert_eq!(server.sql(&version), "3");
}
