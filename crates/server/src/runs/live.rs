//! Runs that are queued or under way.
//!
//! Start at [`LiveRun`].

use std::sync::{Mutex, PoisonError};

use superstep_graph::{Interrupt, erased::AnyState};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    events::{modes::Modes, projection::About},
    rows::{
        run::{RunStatus, Stop},
        thread::RunFailure,
    },
    runs::log::RunLog,
    thread::projection::End,
};

/// A run that is queued or under way, or whose log is retained.
pub(crate) struct LiveRun {
    pub(crate) about: About,
    pub(crate) modes: Modes,
    pub(crate) subgraphs: bool,
    pub(crate) resumable: bool,
    pub(crate) log: RunLog,
    pub(crate) cancel: CancellationToken,
    stop: Mutex<Option<(Stop, String)>>,
    /// `true` once its row is stored, `false` if that failed, `None` before.
    pub(crate) stored: watch::Sender<Option<bool>>,
    /// The end, once there is one.
    pub(crate) end: watch::Sender<Option<RunEnd>>,
}

/// The end of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunEnd {
    /// The state; `None` if the run never began or failed.
    pub(crate) state: Option<AnyState>,
    pub(crate) interrupts: Vec<Interrupt>,
    pub(crate) failure: Option<RunFailure>,
    /// `true` if the run was stopped before its end.
    pub(crate) is_stopped: bool,
    /// `true` if the server stops, and the run continues after the next start.
    pub(crate) is_left: bool,
}

impl RunEnd {
    /// Returns the status of an ended run, as its row has it; `None` if it is left.
    pub(crate) fn status(&self, run: &LiveRun) -> Option<RunStatus> {
        match self {
            Self { is_left: true, .. } => None,
            Self { failure: Some(_), .. } => Some(RunStatus::Error),
            _ if run.stopped().is_some() => Some(RunStatus::Interrupted),
            _ => Some(RunStatus::Success),
        }
    }

    /// Returns the end of a run that is left to the next start of the server.
    pub(crate) fn left() -> Self {
        Self { is_left: true, ..Self::default() }
    }

    /// Returns how clients of the thread see it; `None` if the run continues after the next start.
    pub(crate) fn of_thread(&self) -> Option<End<'_>> {
        match &self.failure {
            _ if self.is_left => None,
            Some(failure) => Some(End::Failed(&failure.message)),
            None if self.is_stopped => Some(End::Cancelled),
            None => Some(End::Completed),
        }
    }
}

impl LiveRun {
    pub(crate) fn new(
        about: About,
        modes: Modes,
        subgraphs: bool,
        resumable: bool,
        max_bytes: usize,
    ) -> Self {
        Self {
            about,
            modes,
            subgraphs,
            resumable,
            log: RunLog::new(max_bytes),
            cancel: CancellationToken::new(),
            stop: Mutex::new(None),
            stored: watch::Sender::new(None),
            end: watch::Sender::new(None),
        }
    }

    /// Stops the run, for a reason that its clients see. A rollback is not taken back.
    pub(crate) fn stop(&self, stop: Stop, reason: &str) {
        {
            let mut stopped = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
            if stopped.as_ref().is_none_or(|(before, _)| *before < stop) {
                *stopped = Some((stop, reason.to_owned()));
            }
        }
        self.cancel.cancel();
    }

    /// Returns how it was stopped, if it was.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(stop, _)| *stop)
    }

    /// Returns the reason why it was stopped, if it was.
    pub(crate) fn reason(&self) -> Option<String> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, reason)| reason.clone())
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> RunEnd {
        let mut end = self.end.subscribe();
        let ended = end.wait_for(Option::is_some).await;
        // The sender lives as long as `self`.
        ended.ok().and_then(|end| end.clone()).unwrap_or_default()
    }
}

impl AsRef<RunLog> for LiveRun {
    fn as_ref(&self) -> &RunLog {
        &self.log
    }
}
