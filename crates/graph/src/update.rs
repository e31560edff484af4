//! Changing a thread from outside.

use std::sync::Arc;

use superstep_engine::{Control, NodeIndex, Target};

use crate::{
    AppliedTask, CheckpointId, Checkpointer, Commit, RunConfig, RunError, Source, State, TaskRecord,
    ThreadId,
    compiled::Inner,
    json,
    load::{Restored, load, require},
    run,
    state::fold,
};

/// See [`CompiledGraph::update_state`](crate::CompiledGraph::update_state).
pub(crate) async fn update_state<S: State>(
    graph: &Inner<S>,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    config: &RunConfig,
    update: S::Update,
    as_node: &str,
) -> Result<CheckpointId, RunError> {
    let unknown = || RunError::UnknownNode { graph: graph.name.clone(), node: as_node.to_owned() };
    let node = graph.topology.find(as_node).ok_or_else(unknown)?;
    let _lease = checkpointer.lease(thread).await?;
    let written = graph.initial.written(&update);
    let restored = load(&graph.initial, checkpointer, thread, config.checkpoint, written).await?;
    if restored.is_none() {
        require(&graph.initial, written, None)?;
    }
    let (head, parent) = (restored.as_ref().map(|it| it.head), restored.as_ref().map(|it| it.meta.id));
    let mut change = Change::after(graph, restored, config.checkpoint.is_none())?;
    change.add(graph, node, update)?;
    let commit = change.into_commit(graph, parent, config)?;
    Ok(checkpointer.commit(thread, head, commit).await?)
}

/// A superstep made by hand: what finished tasks wrote, then the update.
struct Change<S> {
    state: S,
    step: i64,
    /// What the parent has to run.
    before: Option<Control>,
    /// The tasks of it that need not run any more, by slot.
    done: Vec<u32>,
    applied: Vec<AppliedTask>,
    finished: Vec<(NodeIndex, Vec<Target>)>,
    items: Vec<String>,
}

impl<S: State> Change<S> {
    /// `live` takes along what tasks of the head wrote that were done before their superstep was, so that it is not
    /// lost; a fork from an older checkpoint leaves it to the other branch.
    fn after(graph: &Inner<S>, restored: Option<Restored<S>>, live: bool) -> Result<Self, RunError> {
        let mut change = Self {
            state: graph.initial.clone(),
            step: 0,
            before: None,
            done: Vec::new(),
            applied: Vec::new(),
            finished: Vec::new(),
            items: Vec::new(),
        };
        let Some(Restored { meta, state, tasks, .. }) = restored else {
            return Ok(change);
        };
        (change.state, change.step) = (state, meta.control.step + 1);
        change.state.clear_ephemeral();
        for task in tasks {
            let (TaskRecord::Finished { update: json, targets }, Some(update)) = (task.record, task.update)
            else {
                continue;
            };
            let Some(name) = meta.control.next.get(task.slot as usize) else { continue };
            let Some(node) = graph.topology.find(name.as_str()) else { continue };
            // An input is no task that could run again.
            if !live && node != graph.topology.start() {
                continue;
            }
            let targets = run::recorded_targets(&graph.topology, targets);
            change.fold(graph, node, update)?;
            let (node_name, update) = (name.clone(), json.into_bytes());
            change.done.push(task.slot);
            change.applied.push(AppliedTask { slot: task.slot, recorded: true, node: node_name, update });
            change.finished.push((node, targets.ends));
            change.items.extend(targets.items);
        }
        change.before = Some(meta.control);
        Ok(change)
    }

    fn add(&mut self, graph: &Inner<S>, node: NodeIndex, update: S::Update) -> Result<(), RunError> {
        let name = graph.topology.name(node);
        let json = json::encode(&self.state, &update, self.step, name, &mut Vec::new())?;
        self.fold(graph, node, update)?;
        let targets = run::targets(&graph.nodes[node.position()], &self.state, self.step, name)?;
        let pending = self.before.iter().flat_map(|before| &before.next);
        self.done.extend((0..).zip(pending).filter(|(_, pending)| *pending == name).map(|(slot, _)| slot));
        // No task of the parent has this slot.
        let slot = self.before.as_ref().map_or(0, |before| before.next.len());
        let slot = u32::try_from(slot).expect("slots are counted in 32 bits");
        self.applied.push(AppliedTask { slot, recorded: false, node: name.clone(), update: json });
        self.finished.push((node, targets.ends));
        self.items.extend(targets.items);
        Ok(())
    }

    fn fold(&mut self, graph: &Inner<S>, node: NodeIndex, update: S::Update) -> Result<(), RunError> {
        let name = || graph.topology.name(node).clone();
        fold(&mut self.state, update).map_err(|source| RunError::Fold {
            node: name(),
            step: self.step,
            source,
        })
    }

    fn into_commit(
        self,
        graph: &Inner<S>,
        parent: Option<CheckpointId>,
        config: &RunConfig,
    ) -> Result<Commit, RunError> {
        let Self { step, before, done, applied, finished, items, .. } = self;
        let control = graph.topology.after(before.as_ref(), &done, &finished);
        let mut control = control.map_err(|error| RunError::Route { step, error })?;
        let still = before.into_iter().flat_map(|before| before.items);
        let still = still.filter(|(slot, _)| !done.contains(slot)).map(|(_, item)| item);
        control.items = run::items(control.next.len(), still.chain(items).collect());
        Ok(Commit {
            parent,
            source: Source::Update,
            control,
            created_ms: config.clock.now_ms(),
            metadata: config.metadata.clone(),
            applied,
            snapshot: None,
            records: Vec::new(),
        })
    }
}
