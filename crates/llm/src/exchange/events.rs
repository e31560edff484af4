//! Splits the bytes of an answer into events.
//!
//! It passes on one whole event at a time, with its data only. It also runs below async-openai, whose reader has no bounds and
//! parses a long line again with every read.

use std::collections::VecDeque;

use crate::{
    ModelError, ModelErrorKind,
    http::{KEEP_ALIVE, error::excerpt},
    model::limits::{AnswerLimits, over},
};

/// The events of one answer, fed read by read.
#[derive(Debug)]
pub(crate) struct Events {
    limits: AnswerLimits,
    /// The number of received bytes.
    received: usize,
    begun: Begun,
    /// `true` within a comment at the beginning.
    in_comment: bool,
    /// The unfinished line.
    line: Vec<u8>,
    /// `true` if the last byte was a carriage return, which may be half of a line end.
    after_return: bool,
    /// The data lines of the event so far.
    data: Vec<u8>,
    /// The name of the event so far.
    name: String,
    ready: VecDeque<Vec<u8>>,
    /// `true` if `[DONE]` has arrived.
    pub(crate) done: bool,
    /// `true` if only events of the chat-completions kind are passed on.
    only_chat: bool,
}

/// The kind of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    /// Not known yet: only this many bytes of a byte order mark.
    No(usize),
    /// Not known yet: only white space and comments.
    Blank,
    /// A stream of events.
    Stream,
    /// One JSON value, from a server that does not stream. Comments and blank lines may precede it.
    Whole,
}

const MARK: &[u8] = "\u{feff}".as_bytes();

impl Events {
    pub(crate) fn new(limits: AnswerLimits) -> Self {
        Self {
            limits,
            received: 0,
            begun: Begun::No(0),
            in_comment: false,
            line: Vec::new(),
            after_return: false,
            data: Vec::new(),
            name: String::new(),
            ready: VecDeque::new(),
            done: false,
            only_chat: true,
        }
    }

    /// Creates the events of a protocol that is not of the chat-completions kind.
    pub(crate) fn of_any_kind(limits: AnswerLimits) -> Self {
        Self { only_chat: false, ..Self::new(limits) }
    }

    /// Reads received bytes.
    ///
    /// # Errors
    /// An error of the kind `AnswerLimit` if a bound is exceeded; one of the kind `Malformed` if it is not
    /// UTF-8. Events read before are still returned by [`next`](Self::next).
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), ModelError> {
        self.received = self.received.saturating_add(bytes.len());
        if let Begun::No(marked) = self.begun {
            let same = MARK[marked..].iter().zip(bytes).take_while(|(mark, byte)| mark == byte).count();
            bytes = &bytes[same..];
            self.begun = match bytes.first() {
                None => Begun::No(marked + same),
                Some(_) => Begun::Blank,
            };
        }
        if self.begun == Begun::Blank {
            bytes = self.behind_blank(bytes);
        }
        if self.begun == Begun::Whole {
            self.keep(bytes)?;
        } else {
            self.lines(bytes)?;
        }
        if self.received > self.limits.received_bytes {
            let most = self.limits.received_bytes;
            return Err(over("the server sends too much for one answer", "received_bytes", most));
        }
        Ok(())
    }

    /// Skips white space and comments before an answer, and finds out its kind.
    fn behind_blank<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        loop {
            if self.in_comment {
                let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                bytes = &bytes[end.unwrap_or(bytes.len())..];
                self.in_comment = end.is_none();
            }
            bytes = bytes.trim_ascii_start();
            self.begun = match bytes.first() {
                None => return bytes,
                Some(b':') => {
                    self.in_comment = true;
                    continue;
                }
                Some(b'{' | b'[') => Begun::Whole,
                Some(_) => Begun::Stream,
            };
            return bytes;
        }
    }

    fn lines(&mut self, mut bytes: &[u8]) -> Result<(), ModelError> {
        while let Some(at) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_second_half = std::mem::take(&mut self.after_return) && at == 0 && bytes[0] == b'\n';
            self.after_return = bytes[at] == b'\r';
            self.keep(&bytes[..at])?;
            bytes = &bytes[at + 1..];
            if !is_second_half {
                self.end_line()?;
            }
        }
        if !bytes.is_empty() {
            self.after_return = false;
        }
        self.keep(bytes)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        let most = self.limits.line_bytes;
        // The lines of one event count as one.
        if self.data.len() + self.line.len() + bytes.len() > most {
            return Err(over("the server sends a line that is too long", "line_bytes", most));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), ModelError> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            self.end_event();
            return Ok(());
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                let Ok(text) = std::str::from_utf8(value) else {
                    let text = excerpt(&String::from_utf8_lossy(value));
                    let message = format!("the server sent an event that is not UTF-8: {text}");
                    return Err(ModelError::new(ModelErrorKind::Malformed, message));
                };
                self.data.extend_from_slice(b"data: ");
                self.data.extend_from_slice(text.as_bytes());
                self.data.push(b'\n');
            }
            b"event" => self.name = String::from_utf8_lossy(value).to_ascii_lowercase(),
            _ => {}
        }
        Ok(())
    }

    fn end_event(&mut self) {
        let mut data = std::mem::take(&mut self.data);
        let name = std::mem::take(&mut self.name);
        if data.trim_ascii_end() == b"data: [DONE]" {
            self.done = true;
            data = b"data: [DONE]\n".to_vec();
        } else if data.is_empty() || data == b"data: \n" || self.only_chat && is_foreign(&name, &data) {
            return;
        }
        data.push(b'\n');
        self.ready.push_back(data);
    }

    /// Returns the next whole event, with the empty line at its end.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Returns the data of the next whole event.
    pub(crate) fn next_data(&mut self) -> Option<String> {
        let event = String::from_utf8(self.next()?).expect("data is UTF-8");
        let lines = event.lines().filter_map(|line| line.strip_prefix("data: "));
        Some(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Ends the answer. Data without a final empty line is an event if it is complete JSON, or `[DONE]`: a part of one is neither.
    pub(crate) fn end(&mut self) {
        match self.begun {
            Begun::Whole => {
                let body = std::mem::take(&mut self.line);
                // Line ends occur only between the values of JSON.
                let body: Vec<u8> =
                    body.into_iter().map(|byte| if byte < b' ' { b' ' } else { byte }).collect();
                let body = String::from_utf8_lossy(&body);
                if self.only_chat && is_completion(&body) {
                    self.ready.push_back([b"data: ", body.as_bytes(), b"\n\n"].concat());
                }
            }
            _ => {
                // A line that is not UTF-8 may be cut within a character.
                let is_read = self.line.is_empty() || self.end_line().is_ok();
                if is_read && is_whole(&self.data) {
                    self.end_event();
                }
            }
        }
    }
}

/// Returns whether an event has no content by its name: a heartbeat, or an event of another protocol without the fields of a chunk.
fn is_foreign(name: &str, data: &[u8]) -> bool {
    let has = |field: &str| data.windows(field.len()).any(|part| part == field.as_bytes());
    let is_named = !(name.is_empty() || name.contains("error"));
    KEEP_ALIVE.contains(&name) || is_named && !["\"choices\"", "\"error\"", "\"usage\""].into_iter().any(has)
}

/// Returns whether the data lines of an event are complete: an object, which ends with its last character, or `[DONE]`.
fn is_whole(lines: &[u8]) -> bool {
    let values = lines.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data: "));
    let data = values.collect::<Vec<_>>().join(&b'\n');
    let data = data.trim_ascii();
    data == b"[DONE]"
        || data.starts_with(b"{") && serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok()
}

/// Returns whether a JSON text may be an answer that a server sent as a whole instead of a stream.
fn is_completion(body: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Body<'a> {
        #[serde(borrow, default)]
        choices: Option<&'a serde_json::value::RawValue>,
    }
    serde_json::from_str::<Body<'_>>(body).is_ok_and(|body| body.choices.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(limits: AnswerLimits, reads: &[&[u8]]) -> (Vec<String>, Events, Result<(), ModelError>) {
        let mut events = Events::new(limits);
        let pushed = reads.iter().try_for_each(|bytes| events.push(bytes));
        if pushed.is_ok() {
            events.end();
        }
        let seen =
            std::iter::from_fn(|| events.next().map(|data| String::from_utf8(data).unwrap())).collect();
        (seen, events, pushed)
    }

    #[test]
    fn events_are_equal_for_any_split_of_the_bytes() {
        let text = "\u{feff}: hi\r\ndata: a\r\rdata:b\ndata: é\r\n\r\nid: 1\nevent: keepalive\ndata: {}\n\ndata:\n\n\
                    event: Ping\ndata: {\"choices\":[]}\n\nevent: tool.progress\ndata: {\"message\":\"m\"}\n\n\
                    event: x\ndata: [DONE]\n\ndata: cut";
        let whole = read(AnswerLimits::default(), &[text.as_bytes()]);
        assert_eq!(whole.0, ["data: a\n\n", "data: b\ndata: é\n\n", "data: [DONE]\n\n"]);
        assert!(whole.1.done);
        for at in 0..text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            assert_eq!(read(AnswerLimits::default(), &[one, other]).0, whole.0, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(read(AnswerLimits::default(), &bytes).0, whole.0);
    }

    #[test]
    fn the_last_event_needs_no_empty_line_if_it_is_complete() {
        let end = |text: &str| {
            let (mut seen, events, _) = read(AnswerLimits::default(), &[b"data: {}\n\n", text.as_bytes()]);
            (seen.split_off(1), events.done)
        };
        for text in [
            "data: {\"a\":\"}\"}",
            "data: {\"a\":\"}\"}\n",
            "data:{\"a\":\"}\"}\r\n",
            "data: {\"a\":\ndata: \"}\"}",
        ] {
            let (seen, done) = end(text);
            let whole = seen.concat().replace("\ndata: ", "");
            assert_eq!((whole.as_str(), done), ("data: {\"a\":\"}\"}\n\n", false), "{text}");
        }
        for text in ["data: [DONE]", "data:[DONE] \n", "data: [DONE]\r"] {
            assert_eq!(end(text), (vec!["data: [DONE]\n\n".to_owned()], true), "{text}");
        }
        for text in [
            "",
            "data: {\"a\":\"}",
            "data: {\"a\":1",
            "data: 1",
            "data: [DON",
            ": {}",
            "data",
            "event: keepalive\ndata: {}",
        ] {
            assert_eq!(end(text), (vec![], false), "{text}");
        }
        // Cut within a character.
        assert_eq!(read(AnswerLimits::default(), &[b"data: {\"a\":\"\xc3"]).0, [""; 0]);
    }

    #[test]
    fn an_event_of_another_name_counts_if_it_has_the_fields_of_a_chunk() {
        let is_read = |name: &str, data: &str| {
            let text = format!("event: {name}\ndata: {data}\n\n");
            !read(AnswerLimits::default(), &[text.as_bytes()]).0.is_empty()
        };
        for name in ["ping", "PING", "heartbeat", "keep-alive"] {
            assert!(!is_read(name, r#"{"choices":[]}"#), "{name}");
        }
        for (name, data) in [
            ("chunk", r#"{"choices":[]}"#),
            ("message", r#"{"usage":{}}"#),
            ("x", r#"{"error":"why"}"#),
            ("error", r#"{"message":"why"}"#),
        ] {
            assert!(is_read(name, data), "{name}");
        }
        assert!(!is_read("tool.progress", r#"{"message":"reading a file"}"#));
    }

    #[test]
    fn a_mark_is_skipped_at_the_beginning_only() {
        let seen = read(AnswerLimits::default(), &["data: \u{feff}\n\n".as_bytes()]).0;
        assert_eq!(seen, ["data: \u{feff}\n\n"]);
    }

    #[test]
    fn an_answer_that_is_not_a_stream_is_one_event() {
        let body = b"{\"choices\": [\r\n {} ]\n}";
        assert_eq!(read(AnswerLimits::default(), &[body]).0, ["data: {\"choices\": [   {} ] }\n\n"]);
        assert_eq!(read(AnswerLimits::default(), &[br#"{"error":"no"}"#]).0, [""; 0]);
        let begun = b"\r\n : keep-alive\n\n:\n  {\"choices\":\n[]}";
        for at in 0..begun.len() {
            let (one, other) = begun.split_at(at);
            assert_eq!(
                read(AnswerLimits::default(), &[one, other]).0,
                ["data: {\"choices\": []}\n\n"],
                "{at}"
            );
        }
    }

    #[test]
    fn an_event_that_is_too_long_ends_the_stream_within_its_limit() {
        let limits = AnswerLimits { line_bytes: 10, received_bytes: 40, ..AnswerLimits::default() };
        let refused = |reads: &[&[u8]]| read(limits, reads).2.unwrap_err().message;
        let line = "the server sends a line that is too long, the limit `line_bytes` of an answer is 10: ";
        for reads in [
            &[&b"data: 12345"[..]][..],
            &[b"data: ", b"12345"],
            &[b"id:\n: a long comment"],
            &[b"{\"choices\":[]}"],
            &[b"data: 123\n", b"data: 123\n", b"d"],
        ] {
            let error = refused(reads);
            assert!(error.starts_with(line), "{error}");
        }
        let endless = [&b":\n"[..]; 30];
        let error = refused(&endless);
        assert!(
            error.starts_with(
                "the server sends too much for one answer, the limit `received_bytes` of an answer is 40: "
            ),
            "{error}"
        );
        let error = read(AnswerLimits::default(), &[b"data: \xff\n\n"]).2.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed);
    }
}
