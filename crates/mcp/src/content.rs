//! The conversion of a server's results into text for a model.

use serde_json::Value;
use superstep_llm::{
    ToolError, ToolReply,
    media::{Media, MediaError},
};

/// The maximum number of bytes of one result; an agent may impose a lower limit.
pub(crate) const MAX_RESULT_BYTES: usize = 1 << 20;

/// The maximum number of bytes shown of an invalid result.
const MAX_SHOWN_LENGTH: usize = 500;

/// Converts a result: texts unchanged, images and audio, and a description in place of these and of all other
/// content. Without any text, the structured content follows.
///
/// `hide` hides the secrets of the configuration, in errors before they are truncated.
pub(crate) fn reply(mut result: Value, hide: &dyn Fn(String) -> String) -> Result<ToolReply, ToolError> {
    let mut media = Vec::new();
    let is_readable = match &result["content"] {
        // A single block or text, not in a list, can be read as well.
        Value::Array(_) | Value::Object(_) | Value::String(_) => true,
        none => none.is_null() && result.is_object(),
    };
    if !is_readable {
        let shown = cut(hide(result.to_string()), MAX_SHOWN_LENGTH);
        return Err(ToolError::failed(format!(
            "the server returned what is not a result of a tool: {shown}"
        )));
    }
    let content = match result.get_mut("content").map(Value::take) {
        Some(Value::Array(content)) => content,
        Some(Value::Null) | None => Vec::new(),
        Some(block) => vec![block],
    };
    let has_text = content.iter().any(has_text);
    let mut parts: Vec<String> = content.into_iter().map(|block| part(block, &mut media)).collect();
    // Servers of the first version of the protocol have a `toolResult`.
    let structured = ["structuredContent", "toolResult"].iter().find_map(|field| result.get(*field));
    let structured = structured.filter(|structured| !structured.is_null());
    if let (false, Some(structured)) = (has_text, structured) {
        parts.retain(|part| !part.trim().is_empty());
        parts.push(structured.as_str().map_or_else(|| structured.to_string(), str::to_owned));
    }
    let mut text = parts.join("\n");
    if text.trim().is_empty() {
        text = "[the server returned no content]".to_owned();
    }
    let is_error = result["isError"] == true || result["isError"] == "true";
    if is_error {
        Err(ToolError::failed(cut(hide(text), MAX_RESULT_BYTES)))
    } else {
        Ok(ToolReply::text(cut(text, MAX_RESULT_BYTES)).with_media(media))
    }
}

/// Returns whether a block is text for the model, also that of a resource.
fn has_text(block: &Value) -> bool {
    let texts = [block, &block["text"], &block["resource"]["text"]];
    texts.iter().any(|text| text.as_str().is_some_and(|text| !text.trim().is_empty()) || text.is_number())
}

/// Converts one block. Only the fields that it needs are read, so that no other field voids its text.
fn part(block: Value, media: &mut Vec<Media>) -> String {
    let text = |value: &Value, field: &str| match &value[field] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let resource = &block["resource"];
    let known = match block["type"].as_str() {
        _ if block.is_string() => block.as_str().map(str::to_owned),
        Some("text") => text(&block, "text"),
        Some(kind @ ("image" | "audio")) => {
            text(&block, "data").map(|data| shown(kind, &block, &data, None, media))
        }
        Some("resource") => {
            let uri = text(resource, "uri").unwrap_or_default();
            text(resource, "text").map(|text| format!("[resource {uri}]\n{text}")).or_else(|| {
                let blob = text(resource, "blob")?;
                Some(shown(&format!("resource {uri}"), resource, &blob, Some(&uri), media))
            })
        }
        Some("resource_link") => text(&block, "uri").map(|uri| match text(&block, "name") {
            Some(name) => format!("[resource {uri}: {name}]"),
            None => format!("[resource {uri}]"),
        }),
        _ => None,
    };
    known.unwrap_or_else(|| {
        let kind = block["type"].as_str().unwrap_or("no kind").to_owned();
        unknown(&kind, block.to_string().len())
    })
}

fn unknown(kind: &str, size: usize) -> String {
    let kind = cut(kind.to_owned(), MAX_SHOWN_LENGTH);
    format!("[content of kind `{kind}` that cannot be read, {size} bytes of JSON, not shown]")
}

/// Adds an image, audio or a binary resource; returns its description.
fn shown(kind: &str, block: &Value, data: &str, uri: Option<&str>, media: &mut Vec<Media>) -> String {
    // Some servers send an address with the data in it.
    let base64 = data.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    let base64 = base64.map_or(data, |(_, base64)| base64);
    let mime_type = block["mimeType"].as_str().unwrap_or("unknown type");
    match Media::new(mime_type, base64) {
        Ok(one) => {
            let one = match uri {
                Some(uri) => one.at(uri),
                None => one,
            };
            let text = one.to_string();
            media.push(one);
            text
        }
        Err(why) => hidden(kind, mime_type, base64, why),
    }
}

/// Describes data that no model accepts.
fn hidden(kind: &str, mime_type: &str, base64: &str, why: MediaError) -> String {
    let mime_type = cut(mime_type.to_owned(), MAX_SHOWN_LENGTH);
    let bytes = base64.trim_end_matches('=').len() * 3 / 4;
    format!("[{kind}: {mime_type}, {bytes} bytes, not shown: {why}]")
}

/// Truncates a text of the server to this number of bytes.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let omitted = text.len() - text.floor_char_boundary(most);
        text.truncate(text.floor_char_boundary(most));
        text.push_str(&format!("\n[truncated {omitted} bytes]"));
        // The rest of a large result must not occupy its memory.
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GIF: &str = "R0lGODlh";

    fn read(result: Value) -> Result<String, String> {
        reply(result, &|text| text).map(|reply| reply.text).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_stand_as_they_are_and_the_rest_is_noted() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "image", "data": GIF, "mimeType": "image/gif"},
            {"type": "image", "data": GIF, "mimeType": "image/svg+xml"},
            {"type": "audio", "data": "SUQz", "mimeType": "audio/mpeg"},
            {"type": "audio", "data": "SUQ z", "mimeType": "audio/mpeg"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAAAA=="}},
            {"type": "resource", "resource": {"uri": "file:///d", "blob": GIF, "mimeType": "image/gif"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]);
        let wanted = "one\n[image: image/png, 3 bytes, not shown: its data is not image/png]\n[image: image/gif, 6 bytes]\n\
                      [image: image/svg+xml, 6 bytes, not shown: not of a type that models take]\n\
                      [audio: audio/mpeg, 3 bytes]\n[audio: audio/mpeg, 3 bytes, not shown: its data is not valid base64]\n\
                      [resource file:///a]\ntwo\n\
                      [resource file:///b: unknown type, 4 bytes, not shown: not of a type that models take]\n\
                      [resource file:///d: image/gif, 6 bytes]\n[resource file:///c: c]";
        let read = reply(json!({ "content": content }), &|text| text).unwrap();
        assert_eq!(read.text, wanted);
        let media: Vec<String> = read.media.iter().map(ToString::to_string).collect();
        assert_eq!(
            media,
            [
                "[image: image/gif, 6 bytes]",
                "[audio: audio/mpeg, 3 bytes]",
                "[resource file:///d: image/gif, 6 bytes]"
            ]
        );
    }

    #[test]
    fn structured_content_stands_in_for_texts_that_are_not_there() {
        let structured = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(read(structured).unwrap(), r#"{"a":1}"#);
        let both = json!({"content": [{"type": "text", "text": "a is 1"}], "structuredContent": {"a": 1}});
        assert_eq!(read(both).unwrap(), "a is 1");
        let image = json!({"type": "image", "data": GIF, "mimeType": "image/gif"});
        let resource = json!({"type": "resource", "resource": {"uri": "file:///a", "text": "two"}});
        for (content, wanted) in [
            (json!([{"type": "text", "text": ""}]), r#"{"a":1}"#),
            (json!([{"type": "text", "text": " \n"}, {"type": "text", "text": ""}]), r#"{"a":1}"#),
            (json!([image]), "[image: image/gif, 6 bytes]\n{\"a\":1}"),
            (
                json!([{"type": "resource_link", "uri": "file:///c", "name": "c"}]),
                "[resource file:///c: c]\n{\"a\":1}",
            ),
            (json!([resource]), "[resource file:///a]\ntwo"),
            (json!([image, {"type": "text", "text": "a is 1"}]), "[image: image/gif, 6 bytes]\na is 1"),
        ] {
            let result = json!({"content": content, "structuredContent": {"a": 1}});
            assert_eq!(read(result.clone()).unwrap(), wanted, "{result}");
            let failed = json!({"content": content, "structuredContent": {"a": 1}, "isError": true});
            assert_eq!(read(failed).unwrap_err(), wanted, "{content}");
        }
        for blank in [
            json!([{"type": "text", "text": ""}]),
            json!([{"type": "text", "text": " "}, {"type": "text", "text": "\n"}]),
        ] {
            let none = Ok::<_, String>("[the server returned no content]".to_owned());
            assert_eq!(read(json!({"content": blank, "structuredContent": null})), none);
            assert_eq!(read(json!({"content": blank, "isError": true})), none.map_or_else(Err, Err));
        }
    }

    #[test]
    fn unknown_content_is_named() {
        let content =
            json!([{"type": "video", "data": "AAAA"}, {"type": "text"}, 7, {"type": "text", "text": "one"}]);
        let wanted = "[content of kind `video` that cannot be read, 30 bytes of JSON, not shown]\n\
                      [content of kind `text` that cannot be read, 15 bytes of JSON, not shown]\n\
                      [content of kind `no kind` that cannot be read, 1 bytes of JSON, not shown]\none";
        assert_eq!(read(json!({ "content": content })).unwrap(), wanted);
        for empty in [json!({}), json!({"content": null}), json!({"content": []})] {
            assert_eq!(read(empty).unwrap(), "[the server returned no content]");
        }
        for none in [json!("done"), json!(null), json!([1]), json!({"content": 7})] {
            let why = read(none).unwrap_err();
            assert!(why.starts_with("the server returned what is not a result of a tool: "), "{why}");
        }
    }

    #[test]
    fn no_field_beside_a_text_voids_it() {
        let annotations = json!({"audience": "user", "priority": "high", "lastModified": 7});
        for content in [
            json!([{"type": "text", "text": "one", "annotations": annotations, "_meta": "x"}]),
            json!([{"type": "text", "text": "one", "annotations": null, "_meta": null}]),
            json!({"type": "text", "text": "one"}),
            json!("one"),
        ] {
            let result = json!({"content": content, "isError": null, "_meta": 7});
            assert_eq!(read(result.clone()).unwrap(), "one", "{result}");
        }
        let odd = json!([
            {"type": "text", "text": 5},
            {"type": "resource_link", "uri": "file:///c"},
            {"type": "image", "data": format!("data:image/gif;base64,{GIF}"), "mimeType": "image/gif", "annotations": 1},
        ]);
        let wanted = "5\n[resource file:///c]\n[image: image/gif, 6 bytes]";
        assert_eq!(read(json!({ "content": odd })).unwrap(), wanted);
        assert_eq!(read(json!({"toolResult": "old"})).unwrap(), "old");
        assert_eq!(read(json!({"content": "bad", "isError": "true"})).unwrap_err(), "bad");
    }

    #[test]
    fn an_error_is_one_and_a_flood_is_cut() {
        let failed = json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(read(failed).unwrap_err(), "no such file");
        let flood = json!({"content": [{"type": "text", "text": "é".repeat(MAX_RESULT_BYTES)}]});
        let read = read(flood).unwrap();
        assert!(read.ends_with("[truncated 1048576 bytes]"), "{}", &read[read.len() - 40..]);
    }
}
