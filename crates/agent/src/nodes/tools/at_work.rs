//! The count of running calls in a round.
//!
//! Start at [`RunningCalls`].

use std::future::pending;

use tokio::sync::watch;

/// The running calls. An interrupt ends the node, so a question waits until there are none, and none begins
/// after it.
#[derive(Default)]
pub(super) struct RunningCalls(watch::Sender<Count>);

#[derive(Default)]
struct Count {
    working: usize,
    has_asked: bool,
}

/// Adds or removes one call from the count until it is dropped.
pub(super) struct Counted<'a> {
    at_work: &'a RunningCalls,
    is_pause: bool,
}

impl RunningCalls {
    /// Counts a call that starts running. Does not return once the node is about to end.
    pub(super) async fn begin(&self) -> Counted<'_> {
        if self.0.borrow().has_asked {
            pending::<()>().await;
        }
        self.0.send_modify(|count| count.working += 1);
        Counted { at_work: self, is_pause: false }
    }

    /// Excludes a call that waits for an answer.
    pub(super) fn pause(&self) -> Counted<'_> {
        self.0.send_modify(|count| count.working -= 1);
        Counted { at_work: self, is_pause: true }
    }

    /// Waits until no call is running, and prevents new ones.
    pub(super) async fn end(&self) {
        let over = self.0.subscribe().wait_for(|count| count.working == 0).await.map(drop);
        over.expect("the sender lives as long as this");
        self.0.send_modify(|count| count.has_asked = true);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let is_pause = self.is_pause;
        let change = |count: &mut Count| if is_pause { count.working += 1 } else { count.working -= 1 };
        self.at_work.0.send_modify(change);
    }
}
