//! The measured part of a run, and what it works on.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, time::Instant};

/// A message of a conversation; about 190 bytes as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    role: String,
    content: String,
}

impl Message {
    pub(crate) fn numbered(number: i64) -> Self {
        const WORDS: &str = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt \
                             ut labore et dolore magna aliqua ut enim ad minim";
        Self { role: "assistant".into(), content: format!("message {number:06} {WORDS}") }
    }
}

/// Started with a run, and restarted by a node if the part before it is not measured.
///
/// The counter of instructions begins at `start` and ends at `elapsed`, so both remain functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopwatch(Arc<Mutex<Option<Instant>>>);

impl Stopwatch {
    #[inline(never)]
    pub(crate) fn start(&self) {
        *self.0.lock().expect("nobody panics while it is locked") = Some(Instant::now());
    }

    #[inline(never)]
    pub(crate) fn elapsed(&self) -> Duration {
        let started = self.0.lock().expect("nobody panics while it is locked");
        started.expect("it was started").elapsed()
    }
}

/// Runs `work` on a worker thread, as a server would. Returns its result with its duration, or the duration
/// since it started the stopwatch.
pub(crate) fn on_worker<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
    stopwatch: &Stopwatch,
) -> (Duration, T) {
    let stopwatch = stopwatch.clone();
    let timed = async move {
        stopwatch.start();
        let made = work.await;
        (stopwatch.elapsed(), made)
    };
    runtime.block_on(async { tokio::spawn(timed).await.expect("the work does not panic") })
}
