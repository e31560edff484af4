//! Several sources of tools as one, in which a name stays with the source that had it first.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::join_all;
use superstep_llm::{RefreshFuture, ToolRegistry, ToolSource};

/// The sources of an agent. What is permitted for good is permitted by name, so that no other source may take one over, not
/// even while its owner is without it.
pub(crate) struct ToolSources {
    sources: Vec<Arc<dyn ToolSource>>,
    owners: Mutex<BTreeMap<String, usize>>,
}

impl ToolSources {
    /// The names that they have now are theirs.
    pub(crate) fn new(sources: Vec<Arc<dyn ToolSource>>) -> Self {
        let all = Self { sources, owners: Mutex::default() };
        drop(all.tools());
        all
    }
}

impl ToolSource for ToolSources {
    fn tools(&self) -> Arc<ToolRegistry> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = ToolRegistry::new();
        for (at, source) in self.sources.iter().enumerate() {
            let mut own = ToolRegistry::clone(&source.tools());
            let names: Vec<String> = own.names().map(str::to_owned).collect();
            for name in names {
                if *owners.entry(name.clone()).or_insert(at) != at {
                    own.remove(&name);
                }
            }
            all.add_missing(&own);
        }
        Arc::new(all)
    }

    fn refresh(&self) -> RefreshFuture<'_> {
        Box::pin(async {
            join_all(self.sources.iter().map(|source| source.refresh())).await;
        })
    }
}
