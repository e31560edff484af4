//! The agents of one conversation.
//!
//! Start at [`Handoff::new`].

use std::{collections::BTreeMap, sync::Arc};

use superstep_llm::ToolRegistry;

use super::{error::AgentError, handle::Agent};
use crate::{
    ReactConfig,
    deps::{AgentDeps, Group, Handoff, transfer::Transfer},
    guards::{Guard, GuardAt, chain::Guards},
    state::handoffs::HandoffView,
};

/// Maximum length of the name of an agent in bytes; a tool with it has at most 64.
const MAX_NAME: usize = 48;

impl Handoff {
    /// Creates the handoff to an agent. The name has letters, digits, `-` and `_` only; `when`, such as "when it is about an invoice", is
    /// for the model.
    pub fn new(name: impl Into<String>, when: impl Into<String>, agent: &Agent) -> Self {
        let (deps, view) = (agent.deps.clone(), HandoffView::All);
        Self { name: name.into(), when: when.into(), deps, view, back: None }
    }
}

/// Adds the agents that can have the conversation of the first one, and the guards of all to each of them.
///
/// # Errors
/// If a handoff cannot be used.
pub(super) fn with_members(mut first: AgentDeps) -> Result<AgentDeps, AgentError> {
    let mut members = BTreeMap::new();
    let handoffs = first.group.handoffs.clone();
    add(&first, &first.group.member, &handoffs, &mut members)?;
    let own = |deps: &AgentDeps, at: fn(GuardAt) -> bool| -> Vec<Guard> {
        deps.guards.iter().filter(|guard| at(guard.at())).cloned().collect()
    };
    let (is_tool, is_node) = (|at| at == GuardAt::Tool, |at| at != GuardAt::Tool);
    let mut nodes = own(&first, is_node);
    for (name, deps) in &members {
        nodes.extend(own(deps, is_node).into_iter().filter(Guard::is_own).map(|guard| guard.of(name)));
    }
    let tools = own(&first, is_tool);
    for deps in members.values_mut() {
        let own = own(deps, is_tool);
        deps.guards = Guards::new(nodes.iter().chain(&tools).cloned().chain(own).collect());
    }
    first.guards = Guards::new(nodes.into_iter().chain(tools).collect());
    first.group.members = Arc::new(members);
    Ok(first)
}

fn add(
    first: &AgentDeps,
    parent: &str,
    handoffs: &[Handoff],
    members: &mut BTreeMap<String, AgentDeps>,
) -> Result<(), AgentError> {
    for handoff in handoffs {
        let name = handoff.name.clone();
        let mut deps = handoff.deps.clone().ok_or(AgentError::HandoffGraph { name: name.clone() })?;
        if handoff.view == HandoffView::Summary && !deps.config.context.consolidates() {
            return Err(AgentError::HandoffSummary { name });
        }
        // The limits are those of the turn.
        let (budget, limit) = (first.config.budget.clone(), first.config.limit.clone());
        deps.config = Arc::new(ReactConfig { budget, limit, ..(*deps.config).clone() });
        // The instructions are those of the thread.
        deps.instructions.clone_from(&first.instructions);
        deps.rereads_instructions = first.rereads_instructions;
        let group = Group { member: name.as_str().into(), view: handoff.view, ..deps.group };
        deps.group = Group { members: Arc::default(), ..group };
        if let Some(when) = &handoff.back {
            let back = Transfer::back(when, parent);
            let mut tools = ToolRegistry::clone(&deps.tools);
            let mut transfers = BTreeMap::clone(&deps.group.transfers);
            transfers.insert("transfer_back".to_owned(), back.to.clone());
            tools.insert(Arc::new(back) as Arc<dyn superstep_llm::Tool>)?;
            (deps.tools, deps.group.transfers) = (Arc::new(tools), Arc::new(transfers));
        }
        let own = deps.group.handoffs.clone();
        if members.insert(name.clone(), deps).is_some() {
            return Err(AgentError::DuplicateHandoff { name });
        }
        add(first, &name, &own, members)?;
    }
    Ok(())
}

/// Rejects names that cannot be a part of the name of a tool and of a node.
pub(super) fn check_names(handoffs: &[Handoff]) -> Result<(), AgentError> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = |name: &str| !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_valid);
    match handoffs.iter().find(|handoff| !is_name(&handoff.name)) {
        Some(handoff) => Err(AgentError::HandoffName { name: handoff.name.clone() }),
        None => Ok(()),
    }
}
