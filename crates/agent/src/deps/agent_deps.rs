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

use super::{
    knowledge::Knowledge, models::Models, replay_tools::ReplayTools, sub_agent::SubAgent, transfer::Transfer,
};
use crate::{
    AgentState, ReactConfig,
    approval::{Approvals, Trust},
    config::prompts,
    deps::{MemoryTrigger, TurnHistory},
    guards::chain::Guards,
    hooks::{
        Hooks, Steps,
        tool_check::{OnToolCheck, OnToolError},
    },
    state::handoffs::HandoffView,
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
    /// The guards of the input, the output and the tool calls.
    pub guards: Guards,
    /// The program's own implementation of the steps, if any.
    pub steps: Option<Arc<dyn Steps>>,
    /// The receiver of tool failures, if any.
    pub on_tool_error: Option<OnToolError>,
    /// The token counter of requests.
    pub counter: Arc<dyn TokenCounter>,
    /// The tools that are agents themselves, by name.
    pub sub_agents: Arc<BTreeMap<String, SubAgent>>,
    /// The agents that can have the conversation beside this one.
    pub group: Group,
    /// The configuration.
    pub config: Arc<ReactConfig>,
}

/// The agents that can have one conversation, as one of them knows them; see [`Handoff`].
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The agents to which this one can transfer the conversation.
    pub(crate) handoffs: Arc<[Handoff]>,
    /// The agents to which the tools of these names transfer it; empty for the first one.
    pub(crate) transfers: Arc<BTreeMap<String, Arc<str>>>,
    /// The name under which the conversation is transferred to this agent; empty for the first one.
    pub(crate) member: Arc<str>,
    /// The part of the conversation that this agent reads after a transfer.
    pub(crate) view: HandoffView,
    /// All agents that can have the conversation, except the first one, which alone has them here.
    pub(crate) members: Arc<BTreeMap<String, AgentDeps>>,
}

/// An agent to which another one can transfer the conversation.
///
/// The other agent is offered the tool `transfer_to_` and the name. A call of it ends the round, and the agent answers the user from then on,
/// also in later turns, until the conversation is transferred again. It has its own model, prompt, tools, rules, grants and
/// hooks; messages, budget, step limit and cancellation are those of the turn. A [sub-agent](SubAgent) is called and
/// returns instead.
///
/// An agent must exist before it can be one of a handoff, so handoffs form a tree; [`back`](Self::back) is the way up.
///
/// ```
/// # use superstep_agent::{Agent, deps::Handoff};
/// # fn example(model: std::sync::Arc<dyn superstep_llm::ChatModel>) -> Result<(), superstep_agent::AgentError> {
/// let billing = Agent::builder(model.clone()).system_prompt("You answer questions about invoices.").build()?;
/// let desk = Agent::builder(model)
///     .system_prompt("You find out what the user needs.")
///     .handoff(Handoff::new("billing", "when it is about an invoice", &billing).back("when it is about something else"))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Handoff {
    pub(crate) name: String,
    pub(crate) when: String,
    /// The dependencies of the agent; `None` if it was made of a custom graph.
    pub(crate) deps: Option<AgentDeps>,
    pub(crate) view: HandoffView,
    pub(crate) back: Option<String>,
}

impl Handoff {
    /// Sets the part of the conversation that the agent reads. Defaults to all of it.
    #[must_use]
    pub fn view(self, view: HandoffView) -> Self {
        Self { view, ..self }
    }

    /// Offers the agent the tool `transfer_back`, to the agent that has this handoff; `when` is for the model.
    #[must_use]
    pub fn back(self, when: impl Into<String>) -> Self {
        Self { back: Some(when.into()), ..self }
    }

    /// Returns the tool that transfers the conversation to the agent.
    pub(crate) fn tool(&self) -> Transfer {
        let description = prompts::transfer(&self.name, &self.when);
        Transfer::new(format!("transfer_to_{}", self.name), description, &self.name)
    }
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff")
            .field("name", &self.name)
            .field("when", &self.when)
            .field("view", &self.view)
            .field("back", &self.back)
            .finish_non_exhaustive()
    }
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
            guards: Guards::default(),
            steps: None,
            on_tool_error: None,
            counter,
            sub_agents: Arc::default(),
            group: Group::default(),
            config,
        }
    }

    /// Returns them for a graph that has the nodes of the guards.
    pub(crate) fn with_wired_guards(mut self) -> Self {
        self.guards = self.guards.wired();
        if !self.group.members.is_empty() {
            let members = self.group.members.iter();
            let wired = members.map(|(name, member)| (name.clone(), member.clone().with_wired_guards()));
            self.group.members = Arc::new(wired.collect());
        }
        self
    }

    /// Returns the dependencies of the agent that has the conversation.
    pub(crate) fn active(&self, state: &AgentState) -> &Self {
        self.group.members.get(&state.active).unwrap_or(self)
    }

    /// Returns the name of a node of this agent.
    pub(crate) fn node(&self, name: &str) -> String {
        let member = &self.group.member;
        if member.is_empty() { name.to_owned() } else { format!("{name}_{member}") }
    }

    /// Returns whether retrieval is configured and has a source.
    pub(crate) fn retrieves(&self) -> bool {
        self.config.retrieve.is_some() && (self.memory.is_some() || !self.knowledge.is_empty())
    }
}
