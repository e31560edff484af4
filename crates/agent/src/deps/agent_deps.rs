//! The dependencies of the nodes.
//!
//! Start at [`AgentDeps`].

use std::{collections::BTreeMap, fmt, sync::Arc};

use superstep_llm::{
    ToolRegistry,
    instructions::Instructions,
    snapshots::Snapshots,
    spill::Spill,
    tokens::{TokenCounter, default_counter},
    toolset::ToolSource,
    wire::ReadsTextCalls,
};

use super::{knowledge::Knowledge, models::Models, replay_tools::ReplayTools, sub_agent::SubAgent};
use crate::{
    ReactConfig,
    approval::{Approvals, Trust},
    deps::{MemoryTrigger, TurnHistory},
    hooks::{
        Hooks, Steps,
        tool_check::{OnToolCheck, OnToolError},
    },
};

/// The dependencies of the nodes. Cheap to clone.
#[derive(Clone)]
pub struct AgentDeps {
    /// The models.
    pub models: Models,
    /// The registered tools.
    pub tools: Arc<ToolRegistry>,
    /// The dynamic sources of tools. A name belongs to `tools`, or to the first source that has it.
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// The source tools that a replay uses.
    pub replay_tools: ReplayTools,
    /// The source of approvals.
    pub approvals: Approvals,
    /// The trust in stored decisions; `None` trusts all.
    pub trust: Option<Arc<dyn Trust>>,
    /// The memory and its trigger.
    pub memory: Option<MemoryTrigger>,
    /// The history of turns, if any.
    pub history: Option<Arc<dyn TurnHistory>>,
    /// The knowledge sources.
    pub knowledge: Arc<[Arc<dyn Knowledge>]>,
    /// The storage for long tool results, if any.
    pub spill: Option<Arc<dyn Spill>>,
    /// The instructions and skills, if any.
    pub instructions: Option<Arc<dyn Instructions>>,
    /// Reads them anew, although the thread has read some: an untrusted thread may have stored any.
    pub rereads_instructions: bool,
    /// The file snapshots, if any.
    pub snapshots: Option<Arc<dyn Snapshots>>,
    /// The hooks before and after model calls and tool calls.
    pub hooks: Hooks,
    /// The check of each call, after its pre hooks; `None` allows all.
    pub check: Option<OnToolCheck>,
    /// The program's own implementation of the steps, if any.
    pub steps: Option<Arc<dyn Steps>>,
    /// The receiver of tool failures, if any.
    pub on_tool_error: Option<OnToolError>,
    /// The token counter of requests.
    pub counter: Arc<dyn TokenCounter>,
    /// The tools that are agents themselves, by name.
    pub sub_agents: Arc<BTreeMap<String, SubAgent>>,
    /// The configuration.
    pub config: Arc<ReactConfig>,
}

impl fmt::Debug for AgentDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentDeps")
            .field("models", &self.models)
            .field("tools", &self.tools.names().collect::<Vec<_>>())
            .field("sub_agents", &self.sub_agents)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl AgentDeps {
    /// Creates dependencies with models and tools only: calls that require approval are denied, and there is
    /// no memory.
    ///
    /// The configured [window](crate::config::ContextConfig::window) becomes that of the models, where it is smaller or there is none.
    pub fn new(models: impl Into<Models>, tools: ToolRegistry, mut config: ReactConfig) -> Self {
        let mut models = models.into();
        config.context.window = models.window(config.context.window);
        if config.text_calls {
            models.main = Arc::new(ReadsTextCalls(models.main));
        }
        let (tools, config) = (Arc::new(tools), Arc::new(config));
        let (approvals, hooks, counter) = (Approvals::Deny, Hooks::default(), default_counter());
        Self {
            models,
            tools,
            sources: Vec::new(),
            replay_tools: ReplayTools::default(),
            approvals,
            trust: None,
            memory: None,
            history: None,
            knowledge: Arc::default(),
            spill: None,
            instructions: None,
            rereads_instructions: false,
            snapshots: None,
            hooks,
            check: None,
            steps: None,
            on_tool_error: None,
            counter,
            sub_agents: Arc::default(),
            config,
        }
    }

    /// Returns whether retrieval is configured and has a source.
    pub(crate) fn retrieves(&self) -> bool {
        self.config.retrieve.is_some() && (self.memory.is_some() || !self.knowledge.is_empty())
    }
}
