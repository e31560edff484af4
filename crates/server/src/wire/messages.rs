//! Messages: the stored form of superstep and that of the API.
//!
//! The channel `messages` of a state has messages; no other channel is converted. An entry that is no message stays as it is.
//!
//! | superstep | API |
//! |---|---|
//! | `user`, `assistant`, `system`, `tool` | `human`, `ai`, `system`, `tool` |
//! | `reasoning` | `additional_kwargs.reasoning_content` |
//! | `content` and `media` | `content`: a text, or blocks |
//! | `arguments`, a text | `args`, an object; `invalid_tool_calls` if it is none |
//!
//! Start at [`to_wire`] and [`from_wire`].

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use superstep_llm::{MessageData, Role, ToolCall, media::Media, text::partial_json};

use crate::{
    error::ApiError,
    wire::{ids, media},
};

/// The channel with messages.
pub(crate) const CHANNEL: &str = "messages";

/// The types of messages on the wire.
const TYPES: [&str; 4] = ["human", "ai", "system", "tool"];

/// Converts the messages in a state, or in the writes of a task, to the form of the API. The result of a call has the name of its tool,
/// if the call is there.
pub(crate) fn to_wire(mut channels: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(messages)) = channels.get_mut(CHANNEL) {
        let mut tools = Map::new();
        for message in messages {
            *message = message_to_wire(std::mem::take(message));
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                tools.extend(call["id"].as_str().map(|id| (id.to_owned(), call["name"].clone())));
            }
            let tool = message["tool_call_id"].as_str().and_then(|id| tools.get(id));
            if let (Some(tool), Value::Object(fields)) = (tool.cloned(), message) {
                fields.entry("name").or_insert(tool);
            }
        }
    }
    channels
}

/// Converts the messages in an input, or in another update of a state, to the stored form. A message without an id gets one.
///
/// # Errors
/// 422 for a message that has no author, or content other than text.
pub(crate) fn from_wire(mut update: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    match update.get_mut(CHANNEL) {
        Some(Value::Array(messages)) => {
            for (at, message) in messages.iter_mut().enumerate() {
                *message = message_from_wire(std::mem::take(message), at)?;
            }
        }
        Some(message @ Value::Object(_)) => {
            *message = json!([message_from_wire(std::mem::take(message), 0)?]);
        }
        _ => {}
    }
    Ok(update)
}

/// Writes out the messages of an input that are short: a text is one of the user, and a pair is an author and the content. Returns
/// `None` if none is short.
pub(crate) fn written_out(input: &Map<String, Value>) -> Option<Map<String, Value>> {
    let given = input.get(CHANNEL)?;
    let given = given.as_array().map_or_else(|| std::slice::from_ref(given), Vec::as_slice);
    let full = |message: &Value| match message {
        Value::String(text) => Some(json!({ "type": "human", "content": text })),
        Value::Array(pair) if pair.len() == 2 && pair[0].is_string() => {
            Some(json!({ "type": pair[0], "content": pair[1] }))
        }
        _ => None,
    };
    given.iter().any(|message| full(message).is_some()).then(|| {
        let all = given.iter().map(|message| full(message).unwrap_or_else(|| message.clone())).collect();
        let mut input = input.clone();
        input.insert(CHANNEL.to_owned(), all);
        input
    })
}

/// Converts a message to the form of the API.
pub(crate) fn message_to_wire(message: Value) -> Value {
    let Value::Object(fields) = &message else { return message };
    if let Some(removal) = removal_to_wire(fields) {
        return removal;
    }
    if let Some(name) = fields.get("type").and_then(Value::as_str)
        && TYPES.contains(&name)
        && fields.contains_key("content")
    {
        let mut full = blank(name);
        full.extend(fields.clone());
        return full.into();
    }
    let Ok(data) = MessageData::deserialize(&message) else { return message };
    let mut wire = blank(wire_type(data.role));
    wire.insert("content".to_owned(), content_to_wire(data.content, &data.media));
    if let Some(name) = fields.get("name") {
        wire.insert("name".to_owned(), name.clone());
    }
    if !data.id.is_empty() {
        wire.insert("id".to_owned(), data.id.into());
    }
    if !data.reasoning.is_empty() {
        wire["additional_kwargs"]["reasoning_content"] = data.reasoning.into();
    }
    if data.role == Role::Tool {
        wire.insert("tool_call_id".to_owned(), data.tool_call_id.into());
        if data.failed {
            wire.insert("status".to_owned(), "error".into());
        }
    }
    for call in data.tool_calls {
        let ToolCall { id, name, arguments } = call;
        match serde_json::from_str::<Map<String, Value>>(&arguments) {
            Ok(args) => push(
                &mut wire["tool_calls"],
                json!({ "name": name, "args": args, "id": id, "type": "tool_call" }),
            ),
            Err(error) => push(
                &mut wire["invalid_tool_calls"],
                json!({ "name": name, "args": arguments, "id": id, "error": error.to_string(), "type": "invalid_tool_call" }),
            ),
        }
    }
    wire.into()
}

/// Converts the result of a call of this tool to the form of the API.
pub(crate) fn result_to_wire(result: Value, tool: &str) -> Value {
    let mut wire = message_to_wire(result);
    if let Value::Object(fields) = &mut wire {
        fields.entry("name").or_insert_with(|| tool.into());
    }
    wire
}

/// Converts a message so far, whose calls have the arguments that are complete.
pub(crate) fn partial_to_wire(mut so_far: Map<String, Value>) -> Value {
    for call in so_far.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        let arguments = call["arguments"].as_str().unwrap_or_default();
        call["arguments"] = partial_json(arguments).unwrap_or_else(|| json!({})).to_string().into();
    }
    message_to_wire(so_far.into())
}

/// Converts a piece of a message, with the fields of a stored message that are present, to a chunk of the API. `index` is that
/// of its tool call, if it has a part of one.
pub(crate) fn chunk_to_wire(id: &str, piece: &Value) -> Value {
    let mut chunk = blank("ai");
    chunk.insert("type".to_owned(), "AIMessageChunk".into());
    chunk.insert("id".to_owned(), id.into());
    chunk.insert("chunk_position".to_owned(), Value::Null);
    chunk.insert("tool_call_chunks".to_owned(), json!([]));
    let text = match piece {
        Value::String(text) => text.as_str(),
        piece => piece["content"].as_str().unwrap_or_default(),
    };
    chunk.insert("content".to_owned(), text.into());
    if let Some(reasoning) = piece["reasoning"].as_str().filter(|text| !text.is_empty()) {
        chunk["additional_kwargs"]["reasoning_content"] = reasoning.into();
        // The form of the responses of OpenAI, which the SDK of Vercel reads.
        chunk["additional_kwargs"]["reasoning"] =
            json!({ "summary": [{ "type": "summary_text", "text": reasoning }] });
    }
    for part in piece["tool_calls"].as_array().into_iter().flatten() {
        let (name, id, args) = (&part["name"], &part["id"], &part["arguments"]);
        push(
            &mut chunk["tool_call_chunks"],
            json!({ "name": name, "args": args, "id": id, "index": part["index"], "type": "tool_call_chunk" }),
        );
        // A guess from this piece alone, as clients expect.
        if name.is_string() {
            let args = partial_json(args.as_str().unwrap_or_default()).unwrap_or_else(|| json!({}));
            push(
                &mut chunk["tool_calls"],
                json!({ "name": name, "args": args, "id": id, "type": "tool_call" }),
            );
        }
    }
    chunk.into()
}

/// Adds a piece to a message so far, which has the stored form with the texts of calls.
pub(crate) fn accumulate(so_far: &mut Map<String, Value>, piece: &Value) {
    let mut add = |field: &str, text: &str| {
        let before = so_far.get(field).and_then(Value::as_str).unwrap_or_default();
        let text = format!("{before}{text}");
        so_far.insert(field.to_owned(), text.into());
    };
    match piece {
        Value::String(text) => add("content", text),
        piece => {
            add("content", piece["content"].as_str().unwrap_or_default());
            if let Some(reasoning) = piece["reasoning"].as_str() {
                add("reasoning", reasoning);
            }
        }
    }
    for part in piece["tool_calls"].as_array().into_iter().flatten() {
        let calls = so_far.entry("tool_calls").or_insert_with(|| json!([]));
        let Value::Array(calls) = calls else { continue };
        let at = part["index"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
        // A server numbers its calls from 0 without gaps.
        if at > calls.len() {
            continue;
        }
        if at == calls.len() {
            calls.push(json!({ "id": "", "name": "", "arguments": "" }));
        }
        for field in ["id", "name"] {
            if part[field].is_string() {
                calls[at][field] = part[field].clone();
            }
        }
        let text = calls[at]["arguments"].as_str().unwrap_or_default();
        calls[at]["arguments"] = format!("{text}{}", part["arguments"].as_str().unwrap_or_default()).into();
    }
}

fn message_from_wire(message: Value, at: usize) -> Result<Value, ApiError> {
    let Value::Object(fields) = message else { return Ok(message) };
    let fields = deserialized(fields);
    // `type` may be `message`.
    let author = ["role", "type"].into_iter().find_map(|field| fields.get(field)?.as_str());
    // Some state of one's own that happens to have this name.
    let Some(author) = author else { return Ok(fields.into()) };
    let role = match author {
        "human" | "user" => Role::User,
        "ai" | "assistant" | "AIMessageChunk" => Role::Assistant,
        "system" | "developer" => Role::System,
        "tool" => Role::Tool,
        "remove" => return removal_from_wire(&fields, at),
        _ => return Err(ApiError::invalid(format!("messages.{at}: unknown author `{author}`"))),
    };
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let id = Some(text("id")).filter(|id| !id.is_empty()).unwrap_or_else(ids::new_random);
    let calls = fields.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let (content, media) = content_from_wire(fields.get("content"), role, at)?;
    let stored = MessageData {
        id,
        role,
        content,
        reasoning: fields
            .get("additional_kwargs")
            .and_then(|kwargs| kwargs["reasoning_content"].as_str())
            .unwrap_or_default()
            .to_owned(),
        tool_calls: calls.map(|call| call_from_wire(call, at)).collect::<Result<_, _>>()?,
        tool_call_id: text("tool_call_id"),
        failed: text("status") == "error",
        media,
        synthetic: false,
        interrupted: false,
        origin: None,
    };
    let mut stored = json!(stored);
    if let Some(name) = fields.get("name").filter(|name| !name.is_null()) {
        stored["name"] = name.clone();
    }
    Ok(stored)
}

/// Returns the fields of a message in the form into which the classes of LangChain serialize themselves:
/// `{"lc": 1, "type": "constructor", "id": [.., "HumanMessage"], "kwargs": {..}}`. Other fields stay as they are.
fn deserialized(mut fields: Map<String, Value>) -> Map<String, Value> {
    if fields.get("type").is_none_or(|kind| kind != "constructor") {
        return fields;
    }
    let class = fields.get("id").and_then(|path| path.as_array()?.last()?.as_str()).unwrap_or_default();
    let kind = match class.trim_end_matches("Chunk") {
        "HumanMessage" => "human",
        "AIMessage" => "ai",
        "SystemMessage" => "system",
        "ToolMessage" => "tool",
        "RemoveMessage" => "remove",
        _ => return fields,
    };
    let Some(Value::Object(mut own)) = fields.remove("kwargs") else { return fields };
    own.insert("type".to_owned(), kind.into());
    own
}

/// The id that removes all messages.
const ALL: &str = "__remove_all__";

fn removal_from_wire(fields: &Map<String, Value>, at: usize) -> Result<Value, ApiError> {
    let id = fields.get("id").and_then(Value::as_str);
    let id = id.ok_or_else(|| {
        ApiError::invalid(format!("messages.{at}.id: expected the id of the message to remove"))
    })?;
    Ok(if id == ALL { json!({ "$remove_all": true }) } else { json!({ "$remove": id }) })
}

fn removal_to_wire(fields: &Map<String, Value>) -> Option<Value> {
    let id =
        fields.get("$remove").cloned().or_else(|| fields.contains_key("$remove_all").then(|| ALL.into()))?;
    let mut wire = blank("remove");
    wire.insert("id".to_owned(), id);
    Some(wire.into())
}

/// Returns the text of a content, and its media.
fn content_from_wire(
    content: Option<&Value>,
    role: Role,
    at: usize,
) -> Result<(String, Vec<Media>), ApiError> {
    let (mut text, mut media) = (String::new(), Vec::new());
    let invalid = |block: usize, reason: &str| {
        Err(ApiError::invalid(format!("messages.{at}.content.{block}: {reason}")))
    };
    match content {
        None | Some(Value::Null) => {}
        Some(Value::String(whole)) => text.clone_from(whole),
        Some(Value::Array(blocks)) => {
            for (position, block) in blocks.iter().enumerate() {
                let part =
                    block.as_str().or_else(|| block["text"].as_str().filter(|_| block["type"] == "text"));
                match (part, media::from_block(block)) {
                    (Some(part), _) => text.push_str(part),
                    (None, Some(Ok(found))) if matches!(role, Role::User | Role::Tool) => media.push(found),
                    (None, Some(Err(reason))) => return invalid(position, &reason),
                    (None, Some(Ok(_))) => return invalid(position, "only users and tools send media"),
                    // What the model called, and thought, is in other fields as well.
                    (None, _) if role == Role::Assistant => {}
                    (None, _) => return invalid(position, "expected a text, an image, audio or a file"),
                }
            }
        }
        Some(_) => {
            return Err(ApiError::invalid(format!("messages.{at}.content: expected a text or blocks")));
        }
    }
    Ok((text, media))
}

fn content_to_wire(text: String, media: &[Media]) -> Value {
    if media.is_empty() {
        return text.into();
    }
    let text = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
    text.into_iter().chain(media.iter().map(media::to_block)).collect()
}

/// Converts a call in the form of the API or of OpenAI.
fn call_from_wire(call: &Value, at: usize) -> Result<ToolCall, ApiError> {
    let wrong = || ApiError::invalid(format!("messages.{at}.tool_calls: expected `id`, `name` and `args`"));
    let (name, args) = match &call["function"] {
        Value::Object(function) => (function.get("name"), function.get("arguments")),
        _ => (call.get("name"), call.get("args")),
    };
    let arguments = match args {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(args) => args.to_string(),
    };
    let (id, name) =
        (call["id"].as_str().ok_or_else(wrong)?, name.and_then(Value::as_str).ok_or_else(wrong)?);
    Ok(ToolCall::new(id, name, arguments))
}

/// Returns the fields that each message of a type has.
fn blank(name: &str) -> Map<String, Value> {
    let fields = json!({
        "content": "", "additional_kwargs": {}, "response_metadata": {}, "type": name, "id": null,
    });
    let more = match name {
        "ai" => json!({ "name": null, "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": null }),
        // Pages compare the name of a result with that of its call, and fail at null.
        "tool" => json!({ "tool_call_id": "", "artifact": null, "status": "success" }),
        _ => json!({ "name": null }),
    };
    let (Value::Object(mut fields), Value::Object(more)) = (fields, more) else { return Map::new() };
    fields.extend(more);
    fields
}

fn wire_type(role: Role) -> &'static str {
    match role {
        Role::User => "human",
        Role::Assistant => "ai",
        Role::System => "system",
        Role::Tool => "tool",
    }
}

fn push(list: &mut Value, item: Value) {
    if let Value::Array(list) = list {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(messages: Value) -> Result<Value, ApiError> {
        from_wire(Map::from_iter([(CHANNEL.to_owned(), messages)])).map(|mut update| update[CHANNEL].take())
    }

    #[test]
    fn a_message_of_a_client_is_stored_and_shown_with_its_id() {
        let wire = json!([{"type": "human", "content": [{"type": "text", "text": "what is 2+40?"}], "id": "h1", "name": "ada"}]);
        let stored = stored(wire).unwrap();
        assert_eq!(stored, json!([{"role": "user", "content": "what is 2+40?", "id": "h1", "name": "ada"}]));
        let shown = message_to_wire(stored[0].clone());
        let expected = json!({
            "content": "what is 2+40?", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": "ada", "id": "h1",
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_message_without_an_id_gets_one() {
        let stored = stored(json!({"role": "user", "content": "hi"})).unwrap();
        assert_eq!(stored[0]["id"].as_str().unwrap().len(), 36);
    }

    #[test]
    fn calls_are_converted_in_both_directions() {
        let wire = json!({
            "content": "", "additional_kwargs": {"reasoning_content": "Let me think."}, "response_metadata": {}, "type": "ai",
            "name": null, "id": "a1", "tool_calls": [{"name": "add", "args": {"a": 2}, "id": "c1", "type": "tool_call"}],
            "invalid_tool_calls": [], "usage_metadata": null,
        });
        let stored = stored(json!([wire])).unwrap();
        assert_eq!(stored[0]["tool_calls"], json!([{"id": "c1", "name": "add", "arguments": "{\"a\":2}"}]));
        assert_eq!(message_to_wire(stored[0].clone()), wire);
        let broken =
            json!({"role": "assistant", "tool_calls": [{"id": "c1", "name": "add", "arguments": "{\"a\":"}]});
        let shown = message_to_wire(broken);
        assert_eq!(shown["tool_calls"], json!([]));
        assert_eq!(shown["invalid_tool_calls"][0]["args"], "{\"a\":");
    }

    #[test]
    fn messages_of_langchain_and_of_openai_are_read() {
        let path = ["langchain_core", "messages", "AIMessageChunk"];
        let call = json!({"name": "add", "args": {"a": 2}, "id": "c1", "type": "tool_call"});
        let own = json!({"id": "a1", "content": "", "tool_calls": [call], "additional_kwargs": {}});
        let serialized = json!({"lc": 1, "type": "constructor", "id": path, "kwargs": own});
        let function = json!({"name": "add", "arguments": "{\"a\":2}"});
        let openai = json!({
            "type": "message", "role": "assistant", "id": "a1", "content": null,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        });
        let call = json!({"id": "c1", "name": "add", "arguments": "{\"a\":2}"});
        let expected = json!({"role": "assistant", "id": "a1", "content": "", "tool_calls": [call]});
        assert_eq!(stored(json!([serialized, openai])), Ok(json!([expected, expected])));
    }

    #[test]
    fn a_result_has_the_name_of_its_tool_or_none() {
        let model =
            json!({"role": "assistant", "tool_calls": [{"id": "c1", "name": "add", "arguments": "{}"}]});
        let result = json!({"role": "tool", "content": "42", "tool_call_id": "c1"});
        let shown = to_wire(Map::from_iter([(CHANNEL.to_owned(), json!([model, result]))]));
        assert_eq!(shown[CHANNEL][1]["name"], "add");
        assert_eq!(message_to_wire(result).get("name"), None);
    }

    #[test]
    fn what_is_no_message_stays_as_it_is() {
        for other in [json!("hello"), json!({"text": "hello"}), json!({"role": "judge", "verdict": 1})] {
            assert_eq!(message_to_wire(other.clone()), other);
        }
        assert_eq!(stored(json!(["hello", {"text": 1}])), Ok(json!(["hello", {"text": 1}])));
        for wrong in [
            json!([{"role": "judge", "content": ""}]),
            json!([{"role": "user", "content": [{"type": "image_url"}]}]),
            json!([{"type": "remove"}]),
        ] {
            assert_eq!(stored(wrong).unwrap_err().status, 422);
        }
    }

    #[test]
    fn removals_are_converted() {
        let wire = json!([{"type": "remove", "id": "m1"}, {"type": "remove", "id": "__remove_all__"}]);
        let removals = stored(wire).unwrap();
        assert_eq!(removals, json!([{"$remove": "m1"}, {"$remove_all": true}]));
        assert_eq!(message_to_wire(removals[0].clone())["id"], "m1");
        assert_eq!(message_to_wire(removals[1].clone())["type"], "remove");
    }

    #[test]
    fn pieces_become_chunks_and_add_up() {
        let call = json!({"role": "assistant", "content": "", "tool_calls": [{"index": 0, "id": "c1", "name": "add", "arguments": "{\"a\""}]});
        let rest =
            json!({"role": "assistant", "content": "", "tool_calls": [{"index": 0, "arguments": ":2}"}]});
        let chunk = chunk_to_wire("m1", &call);
        let part =
            json!([{"name": "add", "args": "{\"a\"", "id": "c1", "index": 0, "type": "tool_call_chunk"}]);
        assert_eq!((&chunk["tool_call_chunks"], &chunk["id"]), (&part, &json!("m1")));
        assert_eq!(chunk_to_wire("m1", &rest)["tool_calls"], json!([]));
        let mut so_far = Map::new();
        for piece in [json!({"content": "4", "reasoning": "hm"}), json!("2"), call, rest] {
            accumulate(&mut so_far, &piece);
        }
        assert_eq!((&so_far["content"], &so_far["reasoning"]), (&json!("42"), &json!("hm")));
        assert_eq!(so_far["tool_calls"], json!([{"id": "c1", "name": "add", "arguments": "{\"a\":2}"}]));
        // A part without its beginning is left out.
        accumulate(&mut so_far, &json!({"tool_calls": [{"index": 7, "arguments": "x"}]}));
        assert_eq!(so_far["tool_calls"].as_array().unwrap().len(), 1);
    }
}
