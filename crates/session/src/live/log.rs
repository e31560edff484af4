//! The events of a session in memory, and their receivers.
//!
//! Start at [`EventLog`].

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::live::event::{SessionEvent, TurnEnd};

/// Maximum size of the events that a session keeps, in bytes.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// The same for a shell that writes every event, and whose output may be a pager that reads nothing for a while.
pub(super) const MAX_RAW_BYTES: usize = 256 << 20;

/// The size of an event besides its texts.
const EVENT_BYTES: usize = 128;

/// The size of a message in a state besides its text. About four times what it takes, so that few states of ended turns stay.
const MESSAGE_BYTES: usize = 4 << 10;

/// The most that the state at the end of a turn counts, so that the events before it stay.
const MAX_STATE_BYTES: usize = MAX_BYTES / 2;

/// The first event of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The next event.
    Now,
    /// The begin of the newest turn.
    Turn,
    /// The event of this number.
    Seq(u64),
}

/// The newest events of a session, numbered from 1.
#[derive(Clone)]
pub(super) struct EventLog(Arc<Shared>);

struct Shared {
    kept: Mutex<Kept>,
    max_bytes: usize,
    /// The number of the next event.
    next: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<(SessionEvent, usize)>,
    bytes: usize,
    /// The number of the first event of `events`.
    first: u64,
    /// The number of the first event of the newest turn.
    turn: u64,
    is_closed: bool,
}

impl EventLog {
    pub(super) fn new(max_bytes: usize) -> Self {
        let kept = Mutex::new(Kept { first: 1, turn: 1, ..Kept::default() });
        Self(Arc::new(Shared { kept, max_bytes, next: watch::Sender::new(1) }))
    }

    pub(super) fn push(&self, event: SessionEvent) {
        let size = size(&event);
        let mut kept = self.0.kept();
        if kept.is_closed {
            return;
        }
        let number = kept.first + kept.events.len() as u64;
        if let SessionEvent::TurnStarted { .. } = event {
            kept.turn = number;
        }
        kept.events.push_back((event, size));
        kept.bytes += size;
        while kept.bytes > self.0.max_bytes && kept.events.len() > 1 {
            let (_, size) = kept.events.pop_front().expect("there are two events");
            kept.bytes -= size;
            kept.first += 1;
        }
        drop(kept);
        self.0.next.send_replace(number + 1);
    }

    /// Ends the receivers once they have the last event.
    pub(super) fn close(&self) {
        self.0.kept().is_closed = true;
        self.0.next.send_modify(|_| {});
    }

    pub(super) fn subscribe(&self, since: Since) -> Events {
        let changed = self.0.next.subscribe();
        let next = match since {
            Since::Now => *changed.borrow(),
            Since::Turn => self.0.kept().turn,
            Since::Seq(number) => number.max(1),
        };
        Events { shared: self.0.clone(), changed, next }
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receiver of the events of a session.
pub struct Events {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    next: u64,
}

impl Events {
    /// Returns the next event with its number; `None` once the session is closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<(u64, SessionEvent)> {
        loop {
            self.changed.mark_unchanged();
            match self.ready() {
                Ok(found) => return found,
                Err(Waiting) => self.changed.changed().await.ok()?,
            }
        }
    }

    /// Returns the next event if there is one already.
    pub fn try_next(&mut self) -> Option<(u64, SessionEvent)> {
        self.ready().ok().flatten()
    }

    fn ready(&mut self) -> Result<Option<(u64, SessionEvent)>, Waiting> {
        let kept = self.shared.kept();
        if self.next < kept.first {
            let skipped = kept.first - self.next;
            self.next = kept.first;
            return Ok(Some((kept.first - 1, SessionEvent::Lagged { skipped })));
        }
        match kept.events.get(usize::try_from(self.next - kept.first).unwrap_or(usize::MAX)) {
            Some((event, _)) => {
                self.next += 1;
                Ok(Some((self.next - 1, event.clone())))
            }
            None if kept.is_closed => Ok(None),
            None => Err(Waiting),
        }
    }
}

/// There is no event yet.
struct Waiting;

/// Estimates the size of an event in bytes by its long texts. Each turn loads the thread again, so that the states of ended turns share
/// nothing.
fn size(event: &SessionEvent) -> usize {
    EVENT_BYTES
        + match event {
            SessionEvent::Piece { piece, .. } => piece.len(),
            SessionEvent::Output { chunk, .. } => chunk.len(),
            // Text of JSON, roughly.
            SessionEvent::Agent { data, .. } => data.to_string().len(),
            SessionEvent::Message(message) => message.text.len() + message.thought.len(),
            SessionEvent::Call(call) => {
                call.result.as_ref().map_or(0, String::len) + call.args.to_string().len()
            }
            SessionEvent::TurnEnded(TurnEnd { result: Ok(ended), .. }) => {
                let messages = ended.state.messages.iter();
                messages.map(|it| MESSAGE_BYTES + it.content.len()).sum::<usize>().min(MAX_STATE_BYTES)
            }
            SessionEvent::Asked(question) => question.waiting.request.question.len() * 2,
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use superstep::{
        agent::{AgentOutcome, AgentState},
        llm::Message,
    };

    use super::*;
    use crate::live::event::{Ended, Said};

    fn piece(text: &str) -> SessionEvent {
        SessionEvent::Piece { message: "m".into(), said: Said::Text, piece: text.into() }
    }

    fn text(event: Option<(u64, SessionEvent)>) -> String {
        match event {
            Some((number, SessionEvent::Piece { piece, .. })) => format!("{number} {}", piece.len()),
            Some((number, SessionEvent::Lagged { skipped })) => format!("{number} lost {skipped}"),
            Some((number, _)) => format!("{number} other"),
            None => "end".to_owned(),
        }
    }

    #[test]
    fn the_states_of_ended_turns_count() {
        let end = |messages: usize| {
            let messages = (0..messages).map(|n| Message::user("x").with_id(n.to_string())).collect();
            let state = Arc::new(AgentState { messages, ..AgentState::default() });
            let (outcome, waiting) = (AgentOutcome::Completed, Vec::new());
            let ended = Ended { outcome, state, checkpoint: None, waiting, has_schema: false };
            SessionEvent::TurnEnded(TurnEnd { turn: 1, took: Duration::ZERO, result: Ok(ended) })
        };
        assert_eq!(size(&end(3)), EVENT_BYTES + 3 * (MESSAGE_BYTES + 1));
        let log = EventLog::new(MAX_BYTES);
        let mut receiver = log.subscribe(Since::Now);
        log.push(piece("a"));
        log.push(end(MAX_BYTES / MESSAGE_BYTES));
        assert_eq!(text(receiver.try_next()), "1 1");
        for _ in 0..9 {
            log.push(end(MAX_BYTES / MESSAGE_BYTES));
        }
        assert!(log.0.kept().events.len() <= 2);
    }

    #[tokio::test]
    async fn a_receiver_gets_every_event_or_the_number_of_lost_ones() {
        let log = EventLog::new(MAX_BYTES);
        let (mut first, mut slow) = (log.subscribe(Since::Now), log.subscribe(Since::Seq(1)));
        log.push(piece("a"));
        assert_eq!(text(first.next().await), "1 1");
        log.push(SessionEvent::TurnStarted { turn: 1, prompt: None });
        let big = "x".repeat(MAX_BYTES / 2);
        log.push(piece(&big));
        log.push(piece(&big));
        assert_eq!(text(slow.next().await), "3 lost 3");
        assert_eq!(text(slow.next().await), format!("4 {}", big.len()));
        assert_eq!(text(log.subscribe(Since::Turn).next().await), "3 lost 2");
        log.close();
        log.push(piece("late"));
        assert_eq!(text(slow.next().await), "end");
        assert_eq!(slow.try_next().map(|(number, _)| number), None);
    }
}
