//! The messages of a client, read from lines.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::wire::{RequestId, RpcError, code};

/// The maximum number of values in a message. A value needs up to 30 times as much memory as its text.
const MAX_VALUES: usize = 200_000;

/// The maximum length of an error about a value, in bytes.
const MAX_ERROR: usize = 300;

/// A message whose parameters are still text.
pub(crate) enum Message<'a> {
    Request { id: RequestId, method: String, params: Params<'a> },
    Notification { method: String, params: Params<'a> },
    Response { id: RequestId, result: Result<Box<RawValue>, RpcError> },
}

/// A line that is not a message, with the id of its answer.
pub(crate) struct Invalid {
    pub(crate) id: RequestId,
    pub(crate) error: RpcError,
}

/// The parameters of a request or notification.
#[derive(Clone, Copy)]
pub(crate) struct Params<'a>(Option<&'a RawValue>);

impl Params<'_> {
    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<T, RpcError> {
        let text = self.0.map(RawValue::get).filter(|text| *text != "null").unwrap_or("{}");
        if !text.starts_with('{') {
            return Err(RpcError::invalid_params("`params` is not an object"));
        }
        read(text).map_err(RpcError::invalid_params)
    }
}

/// The fields of any message. Their types are checked later, so that an error has the id of its message.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads a field that is there, also if it is `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads a message; `None` for a blank line.
pub(crate) fn parse(line: &[u8]) -> Result<Option<Message<'_>>, Invalid> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    // Raw text is scanned without recursion, so that the nesting is not limited here.
    let text: &RawValue = serde_json::from_slice(line).map_err(|error| Invalid {
        id: RequestId::Null,
        error: RpcError::new(code::PARSE_ERROR, format!("the line is not JSON: {error}")),
    })?;
    let invalid = |id: &RequestId, problem: &str| Invalid {
        id: id.clone(),
        error: RpcError::new(code::INVALID_REQUEST, problem),
    };
    if !text.get().starts_with('{') {
        return Err(invalid(&RequestId::Null, "the line is not a single JSON object"));
    }
    let envelope: Envelope<'_> = serde_json::from_str(text.get())
        .map_err(|error| invalid(&RequestId::Null, &format!("invalid message: {error}")))?;
    let id = match envelope.id.map(|id| read(id.get())) {
        None => None,
        Some(Ok(id)) => Some(id),
        Some(Err(_)) => {
            return Err(invalid(&RequestId::Null, "`id` is not an integer, a string or `null`"));
        }
    };
    let answer_to = id.clone().unwrap_or(RequestId::Null);
    if envelope.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err(invalid(&answer_to, "`jsonrpc` is not \"2.0\""));
    }
    if let Some(method) = envelope.method {
        let method = read(method.get()).map_err(|_| invalid(&answer_to, "`method` is not a string"))?;
        let params = Params(envelope.params);
        return Ok(Some(match id {
            Some(id) => Message::Request { id, method, params },
            None => Message::Notification { method, params },
        }));
    }
    let Some(id) = id else { return Err(invalid(&answer_to, "`method` is missing")) };
    let result = match (envelope.error, envelope.result) {
        (Some(error), _) => {
            Err(read(error.get()).unwrap_or_else(|_| RpcError::new(code::INTERNAL_ERROR, "invalid error")))
        }
        (None, Some(result)) => Ok(result.to_owned()),
        (None, None) => return Err(invalid(&answer_to, "`method`, `result` or `error` is missing")),
    };
    Ok(Some(Message::Response { id, result }))
}

/// Reads a value with bounded memory.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    if values(text) > MAX_VALUES {
        return Err(format!("more than {MAX_VALUES} values"));
    }
    serde_json::from_str(text).map_err(|error| without_values(error.to_string()))
}

/// Removes the value of the client from an error, because it may be long or secret.
fn without_values(mut error: String) -> String {
    if let (Some(start), Some(end)) = (error.find('"'), error.rfind('"'))
        && start < end
    {
        error.replace_range(start + 1..end, "…");
    }
    error.truncate(error.floor_char_boundary(MAX_ERROR));
    error
}

/// Returns the number of values in JSON text, from above.
fn values(text: &str) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}
