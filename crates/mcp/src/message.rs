//! Tolerant parsing of a server's messages: a broken answer is an answer too, so that its caller does not
//! wait forever.

use std::borrow::Cow;

use rmcp::{
    RoleClient,
    model::{CustomResult, ErrorCode, ErrorData, JsonRpcMessage, NumberOrString, RequestId, ServerResult},
    service::RxJsonRpcMessage,
};
use serde_json::{Map, Value, json};

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

/// Reads a line of a server; `out` has the unanswered requests.
pub(crate) fn read(line: &[u8], out: &[RequestId]) -> ServerLine {
    if let Some(refused) = overfull(line, out) {
        return refused;
    }
    let text = String::from_utf8_lossy(line);
    let is_lossy = matches!(text, Cow::Owned(_));
    let mut message = match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(Value::Object(message)) => message,
        Ok(_) => return ServerLine::Noise("it is not a JSON object".to_owned()),
        Err(error) if text.trim_start().starts_with('{') => {
            let mut scan = IdScan::default();
            scan.feed(line);
            return unreadable(scan.found(), &error.to_string(), out);
        }
        Err(error) => return ServerLine::Noise(error.to_string()),
    };
    // A message with a result is an answer, regardless of its other fields.
    if message.contains_key("method") && !["result", "error"].iter().any(|key| message.contains_key(*key)) {
        return match serde_json::from_value(Value::Object(message)) {
            Ok(message) => ServerLine::Message(Box::new(message)),
            Err(error) => ServerLine::Noise(error.to_string()),
        };
    }
    let id = message.get("id").and_then(id);
    let (result, error) = (message.remove("result"), message.remove("error").filter(|it| !it.is_null()));
    let Some(id) = id.or_else(|| only(out)) else {
        return ServerLine::Noise("it has neither a method nor an id".to_owned());
    };
    let answer = match (result, error) {
        (_, Some(error)) => JsonRpcMessage::error(error_of(error), Some(id)),
        (Some(mut result), None) => {
            if is_lossy && let Some(content) = result.get_mut("content").and_then(Value::as_array_mut) {
                content.push(json!({"type": "text", "text": NOT_UTF8}));
            }
            JsonRpcMessage::response(result_of(result), id)
        }
        (None, None) => return unreadable(Some(id), "it has neither a result nor an error", out),
    };
    ServerLine::Message(Box::new(answer))
}

/// Returns the kind of a line with too many values to be parsed; `None` for other lines.
pub(crate) fn overfull(line: &[u8], out: &[RequestId]) -> Option<ServerLine> {
    // Each value has at least one byte, and most messages have fewer bytes than this.
    if line.len() <= MAX_VALUES {
        return None;
    }
    let mut scan = IdScan::default();
    scan.feed(line);
    let why = format!("it has more than {MAX_VALUES} values");
    (scan.values > MAX_VALUES).then(|| unreadable(scan.found(), &why, out))
}

/// Counts the values of a JSON text.
pub(crate) fn values(json: &[u8]) -> usize {
    let mut scan = IdScan::default();
    scan.feed(json);
    scan.values
}

/// Creates an error answer for a message that cannot be read. Its id is known, or it must answer the only
/// open request.
pub(crate) fn unreadable(id: Option<RequestId>, why: &str, out: &[RequestId]) -> ServerLine {
    match id.or_else(|| only(out)) {
        Some(id) => {
            let error = ErrorData::new(UNREADABLE, why.to_owned(), None);
            ServerLine::Message(Box::new(JsonRpcMessage::error(error, Some(id))))
        }
        None => ServerLine::Noise(why.to_owned()),
    }
}

/// Returns the request that a message answers.
pub(crate) fn answered(message: &RxJsonRpcMessage<RoleClient>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(answer) => Some(&answer.id),
        JsonRpcMessage::Error(answer) => answer.id.as_ref(),
        _ => None,
    }
}

fn only(out: &[RequestId]) -> Option<RequestId> {
    match out {
        [only] => Some(only.clone()),
        _ => None,
    }
}

/// Parses the id of an answer, which some servers write as a text or as a float.
fn id(id: &Value) -> Option<RequestId> {
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
    if result.get("protocolVersion").is_some()
        && let Ok(initialized) = serde_json::from_value(result.clone())
    {
        return initialized;
    }
    ServerResult::CustomResult(CustomResult(result))
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
    found: Option<RequestId>,
    /// The number of values, at all levels.
    values: usize,
}

impl IdScan {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.next(*byte));
    }

    pub(crate) fn found(self) -> Option<RequestId> {
        self.found
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
                self.found = id(&Value::String(text));
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
        let message = match read(line, &out(ids)) {
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
        let plain: [(&str, &str); 7] = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content":null}}"#, r#"{"content":null}"#),
            (r#"{"id":"7","result":"text"}"#, r#""text""#),
            (
                r#"{"id":7.0,"result":{"tools":[{}],"content":1},"error":null}"#,
                r#"{"content":1,"tools":[{}]}"#,
            ),
            (r#"{"result":{}}"#, "{}"),
            (r#"{"id":null,"error":{"code":-1,"message":"parse error"}}"#, "parse error"),
            (r#"{"id":7,"error":"broken"}"#, "broken"),
            (r#"{"id":7}"#, "it has neither a result nor an error"),
        ];
        for (line, wanted) in plain {
            assert_eq!(answer_or_noise(line.as_bytes(), &[7]), (Some(7), wanted.to_owned()), "{line}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_found_by_its_id() {
        let deep = format!(r#"{{"a":{{"id":1}},"id":7,"result":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
        let (id, why) = answer_or_noise(deep.as_bytes(), &[3, 7]);
        assert!(id == Some(7) && why.starts_with("recursion limit exceeded"), "{why}");
        let (id, why) = answer_or_noise(br#"{"id":7,"result":{"x":"#, &[3, 7]);
        assert!(id == Some(7) && why.starts_with("EOF while parsing"), "{why}");
        let (id, _) = answer_or_noise(br#"{"result":"\"id\": 3","#, &[7]);
        assert_eq!(id, Some(7), "it is the only one that is out");
        assert_eq!(answer_or_noise(br#"{"result":"\"id\": 3","#, &[3, 7]).0, None);
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
                let (at, byte) = (1 + random(line.len()), u8::try_from(random(256)).unwrap());
                match random(3) {
                    0 => line.truncate(at),
                    1 if at < line.len() => line[at] = byte,
                    _ => line.insert(at, byte),
                }
            }
            let said = read(&line, &out(&[7]));
            assert!(matches!(said, ServerLine::Message(_)), "{}", String::from_utf8_lossy(&line));
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_noted_in_the_result() {
        let (id, result) = answer_or_noise(
            b"{\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\xff!\"}]}}",
            &[],
        );
        assert_eq!(id, Some(7));
        assert!(result.contains("\u{fffd}!") && result.contains("not UTF-8"), "{result}");
    }
}
