//! The protocol of a model, which is the beginning of its name.

/// A protocol of models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// Chat completions, which nearly all servers have.
    #[default]
    Chat,
    /// The Responses API of OpenAI.
    Responses,
    /// The Messages API of Anthropic.
    Anthropic,
    /// The API of Gemini.
    Gemini,
    /// Vertex AI, which has the models of Gemini and Claude in their own protocols.
    Vertex,
}

const ALL: [Wire; 5] = [Wire::Chat, Wire::Responses, Wire::Anthropic, Wire::Gemini, Wire::Vertex];

impl Wire {
    /// Returns the protocol that a model's name begins with, by default chat completions, and the name at the provider.
    pub fn split(model: &str) -> (Self, &str) {
        let (first, rest) = model.split_once('/').unwrap_or(("", model));
        let named = ALL.into_iter().find(|wire| wire.name() == first && !rest.is_empty());
        named.map_or((Self::Chat, model), |wire| (wire, rest))
    }

    pub fn of(model: &str) -> Self {
        Self::split(model).0
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Vertex => "vertex",
        }
    }

    /// Returns the protocol that a model is spoken to in.
    pub(crate) fn spoken(self, at_provider: &str) -> Self {
        match self {
            Self::Vertex if at_provider.starts_with("claude") => Self::Anthropic,
            Self::Vertex => Self::Gemini,
            wire => wire,
        }
    }

    /// Returns the server that the environment's key is for, unless the environment names another.
    pub(crate) fn default_url(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com",
            // That of no project: only the environment has one.
            Self::Vertex => "https://aiplatform.googleapis.com",
        }
    }

    /// Returns the names of the variables with the key and the server.
    pub fn variables(self) -> (&'static str, &'static str) {
        match self {
            Self::Chat | Self::Responses => ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
            Self::Anthropic => ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
            Self::Gemini => ("GEMINI_API_KEY", "GEMINI_BASE_URL"),
            Self::Vertex => ("GOOGLE_ACCESS_TOKEN", "GOOGLE_CLOUD_PROJECT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_with_a_protocol_or_is_that_of_a_chat_model() {
        for (model, wire, name) in [
            ("gpt-5", Wire::Chat, "gpt-5"),
            ("responses/gpt-5", Wire::Responses, "gpt-5"),
            ("anthropic/claude-opus-5-5", Wire::Anthropic, "claude-opus-5-5"),
            ("gemini/gemini-3-pro", Wire::Gemini, "gemini-3-pro"),
            ("chat/anthropic/claude-opus-5-5", Wire::Chat, "anthropic/claude-opus-5-5"),
            ("openai/gpt-5", Wire::Chat, "openai/gpt-5"),
            ("vertex/claude-sonnet-5-5@20260901", Wire::Vertex, "claude-sonnet-5-5@20260901"),
            ("anthropic/", Wire::Chat, "anthropic/"),
        ] {
            assert_eq!(Wire::split(model), (wire, name));
        }
    }
}
