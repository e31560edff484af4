//! The models of an agent.
//!
//! Start at [`Models`].

use std::{fmt, sync::Arc};

use superstep_llm::{ChatModel, models::ModelInfo};

use crate::config::ContextConfig;

/// The models of an agent. Cheap to clone.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::deps::Models;
/// # use superstep_llm::ChatModel;
/// # fn example(large: Arc<dyn ChatModel>, small: Arc<dyn ChatModel>) -> Models {
/// Models { compaction: Some(small), ..Models::from(large) }
/// # }
/// ```
#[derive(Clone)]
pub struct Models {
    /// The model of the agent, including its retries and fallbacks: see
    /// [`Retrying`](superstep_llm::retries::Retrying).
    pub main: Arc<dyn ChatModel>,
    /// The model for summaries, including its retries; `None` for the main one.
    pub compaction: Option<Arc<dyn ChatModel>>,
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models")
            .field("main", &self.main.name())
            .field("compaction", &self.compaction.as_ref().map(|model| model.name()))
            .finish()
    }
}

impl Models {
    /// Returns the model for summaries.
    pub fn for_compaction(&self) -> &Arc<dyn ChatModel> {
        self.compaction.as_ref().unwrap_or(&self.main)
    }

    /// Returns the known facts about the main models, which may all be called in a turn.
    fn main_infos(&self) -> impl Iterator<Item = Option<&Arc<ModelInfo>>> {
        self.main.names().into_iter().map(|name| self.main.info(name))
    }

    /// Returns whether the prices of all models are known.
    pub(crate) fn have_prices(&self) -> bool {
        let compaction = self.compaction.iter().map(|model| model.info(model.name()));
        self.main_infos().chain(compaction).all(|info| info.is_some_and(|info| info.price.is_some()))
    }

    /// Returns the window of requests: the configured one, narrowed to the known windows of the main models. Without one the
    /// smallest of these counts, with [`ContextConfig::USUAL_WINDOW`] for unknown ones; `None` if all are unknown.
    pub(crate) fn window(&self, configured: Option<u64>) -> Option<u64> {
        let windows = || self.main_infos().map(|info| info.and_then(|info| info.window));
        let usual = configured.unwrap_or(ContextConfig::USUAL_WINDOW);
        let known = windows().flatten().next().map(|_| windows().map(|window| window.unwrap_or(usual)));
        known.into_iter().flatten().chain(configured).min()
    }
}

impl From<Arc<dyn ChatModel>> for Models {
    /// Uses one model for everything.
    fn from(main: Arc<dyn ChatModel>) -> Self {
        Self { main, compaction: None }
    }
}

impl<M: ChatModel + 'static> From<Arc<M>> for Models {
    /// Uses one model for everything.
    fn from(main: Arc<M>) -> Self {
        Self { main, compaction: None }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use futures::{StreamExt, stream};
    use superstep_llm::{Request, ResponseStream, models::ModelTable, retries::Retrying};

    use super::*;

    /// A model that a table may know.
    pub(crate) struct Known {
        name: &'static str,
        info: Option<Arc<ModelInfo>>,
    }

    impl Known {
        pub(crate) fn new(name: &'static str, toml: &str) -> Self {
            let table = ModelTable::parse(&format!("[[model]]\nid = \"{name}\"\n{toml}")).unwrap();
            Self { name, info: table.find(name).cloned() }
        }
    }

    impl ChatModel for Known {
        fn name(&self) -> &str {
            self.name
        }

        fn stream(&self, _: Request) -> ResponseStream<'_> {
            stream::empty().boxed()
        }

        fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
            self.info.as_ref().filter(|_| name == self.name)
        }
    }

    #[test]
    fn the_smallest_window_counts_and_the_configured_one_is_only_narrowed() {
        let models = |windows: [&'static str; 2]| {
            let [main, fallback] = ["main", "fallback"];
            let retrying = Retrying::new(Known::new(main, windows[0]), Default::default());
            Models::from(Arc::new(retrying.with_fallbacks([Known::new(fallback, windows[1])])))
        };
        let large = models(["window = 400_000", "window = 300_000"]);
        assert_eq!(large.window(None), Some(300_000));
        assert_eq!(large.window(Some(350_000)), Some(300_000));
        assert_eq!(large.window(Some(50_000)), Some(50_000));
        let unknown = models(["window = 400_000", ""]);
        assert_eq!(unknown.window(None), Some(128_000));
        assert_eq!(unknown.window(Some(350_000)), Some(350_000));
        assert_eq!(models(["", ""]).window(None), None);
    }
}
