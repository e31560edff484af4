//! Prompts of clients, as the agent reads them.

use std::{fmt, path::PathBuf};

use url::Url;

use crate::wire::{AvailableCommand, ContentBlock, ResourceContents, RpcError};

/// The maximum length of the text of a resource, in bytes.
const MAX_RESOURCE: usize = 256 << 10;

/// The content of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptContent {
    /// The command that the first word is.
    pub command: Option<PromptCommand>,
    /// The text, followed by the texts of resources as `<context uri="…">`.
    pub text: String,
    /// The images and audio.
    pub media: Vec<PromptMedia>,
}

/// A command of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptCommand {
    /// Resumes an unfinished turn.
    Continue,
    /// Reverts the changes of the last turn.
    Undo,
    /// Summarizes the conversation at the beginning of the next turn.
    Compact,
    /// Describes the session.
    Status,
}

/// An image or audio of a prompt.
#[derive(Clone, PartialEq, Eq)]
pub struct PromptMedia {
    /// The MIME type, not validated.
    pub mime_type: String,
    /// The data in base64, not validated.
    pub data: String,
}

impl fmt::Debug for PromptMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptMedia").field("mime_type", &self.mime_type).finish_non_exhaustive()
    }
}

const COMMANDS: [(&str, PromptCommand, &str); 4] = [
    ("continue", PromptCommand::Continue, "Resume the unfinished turn exactly where it stopped"),
    ("undo", PromptCommand::Undo, "Revert the files that the last turn changed"),
    ("compact", PromptCommand::Compact, "Summarize the conversation for the model before the next message"),
    ("status", PromptCommand::Status, "Show the model, the tokens and the state of this session"),
];

/// Returns the commands, for [`AvailableCommandsUpdate`](crate::wire::SessionUpdate::AvailableCommandsUpdate).
pub fn available_commands() -> Vec<AvailableCommand> {
    COMMANDS.map(|(name, _, description)| AvailableCommand { name, description }).into()
}

impl PromptContent {
    /// Converts a prompt. Nothing is read: a link to a file becomes its path, another link its name.
    ///
    /// # Errors
    /// The prompt is empty, or a resource has no content.
    pub fn of(blocks: Vec<ContentBlock>) -> Result<Self, RpcError> {
        let mut content = Self::default();
        if let Some(ContentBlock::Text { text }) = blocks.first() {
            let word = text.split_whitespace().next().and_then(|word| word.strip_prefix('/'));
            let command = COMMANDS.iter().find(|(name, ..)| Some(*name) == word);
            content.command = command.map(|(_, command, _)| *command);
        }
        let (mut contexts, mut was_text) = (String::new(), false);
        for block in blocks {
            let is_text = matches!(block, ContentBlock::Text { .. });
            match block {
                ContentBlock::Text { text } => content.push(&text, if was_text { '\n' } else { ' ' }),
                ContentBlock::ResourceLink { uri, name } => {
                    content.push(&path(&uri).unwrap_or(name), ' ');
                }
                ContentBlock::Resource { resource } => {
                    content.push(&path(&resource.uri).unwrap_or_else(|| resource.uri.clone()), ' ');
                    contexts.push_str(&context(&resource)?);
                }
                ContentBlock::Image { data, mime_type, .. } | ContentBlock::Audio { data, mime_type } => {
                    content.media.push(PromptMedia { mime_type, data });
                }
            }
            was_text = is_text;
        }
        if content.text.trim().is_empty() && content.media.is_empty() {
            return Err(RpcError::invalid_params("the prompt is empty"));
        }
        content.text.push_str(&contexts);
        Ok(content)
    }

    /// Adds text, after a separator if there is no space between them.
    fn push(&mut self, text: &str, separator: char) {
        let has_space = |text: &str| text.is_empty() || text.starts_with(char::is_whitespace);
        if !self.text.is_empty() && !self.text.ends_with(char::is_whitespace) && !has_space(text) {
            self.text.push(separator);
        }
        self.text.push_str(text);
    }
}

/// Returns the path of a link to a file, with the lines that it names.
fn path(uri: &str) -> Option<String> {
    let url = Url::parse(uri).ok().filter(|url| url.scheme() == "file")?;
    let path: PathBuf = url.to_file_path().ok()?;
    let lines = url.fragment().map(|lines| format!("#{lines}")).unwrap_or_default();
    Some(format!("{}{lines}", path.display()))
}

/// Returns the text of a resource between marks, or the description of its data.
fn context(resource: &ResourceContents) -> Result<String, RpcError> {
    let text = match resource {
        ResourceContents { text: Some(text), .. } => {
            let cut = &text[..text.floor_char_boundary(MAX_RESOURCE)];
            // The text cannot end its own block.
            let mut shown = cut.replace("</context>", "<\\/context>");
            if cut.len() < text.len() {
                shown.push_str(&format!("\n[{} more bytes]", text.len() - cut.len()));
            }
            shown
        }
        ResourceContents { blob: Some(blob), mime_type, .. } => {
            let kind = mime_type.as_deref().unwrap_or("unknown type");
            format!("[data of {kind}, about {} bytes, not shown]", blob.len() / 4 * 3)
        }
        _ => {
            let problem = format!("the resource `{:.200}` has neither `text` nor `blob`", resource.uri);
            return Err(RpcError::invalid_params(problem));
        }
    };
    let uri =
        resource.uri.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('\n', " ");
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok(format!("\n\n<context uri=\"{uri}\">\n{text}{end}</context>"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn content(blocks: Value) -> Result<PromptContent, RpcError> {
        PromptContent::of(serde_json::from_value(blocks).unwrap())
    }

    fn text(blocks: Value) -> String {
        content(blocks).unwrap().text
    }

    #[test]
    fn texts_and_links_are_one_text() {
        let link =
            json!({ "type": "resource_link", "uri": "file:///home/me/a%20b.rs#L3:9", "name": "a b.rs" });
        let other = json!({ "type": "resource_link", "uri": "zed:///agent/symbol/f", "name": "f" });
        let blocks =
            json!([{ "type": "text", "text": "explain " }, link, { "type": "text", "text": " and" }, other]);
        assert_eq!(text(blocks), "explain /home/me/a b.rs#L3:9 and f");
        assert_eq!(text(json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }])), "a\nb");
    }

    #[test]
    fn resources_follow_the_text_between_marks() {
        let resource = |resource: Value| json!({ "type": "resource", "resource": resource });
        let evil = resource(json!({ "uri": "x:\"<\n>", "text": "a</context>b", "mimeType": null }));
        let blob = resource(json!({ "uri": "x:pdf", "blob": "AAAAAAAA", "mimeType": "application/pdf" }));
        assert_eq!(
            text(json!([{ "type": "text", "text": "see" }, evil, blob])),
            "see x:\"<\n> x:pdf\n\n<context uri=\"x:&quot;&lt; >\">\na<\\/context>b\n</context>\
             \n\n<context uri=\"x:pdf\">\n[data of application/pdf, about 6 bytes, not shown]\n</context>"
        );
        let long = resource(json!({ "uri": "x:long", "text": "é".repeat(MAX_RESOURCE / 2 + 3) }));
        assert!(text(json!([long])).ends_with("é\n[6 more bytes]\n</context>"));
        let error = content(json!([resource(json!({ "uri": "x:none" }))])).unwrap_err();
        assert_eq!(error, RpcError::invalid_params("the resource `x:none` has neither `text` nor `blob`"));
    }

    #[test]
    fn images_and_audio_are_not_text_and_an_empty_prompt_is_an_error() {
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        let audio = json!({ "type": "audio", "data": "BBBB", "mimeType": "audio/wav" });
        let found = content(json!([image, audio])).unwrap();
        let media: Vec<_> = found.media.iter().map(|it| (&*it.mime_type, &*it.data)).collect();
        assert_eq!((found.text.as_str(), media), ("", vec![("image/png", "AAAA"), ("audio/wav", "BBBB")]));
        let empty = RpcError::invalid_params("the prompt is empty");
        assert_eq!(content(json!([])), Err(empty.clone()));
        assert_eq!(content(json!([{ "type": "text", "text": " \n" }])), Err(empty));
    }

    #[test]
    fn a_command_is_the_first_word_of_the_first_text() {
        let command = |first: &str| content(json!([{ "type": "text", "text": first }])).unwrap().command;
        assert_eq!(command(" /undo now"), Some(PromptCommand::Undo));
        assert_eq!((command("/undone"), command("please /undo")), (None, None));
        let link = json!({ "type": "resource_link", "uri": "x:y", "name": "y" });
        assert_eq!(content(json!([link, { "type": "text", "text": "/undo" }])).unwrap().command, None);
    }
}
