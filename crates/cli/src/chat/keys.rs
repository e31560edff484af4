//! The keys of the terminal, read by a thread of their own.
//!
//! Start at [`Keys`].

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use ratatui::crossterm::event::{Event, poll, read};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The time after which the reader lets go of the terminal.
const PATIENCE: Duration = Duration::from_millis(40);

/// The events of the terminal.
pub(super) struct Keys {
    events: UnboundedReceiver<Event>,
    reader: Arc<Reader>,
}

#[derive(Default)]
struct Reader {
    is_paused: AtomicBool,
    /// Held while the terminal is read.
    reads: Mutex<()>,
}

impl Keys {
    /// Starts to read the terminal, which is in raw mode.
    pub(super) fn start() -> Self {
        let (send, events) = unbounded_channel();
        let reader = Arc::<Reader>::default();
        let shared = reader.clone();
        thread::spawn(move || {
            loop {
                match shared.next() {
                    Ok(None) => {}
                    Ok(Some(event)) => {
                        if send.send(event).is_err() {
                            return;
                        }
                    }
                    // The terminal is gone, which the receiver sees.
                    Err(_) => return,
                }
            }
        });
        Self { events, reader }
    }

    /// Returns the next event; `None` if the terminal is gone. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Drops the keys that were typed so far.
    pub(super) fn discard(&mut self) {
        while self.events.try_recv().is_ok() {}
    }

    /// Leaves the terminal to others until [`proceed`](Self::proceed).
    pub(super) fn pause(&self) {
        self.reader.is_paused.store(true, Ordering::SeqCst);
        // The reader has let go of it, and sees the flag before it reads again.
        drop(self.reader.reads.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn proceed(&self) {
        self.reader.is_paused.store(false, Ordering::SeqCst);
    }
}

impl Reader {
    fn next(&self) -> io::Result<Option<Event>> {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_paused.load(Ordering::SeqCst) {
            drop(reads);
            thread::park_timeout(PATIENCE);
            return Ok(None);
        }
        if poll(PATIENCE)? { read().map(Some) } else { Ok(None) }
    }
}
