//! The time that a run waits for the consumer of its events.
//!
//! Start at [`ConsumerWait`].

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;

use crate::timers;

/// The time without a read after which a consumer counts as one that does not read.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The number of times that the consumer goes first on a runtime without timers.
const TURNS: u32 = 1_000;

/// A wait for the next event to be taken.
pub(crate) struct ConsumerWait {
    /// The number of events taken at its start.
    pub(super) taken: u64,
    until: WaitLimit,
}

enum WaitLimit {
    Over(Pin<Box<Sleep>>),
    /// The number of turns left.
    Turns(u32),
}

impl ConsumerWait {
    pub(super) fn begin(taken: u64) -> Self {
        let sleep = timers::sleep(MAX_WAIT);
        Self { taken, until: sleep.map_or(WaitLimit::Turns(TURNS), |sleep| WaitLimit::Over(Box::pin(sleep))) }
    }

    /// Polls the wait: ready at its end.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.until {
            WaitLimit::Over(sleep) => sleep.as_mut().poll(context),
            WaitLimit::Turns(0) => Poll::Ready(()),
            WaitLimit::Turns(left) => {
                *left -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}
