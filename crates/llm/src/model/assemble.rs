//! Folding of a streamed answer's pieces into one message.

mod calls;

use std::{collections::BTreeSet, mem::take};

use futures::StreamExt;
use serde_json::{Map, Value};

use self::calls::{Calls, Whole};
use crate::{
    ChatModel, Delta, FinishReason, Message, ModelError, ModelErrorKind, Request, Response, ToolCall, Usage,
    messages::{
        extras::{Extras, Place},
        origin::Fields,
    },
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
/// A piece of a call belongs to the latest call under its index, even if its id differs, as some servers invent one for each piece;
/// or to the call with its id. It opens a new call if it has a new id and a name, if it names another tool, or if it has arguments
/// although the call so far has complete ones, and it or a piece since them names a tool. Names replace, arguments append.
///
/// A call that is reported twice is one call: equal arguments under one id, or under one index without ids. So are arguments that
/// are repeated within a call, or that follow an empty object. Argument text is not changed otherwise.
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
    calls: Calls,
    /// The unknown fields of the message, and where they come from.
    fields: Fields,
    extras: Extras,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    /// The tokens of discarded attempts that reported usage: void, but paid for.
    discarded: Option<Usage>,
    retries: u32,
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
            Delta::Reasoning(text) => {
                self.reasoning.push_str(text);
                self.extras.reasoning();
            }
            Delta::ToolCall { index, id, name, arguments } => {
                let id = id.as_deref().filter(|id| !id.is_empty());
                let name = name.as_deref().filter(|name| !name.is_empty());
                self.calls.push(*index, id, name, arguments);
            }
            Delta::Origin { wire, server, model, prefix } => {
                let [wire, server, model, prefix] = [wire, server, model, prefix].map(String::clone);
                self.extras.begin(Place { wire, server, model, prefix });
            }
            Delta::Item { index, item } => self.extras.item(*index, item),
            Delta::ReasoningDropped { .. } => {}
            Delta::Extra { call: None, fields } => self.extras.add(&mut self.fields, fields),
            Delta::Extra { call: Some(index), fields } => {
                if let Some(call) = self.calls.extra(*index) {
                    self.extras.add(call, fields);
                }
            }
            Delta::TextCalls { .. } => {
                self.content.clear();
                self.fields.clear();
                self.extras.void();
            }
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

    /// Returns the calls so far, for their limits.
    pub(crate) fn partial_calls(&self) -> &Calls {
        &self.calls
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
    /// [`partial`](Self::partial). Calls with the id and the name of an earlier one are left out: they may be repetitions.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.calls.arrived().into_iter()
    }

    /// Returns the message so far, to store the text of an interrupted answer.
    ///
    /// Copies all of it; [`text`](Self::text) and [`calls`](Self::calls) borrow, for inspection of every
    /// piece.
    pub fn partial(&self) -> Message {
        let calls = self.calls.whole();
        self.message(&calls).with(|message| {
            // Fields of the protocol `chat` may be incomplete.
            message.origin = self.extras.clone().origin(message, &Fields::new(), &[]);
        })
    }

    fn message(&self, calls: &[Whole<'_>]) -> Message {
        let mut ids = Ids::reserving(calls);
        let calls = calls.iter().map(|call| ToolCall::new(ids.take(call.id), call.name, call.arguments));
        let message = Message::assistant(self.content.clone()).with_tool_calls(calls);
        message.with(|message| message.reasoning.clone_from(&self.reasoning))
    }

    /// Returns the complete answer.
    ///
    /// Calls are ordered by their indexes. A call without an id, or with the id of another call of the
    /// answer, gets the first free one of `call_1`, `call_2`, ….
    ///
    /// # Errors
    /// [`ModelErrorKind::TruncatedStream`] if no finish reason has arrived.
    pub fn finish(mut self) -> Result<Response, ModelError> {
        let Some(finish) = self.finish.take() else {
            return Err(truncated());
        };
        let (content, reasoning) = (take(&mut self.content), take(&mut self.reasoning));
        let calls = self.calls.whole();
        let message = self.message(&calls).with(|message| {
            (message.content, message.reasoning) = (content, reasoning);
            let fields: Vec<_> = calls.iter().map(|call| call.fields).collect();
            message.origin = take(&mut self.extras).origin(message, &self.fields, &fields);
        });
        let usage = sum(self.discarded, self.usage);
        Ok(Response { message, finish, usage, attempts: self.retries.saturating_add(1) })
    }
}

/// A source of ids that are unique within one answer.
struct Ids {
    given: BTreeSet<String>,
    used: BTreeSet<String>,
    next: usize,
}

impl Ids {
    fn reserving(calls: &[Whole<'_>]) -> Self {
        let given = calls.iter().filter_map(|call| call.id).map(str::to_owned).collect();
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
        read(pieces, false)
    }

    fn read(pieces: impl IntoIterator<Item = Delta>, has_repetitions: bool) -> Vec<(String, String, String)> {
        let mut answer = Assembler::new();
        pieces.into_iter().for_each(|piece| answer.push(&piece));
        answer.push(&Delta::Finish(FinishReason::ToolCalls));
        let seen: Vec<_> =
            answer.calls().map(|(name, arguments)| (name.to_owned(), arguments.to_owned())).collect();
        let calls = answer.finish().unwrap().message.into_data().tool_calls;
        let whole: Vec<_> = calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
        // Those that may be repetitions are left out until the end.
        assert!(seen.len() < whole.len() || seen == whole || has_repetitions, "{seen:?} {whole:?}");
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
        let got = calls([piece(0, "x", "echo", "{}"), piece(1, "x", "echo", "{\"x\":1}")]);
        assert_eq!(got, [call("x", "echo", "{}"), call("call_1", "echo", "{\"x\":1}")]);
        let got = calls([piece(0, "x", "echo", "{}"), piece(1, "x", "add", "{}")]);
        assert_eq!(got, [call("x", "echo", "{}"), call("call_1", "add", "{}")]);
    }

    #[test]
    fn a_call_that_is_reported_twice_is_one_call() {
        let whole = r#"{"x":1}"#;
        for pieces in [
            vec![piece(0, "a", "echo", ""), piece(0, "a", "", whole), piece(1, "a", "echo", whole)],
            vec![piece(0, "a", "echo", whole), piece(1, "a", "echo", r#"{ "x": 1 }"#)],
            vec![piece(0, "a", "echo", whole), piece(0, "a", "echo", whole)],
            vec![piece(0, "a", "echo", ""), piece(1, "a", "echo", whole)],
            vec![piece(0, "a", "echo", whole), piece(1, "a", "echo", "")],
            vec![piece(0, "a", "echo", r#"{"x""#), piece(1, "a", "", ":1}")],
        ] {
            assert_eq!(read(pieces.clone(), true), [call("a", "echo", whole)], "{pieces:?}");
        }
        let got = read([piece(0, "", "echo", whole), piece(0, "", "echo", whole)], true);
        assert_eq!(got, [call("call_1", "echo", whole)]);
        // Calls with ids or indexes of their own are equal on purpose.
        for (id, index, next) in [("b", 0, "b"), ("b", 1, "b"), ("", 1, "call_1")] {
            let first = if id.is_empty() { "" } else { "a" };
            let got = calls([piece(0, first, "echo", whole), piece(index, id, "echo", whole)]);
            assert_eq!(
                (got.len(), &*got.last().unwrap().0 == next || id.is_empty()),
                (2, true),
                "{id} {index}"
            );
        }
    }

    #[test]
    fn repeated_arguments_count_once() {
        let whole = r#"{"x":1}"#;
        for pieces in [
            &["{}", whole][..],
            &["", whole, whole],
            &["", r#"{"x":"#, "1}", whole],
            &[whole, whole, whole],
            &["{}", r#"{"x":"#, "1}"],
            &["null", whole],
            &["\"\"", whole],
        ] {
            for id in ["", "a"] {
                let deltas = pieces.iter().enumerate().map(|(at, arguments)| {
                    piece(0, if at == 0 { "a" } else { id }, if at == 0 { "echo" } else { "" }, arguments)
                });
                assert_eq!(read(deltas, true), [call("a", "echo", whole)], "{pieces:?}");
            }
        }
        let different = r#"{"x":1}{"x":2}"#;
        let got = calls([piece(0, "a", "echo", r#"{"x":1}"#), piece(0, "", "", r#"{"x":2}"#)]);
        assert_eq!(got, [call("a", "echo", different)]);
    }

    #[test]
    fn an_id_that_differs_between_the_pieces_of_a_call_is_that_of_the_first() {
        for name in ["", "echo"] {
            let got = calls([
                piece(0, "a", "echo", "{"),
                piece(0, "b", name, "\"x\""),
                piece(0, "c", name, ":1}"),
                piece(1, "d", "add", "{}"),
            ]);
            assert_eq!(got, [call("a", "echo", "{\"x\":1}"), call("d", "add", "{}")], "{name}");
        }
        let got = read(
            [piece(0, "a", "echo", ""), piece(0, "b", "echo", "{\"x\""), piece(0, "c", "echo", ":1}")],
            true,
        );
        assert_eq!(got, [call("b", "echo", "{\"x\":1}")]);
        // The index differs, and the id does not.
        let got = calls([
            piece(0, "a", "echo", "{"),
            piece(1, "b", "add", "{"),
            piece(0, "b", "", "}"),
            piece(5, "a", "", "}"),
        ]);
        assert_eq!(got, [call("a", "echo", "{}"), call("b", "add", "{}")]);
        // Neither is there, and the name is.
        let got = calls([
            piece(0, "", "echo", "{"),
            piece(0, "", "add", "{"),
            piece(0, "", "echo", "}"),
            piece(0, "", "add", "}"),
        ]);
        assert_eq!(got, [call("call_1", "echo", "{}"), call("call_2", "add", "{}")]);
    }

    #[test]
    fn the_fields_of_a_server_are_stored_with_their_place() {
        let extra = |call, fields: &str| Delta::Extra { call, fields: fields.into() };
        let place = Delta::Origin {
            wire: "chat".into(),
            server: "http://h".into(),
            model: "m".into(),
            prefix: String::new(),
        };
        let finish = Delta::Finish(FinishReason::ToolCalls);
        let origin = |deltas: &[Delta]| {
            let mut answer = Assembler::new();
            deltas.iter().for_each(|delta| answer.push(delta));
            answer.finish().unwrap().message.origin.clone()
        };
        let calls =
            [piece(0, "a", "echo", "{}"), extra(Some(0), r#"{"sign":"A"}"#), piece(1, "b", "echo", "{}")];
        let all =
            [&[place.clone(), extra(None, r#"{"details":[1]}"#)][..], &calls, std::slice::from_ref(&finish)]
                .concat();
        let origin_of_all = origin(&all).unwrap();
        assert_eq!(
            (&*origin_of_all.wire, &*origin_of_all.server, &*origin_of_all.model),
            ("chat", "http://h", "m")
        );
        let items = serde_json::to_value(&origin_of_all.items).unwrap();
        assert_eq!(
            items,
            serde_json::json!([
                {"text": {"bytes": 0, "rest": "{\"details\":[1]}"}},
                {"call": {"rest": "{\"sign\":\"A\"}"}},
                {"call": {"rest": "{}"}},
            ])
        );
        assert_eq!(origin(&[Delta::Text("a".into()), finish.clone()]), None);
        let long = format!(r#"{{"details":"{}"}}"#, "x".repeat(crate::messages::origin::Origin::MAX_BYTES));
        assert_eq!(origin(&[place.clone(), extra(None, &long), finish.clone()]), None);
        let void = Delta::AttemptDiscarded { attempt: 1 };
        assert_eq!(origin(&[place, extra(None, r#"{"a":"b"}"#), void, finish]), None);
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
            Delta::Usage(Usage::new(5, 1)),
            Delta::AttemptDiscarded { attempt: 1 },
            Delta::Retry { attempt: 2, delay_ms: 1000, status: None, reason: "cut".into() },
            Delta::Text("Hello".into()),
            Delta::Usage(Usage::new(5, 1)),
            Delta::Usage(Usage::new(5, 2)),
            Delta::Finish(FinishReason::Stop),
        ] {
            answer.push(&delta);
        }
        let response = answer.finish().unwrap();
        assert_eq!(response.message, Message::assistant("Hello"));
        assert_eq!(response.usage, Some(Usage::new(10, 3)));
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
