//! Logs of threads, with what a client has to know when it comes.
//!
//! Start at [`Hub::thread_log`].

use std::sync::Arc;

use superstep_graph::{RunOptions, erased::JsonTask};

use crate::{
    error::ApiError,
    rows::thread::ThreadKey,
    runs::hub::Hub,
    thread::{
        event::{Draft, about_graph},
        log::ThreadLog,
    },
    wire::ids,
};

impl Hub {
    /// Returns the log of a thread, which need not exist yet. It has the run under way, or the questions that wait, also if no
    /// client followed the thread before.
    ///
    /// # Errors
    /// 422 for an id that no thread can have; those of the checkpointer.
    pub(crate) async fn thread_log(&self, thread: &ThreadKey) -> Result<Arc<ThreadLog>, ApiError> {
        ids::check_thread(&thread.thread)?;
        let log = self.thread_logs.open(thread);
        for live in self.live_of(&thread.thread).iter().filter(|live| live.about.key() == *thread) {
            log.follow(&live.about, &live.log);
        }
        if log.is_blank() {
            log.seed(self.questions(thread).await?);
        }
        Ok(log)
    }

    /// Drops the log of a thread if nothing is in it, no client reads it, and no run under way may write to it.
    pub(crate) fn release_log(&self, thread: &ThreadKey) {
        if self.row_of(thread).is_none() || !self.has_lane(&thread.thread) {
            self.thread_logs.release(thread);
        }
    }

    /// Returns the events of a thread that waits for answers: its last run began, put its questions and was interrupted.
    async fn questions(&self, thread: &ThreadKey) -> Result<Vec<Draft>, ApiError> {
        let waiting = self.row_of(thread).filter(|row| !row.interrupts.is_empty());
        let (Some(row), Some(run)) = (waiting, self.runs_of(&thread.thread).pop()) else {
            return Ok(Vec::new());
        };
        let snapshot = self.thread(&row, RunOptions::new())?.state().await?;
        let at_ms = run.updated_us / 1_000;
        let lifecycle = |status| Draft::lifecycle(&run.id, &[], at_ms, status, about_graph(&run.graph));
        let mut events = vec![lifecycle("running")];
        for task in &snapshot.tasks {
            for asked in &task.interrupts {
                let namespace = asking_graph(task, &asked.id);
                let event = Draft::requested(&run.id, &namespace, at_ms, &asked.id, &asked.question);
                events.push(event.at_node(asked.node.as_str()));
            }
        }
        events.push(lifecycle("interrupted"));
        Ok(events)
    }
}

/// Returns the namespace of the graph that asks: the id of a question begins with the nodes on the path to it.
fn asking_graph(task: &JsonTask, id: &str) -> Vec<String> {
    let paths = task.subgraphs.iter().map(superstep_graph::ThreadId::path);
    let asks = |path: &superstep_graph::checkpoint::SubgraphPath| {
        let mut rest = id;
        path.nodes().all(|node| {
            let below = rest.strip_prefix(node.as_str()).and_then(|rest| rest.strip_prefix(':'));
            let below = below.and_then(|rest| rest.split_once('/'));
            below.map(|(_, below)| rest = below).is_some()
        })
    };
    let asking = paths.filter(asks).max_by_key(|path| path.0.len());
    asking.map(|path| ids::levels(&path)).unwrap_or_default()
}
