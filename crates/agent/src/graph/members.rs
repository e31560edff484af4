//! The nodes of each agent that can have a conversation.
//!
//! ```text
//! memory_trigger ┄▶ agent, agent_billing        tools, tools_billing ┄▶ agent, agent_billing
//! ```
//!
//! Start at [`Members`].

use std::{collections::BTreeSet, sync::Arc};

use superstep_graph::{NodeRef, StateGraph};

use super::react_graph::{ReactNodes, add_agent, add_compact, add_tools};
use crate::{AgentState, HasAgent, deps::AgentDeps};

/// The agents that can have a conversation, the first one in front.
pub(super) struct Members {
    all: Vec<Member>,
    names: Arc<BTreeSet<String>>,
}

/// An agent, with the nodes that it has for itself.
pub(super) struct Member {
    /// The name; empty for the first agent.
    name: String,
    pub(super) nodes: ReactNodes,
    /// The agents to which it can transfer the conversation.
    targets: Arc<BTreeSet<String>>,
}

/// The label of an edge to the agent that has the conversation.
const ACTIVE: &str = "Active";

impl Members {
    /// Adds the nodes of the agents behind the first one, whose nodes are given.
    #[track_caller]
    pub(super) fn add<S: HasAgent>(graph: &mut StateGraph<S>, deps: &AgentDeps, nodes: ReactNodes) -> Self {
        let targets =
            |deps: &AgentDeps| Arc::new(deps.group.transfers.values().map(|to| to.to_string()).collect());
        let mut all = vec![Member { name: String::new(), nodes, targets: targets(deps) }];
        for (name, deps) in &*deps.group.members {
            let nodes = ReactNodes {
                agent: add_agent(graph, deps),
                tools: add_tools(graph, deps),
                compact: deps.config.context.consolidates().then(|| add_compact(graph, deps)),
                ..nodes
            };
            all.push(Member { name: name.clone(), nodes, targets: targets(deps) });
        }
        let names = Arc::new(deps.group.members.keys().cloned().collect());
        Self { all, names }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.all.iter()
    }

    /// Returns the nodes of the first agent.
    pub(super) fn first(&self) -> ReactNodes {
        self.all[0].nodes
    }

    /// Returns whether this agent has the conversation. The first one also has that of an agent that does not exist any more.
    pub(super) fn is_active(&self, member: &Member) -> impl Fn(&AgentState) -> bool + Send + Sync + use<> {
        let (names, name) = (self.names.clone(), member.name.clone());
        move |state| state.active == name || (name.is_empty() && !names.contains(&state.active))
    }
}

/// Adds the edges from a node to the agent that has the conversation: to any, or from the tools of `own` to those to which it can be
/// transferred.
#[track_caller]
pub(super) fn route<S: HasAgent>(
    graph: &mut StateGraph<S>,
    from: NodeRef,
    members: &Members,
    own: Option<&Member>,
) {
    if members.all.len() == 1 {
        return graph.add_edge(from, members.first().agent);
    }
    let is_target = |member: &&Member| own.is_none_or(|own| own.targets.contains(&member.name));
    let mut goes: Vec<_> =
        members.iter().filter(is_target).map(|member| (members.is_active(member), member)).collect();
    // The last one has what no other has.
    let rest = own.unwrap_or(&members.all[0]);
    goes.retain(|(_, member)| member.name != rest.name);
    let targets: Vec<_> = goes
        .iter()
        .map(|(_, member)| *member)
        .chain([rest])
        .map(|member| (ACTIVE, member.nodes.agent))
        .collect();
    let is_active: Vec<_> = goes.into_iter().map(|(is_active, _)| is_active).collect();
    graph.add_conditional_list(from, targets, move |state: &S| {
        let has_conversation = is_active.iter().position(|is_active| is_active(state.agent()));
        vec![has_conversation.unwrap_or(is_active.len())]
    });
}
