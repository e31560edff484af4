//! The replay of a thread of the agent, each turn, and each part of a resumed one, with the configuration that it had.
//!
//! Start at [`Turns::run`].

use std::sync::Arc;

use serde_json::Value;
use superstep::{
    CheckpointId, Checkpointer, History, ThreadId,
    agent::{
        AgentState,
        replay::{ReplayTools, ToolDifference},
    },
    checkpoint::{CheckpointError, CheckpointMeta, Source},
    replay::{Replay, ReplayError, Replayed},
};
use superstep_session::{
    config::{
        location::Location,
        notes::Note,
        settings::{Given, StoredSettings, has_model, resumes},
    },
    error::SessionError,
    turn::{
        mcp,
        setup::{Purpose, Setup},
    },
};

use crate::session::signals;

/// The nodes that call a model, and the one that runs tools.
const ASKING: [&str; 2] = ["agent", "compact"];
const TOOLS: &str = "tools";

/// The part of a thread to replay, and how.
#[derive(Clone)]
pub(crate) struct Turns<'a> {
    pub(crate) location: &'a Arc<Location>,
    /// The flags, which apply to all turns.
    pub(crate) given: &'a Given,
    pub(crate) from: Option<CheckpointId>,
    pub(crate) to: Option<CheckpointId>,
    pub(crate) live_model: bool,
    pub(crate) live_tools: bool,
    pub(crate) current_tools: bool,
    pub(crate) servers: Arc<mcp::Pool>,
    /// Shows notes to the user.
    pub(crate) show: &'a dyn Fn(Vec<Note>),
}

/// A part of the branch with the same settings.
struct Section {
    /// The checkpoint that stores the settings; `None` for those of the newest one.
    settings: Option<CheckpointId>,
    from: Option<CheckpointId>,
    to: Option<CheckpointId>,
    /// The section begins in the middle of a turn, which was resumed.
    is_resumed: bool,
    /// The number of supersteps after its end that a live replay does not reach.
    left: usize,
}

/// A checkpoint with settings.
struct Change {
    settings: Value,
    /// The position of the checkpoint on the branch, and that of the first checkpoint whose tasks ran with the settings.
    position: usize,
    begins: usize,
}

impl Turns<'_> {
    /// Replays a thread up to its first divergence. Returns also the difference between the recorded tools and those of MCP servers
    /// that are connected now.
    pub(crate) async fn run(
        &self,
        store: Arc<dyn Checkpointer>,
        thread: &ThreadId,
    ) -> Result<(Replayed, Option<ToolDifference>), SessionError> {
        let sections = self.sections(&*store, thread).await?;
        let mut sections = sections.iter();
        let first = sections.next().expect("a thread has at least one section");
        let (mut all, mut tools) = self.section(&store, thread, first).await?;
        for section in sections {
            if all.divergence.is_some() {
                break;
            }
            let (replayed, changed) = self.section(&store, thread, section).await?;
            all.supersteps += replayed.supersteps;
            all.taken += replayed.taken;
            all.skipped += replayed.skipped;
            all.divergence = replayed.divergence;
            tools = changed.or(tools);
        }
        Ok((all, tools))
    }

    /// Records a thread again in another store, each turn with its configuration, in which flags replace settings.
    pub(crate) async fn rerecord(
        &self,
        store: Arc<dyn Checkpointer>,
        thread: &ThreadId,
        target: Arc<dyn Checkpointer>,
    ) -> Result<(), SessionError> {
        for section in self.whole_turns(&store, thread).await? {
            let setup = self.setup(&store, thread, &section).await?;
            let mut replay = replay(&setup, thread, &section);
            if self.given.changes_settings() {
                replay = replay.input_metadata(setup.stored_settings());
            }
            replay.rerecord(target.clone()).await?;
        }
        Ok(())
    }

    /// Returns the sections, of which each begins with a turn.
    ///
    /// # Errors
    /// A turn was resumed with other settings, so that no one agent can run it again.
    async fn whole_turns(
        &self,
        store: &Arc<dyn Checkpointer>,
        thread: &ThreadId,
    ) -> Result<Vec<Section>, SessionError> {
        let mut turns: Vec<Section> = Vec::new();
        for section in self.sections(&**store, thread).await? {
            let Some(turn) = turns.last_mut().filter(|_| section.is_resumed) else {
                turns.push(section);
                continue;
            };
            let (resumed, begun) =
                (self.setup(store, thread, &section).await?, self.setup(store, thread, turn).await?);
            if resumed.stored_settings() != begun.stored_settings() {
                let missing = "one configuration for a turn that was resumed with another one".to_owned();
                return Err(ReplayError::NotRerecorded { thread: thread.clone(), missing }.into());
            }
            turn.to = section.to;
        }
        Ok(turns)
    }

    fn is_live(&self) -> bool {
        self.live_model || self.live_tools
    }

    /// Splits the branch where the settings change.
    async fn sections(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
    ) -> Result<Vec<Section>, CheckpointError> {
        let branch = self.branch(store, thread).await?;
        let mut changes: Vec<Change> = Vec::new();
        for (position, meta) in branch.iter().enumerate() {
            let is_fork = meta.source == Source::Fork && has_model(meta);
            if position > 0 && meta.source != Source::Input && !is_fork && !resumes(meta) {
                continue;
            }
            let settings = StoredSettings::of(meta).map_or(Value::Null, |settings| settings.to_compare());
            // The tasks of a resumed run's first superstep are those of the checkpoint before it.
            let begins = if resumes(meta) { position.saturating_sub(1) } else { position };
            if changes.last().is_none_or(|last| last.settings != settings) {
                changes.push(Change { settings, position, begins });
            }
        }
        let start = self.from.and_then(|from| branch.iter().position(|meta| meta.id == from));
        let is_elsewhere = self.from.is_some() && start.is_none();
        let mut sections = Vec::new();
        for (nth, change) in changes.iter().enumerate() {
            let next = changes.get(nth + 1);
            if start.is_some_and(|start| next.is_some_and(|next| start >= next.begins)) {
                continue;
            }
            let from = match self.from {
                Some(from) if sections.is_empty() => Some(from),
                _ => (nth > 0).then(|| branch[change.begins].id),
            };
            // A live replay ends before the next turn in any case.
            let end = next.filter(|next| !self.is_live() || resumes(&branch[next.position]));
            let behind = end.map_or(&[][..], |next| &branch[next.position..]);
            sections.push(Section {
                settings: Some(branch[change.position].id),
                from,
                to: end.map(|next| branch[next.position - 1].id).or(self.to),
                is_resumed: branch[change.position].source != Source::Input && nth > 0,
                left: behind.iter().filter(|meta| meta.source == Source::Loop).count(),
            });
            if self.is_live() {
                break;
            }
        }
        if sections.is_empty() || is_elsewhere {
            let (settings, is_resumed, left) = (None, false, 0);
            return Ok(vec![Section { settings, from: self.from, to: self.to, is_resumed, left }]);
        }
        Ok(sections)
    }

    /// Returns the checkpoints that lead to the last one, oldest first.
    async fn branch(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
    ) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let all = store.history(thread, History::default()).await?;
        let mut wanted = self.to.or(all.first().map(|head| head.id));
        let mut branch = Vec::new();
        for meta in all {
            if wanted == Some(meta.id) {
                wanted = meta.parent.filter(|_| !meta.parent_pruned);
                branch.push(meta);
            }
        }
        branch.reverse();
        Ok(branch)
    }

    async fn setup(
        &self,
        store: &Arc<dyn Checkpointer>,
        thread: &ThreadId,
        section: &Section,
    ) -> Result<Setup, SessionError> {
        let tools = if self.current_tools { ReplayTools::Current } else { ReplayTools::Recorded };
        let purpose = Purpose::Replay {
            calls_model: self.live_model,
            runs_tools: self.is_live(),
            tools,
            at: section.settings,
            servers: self.servers.clone(),
        };
        let mut notes = Vec::new();
        let (cancel, _watch) = signals::watching();
        let setup = Setup::new(
            self.location.clone(),
            store.clone(),
            thread.clone(),
            purpose,
            self.given,
            &mut notes,
            cancel,
        )
        .await;
        (self.show)(notes);
        setup
    }

    async fn section(
        &self,
        store: &Arc<dyn Checkpointer>,
        thread: &ThreadId,
        section: &Section,
    ) -> Result<(Replayed, Option<ToolDifference>), SessionError> {
        let setup = self.setup(store, thread, section).await?;
        let mut replay = replay(&setup, thread, section);
        if self.live_model {
            // Not every agent has the node `compact`.
            let graph = setup.agent.graph().topology();
            replay = replay.live(ASKING.into_iter().filter(|node| graph.find(node).is_some()));
        }
        if self.live_tools {
            replay = replay.live([TOOLS]);
        }
        let mut replayed = replay.run().await?;
        if self.is_live() {
            replayed.left += section.left;
        }
        if self.current_tools || self.is_live() || setup.servers.is_empty() {
            return Ok((replayed, None));
        }
        let recorded = setup.agent.graph().thread(thread).at(section.to).state().await?.values;
        let now: Vec<_> = setup.servers.iter().flat_map(|server| server.tools()).collect();
        Ok((replayed, ToolDifference::of(&recorded, &now)))
    }
}

fn replay(setup: &Setup, thread: &ThreadId, section: &Section) -> Replay<AgentState> {
    let mut replay = setup.agent.graph().thread(thread).replay();
    if let Some(from) = section.from {
        replay = replay.from(from);
    }
    if let Some(to) = section.to {
        replay = replay.to(to);
    }
    replay
}
