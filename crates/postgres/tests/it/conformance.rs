//! The contracts.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use superstep_graph::{Checkpointer, Store, store::StoreOptions};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions, PostgresStore};
use superstep_testing::conformance::{check, check_some_operations, check_store, check_store_operations};

use crate::{server::shared, support::fresh};

fn open(options: PostgresOptions) -> Arc<dyn Checkpointer> {
    Arc::new(PostgresCheckpointer::open(options).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_conforms() {
    let Some(server) = shared() else { return };
    check(async || open(fresh(server))).await;
}

/// The number of random sequences; all 256 take some forty seconds.
const SEQUENCES: u32 = 48;

/// Schemas are used again, because a fresh one takes some ten milliseconds.
#[test]
fn a_schema_conforms_under_any_operations_and_restarts() {
    let Some(server) = shared() else { return };
    let schemas: Mutex<VecDeque<_>> = Mutex::new([fresh(server), fresh(server)].into());
    check_some_operations(
        SEQUENCES,
        async || {
            let options = {
                let mut schemas = schemas.lock().unwrap();
                schemas.rotate_left(1);
                schemas[0].clone()
            };
            let store = open(options.clone());
            for thread in store.names().await.unwrap() {
                store.delete(&thread).await.unwrap();
            }
            (store, options)
        },
        async |store, options| {
            drop(store);
            open(options.clone())
        },
    );
}

fn open_store(postgres: PostgresOptions, options: StoreOptions) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(postgres, options).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_conforms() {
    let Some(server) = shared() else { return };
    check_store(async |options| open_store(fresh(server), options)).await;
}

#[test]
fn a_store_conforms_under_any_operations_and_restarts() {
    let Some(server) = shared() else { return };
    let postgres = fresh(server);
    drop(open(postgres.clone()));
    check_store_operations(
        async |options| {
            let schema = &postgres.schema;
            server.sql(&format!("TRUNCATE {schema}.store_items, {schema}.store_words"));
            (open_store(postgres.clone(), options), ())
        },
        async |store, options, ()| {
            drop(store);
            open_store(postgres.clone(), options)
        },
    );
}
