//! The right of one process to serve a set of rows, which it keeps in memory.
//!
//! Start at [`claim`].

use serde_json::Value;
use superstep_graph::{
    Checkpointer, Store, ThreadId,
    checkpoint::{CheckpointError, Lease},
    store::{Index, Namespace, PutOptions, StoreError},
};

use crate::{error::ServerError, rows::table::LABEL, wire::ids};

/// Makes this process the only one that serves these rows, until the lease is dropped or the process ends. The checkpointer holds
/// the lease, under a name that the rows have.
///
/// # Errors
/// [`ServerError::RowsInUse`], [`ServerError::Rows`] and [`ServerError::Claim`].
pub(crate) async fn claim(rows: &dyn Store, checkpointer: &dyn Checkpointer) -> Result<Lease, ServerError> {
    let unread = |source| ServerError::Rows { source };
    let name = match name_of(rows).await.map_err(unread)? {
        Some(name) => name,
        None => {
            // Two processes must not name them at the same time.
            let _alone = lease(checkpointer, "new").await?;
            named(rows).await.map_err(unread)?
        }
    };
    lease(checkpointer, &name).await
}

async fn lease(checkpointer: &dyn Checkpointer, name: &str) -> Result<Lease, ServerError> {
    // No client can name a thread like this.
    let thread = ThreadId::from(format!("{LABEL}/{name}"));
    checkpointer.lease(&thread).await.map_err(|error| match error {
        CheckpointError::Busy { .. } => ServerError::RowsInUse,
        source => ServerError::Claim { source },
    })
}

async fn name_of(rows: &dyn Store) -> Result<Option<String>, StoreError> {
    let item = rows.get(&Namespace::new([LABEL, "server"])?, "name").await?;
    Ok(item.and_then(|item| item.value.as_str().map(str::to_owned)))
}

async fn named(rows: &dyn Store) -> Result<String, StoreError> {
    if let Some(name) = name_of(rows).await? {
        return Ok(name);
    }
    let name = ids::new_random();
    let options = PutOptions::new().index(Index::Nothing);
    let namespace = Namespace::new([LABEL, "server"])?;
    rows.put_with(&namespace, "name", Value::from(name.as_str()), options).await?;
    Ok(name)
}
