//! What a server gave back, as a model reads it.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use superstep_llm::ToolError;

/// The most bytes of one result; what an agent does about shorter ones is its own choice.
pub(crate) const MOST: usize = 1 << 20;

/// The result as text: texts as they are, and a note in the place of everything else.
///
/// # Errors
/// What the server says is an error.
pub(crate) fn text(result: CallToolResult) -> Result<String, ToolError> {
    let mut parts: Vec<String> = result.content.into_iter().map(part).collect();
    if let (true, Some(structured)) = (parts.is_empty(), &result.structured_content) {
        parts.push(structured.to_string());
    }
    let text = cut(parts.join("\n"), MOST);
    match result.is_error {
        Some(true) => Err(ToolError::failed(text)),
        _ => Ok(text),
    }
}

fn part(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => media("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => media("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown type");
                format!("[resource {uri}: {kind}, {} bytes, not shown]", bytes(&blob))
            }
            _ => "[a resource of a kind that is not known]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.uri, link.name),
        _ => "[content of a kind that is not known]".to_owned(),
    }
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
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(result: Value) -> Result<String, String> {
        let result = serde_json::from_value(result).expect("it is a result");
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
    fn an_error_is_one_and_a_flood_is_cut() {
        let failed = json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(read(failed).unwrap_err(), "no such file");
        let flood = json!({"content": [{"type": "text", "text": "é".repeat(MOST)}]});
        let read = read(flood).unwrap();
        assert!(read.ends_with("[truncated 1048576 bytes]"), "{}", &read[read.len() - 40..]);
    }
}
