//! Caches of nodes, cleared.

use crate::{CompiledGraph, RunError, State, node::cache::NodeCache, run::stored_cache};

impl<S: State> CompiledGraph<S> {
    /// Clears the cached results of nodes with a [`CachePolicy`](crate::node::CachePolicy), so that they run again.
    /// Results of currently running tasks are not cached either. [Stored](crate::node::CachePolicy::stored) results remain in
    /// the store: see [`clear_stored_cache`](Self::clear_stored_cache).
    pub fn clear_cache(&self) {
        self.inner.nodes.iter().filter_map(|node| node.cache.as_ref()).for_each(NodeCache::clear);
    }

    /// Clears the cached results of nodes, also the [stored](crate::node::CachePolicy::stored) ones, and returns the number of
    /// the latter. Programs that run meanwhile may store new ones.
    ///
    /// # Errors
    /// [`RunError::Cache`] if the store fails. Some results may remain then.
    pub async fn clear_stored_cache(&self) -> Result<usize, RunError> {
        self.clear_cache();
        match self.store() {
            Some(store) => stored_cache::clear(&self.inner, &**store).await,
            None => Ok(0),
        }
    }
}
