//! The contracts, each test with schemas of its own.

use superstep_graph::store::StoreOptions;
use superstep_postgres::{PostgresOptions, PostgresStore};

use crate::{
    server::shared,
    support::{fresh, open},
};

fn schema() -> Option<PostgresOptions> {
    shared().map(fresh)
}

superstep_testing::conformance!(
    checkpointer threads,
    place = schema(),
    open = async |options: &PostgresOptions| open(options),
    // All 256 take some forty seconds.
    sequences = 48,
);

superstep_testing::conformance!(
    store items,
    place = schema(),
    open = async |postgres: &PostgresOptions, options: StoreOptions| {
        PostgresStore::open(postgres.clone(), options).unwrap()
    },
    sequences = 48,
);
