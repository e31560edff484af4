//! The reading of an answer's events.
//!
//! Start at [`Reader`].

mod events;

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

use self::events::{Channel, Ended, Event, Item, ItemKind, Place, Status, malformed};
use super::items::without_texts;
use crate::{
    Delta, FinishReason, ModelError, ModelErrorKind,
    http::error::excerpt,
    messages::origin::{Fields, OriginItem},
    model::assemble::truncated,
    texts::halves::{Halves, Wtf8},
};

/// The separator between the texts of two messages, or two parts of the reasoning, in one answer.
const SEPARATOR: &str = "\n\n";

/// Converts the events of one answer into [`Delta`]s and tracks whether it may end.
///
/// A text may arrive in pieces, as a whole at the end of its part, of its item, or of the answer, or several times. Each reports
/// only what the earlier ones did not bring.
#[derive(Debug)]
pub(super) struct Reader {
    /// The place where the items are valid, a [`Delta::Origin`].
    place: Delta,
    is_placed: bool,
    items: BTreeMap<usize, State>,
    /// The items by their ids.
    by_id: BTreeMap<String, usize>,
    /// The item that began last.
    newest: usize,
    last_text: Option<(usize, usize)>,
    last_reasoning: Option<(usize, Channel, usize)>,
    /// `true` if a part of the text is a refusal.
    refuses: bool,
    /// `true` if a text arrived behind a later one.
    is_mixed: bool,
    finished: bool,
    /// The first event that was not JSON, for the error of a stream without an end.
    foreign: Option<String>,
}

/// An item of the answer so far.
#[derive(Debug, Default)]
struct State {
    texts: BTreeMap<(Channel, usize), Streamed>,
    /// The number of bytes of its text, with the separator before it.
    bytes: usize,
    is_call: bool,
    /// `true` if the id and the name of the call were reported.
    is_named: bool,
    /// `true` if the item has arrived as a whole.
    is_done: bool,
    /// `true` if the item goes back to the server.
    is_stored: bool,
    /// `true` if the whole text is not the one that was streamed.
    differs: bool,
    /// `true` if the model did not complete it.
    is_cut: bool,
}

#[derive(Debug, Default)]
struct Streamed {
    text: String,
    halves: Halves,
}

impl Reader {
    /// Creates a reader of an answer whose items are valid at `place`, a [`Delta::Origin`].
    pub(super) fn new(place: Delta) -> Self {
        Self {
            place,
            is_placed: false,
            items: BTreeMap::new(),
            by_id: BTreeMap::new(),
            newest: 0,
            last_text: None,
            last_reasoning: None,
            refuses: false,
            is_mixed: false,
            finished: false,
            foreign: None,
        }
    }

    /// Returns whether the answer is complete.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Reads the data of one event. Unknown events give no deltas.
    ///
    /// # Errors
    /// [`ModelErrorKind::Malformed`] if it is not an event of the protocol, or contradicts earlier ones; the server's own error if
    /// it is one.
    pub(super) fn read(&mut self, data: &str) -> Result<Vec<Delta>, ModelError> {
        let mut deltas = Vec::new();
        if self.finished {
            return Ok(deltas);
        }
        match Event::read(data)? {
            Event::Begun(place, item) => {
                let new = self.items.last_key_value().map_or(0, |(last, _)| last + 1);
                let index = self.known(&place).unwrap_or(new);
                self.begin(index, place.id, &item, &mut deltas);
            }
            Event::Done(place, item, raw) => {
                let index = self.known(&place).unwrap_or(self.newest);
                self.done(index, place.id, item, raw, &mut deltas)?;
            }
            Event::Piece { place, part, text, refuses } => {
                self.refuses |= refuses;
                let index = self.known(&place).unwrap_or(self.newest);
                let streamed = self.items.entry(index).or_default().texts.entry(part).or_default();
                let piece = streamed.halves.join(text);
                streamed.text.push_str(&piece);
                self.add(index, part, piece, &mut deltas);
            }
            Event::Whole { place, part, text, refuses } => {
                self.refuses |= refuses;
                let index = self.known(&place).unwrap_or(self.newest);
                self.whole(index, part, text, &mut deltas)?;
            }
            Event::Ended(ended) => self.ended(ended, &mut deltas)?,
            Event::Failed(error) => self.failed(&error, &mut deltas)?,
            Event::Other => {}
            Event::Foreign => {
                self.foreign.get_or_insert_with(|| data.to_owned());
            }
        }
        if !deltas.is_empty() && !self.is_placed {
            self.is_placed = true;
            deltas.insert(0, self.place.clone());
        }
        Ok(deltas)
    }

    /// Ends the stream; `fault` is the error of a broken connection, if any.
    ///
    /// # Errors
    /// `fault`, or [`ModelErrorKind::TruncatedStream`], if the answer is not complete.
    pub(super) fn end(&self, fault: Option<ModelError>) -> Result<(), ModelError> {
        if self.finished {
            return Ok(());
        }
        Err(fault.unwrap_or_else(|| {
            let mut error = truncated();
            if let Some(foreign) = &self.foreign {
                error.message += &format!("; the server sent: {}", excerpt(foreign));
            }
            error
        }))
    }

    /// Returns the index of the item that an event is about, if the event has it, or the id of a known item.
    fn known(&self, place: &Place) -> Option<usize> {
        place.index.or_else(|| self.by_id.get(place.id.as_ref()?).copied())
    }

    fn begin(&mut self, index: usize, id: Option<String>, item: &Item, deltas: &mut Vec<Delta>) {
        self.newest = index;
        if let Some(id) = id {
            self.by_id.entry(id).or_insert(index);
        }
        let state = self.items.entry(index).or_default();
        state.is_call = item.kind == ItemKind::Call;
        if state.is_call && !state.is_named && item.name.is_some() {
            state.is_named = true;
            deltas.push(Delta::ToolCall {
                index,
                id: item.call_id.clone(),
                name: item.name.clone(),
                arguments: String::new(),
            });
        }
    }

    /// Reads a complete item.
    fn done(
        &mut self,
        index: usize,
        id: Option<String>,
        item: Item,
        raw: &RawValue,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        self.begin(index, id, &item, deltas);
        self.refuses |= item.refuses;
        for (channel, n, text) in item.texts {
            self.whole(index, (channel, n), text, deltas)?;
        }
        let state = self.items.entry(index).or_default();
        state.is_cut |= item.is_cut;
        if state.is_done || state.is_cut || state.differs {
            return Ok(());
        }
        state.is_done = true;
        if let Some(item) = stored(item.kind, raw, state.bytes) {
            state.is_stored = true;
            deltas.push(Delta::Item { index, item });
        }
        Ok(())
    }

    /// Reads the whole of a text, and reports the part of it that has not arrived.
    fn whole(
        &mut self,
        index: usize,
        part: (Channel, usize),
        whole: Wtf8,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let mut halves = Halves::default();
        let mut whole = halves.join(whole);
        whole.extend(halves.end());
        // Some servers leave it empty behind the pieces.
        if whole.is_empty() {
            return Ok(());
        }
        let state = self.items.entry(index).or_default();
        let streamed = state.texts.entry(part).or_default();
        let Some(rest) = whole.strip_prefix(&*streamed.text) else {
            if part.0 == Channel::Arguments {
                let cause = "the arguments of a call are not those that were streamed";
                return Err(malformed(cause, &whole));
            }
            state.differs |= part.0 == Channel::Text;
            return Ok(());
        };
        let rest = rest.to_owned();
        *streamed = Streamed { text: whole, halves: Halves::default() };
        self.add(index, part, rest, deltas);
        Ok(())
    }

    /// Reports the next piece of a text.
    fn add(
        &mut self,
        index: usize,
        (channel, n): (Channel, usize),
        mut piece: String,
        deltas: &mut Vec<Delta>,
    ) {
        if piece.is_empty() {
            return;
        }
        let state = self.items.entry(index).or_default();
        match channel {
            Channel::Arguments => {
                deltas.push(Delta::ToolCall { index, id: None, name: None, arguments: piece });
            }
            Channel::Text => {
                let last = self.last_text.replace((index, n));
                self.is_mixed |= last > Some((index, n));
                if last.is_some_and(|(last, _)| last != index) {
                    piece.insert_str(0, SEPARATOR);
                }
                state.bytes += piece.len();
                deltas.push(Delta::Text(piece));
            }
            Channel::Summary | Channel::Reasoning => {
                let last = self.last_reasoning.replace((index, channel, n));
                if last.is_some_and(|last| last != (index, channel, n)) {
                    piece.insert_str(0, SEPARATOR);
                }
                deltas.push(Delta::Reasoning(piece));
            }
        }
    }

    fn ended(&mut self, ended: Ended<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Ended { status, usage, output } = ended;
        match &status {
            Status::Completed | Status::Incomplete(_) => self.unseen(&output, deltas)?,
            Status::Failed(error) => {
                self.failed(error, deltas)?;
                deltas.extend(usage.map(Delta::Usage));
                return Ok(());
            }
            Status::Cancelled => {
                let message = "the server cancelled the answer, which is incomplete; send the request again";
                return Err(ModelError::new(ModelErrorKind::Server, message));
            }
        }
        self.end_halves(deltas);
        let reason = self.reason(&status);
        let is_cut = matches!(status, Status::Incomplete(_));
        if is_cut || self.is_mixed || !self.items.values().all(|state| state.is_stored) {
            self.void(deltas);
        }
        deltas.extend(usage.map(Delta::Usage));
        self.finish(reason, deltas);
        Ok(())
    }

    /// Reads the items of a complete answer that have not arrived before.
    fn unseen(&mut self, output: &[&RawValue], deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let done = self.items.values().filter(|state| state.is_done).count();
        if done >= output.len() {
            return Ok(());
        }
        for (n, raw) in output.iter().enumerate() {
            let read = Item::read(raw.get());
            let (id, item) = read.map_err(|cause| malformed(&cause.to_string(), raw.get()))?;
            let place = Place { index: None, id };
            let index = self.known(&place).unwrap_or(n);
            if !self.items.get(&index).is_some_and(|state| state.is_done) {
                self.done(index, place.id, item, raw, deltas)?;
            }
        }
        Ok(())
    }

    /// Reports the replacements of halves of characters without their others.
    fn end_halves(&mut self, deltas: &mut Vec<Delta>) {
        let mut ends = Vec::new();
        for (index, state) in &mut self.items {
            for (part, streamed) in &mut state.texts {
                ends.extend(streamed.halves.end().map(|char| (*index, *part, char)));
            }
        }
        ends.into_iter().for_each(|(index, part, char)| self.add(index, part, char.into(), deltas));
    }

    fn reason(&self, status: &Status) -> FinishReason {
        let has = |is_it: fn(&State) -> bool| self.items.values().any(is_it);
        match status {
            Status::Incomplete(reason) => match reason.as_str() {
                "max_output_tokens" => FinishReason::Length,
                "content_filter" => FinishReason::ContentFilter,
                // Its calls may not be whole.
                _ if has(|state| state.is_call) => FinishReason::Length,
                reason => FinishReason::Other(reason.to_owned()),
            },
            _ if has(|state| state.is_cut) => FinishReason::Length,
            _ if has(|state| state.is_call) => FinishReason::ToolCalls,
            _ if self.refuses => FinishReason::Refusal,
            _ => FinishReason::Stop,
        }
    }

    /// Reads an error of the server. A violation of its policies is a refusal.
    fn failed(&mut self, error: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let inner = error.get("error").filter(|inner| inner.is_object()).unwrap_or(error);
        let field = |name: &str| inner[name].as_str().filter(|text| !text.is_empty());
        let code = field("code").or(field("type")).unwrap_or_default();
        if code == "invalid_prompt" || code.contains("_policy") {
            let message = field("message").unwrap_or(code);
            let separator = if self.last_text.is_some() { SEPARATOR } else { "" };
            deltas.push(Delta::Text(format!("{separator}{message}")));
            self.void(deltas);
            self.finish(FinishReason::Refusal, deltas);
            return Ok(());
        }
        let error = ModelError::from_stream(error);
        Err(match code {
            "not_found" => ModelError { kind: ModelErrorKind::NotFound, ..error },
            _ if code.contains("image") => ModelError { kind: ModelErrorKind::BadRequest, ..error },
            _ => error,
        })
    }

    /// Drops the items: the message goes back as a text.
    fn void(&mut self, deltas: &mut Vec<Delta>) {
        self.is_placed = true;
        deltas.push(self.place.clone());
    }

    fn finish(&mut self, reason: FinishReason, deltas: &mut Vec<Delta>) {
        self.finished = true;
        deltas.push(Delta::Finish(reason));
    }
}

/// Returns the item that goes back to the server; `None` if it cannot be rebuilt from its fields.
fn stored(kind: ItemKind, raw: &RawValue, bytes: usize) -> Option<OriginItem> {
    if kind == ItemKind::Opaque {
        return Some(OriginItem::Opaque(raw.get().to_owned()));
    }
    let mut fields: Fields = serde_json::from_str(raw.get()).ok()?;
    let json = |fields: &Fields| serde_json::to_string(fields).expect("texts have a JSON form");
    Some(if kind == ItemKind::Message {
        without_texts(&mut fields);
        OriginItem::Text { bytes, rest: json(&fields) }
    } else {
        ["call_id", "name", "arguments"].iter().for_each(|name| drop(fields.remove(*name)));
        OriginItem::Call { rest: json(&fields) }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Assembler, Message, Response};

    fn place() -> Delta {
        let [wire, server, model, prefix] = ["responses", "http://h", "m", ""].map(str::to_owned);
        Delta::Origin { wire, server, model, prefix }
    }

    fn read(events: &[Value]) -> Result<Response, ModelError> {
        read_texts(&events.iter().map(Value::to_string).collect::<Vec<_>>())
    }

    fn read_texts(events: &[String]) -> Result<Response, ModelError> {
        let (mut reader, mut answer) = (Reader::new(place()), Assembler::new());
        for event in events {
            reader.read(event)?.iter().for_each(|delta| answer.push(delta));
        }
        reader.end(None)?;
        answer.finish()
    }

    fn items(message: &Message) -> Vec<OriginItem> {
        message.origin.as_ref().map_or_else(Vec::new, |origin| origin.items.clone())
    }

    fn said(text: &str) -> Value {
        json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]})
    }

    fn called(arguments: &str) -> Value {
        json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": arguments})
    }

    fn done(index: usize, item: &Value) -> Value {
        json!({"type": "response.output_item.done", "output_index": index, "item": item})
    }

    fn piece(kind: &str, index: usize, delta: &str) -> Value {
        json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": delta})
    }

    fn completed(output: &[Value]) -> Value {
        json!({"type": "response.completed", "response": {"status": "completed", "output": output}})
    }

    #[test]
    fn events_without_indexes_belong_to_the_item_of_their_id_or_to_the_newest() {
        let added = |item: &Value| json!({"type": "response.output_item.added", "item": item});
        let delta = |kind: &str, id: Option<&str>, text: &str| json!({"type": format!("response.{kind}.delta"), "item_id": id, "delta": text});
        let whole = |item: &Value| json!({"type": "response.output_item.done", "item": item});
        let response = read(&[
            added(&said("")),
            delta("output_text", Some("msg_1"), "I "),
            delta("output_text", None, "add."),
            added(&called("")),
            delta("function_call_arguments", Some("fc_1"), "{\"x\""),
            whole(&said("I add.")),
            delta("function_call_arguments", Some("fc_1"), ":1}"),
            whole(&called("{\"x\":1}")),
            completed(&[said("I add."), called("{\"x\":1}")]),
        ]);
        let message = response.unwrap().message;
        assert_eq!(
            (message.content.as_str(), message.tool_calls[0].arguments.as_str()),
            ("I add.", "{\"x\":1}")
        );
        assert_eq!(items(&message).len(), 2);
    }

    #[test]
    fn the_end_brings_what_is_missing_whatever_the_numbers_of_the_items_are() {
        let message = |events: &[Value]| read(events).unwrap().message;
        let whole = [said("5"), called("{}")];
        let of = message(&[completed(&whole)]);
        assert_eq!((of.content.as_str(), of.tool_calls.len(), items(&of).len()), ("5", 1, 2));
        assert_eq!(message(&[piece("output_text", 0, "5"), completed(&whole)]), of);
        // Numbers that begin with 1.
        let of = message(&[done(1, &said("5")), done(2, &called("{}")), completed(&whole)]);
        assert_eq!((of.content.as_str(), of.tool_calls.len(), items(&of).len()), ("5", 1, 2));
        // An item that never arrives as a whole makes the ids of the others invalid.
        let of = message(&[done(0, &said("5")), piece("reasoning_text", 1, "Hm"), completed(&[])]);
        assert_eq!((of.content.as_str(), of.reasoning.as_str(), items(&of)), ("5", "Hm", vec![]));
        // So does text in another order.
        let (first, last) = (said("ab"), said("c"));
        let mixed =
            [piece("output_text", 0, "a"), piece("output_text", 1, "c"), piece("output_text", 0, "b")];
        let of = message(&[&mixed[..], &[done(0, &first), done(1, &last), completed(&[])]].concat());
        assert_eq!(items(&of), []);
    }

    #[test]
    fn final_arguments_must_continue_the_streamed_ones_and_final_texts_need_not() {
        let begun = piece("function_call_arguments", 0, "{\"x\":1");
        let error = read(&[begun.clone(), done(0, &called("{\"x\":2}"))]).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed);
        assert!(error.message.contains("are not those that were streamed"), "{error}");
        assert!(read(&[begun, done(0, &called("{\"x\":1}")), completed(&[])]).is_ok());
        let message =
            read(&[piece("output_text", 0, "a  b"), done(0, &said("a b")), completed(&[])]).unwrap().message;
        assert_eq!((message.content.as_str(), items(&message)), ("a  b", vec![]));
    }

    #[test]
    fn parts_without_deltas_are_read_from_the_end_of_the_part() {
        let text = |name: &str, field: &str, text: &str| json!({"type": format!("response.{name}.done"), "output_index": 0, field: text});
        let part = |name: &str, part: Value| json!({"type": format!("response.{name}.done"), "output_index": 1, "part": part});
        let response = read(&[
            text("reasoning_summary_text", "text", "Hm"),
            part("content_part", json!({"type": "output_text", "text": "5"})),
            part("content_part", json!({"type": "output_text", "text": "5"})),
            json!({"type": "response.completed", "response": {}}),
        ]);
        let message = response.unwrap().message;
        assert_eq!((message.reasoning.as_str(), message.content.as_str()), ("Hm", "5"));
    }

    #[test]
    fn halves_of_characters_are_joined_or_replaced() {
        let delta = |text: &str| {
            format!(r#"{{"type":"response.output_text.delta","output_index":0,"delta":"{text}"}}"#)
        };
        let end = completed(&[]).to_string();
        let content = |events: &[String]| read_texts(events).unwrap().message.content.clone();
        assert_eq!(content(&[delta(r"a\ud83d"), delta(r"\ude00b"), end.clone()]), "a😀b");
        assert_eq!(content(&[delta(r"a\ud83d"), end.clone()]), "a\u{FFFD}");
        let whole = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"a\ud83d"}]}}"#;
        assert_eq!(content(&[delta(r"a\ud83d"), whole.to_owned(), end]), "a\u{FFFD}");
    }

    #[test]
    fn the_status_decides_unless_it_is_none_of_an_end() {
        let ended =
            |name: &str, response: Value| json!({"type": format!("response.{name}"), "response": response});
        let incomplete =
            json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
        let finish = |event| read(&[done(0, &said("5")), event]).map(|response| response.finish);
        assert_eq!(finish(ended("completed", incomplete)).unwrap(), FinishReason::Length);
        assert_eq!(finish(ended("incomplete", json!({"status": "completed"}))).unwrap(), FinishReason::Stop);
        assert_eq!(finish(ended("completed", json!({"status": "in_progress"}))).unwrap(), FinishReason::Stop);
        assert_eq!(
            finish(ended("completed", json!({"status": "cancelled"}))).unwrap_err().kind,
            ModelErrorKind::Server
        );
        assert_eq!(finish(ended("incomplete", json!({}))).unwrap(), FinishReason::Other("incomplete".into()));
    }

    #[test]
    fn unknown_events_and_items_do_not_matter_and_broken_ones_do() {
        let hosted = json!({"type": "web_search_call", "id": "ws_1", "content": 7, "arguments": {}});
        let response = read_texts(&[
            "ping".to_owned(),
            "[]".to_owned(),
            r#"{"type":"ping"}"#.to_owned(),
            r#"{"type":"response.output_text.annotation.added","delta":7}"#.to_owned(),
            done(0, &hosted).to_string(),
            done(1, &said("5")).to_string(),
            completed(&[]).to_string(),
            "{".to_owned(),
        ]);
        let message = response.unwrap().message;
        assert_eq!(items(&message)[0], OriginItem::Opaque(hosted.to_string()));
        for event in ["{", r#"{"type":"response.output_text.delta","output_index":0,"delta":7}"#] {
            let error = read_texts(&[event.to_owned()]).unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Malformed);
            assert!(error.message.contains("not one of the Responses API"), "{error}");
        }
        let error = read_texts(&["upstream is down".to_owned(), "[DONE]".to_owned()]).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::TruncatedStream);
        assert!(error.message.ends_with("; the server sent: upstream is down"), "{error}");
    }
}
