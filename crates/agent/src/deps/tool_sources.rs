//! Several sources of tools as one, in which a name stays with the first source that had it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::join_all;
use superstep_llm::{
    ToolRegistry,
    toolset::{RefreshFuture, ToolSource},
};

/// Maximum number of names that a source can own: one that keeps inventing names gains no more of them.
const MAX_NAMES: usize = 10_000;

/// The sources of an agent. Permanent grants are by tool name, so no other source may take over a name, not
/// even while its owner does not offer it.
pub(crate) struct ToolSources {
    sources: Vec<Arc<dyn ToolSource>>,
    owners: Mutex<BTreeMap<String, usize>>,
}

impl ToolSources {
    /// Creates the combination; the current names belong to their sources.
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
            let mut room = MAX_NAMES.saturating_sub(owners.values().filter(|owner| **owner == at).count());
            for name in names {
                let owner = owners.get(&name).copied();
                if owner.is_none() && room > 0 {
                    room -= 1;
                    owners.insert(name, at);
                } else if owner != Some(at) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use superstep_llm::{Tool, ToolCx, ToolFuture, ToolSpec};

    use super::*;

    struct Named(ToolSpec);

    impl Tool for Named {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn call(&self, _: serde_json::Value, _: ToolCx) -> ToolFuture<'_> {
            Box::pin(async { Ok(String::new().into()) })
        }
    }

    fn named(name: &str) -> Arc<dyn Tool> {
        let parameters = json!({"type": "object"});
        Arc::new(Named(ToolSpec { name: name.into(), description: String::new(), parameters }))
    }

    /// A source with the tool `kept`, and a thousand tools with new names at each call.
    #[derive(Default)]
    struct Renames(AtomicUsize);

    impl ToolSource for Renames {
        fn tools(&self) -> Arc<ToolRegistry> {
            let round = self.0.fetch_add(1, Ordering::Relaxed);
            let mut tools = ToolRegistry::new();
            tools.insert(named("kept")).unwrap();
            for n in 0..1_000 {
                tools.insert(named(&format!("t{round}_{n}"))).unwrap();
            }
            Arc::new(tools)
        }

        fn refresh(&self) -> RefreshFuture<'_> {
            Box::pin(async {})
        }
    }

    struct One;

    impl ToolSource for One {
        fn tools(&self) -> Arc<ToolRegistry> {
            let mut tools = ToolRegistry::new();
            tools.insert(named("one")).unwrap();
            Arc::new(tools)
        }

        fn refresh(&self) -> RefreshFuture<'_> {
            Box::pin(async {})
        }
    }

    #[test]
    fn a_source_that_renames_its_tools_repeatedly_gains_no_names() {
        let all = ToolSources::new(vec![Arc::new(Renames::default()), Arc::new(One)]);
        let counts: Vec<usize> = (0..11).map(|_| all.tools().len()).collect();
        // `kept`, and `one` of the other source, stay.
        assert_eq!(counts, [[1_002; 8].as_slice(), &[1_001, 2, 2]].concat());
        assert_eq!(all.owners.lock().unwrap().len(), MAX_NAMES + 1);
    }
}
