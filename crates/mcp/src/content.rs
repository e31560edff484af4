//! What a server gave back, as a model reads it.

use rmcp::model::{ContentBlock, ResourceContents};
use serde_json::Value;
use superstep_llm::ToolError;

/// The most bytes of one result; what an agent does about shorter ones is its own choice.
pub(crate) const MOST: usize = 1 << 20;

/// How much is shown of what is not a result, in bytes.
const LONGEST_SHOWN: usize = 500;

/// The result as text: texts as they are, and a note in the place of everything else.
///
/// # Errors
/// What the server says is an error.
pub(crate) fn text(mut result: Value) -> Result<String, ToolError> {
    let mut parts: Vec<String> = match result.get_mut("content").map(Value::take) {
        Some(Value::Array(content)) => content.into_iter().map(part).collect(),
        None | Some(Value::Null) if result.is_object() => Vec::new(),
        _ => {
            let shown = cut(result.to_string(), LONGEST_SHOWN);
            return Err(ToolError::failed(format!(
                "the server returned what is not a result of a tool: {shown}"
            )));
        }
    };
    if let (true, Some(structured)) = (parts.is_empty(), result.get("structuredContent")) {
        parts.push(structured.to_string());
    }
    if parts.is_empty() {
        parts.push("[the server returned no content]".to_owned());
    }
    let text = cut(parts.join("\n"), MOST);
    match result["isError"] == Value::Bool(true) {
        true => Err(ToolError::failed(text)),
        false => Ok(text),
    }
}

fn part(block: Value) -> String {
    let kind = block["type"].as_str().unwrap_or("no kind").to_owned();
    let size = block.to_string().len();
    match serde_json::from_value(block) {
        Ok(block) => known(block).unwrap_or_else(|| unknown(&kind, size)),
        Err(_) => unknown(&kind, size),
    }
}

fn unknown(kind: &str, size: usize) -> String {
    let kind = cut(kind.to_owned(), LONGEST_SHOWN);
    format!("[content of kind `{kind}` that cannot be read, {size} bytes of JSON, not shown]")
}

fn known(block: ContentBlock) -> Option<String> {
    Some(match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => media("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => media("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown type");
                format!("[resource {uri}: {kind}, {} bytes, not shown]", bytes(&blob))
            }
            _ => return None,
        },
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.uri, link.name),
        _ => return None,
    })
}

fn media(kind: &str, mime_type: &str, base64: &str) -> String {
    format!("[{kind}: {mime_type}, {} bytes, not shown]", bytes(base64))
}

/// How many bytes a base64 text stands for.
fn bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// So many bytes of a text of the server at the most.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let omitted = text.len() - text.floor_char_boundary(most);
        text.truncate(text.floor_char_boundary(most));
        text.push_str(&format!("\n[truncated {omitted} bytes]"));
        // What is kept of a flood is not to hold its memory.
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(result: Value) -> Result<String, String> {
        text(result).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_stand_as_they_are_and_the_rest_is_noted() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAAAA=="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]);
        let wanted = "one\n[image: image/png, 3 bytes, not shown]\n[resource file:///a]\ntwo\n\
                      [resource file:///b: unknown type, 4 bytes, not shown]\n[resource file:///c: c]";
        assert_eq!(read(json!({ "content": content })).unwrap(), wanted);
    }

    #[test]
    fn structured_content_stands_in_for_texts_that_are_not_there() {
        let structured = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(read(structured).unwrap(), r#"{"a":1}"#);
        let both = json!({"content": [{"type": "text", "text": "a is 1"}], "structuredContent": {"a": 1}});
        assert_eq!(read(both).unwrap(), "a is 1");
    }

    #[test]
    fn what_is_not_known_is_named() {
        let content =
            json!([{"type": "video", "data": "AAAA"}, {"type": "text"}, 7, {"type": "text", "text": "one"}]);
        let wanted = "[content of kind `video` that cannot be read, 30 bytes of JSON, not shown]\n\
                      [content of kind `text` that cannot be read, 15 bytes of JSON, not shown]\n\
                      [content of kind `no kind` that cannot be read, 1 bytes of JSON, not shown]\none";
        assert_eq!(read(json!({ "content": content })).unwrap(), wanted);
        for empty in [json!({}), json!({"content": null}), json!({"content": []})] {
            assert_eq!(read(empty).unwrap(), "[the server returned no content]");
        }
        for none in [json!("done"), json!(null), json!([1]), json!({"content": "done"})] {
            let why = read(none).unwrap_err();
            assert!(why.starts_with("the server returned what is not a result of a tool: "), "{why}");
        }
    }

    #[test]
    fn an_error_is_one_and_a_flood_is_cut() {
        let failed = json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(read(failed).unwrap_err(), "no such file");
        let flood = json!({"content": [{"type": "text", "text": "é".repeat(MOST)}]});
        let read = read(flood).unwrap();
        assert!(read.ends_with("[truncated 1048576 bytes]"), "{}", &read[read.len() - 40..]);
    }
}
