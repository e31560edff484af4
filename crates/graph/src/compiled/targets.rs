//! The targets of commands.
//!
//! Start at [`Inner::command_targets`].

use superstep_engine::{Endpoint, EngineError, NodeIndex, Target};
use superstep_state::RawJson;

use crate::{
    State,
    compiled::graph::Inner,
    node::{
        output::Goto,
        refs::{NodeRef, endpoint},
        routing::Targets,
    },
};

impl<S: State> Inner<S> {
    /// Returns the node of this handle; `None` if it belongs to another graph.
    pub(crate) fn find(&self, node: NodeRef) -> Option<NodeIndex> {
        match endpoint(self.stamp, node) {
            Endpoint::Node(declared) => self.topology.declared(declared),
            Endpoint::Start | Endpoint::End | Endpoint::Foreign => None,
        }
    }
}

impl<S: State> Inner<S> {
    /// Returns the targets of a command.
    ///
    /// # Errors
    /// [`EngineError::UnknownSend`] if a worker belongs to another graph.
    pub(crate) fn command_targets(
        &self,
        node: NodeIndex,
        goto: Vec<Goto<usize, RawJson>>,
    ) -> Result<Targets, EngineError> {
        let mut targets = Targets::default();
        for goto in goto {
            match goto {
                Goto::Route(route) => targets.ends.push(self.nodes[node.position()].routes[route]),
                Goto::Send { worker, item } => {
                    let stranger = || EngineError::UnknownSend {
                        node: self.topology.name(node).clone(),
                        to: "a worker of another graph".to_owned(),
                    };
                    targets.ends.push(Target::Send(self.find(worker).ok_or_else(stranger)?));
                    targets.items.push(item);
                }
            }
        }
        Ok(targets)
    }
}
