//! Checks of threads that this build is to resume, without running them.
//!
//! Start at [`check`].

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use superstep_engine::{ChannelSet, NodeName, Run};

use super::{
    breakpoints::limits,
    execution::Execution,
    first_tasks::continue_run,
    observer::Plain,
    restore::{Restored, load, load_seeded},
};
use crate::{
    Checkpointer, RunError, RunOptions, State, ThreadId, compiled::graph::Inner,
    journal::task_origin::Origins, node::cx::RunScope,
};

/// Restores the head of a thread as a run does that resumes it, with the threads of its pending subgraphs, and runs nothing. `seed` is
/// the state of the caller that the graph works on, if it does.
///
/// # Errors
/// That of such a run: a value does not fit the state, a pending node or a target of a finished task does not exist, an item does not
/// fit its node.
pub(crate) fn check<S: State>(
    graph: Arc<Inner<S>>,
    checkpointer: Arc<dyn Checkpointer>,
    thread: ThreadId,
    seed: Option<S>,
) -> BoxFuture<'static, Result<(), RunError>> {
    async move {
        let restored = match &seed {
            Some(seed) => load_seeded(&graph, seed, &checkpointer, &thread).await?,
            None => load(&graph, &checkpointer, &thread, None, ChannelSet::EMPTY).await?,
        };
        let Some(Restored { meta, state, tasks, .. }) = restored else { return Ok(()) };
        let finished: Vec<u32> =
            tasks.iter().filter(|task| task.update.is_some()).map(|task| task.slot).collect();
        let is_pending = |slot: &u32| !finished.contains(slot);
        let control = meta.control.clone();
        let config = Arc::new(RunOptions::new().thread(thread.clone()));
        let limits = limits(&graph, &config)?;
        {
            let scope = RunScope::root(config.clone(), None, None);
            let mut exec = Execution::new(graph.clone(), scope, None, Box::new(Plain));
            (exec.state, exec.superstep.origins) = (state.clone(), Origins::of(&meta).carried);
            let begin = continue_run(&mut exec, meta.control.clone(), tasks, &config)?;
            let restored = Run::restore(graph.topology.clone(), &begin.control, begin.records, limits);
            restored.map_err(|error| RunError::Restore { graph: graph.name.clone(), error })?;
        }
        let node = |slot: u32| graph.topology.find(control.next.get(slot as usize)?.as_str());
        for (slot, item) in control.items.iter().filter(|(slot, _)| is_pending(slot)) {
            let fits = node(*slot).and_then(|node| graph.nodes[node.position()].fits);
            fits.map_or(Ok(()), |fits| fits(item)).map_err(|source| RunError::Decode {
                thread: thread.clone(),
                checkpoint: meta.id,
                what: format!("the item of node `{}`", control.next[*slot as usize]),
                source: source.into(),
            })?;
        }
        let pending = (0..).zip(&control.next).filter(|(slot, _)| is_pending(slot));
        let pending: BTreeMap<u32, &NodeName> = pending.collect();
        if pending.is_empty() {
            return Ok(());
        }
        let origins = Origins::of(&meta);
        for child in checkpointer.children(&thread).await? {
            let Some((_, segment)) = child.parent().filter(|(parent, _)| *parent == thread) else { continue };
            let calls = |slot: u32| segment.task.is_none_or(|called| called == origins.caller(slot));
            let called = pending.iter().find(|(slot, name)| ***name == segment.node && calls(**slot));
            let subgraph =
                called.and_then(|(slot, _)| graph.nodes[node(*slot)?.position()].subgraph.as_ref());
            if let Some(subgraph) = subgraph {
                subgraph.check(state.clone(), checkpointer.clone(), child).await?;
            }
        }
        Ok(())
    }
    .boxed()
}
