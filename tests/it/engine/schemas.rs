//! JSON Schemas of inputs and states.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep::{
    JsonChannels, JsonState,
    prelude::*,
    state::{ById, HasId},
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Item {
    name: String,
    euros: u8,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Opaque(u8);

#[derive(State, Clone, Debug, Default)]
struct Talk {
    #[channel(append)]
    log: Log<String>,
}

#[derive(State, Clone, Debug, Default)]
struct Order {
    #[channel(flatten)]
    talk: Talk,
    #[channel(append)]
    items: Log<Item>,
    first: Option<Item>,
    opaque: Vec<Opaque>,
    #[channel(sum)]
    total: u64,
    #[channel(untracked)]
    cached: String,
}

fn graph() -> CompiledGraph<Order> {
    let mut graph = StateGraph::<Order>::new("orders");
    let node = graph.add_node("node", async |_: Order, _| ());
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

#[test]
fn an_input_has_an_entry_for_each_stored_channel() {
    let schema = graph().input_schema();
    insta::assert_json_snapshot!(schema, @r##"
    {
      "$defs": {
        "Item": {
          "properties": {
            "euros": {
              "format": "uint8",
              "maximum": 255,
              "minimum": 0,
              "type": "integer"
            },
            "name": {
              "type": "string"
            }
          },
          "required": [
            "name",
            "euros"
          ],
          "type": "object"
        }
      },
      "$schema": "https://json-schema.org/draft/2020-12/schema",
      "additionalProperties": false,
      "properties": {
        "clear": {
          "items": {
            "enum": [
              "log",
              "items",
              "first",
              "opaque",
              "total"
            ]
          },
          "type": "array"
        },
        "first": {
          "anyOf": [
            {
              "$ref": "#/$defs/Item"
            },
            {
              "type": "null"
            }
          ]
        },
        "items": {
          "items": {
            "$ref": "#/$defs/Item"
          },
          "type": "array"
        },
        "log": {
          "items": {
            "type": "string"
          },
          "type": "array"
        },
        "opaque": true,
        "total": {
          "format": "uint64",
          "minimum": 0,
          "type": "integer"
        }
      },
      "title": "orders",
      "type": "object"
    }
    "##);
    let is_valid = |input: &Value| jsonschema::is_valid(&schema, input);
    for (input, wanted) in [
        (json!({}), true),
        (json!({"items": [{"name": "tea", "euros": 3}], "clear": ["log"]}), true),
        (json!({"first": null, "opaque": "anything", "total": 1}), true),
        (json!({"items": [{"name": "tea", "euros": 300}]}), false),
        (json!({"total": -1}), false),
        (json!({"clear": ["cached"]}), false),
        (json!({"cached": ""}), false),
    ] {
        assert_eq!(is_valid(&input), wanted, "{input}");
    }
}

#[tokio::test]
async fn a_state_and_an_update_match_their_schemas() {
    let graph = graph();
    let input = Order::update().items([Item { name: "tea".to_owned(), euros: 3 }]).total(3_u64);
    assert!(jsonschema::is_valid(&graph.input_schema(), &serde_json::to_value(&input).unwrap()));
    let state = graph.run(input).await.unwrap().state;
    let value = |position: usize| serde_json::from_slice::<Value>(&state.encode(position).unwrap()).unwrap();
    let stored = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let values: Value =
        stored.map(|(position, channel)| (channel.name.to_string(), value(position))).collect();
    let schema = graph.output_schema();
    assert!(jsonschema::is_valid(&schema, &values), "{values}");
    assert_eq!(schema["properties"]["log"], json!({"type": "array", "items": {"type": "string"}}));
    assert_eq!(schema["properties"]["cached"], Value::Null);
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Note {
    id: String,
}

impl HasId for Note {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_id(&mut self, id: String) {
        self.id = id;
    }
}

#[derive(State, Clone, Debug, Default)]
struct Notes {
    #[channel(merge_by_id)]
    notes: ById<Note>,
}

#[test]
fn a_list_by_id_is_a_list_and_a_state_that_is_json_has_the_schemas_of_its_channels() {
    let mut notes = StateGraph::<Notes>::new("notes");
    let node = notes.add_node("node", async |_: Notes, _| ());
    notes.add_edge(START, node);
    let schema = notes.compile().unwrap().output_schema();
    assert_eq!(schema["properties"]["notes"]["type"], "array");
    assert_eq!(schema["$defs"]["Note"]["type"], "object");

    let channels: JsonChannels =
        serde_json::from_value(json!({"n": {"schema": {"type": "integer"}}, "any": {}})).unwrap();
    let mut graph = StateGraph::with_initial("json", JsonState::new(&channels).unwrap());
    let node = graph.add_node("node", async |_: JsonState, _: Cx| json!({}));
    graph.add_edge(START, node);
    let schema = graph.compile().unwrap().input_schema();
    assert_eq!(
        (&schema["properties"]["n"], &schema["properties"]["any"]),
        (&json!({"type": "integer"}), &json!(true))
    );
}
