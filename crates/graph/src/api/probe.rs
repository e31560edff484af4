//! Runs that begin at one node, and the successors of a node.

use superstep_checkpoint::RecordedTarget;
use superstep_engine::Control;

use crate::{
    CompiledGraph, RunError, State,
    run::{
        probe::{Probe, Probed},
        probing::{self, leads_to},
        targets::named,
    },
};

impl<S: State> CompiledGraph<S> {
    /// Runs the graph from one node with a given state, and reports its tasks in full.
    ///
    /// The checkpointer of the graph is not used; its store is.
    ///
    /// # Errors
    /// [`RunError::UnknownNode`], [`RunError::EncodeChannel`] if the state cannot be stored, and other errors of a run that
    /// cannot begin. The error of a run that began is [`Probed::end`].
    pub fn probe(
        &self,
        probe: Probe<S>,
    ) -> impl Future<Output = Result<Probed<S>, RunError>> + Send + use<S> {
        probing::probe(self.inner().clone(), self.store().cloned(), probe)
    }

    /// Returns the control record to which a task of this node leads that left `state` behind: the nodes that run next with
    /// their items, and the joins and deferred nodes that wait for other tasks. Calls the conditional edges and fan-outs of the node, and nothing else. The start is the node `__start__`.
    ///
    /// # Errors
    /// [`RunError::UnknownNode`]; [`RunError::Router`] and [`RunError::Route`] as in a run, the latter also for a node that
    /// chooses its successors itself.
    pub fn successors(&self, node: &str, state: &S) -> Result<Control, RunError> {
        let topology = self.topology();
        let unknown = || RunError::UnknownNode { graph: self.name().to_owned(), node: node.to_owned() };
        let index = topology.find(node).ok_or_else(unknown)?;
        let found = self.inner().nodes[index.position()].targets(state, 0, topology.name(index))?;
        topology.check(index, &found.ends).map_err(|error| RunError::Route { step: 0, error })?;
        let chosen: Vec<RecordedTarget> = named(topology, &found.ends, &mut found.items.into_iter());
        Ok(leads_to(topology, (index, found.ends), 0, &chosen))
    }
}
