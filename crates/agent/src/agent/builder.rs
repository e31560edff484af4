//! Construction of an agent from models, tools and a configuration.
//!
//! Start at [`AgentBuilder`].

use std::{collections::BTreeMap, fmt, sync::Arc};

use superstep_graph::{Checkpointer, Store};
use superstep_llm::{
    ChatModel, Tool, ToolRegistry,
    convert::IntoShared,
    instructions::Instructions,
    retries::{JitterSource, Retrying, seeded_jitter},
    snapshots::Snapshots,
    spill::Spill,
    tokens::TokenCounter,
    toolset::{RegistryError, ToolSource},
};

use super::{
    error::AgentError,
    handoff::{check_names, with_members},
};
use crate::{
    Agent, HasAgent, ReactConfig,
    approval::{Approvals, Approver, Trust},
    config::{Cost, PermissionRule},
    context::finish,
    deps::{
        AgentDeps, Group, Handoff, Knowledge, MemoryTrigger, Models, SubAgent, TurnHistory,
        replay_tools::ReplayTools, tool_sources::ToolSources,
    },
    graph::react_graph_as,
    guards::{Guard, chain::Guards},
    hooks::{Hooks, Steps},
};

/// Builds an [`Agent`].
#[derive(Clone)]
pub struct AgentBuilder {
    /// The dependencies of the nodes, with the models as they were given. They have no tools, knowledge, sub-agents and
    /// configuration yet.
    pub(crate) deps: AgentDeps,
    fallbacks: Vec<Arc<dyn ChatModel>>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    sub_agents: Vec<SubAgent>,
    knowledge: Vec<Arc<dyn Knowledge>>,
    guards: Vec<Guard>,
    handoffs: Vec<Handoff>,
    /// The configuration; `None` for the preset `default`, or that of a facade.
    pub(crate) config: Option<ReactConfig>,
    max_steps: Option<u32>,
    system_prompt: Option<String>,
    permissions: Option<Vec<PermissionRule>>,
    pub(crate) checkpointer: Option<Arc<dyn Checkpointer>>,
    store: Option<Arc<dyn Store>>,
    jitter: JitterSource,
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentBuilder").field("model", &self.model_name()).finish_non_exhaustive()
    }
}

impl AgentBuilder {
    /// Adds a fallback model, called when those before it fail: their retries are exhausted, or the error is
    /// specific to them. The model that replied is called first for the rest of the turn; the next turn
    /// starts with the main one.
    #[must_use]
    pub fn fallback(mut self, model: impl ChatModel + 'static) -> Self {
        self.fallbacks.push(Arc::new(model));
        self
    }

    /// Sets the model for summaries; a small model suffices. Defaults to the main model.
    #[must_use]
    pub fn compaction_model(mut self, model: impl ChatModel + 'static) -> Self {
        self.deps.models.compaction = Some(Arc::new(model));
        self
    }

    /// Adds a tool, or an `Arc` of one.
    #[must_use]
    pub fn tool(mut self, tool: impl IntoShared<dyn Tool>) -> Self {
        self.tools.push(tool.into_shared());
        self
    }

    /// Adds tools of one type; see [`tool`](Self::tool) for tools of different types.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = impl IntoShared<dyn Tool>>) -> Self {
        self.tools.extend(tools.into_iter().map(IntoShared::into_shared));
        self
    }

    /// Adds a dynamic source of tools. The model may call the tools that the source has when a superstep
    /// begins.
    #[must_use]
    pub fn tool_source(mut self, source: impl IntoShared<dyn ToolSource>) -> Self {
        self.deps.sources.push(source.into_shared());
        self
    }

    /// Sets the source tools that a replay uses. Defaults to those that the thread recorded.
    #[must_use]
    pub fn replay_tools(mut self, replay_tools: ReplayTools) -> Self {
        self.deps.replay_tools = replay_tools;
        self
    }

    /// Adds an agent that the model calls as a tool. Its costs count as this agent's; its approvals become
    /// interrupts of the run.
    #[must_use]
    pub fn sub_agent(mut self, agent: SubAgent) -> Self {
        self.sub_agents.push(agent);
        self
    }

    /// Sets the approver of tool calls. Without one, calls that require approval are denied.
    #[must_use]
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.deps.approvals = Approvals::Ask(Arc::new(approver));
        self
    }

    /// Interrupts the turn before calls that require approval, until the run is resumed with an
    /// [`Approval`](crate::Approval) as the answer to each call's interrupt, whose key is the call's id.
    /// Requires a checkpointer.
    #[must_use]
    pub fn approve_by_interrupt(mut self) -> Self {
        self.deps.approvals = Approvals::Interrupt;
        self
    }

    /// Sets which stored grants and approvals of a thread are valid, for databases from an untrusted source.
    /// Defaults to all.
    #[must_use]
    pub fn trust(mut self, trust: impl Trust + 'static) -> Self {
        self.deps.trust = Some(Arc::new(trust));
        self
    }

    /// Runs every call that requires approval, like a rule that allows it; see [`Approvals::Allow`].
    #[must_use]
    pub fn approve_all(mut self) -> Self {
        self.deps.approvals = Approvals::Allow;
        self
    }

    /// Sets the long-term memory: memory requests of users are stored in it, and [`ReactConfig::retrieve`]
    /// configures the search.
    #[must_use]
    pub fn memory(mut self, memory: MemoryTrigger) -> Self {
        self.deps.memory = Some(memory);
        self
    }

    /// Sets the history in which each ended turn is stored; adds the node `record` to the graph.
    #[must_use]
    pub fn history(mut self, history: impl TurnHistory + 'static) -> Self {
        self.deps.history = Some(Arc::new(history));
        self
    }

    /// Adds a knowledge that is searched for each new user message, if [`ReactConfig::retrieve`] is set.
    #[must_use]
    pub fn knowledge(mut self, knowledge: impl Knowledge + 'static) -> Self {
        self.knowledge.push(Arc::new(knowledge));
        self
    }

    /// Sets the storage for the full text of truncated tool results; see
    /// [`Truncate::spill`](crate::config::Truncate::spill).
    #[must_use]
    pub fn spill(mut self, spill: impl IntoShared<dyn Spill>) -> Self {
        self.deps.spill = Some(spill.into_shared());
        self
    }

    /// Sets the reader of instructions and skills, such as `AGENTS.md` of a folder. Their texts are added to the system prompt and
    /// the conversation; they change nothing else of the agent.
    #[must_use]
    pub fn instructions(mut self, instructions: impl IntoShared<dyn Instructions>) -> Self {
        self.deps.instructions = Some(instructions.into_shared());
        self
    }

    /// Reads the instructions anew in each turn, in place of those that the thread has stored: for a thread from an untrusted source.
    #[must_use]
    pub fn reread_instructions(mut self) -> Self {
        self.deps.rereads_instructions = true;
        self
    }

    /// Sets the file snapshots, taken before and after each round of tools; see
    /// [`FileChanges`](superstep_llm::snapshots::FileChanges).
    #[must_use]
    pub fn snapshots(mut self, snapshots: impl IntoShared<dyn Snapshots>) -> Self {
        self.deps.snapshots = Some(snapshots.into_shared());
        self
    }

    /// Sets the hooks before and after model calls and tool calls.
    #[must_use]
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.deps.hooks = hooks;
        self
    }

    /// Adds a guard of the input, the answer or the tool calls. It runs behind those added before.
    #[must_use]
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    /// Adds an agent to which the model can transfer the conversation.
    #[must_use]
    pub fn handoff(mut self, handoff: Handoff) -> Self {
        self.handoffs.push(handoff);
        self
    }

    /// Sets the implementation of model calls and tool calls, in place of calling the model and running the
    /// tool.
    #[must_use]
    pub fn steps(mut self, steps: impl Steps + 'static) -> Self {
        self.deps.steps = Some(Arc::new(steps));
        self
    }

    /// Sets the token counter of requests; defaults to [`default_counter`](superstep_llm::tokens::default_counter).
    #[must_use]
    pub fn counter(mut self, counter: impl IntoShared<dyn TokenCounter>) -> Self {
        self.deps.counter = counter.into_shared();
        self
    }

    /// Sets the configuration.
    #[must_use]
    pub fn config(self, config: ReactConfig) -> Self {
        Self { config: Some(config), ..self }
    }

    // Before or after `config`, so that a shared configuration or a preset can be changed in one point.
    /// Sets the system prompt, overriding that of the configuration.
    #[must_use]
    pub fn system_prompt(self, prompt: impl Into<String>) -> Self {
        Self { system_prompt: Some(prompt.into()), ..self }
    }

    /// Sets the permission rules for calls, overriding those of the configuration; the last matching rule applies.
    #[must_use]
    pub fn permissions(self, rules: impl IntoIterator<Item = PermissionRule>) -> Self {
        Self { permissions: Some(rules.into_iter().collect()), ..self }
    }

    /// Sets the step limit of a turn, overriding the configuration.
    #[must_use]
    pub fn max_steps(self, max: u32) -> Self {
        Self { max_steps: Some(max), ..self }
    }

    /// Sets the checkpointer that stores threads.
    #[must_use]
    pub fn checkpointer(
        self,
        checkpointer: impl superstep_graph::convert::IntoShared<dyn Checkpointer>,
    ) -> Self {
        Self { checkpointer: Some(checkpointer.into_shared()), ..self }
    }

    /// Sets the store that tools access with [`ToolCx::extension`](superstep_llm::ToolCx::extension) as an `Arc<dyn
    /// Store>`, and your own nodes with [`Cx::store`](superstep_graph::Cx::store).
    #[must_use]
    pub fn store(self, store: impl superstep_graph::convert::IntoShared<dyn Store>) -> Self {
        Self { store: Some(store.into_shared()), ..self }
    }

    /// Sets the RNG for the jitter between two requests. By default every agent waits alike; a program that
    /// runs many copies should set its own seed, see [`seeded_jitter`].
    #[must_use]
    pub fn jitter(self, jitter: JitterSource) -> Self {
        Self { jitter, ..self }
    }

    /// Returns a builder with the same models, fallbacks, token counter, checkpointer and jitter, with only these tools and this
    /// configuration: without approver, memory, history and hooks.
    #[must_use]
    pub fn with_only(self, tools: Vec<Arc<dyn Tool>>, config: ReactConfig) -> Self {
        let Self { fallbacks, checkpointer, jitter, .. } = self;
        let mut bare = Agent::builder(self.deps.models.main.clone());
        (bare.deps.models, bare.deps.counter) = (self.deps.models, self.deps.counter);
        Self { fallbacks, checkpointer, jitter, tools, config: Some(config), ..bare }
    }

    /// Returns the name of the model that is called first.
    pub fn model_name(&self) -> &str {
        self.deps.models.main.name()
    }

    /// Removes the tools with these names, for a turn that must not have them. Those of sources stay.
    #[must_use]
    pub fn without_tools(mut self, names: &[&str]) -> Self {
        self.tools.retain(|tool| !names.contains(&tool.spec().name.as_str()));
        self
    }

    /// Returns the configuration set with [`config`](Self::config); the preset `default` if none was set.
    pub fn current_config(&self) -> ReactConfig {
        self.config.clone().unwrap_or_default()
    }

    /// Returns the checkpointer, if one was set.
    pub fn current_checkpointer(&self) -> Option<&Arc<dyn Checkpointer>> {
        self.checkpointer.as_ref()
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// [`AgentError`] if two tools have the same name, or the configuration is not valid.
    pub fn build(self) -> Result<Agent, AgentError> {
        self.build_as()
    }

    /// Builds the agent on a state with additional channels.
    ///
    /// # Errors
    /// Those of [`build`](Self::build).
    pub fn build_as<S: HasAgent>(mut self) -> Result<Agent<S>, AgentError> {
        let (checkpointer, store) = (self.checkpointer.take(), self.store.take());
        let deps = self.deps()?;
        let config = deps.config.clone();
        let graph = react_graph_as(deps.clone()).compile()?;
        let graph = match checkpointer {
            Some(checkpointer) => graph.with_checkpointer(checkpointer),
            None => graph,
        };
        let graph = match store {
            Some(store) => graph.with_store(store),
            None => graph,
        };
        Ok(Agent::of(graph, &config).with_deps(deps))
    }

    /// Returns the dependencies of the agent's nodes, for a custom graph. That graph sets the checkpointer
    /// and the store.
    ///
    /// # Errors
    /// Those of [`build`](Self::build), except for compiling a graph.
    pub fn deps(self) -> Result<AgentDeps, AgentError> {
        let mut config = self.config.unwrap_or_default();
        config.limit.max = self.max_steps.unwrap_or(config.limit.max);
        config.system_prompt = self.system_prompt.unwrap_or(config.system_prompt);
        config.permissions = self.permissions.unwrap_or(config.permissions);
        check_config(&config)?;
        check_names(&self.handoffs)?;
        let mut registry = ToolRegistry::new();
        for tool in self.tools {
            registry.insert(tool)?;
        }
        let mut by_name = BTreeMap::new();
        for agent in self.sub_agents {
            registry.insert(Arc::new(agent.clone()))?;
            by_name.insert(agent.spec().name.clone(), agent);
        }
        let mut transfers = BTreeMap::new();
        for tool in self.handoffs.iter().map(Handoff::tool) {
            transfers.insert(tool.spec().name.clone(), tool.to.clone());
            registry.insert(Arc::new(tool) as Arc<dyn Tool>)?;
        }
        let mut sources = self.deps.sources;
        let sourced: Vec<_> = sources.iter().map(|source| source.tools()).collect();
        let names = registry.names().chain(sourced.iter().flat_map(|tools| tools.names()));
        // Later additions of a source cannot fail: a name stays with its first owner.
        if let Some(name) = first_repeated(names.chain([&*config.finish.tool]).collect()) {
            return Err(RegistryError::Duplicate { name: name.to_owned() }.into());
        }
        if !sources.is_empty() {
            sources = vec![Arc::new(ToolSources::new(sources))];
        }
        let retrying = |model| Retrying::new(model, config.retry).with_jitter(self.jitter.clone());
        let main = retrying(self.deps.models.main).with_fallbacks(self.fallbacks);
        if let Some(name) = first_repeated(main.names()) {
            return Err(AgentError::ModelName { name: name.to_owned() });
        }
        let compaction =
            self.deps.models.compaction.map(|model| Arc::new(retrying(model)) as Arc<dyn ChatModel>);
        let models = Models { main: Arc::new(main), compaction };
        let knows = |cost: Cost| cost.has_prices() || (cost.uses_known_prices() && models.have_prices());
        if !config.budget.cost.is_none_or(knows) {
            return Err(AgentError::UnknownPrice);
        }
        let AgentDeps { models, tools, config, .. } = AgentDeps::new(models, registry, config);
        let (knowledge, sub_agents) = (self.knowledge.into(), Arc::new(by_name));
        let guards = Guards::new(self.guards);
        let deps = AgentDeps { models, tools, config, sources, knowledge, sub_agents, guards, ..self.deps };
        let (handoffs, transfers) = (self.handoffs.into(), Arc::new(transfers));
        let group = Group { handoffs, transfers, ..Group::default() };
        let deps = with_members(AgentDeps { group, ..deps })?;
        check_guards(&deps.guards)?;
        if deps.config.budget.cost.is_some_and(|cost| !cost.has_prices())
            && !deps.group.members.values().all(|member| member.models.have_prices())
        {
            return Err(AgentError::UnknownPrice);
        }
        Ok(deps)
    }
}

/// Rejects settings that cannot be used.
fn check_config(config: &ReactConfig) -> Result<(), AgentError> {
    for rule in &config.permissions {
        if let Some(problem) = rule.problem() {
            return Err(AgentError::Permission { tool: rule.tool.clone(), problem });
        }
    }
    if let Some(problem) = config.finish.schema.as_ref().and_then(finish::problem) {
        return Err(AgentError::ReplySchema { problem });
    }
    Ok(())
}

fn check_guards(guards: &Guards) -> Result<(), AgentError> {
    if let Some(guard) = guards.iter().find(|guard| !guard.has_valid_name()) {
        return Err(AgentError::GuardName { name: guard.name().to_owned() });
    }
    match first_repeated(guards.iter().map(Guard::name).collect()) {
        Some(name) => Err(AgentError::DuplicateGuard { name: name.to_owned() }),
        None => Ok(()),
    }
}

impl Agent {
    /// Creates a builder with this model, or an `Arc` of one. The agent retries requests by its configuration;
    /// the model need not.
    pub fn builder(model: impl ChatModel + 'static) -> AgentBuilder {
        AgentBuilder {
            deps: AgentDeps::new(Arc::new(model), ToolRegistry::new(), ReactConfig::default()),
            fallbacks: Vec::new(),
            tools: Vec::new(),
            sub_agents: Vec::new(),
            knowledge: Vec::new(),
            guards: Vec::new(),
            handoffs: Vec::new(),
            config: None,
            max_steps: None,
            system_prompt: None,
            permissions: None,
            checkpointer: None,
            store: None,
            jitter: seeded_jitter(0),
        }
    }
}

fn first_repeated(names: Vec<&str>) -> Option<&str> {
    names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use superstep_llm::{Request, ResponseStream};

    use super::*;
    use crate::config::Permit;

    struct Silent;

    impl ChatModel for Silent {
        fn name(&self) -> &str {
            "silent"
        }

        fn stream(&self, _: Request) -> ResponseStream<'_> {
            stream::empty().boxed()
        }
    }

    #[test]
    fn settings_of_the_builder_override_those_of_the_configuration_in_any_order() {
        let rule = |permit| vec![PermissionRule::new("*", permit)];
        let config = || ReactConfig {
            system_prompt: "Answer.".into(),
            permissions: rule(Permit::Ask),
            ..ReactConfig::harness()
        };
        let builder = || Agent::builder(Silent).system_prompt("Be brief.").permissions(rule(Permit::Deny));
        let expected =
            ReactConfig { system_prompt: "Be brief.".into(), permissions: rule(Permit::Deny), ..config() };
        assert_eq!(*builder().config(config()).deps().unwrap().config, expected);
        let kept = Agent::builder(Silent).config(config()).deps().unwrap();
        assert_eq!(*kept.config, config());

        let wrong = Agent::builder(Silent).permissions([PermissionRule::new("{", Permit::Deny)]).deps();
        assert!(matches!(wrong, Err(AgentError::Permission { .. })), "the rules are checked");
        assert_eq!(*builder().with_only(Vec::new(), config()).deps().unwrap().config, config());
        assert_eq!(format!("{:?}", kept.models), r#"Models { main: "silent", compaction: None }"#);
    }
}
