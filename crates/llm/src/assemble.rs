//! Folding of a streamed answer's pieces into one message.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
};

use futures::StreamExt;
use serde_json::{Map, Value};

use crate::{
    ChatModel, Delta, FinishReason, Message, ModelError, ModelErrorKind, Request, Response, ToolCall, Usage,
};

/// Sends `request` to `model` and waits for the whole answer.
///
/// Use [`ChatModel::stream`] to receive it in parts.
///
/// # Errors
/// The first error of the stream; [`ModelErrorKind::TruncatedStream`] if it ends without a finish reason.
pub async fn complete(model: &dyn ChatModel, request: Request) -> Result<Response, ModelError> {
    let mut answer = Assembler::new();
    let mut deltas = model.stream(request);
    while let Some(delta) = deltas.next().await {
        answer.push(&delta?);
    }
    answer.finish()
}

/// Folds [`Delta`]s into a [`Response`], for all providers' variants of streamed tool calls.
///
/// A piece of a call belongs to the call with its id; without one, to the latest call under its index. It
/// opens a new call if its id is new to the answer, if it names another tool, or if it has arguments although
/// the call so far has complete ones, and it or a piece since them names a tool. Names replace, arguments append;
/// argument text is never rewritten. A name that is repeated without an id and without any arguments is one call.
/// # Example: a provider that sends index 0 for every call
/// ```
/// # use superstep_llm::{Assembler, Delta, FinishReason};
/// let call = |id: &str| Delta::ToolCall {
///     index: 0,
///     id: Some(id.into()),
///     name: Some("echo".into()),
///     arguments: "{}".into(),
/// };
/// let mut answer = Assembler::new();
/// for delta in [call("a"), call("b"), Delta::Finish(FinishReason::ToolCalls)] {
///     answer.push(&delta);
/// }
/// assert_eq!(answer.finish().unwrap().message.tool_calls.len(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    content: String,
    reasoning: String,
    calls: Vec<PartialCall>,
    /// The position of the latest call by index, and by index with an id.
    latest: BTreeMap<usize, usize>,
    by_id: BTreeMap<(usize, String), usize>,
    /// The call that the last piece belongs to.
    newest: usize,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    /// The tokens of discarded attempts that reported usage: void, but paid for.
    discarded: Option<Usage>,
    retries: u32,
}

#[derive(Clone, Debug, Default)]
struct PartialCall {
    index: usize,
    id: Option<String>,
    name: Option<String>,
    arguments: String,
    nesting: Nesting,
    /// The result of the check for complete arguments, which later white space does not change.
    complete: Option<bool>,
    /// The tool was named again after complete arguments.
    named_again: bool,
}

/// The nesting depth of JSON text, updated piece by piece. Invalid JSON gives some depth too.
#[derive(Clone, Copy, Debug, Default)]
struct Nesting {
    depth: usize,
    most: usize,
    /// The number of values, from above.
    values: usize,
    in_string: bool,
    escaped: bool,
    /// `true` if text follows the end of the first object or list.
    trailing: bool,
}

impl Nesting {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            let is_behind = self.depth == 0 && self.most > 0 && !byte.is_ascii_whitespace();
            self.trailing |= is_behind;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b',' => self.values += 1,
                b'{' | b'[' => {
                    self.values += 1;
                    self.depth += 1;
                    self.most = self.most.max(self.depth);
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Returns whether the text may be a complete object, so that parsing it is worthwhile.
    fn is_closed(&self) -> bool {
        self.depth == 0 && self.most > 0 && !self.trailing
    }
}

/// Returns the number of values in a JSON text, from above.
pub(crate) fn values(json: &str) -> usize {
    let mut nesting = Nesting::default();
    nesting.push(json);
    1 + nesting.values
}

impl Assembler {
    /// Creates an assembler without deltas.
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds one piece.
    pub fn push(&mut self, delta: &Delta) {
        match delta {
            Delta::Text(text) => self.content.push_str(text),
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::ToolCall { index, id, name, arguments } => {
                let id = id.as_deref().filter(|id| !id.is_empty());
                let name = name.as_deref().filter(|name| !name.is_empty());
                self.push_call(*index, id, name, arguments);
            }
            Delta::TextCalls { .. } => self.content.clear(),
            Delta::Usage(usage) => self.usage = Some(*usage),
            Delta::Finish(reason) => self.finish = Some(reason.clone()),
            Delta::Retry { .. } | Delta::Fallback { .. } => self.retries = self.retries.saturating_add(1),
            Delta::AttemptDiscarded { .. } => {
                *self = Self {
                    discarded: sum(self.discarded, self.usage),
                    retries: self.retries,
                    ..Self::default()
                };
            }
        }
    }

    fn push_call(&mut self, index: usize, id: Option<&str>, name: Option<&str>, arguments: &str) {
        let found = self.find(index, id);
        let over = found.filter(|&at| self.calls[at].is_over(name, arguments));
        self.newest = match found {
            Some(at) if over.is_none() => at,
            _ => self.open(index, over.filter(|_| name.is_none())),
        };
        let call = &mut self.calls[self.newest];
        if let (None, Some(id)) = (&call.id, id) {
            call.id = Some(id.to_owned());
            self.by_id.insert((index, id.to_owned()), self.newest);
        }
        if let Some(name) = name {
            call.name = Some(name.to_owned());
        }
        call.arguments.push_str(arguments);
        call.nesting.push(arguments);
    }

    /// Opens a call; `named` is the one before if its name was repeated for this one, perhaps with its id.
    fn open(&mut self, index: usize, named: Option<usize>) -> usize {
        let at = self.calls.len();
        let (id, name) = match named.map(|before| &self.calls[before]) {
            Some(before) => (before.id.clone(), before.name.clone()),
            None => (None, None),
        };
        self.latest.insert(index, at);
        if let Some(id) = &id {
            self.by_id.insert((index, id.clone()), at);
        }
        self.calls.push(PartialCall { index, id, name, ..PartialCall::default() });
        at
    }

    /// Returns the call a piece with this index and id continues.
    fn find(&self, index: usize, id: Option<&str>) -> Option<usize> {
        let latest = self.latest.get(&index).copied();
        let Some(id) = id else { return latest };
        let of_id = self.by_id.get(&(index, id.to_owned())).copied();
        // The id arrives late: the call was opened without one.
        of_id.or(latest.filter(|&at| self.calls[at].id.is_none()))
    }

    /// Returns the number of tool calls so far.
    pub(crate) fn count(&self) -> usize {
        self.calls.len()
    }

    /// Returns the name of the last piece's call, with the length and nesting of its arguments.
    pub(crate) fn newest(&self) -> Option<(&str, usize, usize)> {
        let call = self.calls.get(self.newest)?;
        Some((call.name.as_deref().unwrap_or_default(), call.arguments.len(), call.nesting.most))
    }

    /// Returns the number of values in the arguments of all calls, from above.
    pub(crate) fn values(&self) -> usize {
        self.calls.iter().map(|call| call.nesting.values).sum()
    }

    /// Returns whether a finish reason has arrived.
    pub fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Returns the text as far as it has arrived.
    pub fn text(&self) -> &str {
        &self.content
    }

    /// Returns the names and the arguments of the calls as far as they have arrived, in the order of
    /// [`partial`](Self::partial).
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str)> {
        let calls = self.in_order().into_iter();
        calls.map(|call| (call.name.as_deref().unwrap_or_default(), call.arguments.as_str()))
    }

    fn in_order(&self) -> Vec<&PartialCall> {
        let mut calls: Vec<&PartialCall> = self.calls.iter().filter(|call| !call.is_empty()).collect();
        calls.sort_by_key(|call| call.index);
        calls
    }

    /// Returns the message so far, to store the text of an interrupted answer.
    ///
    /// Copies all of it; [`text`](Self::text) and [`calls`](Self::calls) borrow, for inspection of every
    /// piece.
    pub fn partial(&self) -> Message {
        let calls = self.in_order();
        let mut ids = Ids::reserving(&calls);
        let calls = calls.into_iter().map(|call| ToolCall {
            id: ids.take(call.id.as_deref()),
            name: call.name.clone().unwrap_or_default(),
            arguments: call.arguments.clone(),
        });
        let message = Message::assistant(self.content.clone()).with_tool_calls(calls);
        message.with(|message| message.reasoning.clone_from(&self.reasoning))
    }

    /// Returns the complete answer.
    ///
    /// Calls are ordered by their indexes. A call without an id, or with the id of an earlier call of the
    /// answer, gets the first free one of `call_1`, `call_2`, ….
    ///
    /// # Errors
    /// [`ModelErrorKind::TruncatedStream`] if no finish reason has arrived.
    pub fn finish(mut self) -> Result<Response, ModelError> {
        let Some(finish) = self.finish.take() else {
            return Err(truncated());
        };
        let (content, reasoning) = (take(&mut self.content), take(&mut self.reasoning));
        let message = self.partial().with(|message| {
            (message.content, message.reasoning) = (content, reasoning);
        });
        let usage = sum(self.discarded, self.usage);
        Ok(Response { message, finish, usage, attempts: self.retries.saturating_add(1) })
    }
}

impl PartialCall {
    /// Returns whether a piece with this name and these arguments must belong to another call.
    fn is_over(&mut self, name: Option<&str>, arguments: &str) -> bool {
        if let (Some(own), Some(name)) = (&self.name, name) {
            if own != name {
                return true;
            }
            // Some servers repeat the name with every piece, also with an empty one at the end.
            self.named_again |= self.is_complete();
        }
        self.named_again && !arguments.trim().is_empty()
    }

    /// Returns whether the arguments are a complete object. Parses them at most once.
    fn is_complete(&mut self) -> bool {
        self.nesting.is_closed() && *self.complete.get_or_insert_with(|| is_json_object(&self.arguments))
    }

    fn is_empty(&self) -> bool {
        self.id.is_none() && self.name.is_none() && self.arguments.trim().is_empty()
    }
}

/// A source of ids that are unique within one answer.
struct Ids {
    given: BTreeSet<String>,
    used: BTreeSet<String>,
    next: usize,
}

impl Ids {
    fn reserving(calls: &[&PartialCall]) -> Self {
        let given = calls.iter().filter_map(|call| call.id.clone()).collect();
        Self { given, used: BTreeSet::new(), next: 1 }
    }

    fn take(&mut self, id: Option<&str>) -> String {
        if let Some(id) = id
            && self.used.insert(id.to_owned())
        {
            return id.to_owned();
        }
        loop {
            let id = format!("call_{}", self.next);
            self.next += 1;
            if !self.given.contains(&id) {
                return id;
            }
        }
    }
}

fn sum(one: Option<Usage>, other: Option<Usage>) -> Option<Usage> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

/// Returns whether `text` is one complete JSON object.
pub(crate) fn is_json_object(text: &str) -> bool {
    // `IgnoredAny` would accept halves of surrogate pairs.
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// Creates the error of a stream without a finish reason.
pub(crate) fn truncated() -> ModelError {
    ModelError::new(
        ModelErrorKind::TruncatedStream,
        "the stream ended before the model gave a finish reason; the answer is incomplete, send the request again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(index: usize, id: &str, name: &str, arguments: &str) -> Delta {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Delta::ToolCall { index, id: some(id), name: some(name), arguments: arguments.into() }
    }

    fn calls(pieces: impl IntoIterator<Item = Delta>) -> Vec<(String, String, String)> {
        let mut answer = Assembler::new();
        pieces.into_iter().for_each(|piece| answer.push(&piece));
        answer.push(&Delta::Finish(FinishReason::ToolCalls));
        let seen: Vec<_> =
            answer.calls().map(|(name, arguments)| (name.to_owned(), arguments.to_owned())).collect();
        let calls = answer.finish().unwrap().message.into_data().tool_calls;
        let whole: Vec<_> = calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
        assert_eq!(seen, whole);
        calls.into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.into(), name.into(), arguments.into())
    }

    #[test]
    fn interleaved_pieces_go_to_the_call_of_their_index() {
        let got = calls([
            piece(1, "c1", "echo", ""),
            piece(0, "c0", "echo", ""),
            piece(1, "", "", r#"{"x":"#),
            piece(0, "", "", r#"{"x":"A"#),
            piece(1, "", "", r#""B"}"#),
            piece(0, "", "", r#""}"#),
        ]);
        assert_eq!(got, [call("c0", "echo", r#"{"x":"A"}"#), call("c1", "echo", r#"{"x":"B"}"#)]);
    }

    #[test]
    fn a_new_id_under_the_same_index_is_a_new_call() {
        let got = calls([
            piece(0, "a", "echo", ""),
            piece(0, "", "", "{\"x\":1}"),
            piece(0, "b", "echo", ""),
            piece(0, "", "", "{\"x\":2}"),
        ]);
        assert_eq!(got, [call("a", "echo", "{\"x\":1}"), call("b", "echo", "{\"x\":2}")]);
    }

    #[test]
    fn an_id_and_a_name_sent_again_with_every_piece_are_one_call() {
        let got = calls([piece(0, "a", "echo", "{\"x\""), piece(0, "a", "echo", ":1}")]);
        assert_eq!(got, [call("a", "echo", "{\"x\":1}")]);
        for id in ["", "a"] {
            let pieces = ["", "", "{\"x\"", "", ":1}", "", " "];
            let got = calls(pieces.map(|arguments| piece(0, id, "echo", arguments)));
            assert_eq!(got, [call(if id.is_empty() { "call_1" } else { id }, "echo", "{\"x\":1} ")]);
        }
    }

    #[test]
    fn calls_of_one_tool_without_new_ids_are_distinguished_by_complete_arguments() {
        for id in ["", "x"] {
            for later in ["", id] {
                let one = |arguments: [&str; 2]| {
                    let [first, second] = arguments.map(|arguments| piece(0, later, "", arguments));
                    [piece(0, id, "echo", ""), first, second]
                };
                let pieces = [one(["{\"x\"", ":1}"]), one(["", "{}"]), one(["{\"x\"", ":{}}"])];
                let got = calls(pieces.into_iter().flatten());
                let arguments: Vec<_> = got.iter().map(|(_, _, arguments)| arguments.as_str()).collect();
                assert_eq!(arguments, ["{\"x\":1}", "{}", "{\"x\":{}}"], "{id} {later}");
            }
        }
        // Arguments that are not complete end with another name or id only.
        let got = calls([piece(0, "", "echo", "{\"x\":}"), piece(0, "", "echo", ""), piece(0, "", "", "1")]);
        assert_eq!(got, [call("call_1", "echo", "{\"x\":}1")]);
    }

    #[test]
    fn an_object_is_one_for_the_parser_of_arguments_too() {
        assert!(is_json_object(" {\"x\":\"\\ud83d\\ude00\"} "));
        for text in ["", "[]", "{} {}", "{\"x\":\"\\ud83dy\"}", "{\"x\":1e999}"] {
            assert!(!is_json_object(text), "{text}");
        }
    }

    #[test]
    fn a_late_name_and_id_are_accepted() {
        let got = calls([piece(0, "", "", "{"), piece(0, "", "echo", "\"x\":1"), piece(0, "late", "", " }")]);
        assert_eq!(got, [call("late", "echo", "{\"x\":1 }")]);
    }

    #[test]
    fn calls_without_ids_get_free_ones() {
        let got = calls([
            piece(0, "", "echo", "{\"x\":1}"),
            piece(0, "", "echo", "{\"x\":2}"),
            piece(0, "call_1", "add", "{}"),
        ]);
        assert_eq!(
            got,
            [
                call("call_2", "echo", "{\"x\":1}"),
                call("call_3", "echo", "{\"x\":2}"),
                call("call_1", "add", "{}")
            ]
        );
    }

    #[test]
    fn an_id_used_for_two_indexes_is_made_unique() {
        let got = calls([piece(0, "x", "echo", "{}"), piece(1, "x", "echo", "{}")]);
        assert_eq!(got, [call("x", "echo", "{}"), call("call_1", "echo", "{}")]);
    }

    #[test]
    fn argument_text_stays_as_it_was_written() {
        let got = calls([piece(0, "a", "add", "{\"a\": 2,"), piece(0, "", "", " \"b\":3}\n")]);
        assert_eq!(got, [call("a", "add", "{\"a\": 2, \"b\":3}\n")]);
    }

    #[test]
    fn an_empty_chunk_is_not_a_call() {
        assert_eq!(calls([piece(0, "", "", "")]), []);
    }

    #[test]
    fn a_discarded_attempt_leaves_only_its_cost() {
        let mut answer = Assembler::new();
        for delta in [
            Delta::Text("Hel".into()),
            piece(0, "a", "echo", "{"),
            Delta::Usage(Usage { input_tokens: 5, output_tokens: 1 }),
            Delta::AttemptDiscarded { attempt: 1 },
            Delta::Retry { attempt: 2, delay_ms: 1000, status: None, reason: "cut".into() },
            Delta::Text("Hello".into()),
            Delta::Usage(Usage { input_tokens: 5, output_tokens: 1 }),
            Delta::Usage(Usage { input_tokens: 5, output_tokens: 2 }),
            Delta::Finish(FinishReason::Stop),
        ] {
            answer.push(&delta);
        }
        let response = answer.finish().unwrap();
        assert_eq!(response.message, Message::assistant("Hello"));
        assert_eq!(response.usage, Some(Usage { input_tokens: 10, output_tokens: 3 }));
        assert_eq!(response.attempts, 2);
    }

    #[test]
    fn an_answer_without_a_finish_reason_is_truncated() {
        let mut answer = Assembler::new();
        answer.push(&Delta::Text("Hel".into()));
        assert_eq!((answer.partial(), answer.text()), (Message::assistant("Hel"), "Hel"));
        assert_eq!(answer.finish().unwrap_err().kind, ModelErrorKind::TruncatedStream);
    }
}
