//! The proof of a service that runs threads in several processes: the graph of the runs, the journal of each process, and the checker of the
//! history of all.

#![allow(clippy::unwrap_used, missing_docs, missing_debug_implementations, reason = "the tests of a service")]

pub mod checker;
pub mod journal;
pub mod order;

use superstep_graph::{Checkpointer, History, checkpoint::CheckpointMeta};

use self::{
    checker::{Chain, Stored},
    journal::WRITER,
};

/// Reads all threads of a database.
pub async fn chains(store: &dyn Checkpointer) -> Vec<Chain> {
    let mut names = store.names().await.unwrap();
    for root in names.clone() {
        names.extend(store.children(&root).await.unwrap());
    }
    let mut chains = Vec::new();
    for thread in names {
        let mut history = store.history(&thread, History::default()).await.unwrap();
        history.reverse();
        let stored = |meta: &CheckpointMeta| Stored {
            id: meta.id.0,
            parent: meta.parent.map(|id| id.0),
            writer: meta.metadata.get(WRITER).and_then(|writer| Some(writer.as_str()?.to_owned())),
            inputs: meta
                .metadata
                .get("$input")
                .and_then(|ids| ids.as_array())
                .into_iter()
                .flatten()
                .filter_map(|id| Some(id.as_str()?.to_owned()))
                .collect(),
        };
        chains.push(Chain { thread: thread.to_string(), checkpoints: history.iter().map(stored).collect() });
    }
    chains
}
