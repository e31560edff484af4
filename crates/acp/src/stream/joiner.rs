//! Pieces of text and outputs of tools, joined to fewer updates.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::tools::{fenced, text_content};
use crate::wire::{Chunk, SessionUpdate, ToolCall};

/// The time for which pieces of a message are joined.
const TEXT_DELAY: Duration = Duration::from_millis(25);

/// The time between two updates of a call's output.
const OUTPUT_DELAY: Duration = Duration::from_millis(100);

/// The maximum length of a call's output, in bytes. Its beginning is dropped.
const MAX_OUTPUT: usize = 32 << 10;

/// Joins the pieces of a turn. The caller sends the returned updates in their order, and calls [`take_due`](Self::take_due) at
/// [`due`](Self::due) and [`flush`](Self::flush) before any other update.
#[derive(Debug, Default)]
pub struct Joiner {
    text: Option<JoinedText>,
    attempts: BTreeMap<String, Attempt>,
    outputs: BTreeMap<String, Output>,
}

/// Text that is not sent yet.
#[derive(Debug)]
struct JoinedText {
    message: String,
    is_thought: bool,
    text: String,
    due: Instant,
}

/// The attempt that produces a message now.
#[derive(Debug, Default)]
struct Attempt {
    /// The number of discarded attempts of which the client has text.
    discarded: u32,
    is_sent: bool,
}

/// The end of a call's output.
#[derive(Debug, Default)]
struct Output {
    tail: String,
    dropped: usize,
    due: Option<Instant>,
}

impl Joiner {
    /// Adds a piece of a message. Returns the text before it if that is of another message.
    pub fn text(
        &mut self,
        now: Instant,
        message: &str,
        is_thought: bool,
        piece: &str,
    ) -> Option<SessionUpdate> {
        if let Some(open) = &mut self.text
            && open.message == message
            && open.is_thought == is_thought
        {
            open.text.push_str(piece);
            return None;
        }
        let before = self.flush();
        let due = now + TEXT_DELAY;
        self.text = Some(JoinedText { message: message.to_owned(), is_thought, text: piece.to_owned(), due });
        before
    }

    /// Discards the text of a message so far. The client cannot take back what it has, so that the next attempt is another message,
    /// `ID~2`.
    pub fn discard(&mut self, message: &str) {
        self.text.take_if(|open| open.message == message);
        if let Some(attempt) = self.attempts.get_mut(message)
            && attempt.is_sent
        {
            attempt.discarded += 1;
            attempt.is_sent = false;
        }
    }

    /// Adds output of a call.
    pub fn output(&mut self, now: Instant, call: &str, chunk: &str) {
        if !self.outputs.contains_key(call) {
            self.outputs.insert(call.to_owned(), Output::default());
        }
        let output = self.outputs.get_mut(call).expect("it was inserted");
        output.tail.push_str(chunk);
        if output.tail.len() > 2 * MAX_OUTPUT {
            output.cut();
        }
        output.due.get_or_insert(now + OUTPUT_DELAY);
    }

    /// Drops the output of a call that ended: its result replaces the output.
    pub fn end_call(&mut self, call: &str) {
        self.outputs.remove(call);
    }

    /// Returns the time of the next update.
    pub fn due(&self) -> Option<Instant> {
        let outputs = self.outputs.values().filter_map(|output| output.due);
        outputs.chain(self.text.as_ref().map(|text| text.due)).min()
    }

    /// Returns the updates that are due.
    pub fn take_due(&mut self, now: Instant) -> Vec<SessionUpdate> {
        let is_due = self.text.as_ref().is_some_and(|text| text.due <= now);
        let mut updates: Vec<_> = is_due.then(|| self.flush()).flatten().into_iter().collect();
        for (call, output) in &mut self.outputs {
            if output.due.take_if(|due| *due <= now).is_some() {
                updates.push(output.update(call));
            }
        }
        updates
    }

    /// Returns the text that is not sent yet.
    pub fn flush(&mut self) -> Option<SessionUpdate> {
        let JoinedText { message, is_thought, text, .. } = self.text.take()?;
        let attempt = self.attempts.entry(message.clone()).or_default();
        attempt.is_sent = true;
        let id = match attempt.discarded {
            0 => message,
            discarded => format!("{message}~{}", discarded + 1),
        };
        Some(match is_thought {
            true => SessionUpdate::AgentThoughtChunk(Chunk::text(format!("{id}:thought"), text)),
            false => SessionUpdate::AgentMessageChunk(Chunk::text(id, text)),
        })
    }
}

impl Output {
    /// Drops all but the last [`MAX_OUTPUT`] bytes.
    fn cut(&mut self) {
        let start = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(MAX_OUTPUT));
        self.dropped += start;
        self.tail.drain(..start);
    }

    fn update(&mut self, call: &str) -> SessionUpdate {
        self.cut();
        let text = match self.dropped {
            0 => fenced(&self.tail, ""),
            dropped => format!("[{dropped} bytes before]\n{}", fenced(&self.tail, "")),
        };
        SessionUpdate::ToolCallUpdate(ToolCall {
            content: Some(vec![text_content(text)]),
            ..ToolCall::new(call)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(updates: impl IntoIterator<Item = SessionUpdate>) -> Vec<Value> {
        let shown = |update: SessionUpdate| {
            let update = serde_json::to_value(update).unwrap();
            json!([update["messageId"], update["content"]["text"]])
        };
        updates.into_iter().map(shown).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_of_a_message_are_joined_for_25_ms() {
        let (now, mut joiner) = (Instant::now(), Joiner::default());
        assert_eq!(joiner.text(now, "m", false, "a"), None);
        assert_eq!(joiner.text(now + TEXT_DELAY / 2, "m", false, "b"), None);
        assert_eq!(joiner.due(), Some(now + TEXT_DELAY), "from the first piece");
        assert_eq!(joiner.take_due(now + TEXT_DELAY / 2), []);
        assert_eq!(shown(joiner.take_due(now + TEXT_DELAY)), [json!(["m", "ab"])]);
        assert_eq!((joiner.due(), joiner.flush()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn another_message_or_a_thought_sends_the_text_before_it() {
        let (now, mut joiner) = (Instant::now(), Joiner::default());
        assert_eq!(joiner.text(now, "m", true, "hm"), None);
        let thought = joiner.text(now, "m", false, "a").unwrap();
        assert!(matches!(thought, SessionUpdate::AgentThoughtChunk(_)));
        assert_eq!(shown([thought]), [json!(["m:thought", "hm"])]);
        assert_eq!(shown(joiner.text(now, "n", false, "b")), [json!(["m", "a"])]);
        assert_eq!(shown(joiner.flush()), [json!(["n", "b"])]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_after_a_discarded_one_is_another_message_if_the_client_has_text_of_that() {
        let (now, mut joiner) = (Instant::now(), Joiner::default());
        joiner.text(now, "m", false, "unsent");
        joiner.discard("m");
        joiner.text(now, "m", false, "a");
        assert_eq!(shown(joiner.flush()), [json!(["m", "a"])]);
        joiner.text(now, "m", false, "lost");
        joiner.discard("m");
        joiner.discard("m");
        joiner.discard("other");
        joiner.text(now, "m", true, "b");
        assert_eq!(shown(joiner.flush()), [json!(["m~2:thought", "b"])]);
        joiner.text(now, "m", false, "c");
        assert_eq!(shown(joiner.flush()), [json!(["m~2", "c"])]);
    }

    fn output(updates: Vec<SessionUpdate>) -> (String, String) {
        assert_eq!(updates.len(), 1);
        let update = serde_json::to_value(&updates[0]).unwrap();
        let text = update["content"][0]["content"]["text"].as_str().unwrap().to_owned();
        (update["toolCallId"].as_str().unwrap().to_owned(), text)
    }

    #[tokio::test(start_paused = true)]
    async fn output_is_the_whole_text_every_100_ms_and_nothing_after_the_end_of_the_call() {
        let (now, mut joiner) = (Instant::now(), Joiner::default());
        joiner.output(now, "c", "one\n");
        joiner.output(now, "c", "two\n");
        assert_eq!(joiner.due(), Some(now + OUTPUT_DELAY));
        assert_eq!(output(joiner.take_due(now + OUTPUT_DELAY)), ("c".into(), "```\none\ntwo\n```".into()));
        assert_eq!(joiner.due(), None);
        joiner.output(now + OUTPUT_DELAY, "c", "three");
        let text = "```\none\ntwo\nthree\n```";
        assert_eq!(output(joiner.take_due(now + 2 * OUTPUT_DELAY)), ("c".into(), text.into()));
        joiner.output(now, "c", "four");
        joiner.end_call("c");
        assert_eq!((joiner.due(), joiner.take_due(now + 9 * OUTPUT_DELAY)), (None, vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_end_of_a_long_output_is_retained() {
        let (now, mut joiner) = (Instant::now(), Joiner::default());
        for _ in 0..100 {
            joiner.output(now, "c", &"é".repeat(1001));
            assert!(joiner.outputs["c"].tail.len() <= 2 * MAX_OUTPUT);
        }
        joiner.output(now, "c", "x");
        let (_, text) = output(joiner.take_due(now + OUTPUT_DELAY));
        let tail = format!("{}x", "é".repeat(MAX_OUTPUT / 2 - 1));
        assert_eq!(text, format!("[{} bytes before]\n```\n{tail}\n```", 200_201 - tail.len()));
    }
}
