//! Tolerant parsing of a server's messages: a broken answer is an answer too, so that its caller does not
//! wait forever.

use std::borrow::Cow;

use rmcp::{
    RoleClient,
    model::{CustomResult, ErrorCode, ErrorData, JsonRpcMessage, NumberOrString, RequestId, ServerResult},
    service::RxJsonRpcMessage,
};
use serde_json::{Map, Value, json};

use crate::mend;

/// The error code of an unreadable answer. Servers use others.
pub(crate) const UNREADABLE: ErrorCode = ErrorCode(-32_999);

/// The maximum number of values in a message, counted by its commas and brackets: each takes many times its
/// bytes in memory.
pub(crate) const MAX_VALUES: usize = 100_000;

/// The note on a result with bytes that are not UTF-8.
const NOT_UTF8: &str = "[the server sent bytes that are not UTF-8; \u{fffd} stands in their place]";

/// The kind of a server's line.
pub(crate) enum ServerLine {
    Message(Box<RxJsonRpcMessage<RoleClient>>),
    /// Not a message, with the reason.
    Noise(String),
}

/// The requests that a message may answer.
#[derive(Clone, Copy)]
pub(crate) struct OpenRequests<'a> {
    /// The unanswered requests of this stream.
    pub(crate) ids: &'a [RequestId],
    /// `true` if there are no others.
    pub(crate) are_all: bool,
}

impl OpenRequests<'_> {
    fn has(self, id: &RequestId) -> bool {
        !self.are_all || self.ids.contains(id)
    }

    fn only(self) -> Option<RequestId> {
        match self.ids {
            [only] => Some(only.clone()),
            _ => None,
        }
    }
}

/// Reads a line of a server: a message, or a list of them.
pub(crate) fn read(line: &[u8], open: OpenRequests<'_>) -> Vec<ServerLine> {
    if let Some(refused) = overfull(line, open) {
        return vec![refused];
    }
    let text = String::from_utf8_lossy(line);
    let is_lossy = matches!(text, Cow::Owned(_));
    let no_object = || ServerLine::Noise("it is not a JSON object".to_owned());
    match serde_json::from_str(&with_whole_pairs(text.trim_start_matches('\u{feff}'))) {
        Ok(Value::Object(message)) => vec![read_object(message, is_lossy, open)],
        Ok(Value::Array(batch)) => {
            let read = |message| match message {
                Value::Object(message) => read_object(message, is_lossy, open),
                _ => no_object(),
            };
            batch.into_iter().map(read).collect()
        }
        Ok(_) => vec![no_object()],
        Err(error) if text.trim_start().starts_with('{') => {
            let mut scan = IdScan::default();
            scan.feed(line);
            vec![unreadable(scan, &error.to_string(), open)]
        }
        Err(error) => vec![ServerLine::Noise(error.to_string())],
    }
}

/// Reads a message. Programs print other objects, too: logs, whose fields may be called like those of an answer.
fn read_object(mut message: Map<String, Value>, is_lossy: bool, open: OpenRequests<'_>) -> ServerLine {
    // A message with a result is an answer, regardless of its other fields.
    if message.contains_key("method") && !["result", "error"].iter().any(|key| message.contains_key(*key)) {
        mend::notification(&mut message);
        return match serde_json::from_value(Value::Object(message)) {
            Ok(message) => ServerLine::Message(Box::new(message)),
            Err(error) => ServerLine::Noise(error.to_string()),
        };
    }
    let is_rpc = message.remove("jsonrpc").is_some();
    let id = message.remove("id").filter(|id| !id.is_null());
    let (result, error) = (message.remove("result"), message.remove("error").filter(|it| !it.is_null()));
    let has_shape = is_rpc || message.is_empty() && (result.is_some() || error.is_some());
    let id = match id.as_ref().map(parsed_id) {
        Some(Some(id)) => Some(id).filter(|id| open.has(id)),
        // An error without an id answers a request that the server could not read; so does one with an id of the server over
        // HTTP, where it is the response to a request.
        None => open.only().filter(|_| is_rpc && error.is_some()),
        Some(None) => open.only().filter(|_| is_rpc && error.is_some() && !open.are_all),
    };
    let (Some(id), true) = (id, has_shape) else {
        return ServerLine::Noise("it answers no open request".to_owned());
    };
    let answer = match (result, error) {
        (_, Some(error)) => JsonRpcMessage::error(error_of(error), Some(id)),
        (Some(mut result), None) => {
            if is_lossy && let Some(content) = result.get_mut("content").and_then(Value::as_array_mut) {
                content.push(json!({"type": "text", "text": NOT_UTF8}));
            }
            JsonRpcMessage::response(result_of(result), id)
        }
        (None, None) => error_answer(id, "it has neither a result nor an error"),
    };
    ServerLine::Message(Box::new(answer))
}

/// Returns the kind of a line with too many values to be parsed; `None` for other lines.
pub(crate) fn overfull(line: &[u8], open: OpenRequests<'_>) -> Option<ServerLine> {
    // Each value has at least one byte, and most messages have fewer bytes than this.
    if line.len() <= MAX_VALUES {
        return None;
    }
    let mut scan = IdScan::default();
    scan.feed(line);
    let why = format!("it has more than {MAX_VALUES} values");
    (scan.values > MAX_VALUES).then(|| unreadable(scan, &why, open))
}

/// Counts the values of a JSON text.
pub(crate) fn values(json: &[u8]) -> usize {
    let mut scan = IdScan::default();
    scan.feed(json);
    scan.values
}

/// Creates an error answer for a message that cannot be read: its id is that of an open request, or it is a
/// message of the protocol without a readable id, and answers the only open request.
pub(crate) fn unreadable(scan: IdScan, why: &str, open: OpenRequests<'_>) -> ServerLine {
    let id = match scan.found {
        Some(id) => Some(id).filter(|id| open.has(id)),
        None => open.only().filter(|_| scan.is_rpc),
    };
    match id {
        Some(id) => ServerLine::Message(Box::new(error_answer(id, why))),
        None => ServerLine::Noise(why.to_owned()),
    }
}

fn error_answer(id: RequestId, why: &str) -> RxJsonRpcMessage<RoleClient> {
    JsonRpcMessage::error(ErrorData::new(UNREADABLE, why.to_owned(), None), Some(id))
}

/// Replaces the escape of each half of a surrogate pair that stands alone, such as the half of an emoji, by that of
/// U+FFFD. No JSON parser accepts it.
pub(crate) fn with_whole_pairs(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits =
            std::str::from_utf8(digits).ok().filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
        u16::from_str_radix(digits?, 16).ok()
    };
    let (mut halves, mut at) = (Vec::new(), 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        let start = at + found;
        at = match (unit(start), unit(start + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => start + 12,
            (Some(0xd800..=0xdfff), _) => {
                halves.push(start);
                start + 6
            }
            _ => start + 2,
        };
    }
    if halves.is_empty() {
        return json.into();
    }
    let mut mended = bytes.to_owned();
    for start in halves {
        mended[start..start + 6].copy_from_slice(b"\\ufffd");
    }
    String::from_utf8(mended).expect("only the digits of escapes were replaced").into()
}

pub(crate) fn answered(message: &RxJsonRpcMessage<RoleClient>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(answer) => Some(&answer.id),
        JsonRpcMessage::Error(answer) => answer.id.as_ref(),
        _ => None,
    }
}

/// Parses the id of an answer, which some servers write as a text or as a float.
fn parsed_id(id: &Value) -> Option<RequestId> {
    let number = match id {
        Value::Number(number) => {
            number.as_i64().or_else(|| number.to_string().strip_suffix(".0")?.parse().ok())
        }
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.map(NumberOrString::Number)
}

/// Returns the result unchanged: its kind does not matter for the calls of tools.
fn result_of(result: Value) -> ServerResult {
    match mend::initialized(&result) {
        Some(initialized) => ServerResult::InitializeResult(initialized),
        None => ServerResult::CustomResult(CustomResult(result)),
    }
}

fn error_of(error: Value) -> ErrorData {
    serde_json::from_value(error.clone()).unwrap_or_else(|_| {
        let message = match (&error, error.get("message")) {
            (Value::String(text), _) | (_, Some(Value::String(text))) => text.clone(),
            _ => Value::Object(Map::from_iter([("error".to_owned(), error)])).to_string(),
        };
        ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None)
    })
}

/// A scanner for the id of a message that may otherwise be broken.
#[derive(Default)]
pub(crate) struct IdScan {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The text or number at the outermost level.
    text: Vec<u8>,
    /// `true` if the text before the last colon was `id`.
    is_id: bool,
    /// `true` if it has a field `jsonrpc`.
    is_rpc: bool,
    found: Option<RequestId>,
    /// The number of values, at all levels.
    values: usize,
}

impl IdScan {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.next(*byte));
    }

    /// Returns whether every bracket is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.depth == 0
    }

    fn next(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.in_string => self.is_escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => self.keep(byte),
            b'{' | b'[' => (self.depth, self.values) = (self.depth + 1, self.values + 1),
            b'}' | b']' => {
                self.value();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => {
                self.values += 1;
                self.value();
            }
            b':' if self.depth == 1 => {
                self.is_id = self.text == b"id";
                self.is_rpc |= self.text == b"jsonrpc";
                self.text.clear();
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        // Ids are short.
        if self.depth == 1 && self.text.len() < 32 {
            self.text.push(byte);
        }
    }

    /// Ends a value at the outermost level.
    fn value(&mut self) {
        if self.depth == 1 {
            if self.is_id && self.found.is_none() {
                let text = String::from_utf8_lossy(&self.text).into_owned();
                self.found = parsed_id(&Value::String(text));
            }
            self.is_id = false;
            self.text.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(ids: &[i64]) -> Vec<RequestId> {
        ids.iter().copied().map(NumberOrString::Number).collect()
    }

    /// Returns the answered id and the answer, or the reason why it is noise.
    fn answer_or_noise(line: &[u8], ids: &[i64]) -> (Option<i64>, String) {
        let ids = out(ids);
        let mut read = read(line, OpenRequests { ids: &ids, are_all: true });
        assert_eq!(read.len(), 1);
        let message = match read.remove(0) {
            ServerLine::Noise(why) => return (None, why),
            ServerLine::Message(message) => *message,
        };
        let Some(NumberOrString::Number(id)) = answered(&message).cloned() else { panic!("{message:?}") };
        let answer = match message {
            JsonRpcMessage::Response(answer) => serde_json::to_string(&answer.result).unwrap(),
            JsonRpcMessage::Error(answer) => answer.error.message.into_owned(),
            other => panic!("{other:?}"),
        };
        (Some(id), answer)
    }

    #[test]
    fn a_response_is_recognized_in_any_form() {
        let plain: [(&str, &str); 8] = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content":null}}"#, r#"{"content":null}"#),
            (r#"{"id":"7","result":"text"}"#, r#""text""#),
            (
                r#"{"id":7.0,"result":{"tools":[{}],"content":1},"error":null}"#,
                r#"{"content":1,"tools":[{}]}"#,
            ),
            (r#"[{"id":7,"result":{}}]"#, "{}"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"parse error"}}"#, "parse error"),
            (r#"{"id":7,"error":"broken"}"#, "broken"),
            (r#"{"jsonrpc":"2.0","id":7}"#, "it has neither a result nor an error"),
            (r#"{"id":7,"result":"\ud83d \ud83d\ude00 \\ud83d\uDE00"}"#, "\"\u{fffd} 😀 \\\\ud83d\u{fffd}\""),
        ];
        for (line, wanted) in plain {
            assert_eq!(answer_or_noise(line.as_bytes(), &[7]), (Some(7), wanted.to_owned()), "{line}");
        }
    }

    #[test]
    fn what_a_program_logs_as_json_answers_nothing() {
        for line in [
            r#"{"level":"info","message":"ready"}"#,
            r#"{"level":"info","msg":"calling","id":7}"#,
            r#"{"level":"error","error":"cache miss"}"#,
            r#"{"level":"info","result":"ok","id":7}"#,
            r#"{"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":8,"result":{}}"#,
            r#"{"level":"info","method":"GET"}"#,
            r#"["log",1]"#,
            r#"{not json"#,
            r#"{"level":"#,
        ] {
            let read = read(line.as_bytes(), OpenRequests { ids: &out(&[7]), are_all: true });
            assert!(read.iter().all(|it| matches!(it, ServerLine::Noise(_))), "{line}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_found_by_its_id() {
        let deep = format!(r#"{{"a":{{"id":1}},"id":7,"result":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
        let (id, why) = answer_or_noise(deep.as_bytes(), &[3, 7]);
        assert!(id == Some(7) && why.starts_with("recursion limit exceeded"), "{why}");
        let (id, why) = answer_or_noise(br#"{"id":7,"result":{"x":"#, &[3, 7]);
        assert!(id == Some(7) && why.starts_with("EOF while parsing"), "{why}");
        let (id, _) = answer_or_noise(br#"{"jsonrpc":"2.0","result":"\"id\": 3","#, &[7]);
        assert_eq!(id, Some(7), "it is the only one that is out");
        assert_eq!(answer_or_noise(br#"{"jsonrpc":"2.0","result":"\"id\": 3","#, &[3, 7]).0, None);
        assert_eq!(
            answer_or_noise(b"listening on 3", &[7]),
            (None, "expected value at line 1 column 1".to_owned())
        );
    }

    #[test]
    fn an_answer_with_too_many_values_is_not_read() {
        let with = |values: usize| format!(r#"{{"id":7,"result":[",,,"{}]}}"#, ",0".repeat(values));
        let (id, result) = answer_or_noise(with(1_000).as_bytes(), &[7]);
        assert!(id == Some(7) && result.starts_with(r#"[",,,",0,0"#), "{result}");
        let text = format!(r#"{{"id":7,"result":{{"text":"{}"}}}}"#, ",".repeat(2 * MAX_VALUES));
        assert!(
            answer_or_noise(text.as_bytes(), &[3, 7]).1.starts_with(r#"{"text":",,"#),
            "what stands in a text is no value"
        );
        let too_many = (Some(7), "it has more than 100000 values".to_owned());
        assert_eq!(answer_or_noise(with(MAX_VALUES).as_bytes(), &[3, 7]), too_many);
        let objects = format!(r#"{{"id":7,"result":[{}{{}}]}}"#, "{},".repeat(MAX_VALUES / 2));
        assert_eq!(answer_or_noise(objects.as_bytes(), &[3, 7]), too_many);
    }

    #[test]
    fn any_broken_response_to_the_only_request_ends_it() {
        let begin = br#"{"jsonrpc":"2.0","id":7,"#.len();
        let whole =
            br#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a\"b\u00e9"}],"isError":false}}"#;
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        for _ in 0..20_000 {
            let mut line = whole.to_vec();
            for _ in 0..=random(3) {
                let (at, byte) = (begin + random(line.len() - begin + 1), u8::try_from(random(256)).unwrap());
                match random(3) {
                    0 => line.truncate(at),
                    1 if at < line.len() => line[at] = byte,
                    _ => line.insert(at, byte),
                }
            }
            let said = read(&line, OpenRequests { ids: &out(&[7]), are_all: true });
            assert!(matches!(said[..], [ServerLine::Message(_)]), "{}", String::from_utf8_lossy(&line));
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_noted_in_the_result() {
        let (id, result) = answer_or_noise(
            b"{\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\xff!\"}]}}",
            &[7],
        );
        assert_eq!(id, Some(7));
        assert!(result.contains("\u{fffd}!") && result.contains("not UTF-8"), "{result}");
    }
}
