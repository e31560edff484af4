//! Which models an agent asks, and for what.
//!
//! Start at [`Models`].

use std::sync::Arc;

use superstep_llm::ChatModel;

/// The models of an agent. Cheap to clone.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::Models;
/// # use superstep_llm::ChatModel;
/// # fn example(large: Arc<dyn ChatModel>, small: Arc<dyn ChatModel>) -> Models {
/// Models { compaction: Some(small), ..Models::from(large) }
/// # }
/// ```
#[derive(Clone)]
pub struct Models {
    /// The model that answers, its retries and fallbacks included: see [`Retrying`](superstep_llm::Retrying).
    pub main: Arc<dyn ChatModel>,
    /// The model that sums up what a request has no room for, its retries included; `None` for the main one.
    pub compaction: Option<Arc<dyn ChatModel>>,
}

impl Models {
    /// The model that sums up what a request has no room for.
    pub fn for_compaction(&self) -> &Arc<dyn ChatModel> {
        self.compaction.as_ref().unwrap_or(&self.main)
    }
}

impl From<Arc<dyn ChatModel>> for Models {
    /// One model for everything.
    fn from(main: Arc<dyn ChatModel>) -> Self {
        Self { main, compaction: None }
    }
}

impl<M: ChatModel + 'static> From<Arc<M>> for Models {
    /// One model for everything.
    fn from(main: Arc<M>) -> Self {
        Self { main, compaction: None }
    }
}
