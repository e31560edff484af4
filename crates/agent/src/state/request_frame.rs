//! The parts of a model's requests that the conversation does not contain.
//!
//! Start at [`RequestFrame`].

// Replaced as a whole and not appended to: a log of all prompts would grow with each prompt that contains the date.
// Shortened results are not stored here, because a redaction of the conversation must reach every copy; a change of
// them is reported by role only.
use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use superstep_graph::state::Fingerprint;
use superstep_llm::{ChatModel, Request, Role, ToolSpec, convert::DerivedFrom, toolset::ToolSpecs};

/// The parts of the last request around the conversation: the model, the system prompt, the tools and the schema. Stored when
/// they change, so that a replay reports changes of a request in words. A clone shares them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestFrame(Arc<FrameData>);

/// The data of a [`RequestFrame`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FrameData {
    /// The name of the main model; empty if no request was recorded.
    pub model: String,
    /// The model's settings, such as its temperature: see [`ChatModel::settings`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
    /// The system prompt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The tools of the last request that offered any, without those of sources, which
    /// [`AgentState::offered`](crate::AgentState::offered) has.
    #[serde(skip_serializing_if = "is_empty", serialize_with = "list", deserialize_with = "read_list")]
    pub tools: ToolSpecs,
    /// The JSON Schema of the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

fn is_empty(tools: &ToolSpecs) -> bool {
    tools.is_empty()
}

fn list<S: Serializer>(tools: &ToolSpecs, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tools)
}

fn read_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ToolSpecs, D::Error> {
    Vec::<ToolSpec>::deserialize(deserializer).map(ToolSpecs::from)
}

/// The fingerprint of a message or of the tools.
pub(crate) struct Part(pub(crate) Fingerprint);

impl<S: Serialize + ?Sized> DerivedFrom<S> for Part {
    fn derive(from: &S) -> Self {
        Self(Fingerprint::of(from).expect("what is sent has a JSON form"))
    }
}

impl RequestFrame {
    /// Returns the frame of a request to a model, if it differs from this one, which is that of the last request. `is_sourced` returns
    /// whether a source has the tool of a name; `None` if there are no sources.
    pub(crate) fn changed(
        &self,
        model: &dyn ChatModel,
        request: &Request,
        is_sourced: Option<&dyn Fn(&str) -> bool>,
    ) -> Option<Self> {
        let Request { messages, tools, output_schema, .. } = request;
        let system = messages.first().filter(|first| first.role == Role::System);
        let system = system.map_or("", |first| &first.content);
        let settings = model.settings();
        // A request may be without tools only because it is the last one of its turn. Tools are cloned only for a new frame.
        let own = || tools.iter().filter(|tool| is_sourced.is_none_or(|is_sourced| !is_sourced(&tool.name)));
        let has_same_tools = match is_sourced {
            _ if tools.is_empty() => true,
            None => self.tools.derived::<Part>().0 == tools.derived::<Part>().0,
            Some(_) => self.tools.iter().eq(own()),
        };
        let is_same = self.model == model.name()
            && self.settings == settings
            && self.system == system
            && self.schema == *output_schema
            && has_same_tools;
        (!is_same).then(|| {
            Self(Arc::new(FrameData {
                model: model.name().to_owned(),
                settings,
                system: system.to_owned(),
                tools: match is_sourced {
                    _ if has_same_tools => self.tools.clone(),
                    None => tools.clone(),
                    Some(_) => own().cloned().collect(),
                },
                schema: output_schema.clone(),
            }))
        })
    }

    /// Returns whether no request was recorded, as in threads of older versions.
    pub(crate) fn is_unknown(&self) -> bool {
        self.model.is_empty() && *self == Self::default()
    }
}

impl Deref for RequestFrame {
    type Target = FrameData;

    fn deref(&self) -> &FrameData {
        &self.0
    }
}
