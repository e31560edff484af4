//! The description of the endpoints by OpenAPI 3.1, at `/openapi.json`. The schemas of bodies are those of the types that read them.
//!
//! Start at [`document`].

use std::sync::LazyLock;

use axum::Json;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

#[cfg(feature = "crons")]
use super::crons;
use super::{a2a, assistants, mcp, runs, state, store, threads};
use crate::runs::request::RunRequest;

/// The form of an answer.
#[derive(Clone, Copy)]
enum Answer {
    /// JSON, described by its title.
    Json(&'static str),
    /// Server-sent events.
    Events,
    Text(&'static str),
    /// Status 204.
    Done,
    /// An error, as the endpoint is not supported.
    #[cfg(not(feature = "crons"))]
    Refused,
}

use Answer::{Done, Events, Json as Object, Text};

pub(super) async fn show() -> Json<&'static Value> {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
    Json(&DOCUMENT)
}

/// Returns the whole description.
fn document() -> Value {
    let definitions =
        |settings: &mut SchemaSettings| settings.definitions_path = "/components/schemas".into();
    let mut document = Document {
        paths: Map::new(),
        schemas: SchemaSettings::draft2020_12().with(definitions).into_generator(),
    };
    document.system();
    document.assistants();
    document.threads();
    document.runs();
    document.crons();
    document.items();
    let mut schemas = document.schemas.take_definitions(true);
    let text = json!({ "type": "string" });
    schemas.insert(
        "Error".to_owned(),
        json!({ "type": "object", "properties": { "detail": text }, "required": ["detail"] }),
    );
    let key = json!({ "type": "apiKey", "in": "header", "name": "x-api-key" });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "superstep",
            "description": "Graphs of superstep behind the API of LangGraph's clients, and AG-UI.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "security": [{ "key": [] }],
        "paths": document.paths,
        "components": { "schemas": schemas, "securitySchemes": { "key": key } },
    })
}

struct Document {
    paths: Map<String, Value>,
    schemas: SchemaGenerator,
}

impl Document {
    fn system(&mut self) {
        let endpoints = [
            ("/ok", "Reports that the server runs. Needs no key", Object("Health")),
            ("/info", "Returns the version, and what is supported", Object("Info")),
            (
                "/metrics",
                "Returns the numbers of the server for Prometheus",
                Text("application/openmetrics-text"),
            ),
            ("/openapi.json", "Returns this description", Object("Description")),
        ];
        for (path, summary, answer) in endpoints {
            self.add("get", path, summary, answer);
        }
    }

    fn assistants(&mut self) {
        const ONE: &str = "/assistants/{assistant}";
        self.add("post", "/assistants", "Creates an assistant", Object("Assistant"))
            .body::<assistants::NewAssistant>();
        self.add("post", "/assistants/search", "Lists assistants, the newest first", Object("Assistants"))
            .body::<assistants::Search>();
        self.add("post", "/assistants/count", "Counts assistants", Object("Number"))
            .body::<assistants::Search>();
        self.add("get", ONE, "Returns an assistant, by its id or the name of its graph", Object("Assistant"));
        self.add("patch", ONE, "Changes an assistant to a new version", Object("Assistant"))
            .body::<assistants::Changes>();
        self.add("delete", ONE, "Deletes an assistant", Done).query(&["delete_threads"]);
        self.add(
            "post",
            "/assistants/{assistant}/versions",
            "Lists the versions, the newest first",
            Object("Versions"),
        )
        .body::<assistants::Search>();
        self.add("post", "/assistants/{assistant}/latest", "Chooses the version in use", Object("Assistant"))
            .body::<assistants::VersionNumber>();
        self.add("get", "/assistants/{assistant}/graph", "Returns the nodes and edges", Object("Drawing"))
            .query(&["xray"]);
        self.add(
            "get",
            "/assistants/{assistant}/schemas",
            "Returns the schemas of the graph",
            Object("Schemas"),
        );
        for path in ["/assistants/{assistant}/subgraphs", "/assistants/{assistant}/subgraphs/{namespace}"] {
            self.add("get", path, "Returns an empty object", Object("Subgraphs")).query(&["recurse"]);
        }
    }

    fn threads(&mut self) {
        const ONE: &str = "/threads/{thread}";
        const STATE: &str = "/threads/{thread}/state";
        const HISTORY: &str = "/threads/{thread}/history";
        self.add("post", "/threads", "Creates a thread", Object("Thread")).body::<threads::NewThread>();
        self.add("post", "/threads/search", "Lists threads, the newest first", Object("Threads"))
            .body::<threads::Search>();
        self.add("post", "/threads/count", "Counts threads", Object("Number")).body::<threads::Search>();
        self.add("post", "/threads/prune", "Deletes threads, or their older checkpoints", Object("Pruned"))
            .body::<threads::Prune>();
        self.add("get", ONE, "Returns a thread with its values", Object("Thread"));
        self.add("patch", ONE, "Adds metadata to a thread", Object("Thread")).body::<threads::Changes>();
        self.add("delete", ONE, "Stops the runs of a thread, and deletes it", Done);
        self.add("post", "/threads/{thread}/copy", "Copies a thread", Object("Thread"));
        self.add("get", STATE, "Returns the state at the head", Object("State"))
            .query(&["subgraphs", "select"]);
        self.add("post", STATE, "Stores an update of the state", Object("Checkpoint"))
            .body::<state::Update>();
        self.add(
            "post",
            "/threads/{thread}/state/checkpoint",
            "Returns the state at a checkpoint",
            Object("State"),
        )
        .body::<state::Named>();
        self.add(
            "get",
            "/threads/{thread}/state/{checkpoint}",
            "Returns the state at a checkpoint",
            Object("State"),
        )
        .query(&["subgraphs", "select"]);
        self.add("get", HISTORY, "Lists the states, the newest first", Object("States"))
            .query(&["limit", "before"]);
        self.add("post", HISTORY, "Lists the states, the newest first", Object("States"))
            .body::<state::HistorySearch>();
        self.add("get", "/threads/{thread}/stream", "Streams all runs of a thread", Events)
            .query(&["stream_mode", "stream_modes"]);
        self.add(
            "get",
            "/threads/{thread}/storage",
            "Returns the sizes of what is stored",
            Object("Storage"),
        );
        const EVENTS: &str = "/threads/{thread}/stream/events";
        self.add(
            "post",
            "/threads/{thread}/commands",
            "Executes a command of the thread protocol",
            Object("Reply"),
        )
        .body::<Value>();
        self.add("post", EVENTS, "Streams the events of a thread by the thread protocol", Events)
            .body::<Value>();
        self.add("get", EVENTS, "Opens a WebSocket of the thread protocol", Events);
    }

    fn runs(&mut self) {
        const ONE: &str = "/threads/{thread}/runs/{run}";
        for (begin, of) in [("/threads/{thread}/runs", ""), ("/runs", " on a thread of its own")] {
            let begins = [
                (String::new(), "Begins a run", Object("Run")),
                ("/stream".to_owned(), "Begins a run, and streams it", Events),
                ("/wait".to_owned(), "Begins a run, and returns its result", Object("Values")),
            ];
            for (path, summary, answer) in begins {
                self.add("post", &format!("{begin}{path}"), &format!("{summary}{of}"), answer)
                    .body::<RunRequest>();
            }
        }
        self.add(
            "get",
            "/threads/{thread}/runs",
            "Lists the runs of a thread, the newest first",
            Object("Runs"),
        )
        .query(&["limit", "offset", "status", "select"]);
        self.add("get", ONE, "Returns a run", Object("Run"));
        self.add("delete", ONE, "Stops and deletes a run", Done);
        self.add(
            "get",
            "/threads/{thread}/runs/{run}/join",
            "Waits for the result of a run",
            Object("Values"),
        )
        .query(&["cancel_on_disconnect"]);
        let stream = ["stream_mode", "cancel_on_disconnect"];
        self.add("get", "/threads/{thread}/runs/{run}/stream", "Streams a run that was begun", Events)
            .query(&stream);
        self.add("get", "/runs/{run}/stream", "Streams a run that was begun", Events).query(&stream);
        self.add("post", "/threads/{thread}/runs/{run}/cancel", "Stops a run", Object("Nothing"))
            .query(&["wait", "action"]);
        self.add("post", "/runs/batch", "Begins several runs on threads of their own", Object("Runs"))
            .body::<Vec<RunRequest>>();
        self.add("post", "/runs/cancel", "Stops several runs", Done)
            .query(&["action"])
            .body::<runs::CancelMany>();
        self.add("post", "/a2a/{assistant}", "Answers a call of A2A 1.0 or 0.3", Object("Called"))
            .body::<a2a::Call>();
        self.add(
            "get",
            "/.well-known/agent-card.json",
            "Returns the card of A2A of an assistant",
            Object("Card"),
        )
        .query(&["assistant_id"]);
        self.add(
            "get",
            "/a2a/{assistant}/.well-known/agent-card.json",
            "Returns the card of A2A of an assistant",
            Object("Card"),
        );
        self.add("post", "/mcp", "Answers a message of the Model Context Protocol", Object("Reply"))
            .body::<mcp::Message>();
        self.add("post", "/agui/{graph}", "Runs a graph by AG-UI 1.0", Events)
            .body::<crate::agui::RunAgentInput>();
    }

    /// A server may be without crons, and then refuses all of it with 422.
    #[cfg(feature = "crons")]
    fn crons(&mut self) {
        const ONE: &str = "/runs/crons/{cron}";
        for (path, of) in [("/threads/{thread}/runs/crons", ""), ("/runs/crons", " on threads of their own")]
        {
            let summary = format!("Creates a cron, whose runs{of} begin at recurring times");
            self.add("post", path, &summary, Object("Cron")).body::<crons::NewCron>();
        }
        self.add("post", "/runs/crons/search", "Lists crons, the newest first", Object("Crons"))
            .body::<crons::Search>();
        self.add("post", "/runs/crons/count", "Counts crons", Object("Number")).body::<crons::Search>();
        self.add("get", ONE, "Returns a cron", Object("Cron"));
        self.add("patch", ONE, "Changes a cron", Object("Cron")).body::<crons::Changes>();
        self.add("delete", ONE, "Deletes a cron", Done);
    }

    #[cfg(not(feature = "crons"))]
    fn crons(&mut self) {
        for path in ["/threads/{thread}/runs/crons", "/runs/crons"] {
            self.add("post", path, "Creates a cron", Answer::Refused);
        }
        self.add("post", "/runs/crons/search", "Lists crons", Answer::Refused);
        self.add("post", "/runs/crons/count", "Counts crons", Answer::Refused);
        for method in ["get", "patch", "delete"] {
            self.add(method, "/runs/crons/{cron}", "Reads, changes or deletes a cron", Answer::Refused);
        }
    }

    fn items(&mut self) {
        const ITEMS: &str = "/store/items";
        self.add("get", ITEMS, "Returns an item, or null", Object("Item")).query(&[
            "namespace",
            "key",
            "refresh_ttl",
        ]);
        self.add("put", ITEMS, "Stores an item", Done).body::<store::Put>();
        self.add("delete", ITEMS, "Deletes an item", Done).body::<store::Delete>();
        self.add("post", "/store/items/search", "Searches items", Object("Items"))
            .body::<store::ItemSearch>();
        self.add("post", "/store/namespaces", "Lists namespaces", Object("Namespaces"))
            .body::<store::NamespaceSearch>();
    }

    /// Adds an endpoint. The ids in its path are its parameters.
    fn add(&mut self, method: &str, path: &str, summary: &str, answer: Answer) -> Endpoint<'_> {
        let ids = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let id =
            |name| json!({ "in": "path", "name": name, "required": true, "schema": { "type": "string" } });
        let media = |kind: &str, schema: Value| {
            let content = Map::from_iter([(kind.to_owned(), json!({ "schema": schema }))]);
            json!({ "description": summary, "content": content })
        };
        let (status, answer) = match answer {
            Object(title) => ("200", media("application/json", json!({ "title": title }))),
            Events => ("200", media("text/event-stream", json!({ "type": "string" }))),
            Text(kind) => ("200", media(kind, json!({ "type": "string" }))),
            Done => ("204", json!({ "description": "It is done" })),
            #[cfg(not(feature = "crons"))]
            Answer::Refused => ("422", json!({ "description": "Not supported" })),
        };
        let error = json!({ "schema": { "$ref": "#/components/schemas/Error" } });
        let error = json!({ "description": "An error", "content": { "application/json": error } });
        let mut responses = Map::from_iter([("default".to_owned(), error)]);
        responses.insert(status.to_owned(), answer);
        let operation = json!({
            "summary": summary,
            "parameters": ids.map(id).collect::<Vec<_>>(),
            "responses": responses,
        });
        let endpoint = self.paths.entry(path).or_insert_with(|| json!({}));
        endpoint[method] = operation;
        Endpoint { operation: &mut endpoint[method], schemas: &mut self.schemas }
    }
}

/// An endpoint that was added.
struct Endpoint<'d> {
    operation: &'d mut Value,
    schemas: &'d mut SchemaGenerator,
}

impl Endpoint<'_> {
    fn query(self, names: &[&str]) -> Self {
        let parameter = |name: &&str| json!({ "in": "query", "name": name, "schema": { "type": "string" } });
        if let Some(parameters) = self.operation["parameters"].as_array_mut() {
            parameters.extend(names.iter().map(parameter));
        }
        self
    }

    fn body<T: JsonSchema>(self) {
        let schema = self.schemas.subschema_for::<T>();
        self.operation["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The router has no list of its routes, so they are read from its text.
    #[test]
    fn every_route_is_described_and_every_description_has_a_route() {
        let mut routes = BTreeSet::new();
        for route in include_str!("mod.rs").split(".route(").skip(1) {
            let (_, rest) = route.split_once('"').unwrap();
            let (path, methods) = rest.split_once('"').unwrap();
            for method in ["get", "post", "put", "patch", "delete"] {
                if methods.contains(&format!("{method}(")) {
                    routes.insert(format!("{method} {path}"));
                }
            }
        }
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<String> = paths
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
            })
            .collect();
        assert!(routes.len() > 50, "{routes:?}");
        assert_eq!(routes, described);
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document = document();
        let (text, schemas) = (document.to_string(), &document["components"]["schemas"]);
        let mut names: Vec<_> = text.split("\"#/components/schemas/").skip(1).collect();
        names.iter_mut().for_each(|name| *name = name.split('"').next().unwrap());
        assert!(names.len() > 20 && names.contains(&"RunRequest"), "{names:?}");
        for name in names {
            assert!(schemas[name].is_object(), "{name}");
        }
        assert_eq!(schemas["NewThread"]["properties"]["thread_id"]["type"], json!(["string", "null"]));
    }
}
