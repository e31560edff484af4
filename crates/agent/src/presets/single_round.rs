//! A single round instead of a loop.

use superstep_llm::ModelRetry;

use crate::{
    ReactConfig,
    config::{AtLimit, ContextLayer, EmptyPolicy, LengthPolicy, Limit, LimitUnit, ToolMode},
};

impl ReactConfig {
    /// Limits this design to a single round: one model call, its tools in parallel, and one more call without
    /// tools for the reply. At most two requests are sent, so nothing is retried, requested again or
    /// summarized; a [fallback](crate::AgentBuilder::fallback) is called in addition.
    ///
    /// ```
    /// # use superstep_agent::ReactConfig;
    /// let config = ReactConfig::opencode().single_round();
    /// assert_eq!((config.limit.max, config.retry.max_attempts), (1, 1));
    /// ```
    #[must_use]
    pub fn single_round(mut self) -> Self {
        self.finish.retries = 0;
        self.context.layers.retain(|layer| !matches!(layer, ContextLayer::Consolidate { .. }));
        self.context.retry_overflow = false;
        let tool_mode = match self.tool_mode {
            ToolMode::Sequential => ToolMode::Parallel { max: 5 },
            parallel @ ToolMode::Parallel { .. } => parallel,
        };
        Self {
            limit: Limit { max: 1, unit: LimitUnit::ToolRounds, at: AtLimit::Reply },
            retry: ModelRetry { max_attempts: 1, ..self.retry },
            length: LengthPolicy::Accept,
            empty: EmptyPolicy::Accept,
            tool_mode,
            synthetic_after_tools: None,
            ..self
        }
    }
}
