//! The models of an agent.
//!
//! Start at [`Models`].

use std::{fmt, sync::Arc};

use superstep_llm::ChatModel;

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
