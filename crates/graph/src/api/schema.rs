//! JSON Schemas of the inputs and outputs of a graph.

use schemars::{Schema, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use superstep_state::{Stored, internal::keys::CLEAR};

use crate::{CompiledGraph, State};

impl<S: State> CompiledGraph<S> {
    /// Returns the JSON Schema of an input, and of any other update, in its JSON form: an object with an entry for each
    /// written channel, and `clear` with the channels to reset before.
    ///
    /// A channel is described if the type of its writes implements [`schemars::JsonSchema`], as numbers, texts and lists of them
    /// do; any other accepts every value. A channel that is not stored has no entry.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use superstep_graph::{END, Log, START, State, StateGraph};
    /// #[derive(State, Clone, Debug, Default)]
    /// struct Chat {
    ///     #[channel(append)]
    ///     log: Log<String>,
    ///     turns: u8,
    /// }
    /// # let mut graph = StateGraph::<Chat>::new("chat");
    /// # let answer = graph.add_node("answer", async |_: Chat, _| Chat::update().turns(1));
    /// # graph.add_edge(START, answer);
    /// # graph.add_edge(answer, END);
    /// let graph = graph.compile()?;
    /// let schema = graph.input_schema();
    /// assert_eq!(schema["properties"]["log"], json!({ "type": "array", "items": { "type": "string" } }));
    /// assert_eq!(schema["properties"]["turns"]["maximum"], 255);
    /// assert_eq!(schema["additionalProperties"], false);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn input_schema(&self) -> Value {
        let mut schema = self.schema(Stored::Write, SchemaSettings::draft2020_12().for_deserialize());
        let stored = self.initial().channels().iter().filter(|channel| !channel.untracked);
        let names: Vec<&str> = stored.map(|channel| &*channel.name).collect();
        schema["properties"][CLEAR] = json!({ "type": "array", "items": { "enum": names } });
        schema["additionalProperties"] = false.into();
        schema
    }

    /// Returns the JSON Schema of a state: an object with the value of each stored channel. See
    /// [`input_schema`](Self::input_schema).
    pub fn output_schema(&self) -> Value {
        self.schema(Stored::Value, SchemaSettings::draft2020_12().for_serialize())
    }

    fn schema(&self, form: Stored, settings: SchemaSettings) -> Value {
        let (state, mut generator) = (self.initial(), settings.into_generator());
        let mut properties = Map::new();
        for (position, channel) in
            state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked)
        {
            let schema =
                state.schema(position, form, &mut generator).map_or(Value::Bool(true), Schema::to_value);
            properties.insert(channel.name.to_string(), schema);
        }
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": self.name(),
            "type": "object",
            "properties": properties,
        });
        let definitions = generator.take_definitions(true);
        if !definitions.is_empty() {
            schema["$defs"] = definitions.into();
        }
        schema
    }
}
