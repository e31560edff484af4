//! Images, audio and files in the content of messages.
//!
//! Start at [`from_block`].

use serde_json::{Value, json};
use superstep_llm::media::{Media, MediaError, MediaType};

/// The names of the blocks with media, by the clients that send them.
const KINDS: [&str; 7] = ["image", "image_url", "audio", "input_audio", "file", "document", "binary"];

/// Reads a block of a content with media; `None` if it is one of something else.
///
/// The forms are those of the content blocks of LangChain (`data` or `base64` with `mime_type` or `mimeType`), of OpenAI (`image_url`,
/// `input_audio`, `file`), of Anthropic (`source`) and of AG-UI (`source`, `binary`).
///
/// # Errors
/// The reason why models would not take it.
pub(crate) fn from_block(block: &Value) -> Option<Result<Media, String>> {
    KINDS.contains(&block["type"].as_str()?).then(|| read(block))
}

fn read(block: &Value) -> Result<Media, String> {
    for holder in [block, &block["source"], &block["file"], &block["input_audio"]] {
        let text = |fields: &[&str]| fields.iter().find_map(|field| holder.get(field)?.as_str());
        let address = holder["image_url"]["url"].as_str().or_else(|| text(&["image_url", "url"]));
        let data = text(&["data", "base64", "value", "file_data"]);
        let Some(given) = data.or(address) else { continue };
        let mime = text(&["mime_type", "mimeType", "media_type", "format"]).unwrap_or_default();
        return match given.strip_prefix("data:") {
            Some(url) => {
                let (mime, data) = url.split_once(";base64,").ok_or("a `data:` URL without base64")?;
                media(mime, data)
            }
            None if data.is_none() || holder["type"] == "url" => {
                Err("media by address are not supported; send their data".to_owned())
            }
            None => media(mime, given),
        };
    }
    Err("expected base64 in `data`, and its type in `mime_type`".to_owned())
}

fn media(mime: &str, data: &str) -> Result<Media, String> {
    // OpenAI names the formats of audio without their kind.
    let mime = if matches!(mime, "wav" | "mp3") { format!("audio/{mime}") } else { mime.to_owned() };
    Media::new(&mime, data).map_err(|error| match error {
        MediaError::Type => format!("media of the type `{mime}`: send PNG, JPEG, GIF, WebP, WAV, MP3 or PDF"),
        error => format!("media of the type `{mime}`: {error}"),
    })
}

/// Returns the block of media: an image in the form that most clients show, the others in that of LangChain.
pub(crate) fn to_block(media: &Media) -> Value {
    let (mime, data) = (media.mime.as_str(), media.base64());
    if media.mime.is_image() {
        return json!({ "type": "image_url", "image_url": { "url": format!("data:{mime};base64,{data}") } });
    }
    let kind = kind(media.mime);
    json!({ "type": kind, "source_type": "base64", "mime_type": mime, "data": data })
}

/// Returns the part of media in the content of a message of AG-UI.
pub(crate) fn to_part(media: &Media) -> Value {
    let (mime, data) = (media.mime.as_str(), media.base64());
    let kind = if media.mime.is_image() { "image" } else { kind(media.mime) };
    let kind = if kind == "file" { "document" } else { kind };
    json!({ "type": kind, "source": { "type": "data", "value": data, "mimeType": mime } })
}

fn kind(mime: MediaType) -> &'static str {
    if mime.is_audio() { "audio" } else { "file" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a PNG.
    const PNG: &str = "iVBORw0KGgo=";

    #[test]
    fn media_come_in_the_forms_of_all_clients() {
        let url = format!("data:image/png;base64,{PNG}");
        for block in [
            json!({ "type": "image_url", "image_url": { "url": url } }),
            json!({ "type": "image_url", "image_url": url }),
            json!({ "type": "image", "url": url }),
            json!({ "type": "image", "source_type": "base64", "mime_type": "image/png", "data": PNG }),
            json!({ "type": "image", "mime_type": "image/png", "base64": PNG }),
            json!({ "type": "image", "mimeType": "image/png", "data": PNG, "metadata": { "name": "a.png" } }),
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": PNG } }),
            json!({ "type": "image", "source": { "type": "data", "mimeType": "image/png", "value": PNG } }),
            json!({ "type": "binary", "mimeType": "image/png", "data": PNG }),
            json!({ "type": "file", "file": { "filename": "a.png", "file_data": url } }),
        ] {
            let media = from_block(&block).unwrap().unwrap();
            assert_eq!((media.mime, media.base64()), (MediaType::Png, PNG), "{block}");
            assert_eq!(from_block(&to_block(&media)).unwrap().unwrap(), media);
            assert_eq!(from_block(&to_part(&media)).unwrap().unwrap(), media);
        }
        let audio = json!({ "type": "input_audio", "input_audio": { "data": "SUQz", "format": "mp3" } });
        let media = from_block(&audio).unwrap().unwrap();
        assert_eq!(media.mime, MediaType::Mp3);
        assert_eq!(from_block(&to_block(&media)).unwrap().unwrap(), media);
    }

    #[test]
    fn what_no_model_takes_is_refused_with_the_reason() {
        let address = "media by address are not supported; send their data";
        for (block, expected) in [
            (json!({ "type": "image_url", "image_url": { "url": "https://example.org/a.png" } }), address),
            (
                json!({ "type": "image", "source": { "type": "url", "value": "https://example.org" } }),
                address,
            ),
            (
                json!({ "type": "image", "mime_type": "image/tiff", "data": PNG }),
                "media of the type `image/tiff`: send PNG, JPEG, GIF, WebP, WAV, MP3 or PDF",
            ),
            (
                json!({ "type": "image", "mime_type": "image/png", "data": "R0lGODlh" }),
                "media of the type `image/png`: its data is not image/png",
            ),
            (json!({ "type": "file", "id": "f1" }), "expected base64 in `data`, and its type in `mime_type`"),
        ] {
            assert_eq!(from_block(&block).unwrap().unwrap_err(), expected, "{block}");
        }
        assert!(from_block(&json!({ "type": "text", "text": "a" })).is_none());
        assert!(from_block(&json!("a")).is_none());
    }
}
