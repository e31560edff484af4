//! The first request of a client.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::{is_present, lenient};

/// The first request of a client.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeRequest {
    /// The version of the protocol that the client prefers.
    pub protocol_version: u16,
    #[serde(default, deserialize_with = "lenient")]
    pub client_capabilities: ClientCapabilities,
    #[serde(default, deserialize_with = "lenient")]
    pub client_info: Option<Implementation>,
}

/// The name of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Implementation {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub version: String,
}

/// The abilities of a client. An absent one, `null` or another type count as `false`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClientCapabilities {
    /// Access to files, including unsaved changes.
    #[serde(deserialize_with = "lenient")]
    pub fs: FileSystemCapabilities,
    /// `true` if it has the methods `terminal/…`.
    #[serde(deserialize_with = "lenient")]
    pub terminal: bool,
    #[serde(deserialize_with = "lenient")]
    pub session: ClientSessionCapabilities,
    #[serde(deserialize_with = "lenient")]
    pub elicitation: ElicitationCapabilities,
}

/// Access to the files of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileSystemCapabilities {
    /// `true` if it has `fs/read_text_file`.
    #[serde(deserialize_with = "lenient")]
    pub read_text_file: bool,
    /// `true` if it has `fs/write_text_file`.
    #[serde(deserialize_with = "lenient")]
    pub write_text_file: bool,
}

/// The optional updates that a client accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClientSessionCapabilities {
    /// `true` if it accepts [`CompactionUpdate`](super::SessionUpdate::CompactionUpdate).
    #[serde(deserialize_with = "is_present")]
    pub compaction: bool,
    /// `true` if it accepts [`Notice`](super::SessionUpdate::Notice).
    #[serde(deserialize_with = "is_present")]
    pub notices: bool,
}

/// The kinds of questions that a client shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ElicitationCapabilities {
    /// `true` if it shows forms.
    #[serde(deserialize_with = "is_present")]
    pub form: bool,
    /// `true` if it opens addresses.
    #[serde(deserialize_with = "is_present")]
    pub url: bool,
}

/// The answer to [`InitializeRequest`]: version 1, and what superstep supports.
#[derive(Clone, Debug)]
pub struct InitializeResponse {
    pub agent_info: Implementation,
    /// `true` if the model accepts images.
    pub image: bool,
    /// `true` if the model accepts audio.
    pub audio: bool,
}

impl Serialize for InitializeResponse {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let all = json!({
            "protocolVersion": 1,
            "agentInfo": self.agent_info,
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": { "image": self.image, "audio": self.audio, "embeddedContext": true },
                "mcpCapabilities": { "http": true, "sse": false },
                "sessionCapabilities": { "list": {}, "delete": {}, "resume": {}, "close": {}, "fork": {} },
            },
            "_meta": { "steering": { "supported": true } },
        });
        all.serialize(to)
    }
}
