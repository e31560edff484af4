//! What `#[tool]` expands to is a tool as the function says.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep_llm::{Behaviour, Subject, Tool, ToolCx, ToolError, ToolReply, tool};

/// Looks at the weather
/// of a city.
///
/// Only of today.
#[tool]
async fn weather(
    /// Where.
    city: String,
    /// In degrees.
    #[serde(default)]
    #[schemars(range(max = 3))]
    digits: Option<u32>,
    mut r#in: Vec<String>,
    cx: ToolCx,
) -> String {
    r#in.sort();
    format!("{city} {digits:?} {} {}", r#in.join("+"), cx.call_id)
}

async fn call(tool: &Arc<dyn Tool>, args: Value) -> Result<String, String> {
    let answer = tool.call(args, ToolCx::new("c1")).await;
    answer.map(|reply| reply.text).map_err(|error| error.to_string())
}

#[tokio::test]
async fn parameters_are_arguments_and_the_call_itself_is_none() {
    let tool = weather();
    assert_eq!(tool.spec().name, "weather");
    assert_eq!(tool.spec().description, "Looks at the weather of a city.\n\nOnly of today.");
    assert_eq!(
        tool.spec().parameters,
        json!({
            "type": "object",
            "properties": {
                "city": { "type": "string", "description": "Where." },
                "digits": {
                    "type": ["integer", "null"], "format": "uint32", "minimum": 0, "maximum": 3,
                    "description": "In degrees.", "default": null,
                },
                "in": { "type": "array", "items": { "type": "string" } },
            },
            "required": ["city", "in"],
        })
    );
    let said = call(&tool, json!({ "city": "Paris", "in": ["b", "a"] })).await;
    assert_eq!(said, Ok("Paris None a+b c1".into()));
    assert_eq!((tool.behaviour(), tool.approval(&json!({}))), (Behaviour::default(), None));
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Mail {
    /// An address.
    to: String,
}

type Sent = Arc<Mutex<Vec<String>>>;

/// Sends a mail.
#[tool(name = "send-mail", exclusive, poll, answers, idempotent, timeout_ms = 5_000, ask = to_others)]
async fn send(#[args] mail: Mail, #[dep] sent: Sent) -> Result<(), std::io::Error> {
    if mail.to.is_empty() {
        return Err(std::io::Error::other("nobody"));
    }
    sent.lock().expect("nobody panics").push(mail.to);
    Ok(())
}

fn to_others(args: &Value) -> Option<String> {
    (args["to"] != "me").then(|| format!("Send to {}?", args["to"]))
}

#[tokio::test]
async fn a_tool_has_what_it_works_with_and_its_options() {
    let sent = Sent::default();
    let tool = send(sent.clone());
    assert_eq!(tool.spec().name, "send-mail");
    assert_eq!(tool.spec().parameters["properties"]["to"]["description"], "An address.");
    let timeout = Some(std::time::Duration::from_secs(5));
    let all = Behaviour { exclusive: true, poll: true, answers: true, idempotent: true, timeout };
    assert_eq!(tool.behaviour(), all);
    assert_eq!(tool.approval(&json!({ "to": "me" })), None);
    assert_eq!(tool.approval(&json!({ "to": "you" })), Some(r#"Send to "you"?"#.into()));
    assert_eq!(call(&tool, json!({ "to": "you" })).await, Ok("null".into()));
    assert_eq!(call(&tool, json!({ "to": "" })).await, Err("nobody".into()));
    assert_eq!(*sent.lock().expect("nobody panics"), ["you"]);
}

#[derive(Serialize)]
struct Found {
    hits: Vec<u32>,
}

mod kinds {
    use super::*;

    /// Asks with its arguments.
    #[tool(ask = "Find {what:?}, {at_most} of them?")]
    pub(super) async fn find(what: String, at_most: u32) -> Found {
        Found { hits: vec![what.len() as u32; at_most as usize] }
    }

    /// Says no more than yes.
    #[tool]
    pub(super) async fn yes() {}

    /// Refuses.
    #[tool]
    pub(super) async fn refuse() -> Result<&'static str, ToolError> {
        Err(ToolError::Denied("no".into()))
    }

    /// Writes.
    #[tool]
    pub(super) async fn write(x: u32) -> ToolReply {
        ToolReply::text("done").with_update(json!({ "x": x }))
    }
}

#[tokio::test]
async fn what_is_returned_is_text_or_json_or_a_reply() {
    let find = kinds::find();
    let args = json!({ "what": "ab", "at_most": 2 });
    assert_eq!(find.approval(&args), Some(r#"Find "ab", 2 of them?"#.into()));
    assert_eq!(find.approval(&json!({})), Some("Run find?".into()));
    assert_eq!(call(&find, args).await, Ok(r#"{"hits":[2,2]}"#.into()));
    assert_eq!(kinds::yes().spec().parameters["type"], "object");
    assert_eq!(call(&kinds::yes(), json!({})).await, Ok("null".into()));
    let refused = kinds::refuse().call(json!({}), ToolCx::new("c1")).await;
    assert_eq!(refused, Err(ToolError::Denied("no".into())));
    let written = kinds::write().call(json!({ "x": 7 }), ToolCx::new("c1")).await.expect("it can be called");
    assert_eq!((written.text.as_str(), written.update), ("done", Some(json!({ "x": 7 }))));
}

/// Publishes a page.
#[tool(subject = "path(file in folder), url(r#as), command(then), text(title)")]
async fn publish(
    file: String,
    r#as: String,
    #[serde(default)] then: Option<String>,
    #[serde(default)] title: Option<String>,
    more: Vec<String>,
    #[dep] folder: std::path::PathBuf,
) -> String {
    format!("{file} {as} {then:?} {title:?} {more:?} {}", folder.display(), as = r#as)
}

/// Reads a file where the process is.
#[tool(subject = "path(file)")]
async fn read(#[serde(default = "readme")] file: String) -> String {
    file
}

fn readme() -> String {
    "README.md".to_owned()
}

fn by_hand(argument: &str, args: &Value) -> Option<Subject> {
    (argument == "to").then(|| Subject::Text(args["to"].as_str().unwrap_or_default().to_lowercase()))
}

/// Writes to somebody.
#[tool(subject = by_hand)]
async fn write(to: String) -> String {
    to
}

#[test]
fn what_arguments_stand_for_is_told() {
    let folder = std::env::temp_dir();
    let tool = publish(folder.clone());
    let args = json!({ "file": "a/../b.html", "as": "https://x.example/b", "then": "ls; rm x", "title": 7, "more": [] });
    let subject = |argument: &str| tool.subject(argument, &args);
    assert_eq!(subject("file"), Some(Subject::path(&folder, "b.html")));
    assert_eq!(subject("as"), Some(Subject::Url("https://x.example/b".into())));
    assert_eq!(subject("then"), Some(Subject::Command("ls; rm x".into())));
    assert_eq!((subject("title"), subject("more"), subject("folder")), (Some(Subject::Unknown), None, None));
    // What is left out is the default of the schema, or nobody knows.
    let none = json!({});
    assert_eq!((tool.subject("then", &none), tool.subject("title", &none)), (Some(Subject::Unknown), None));
    let Some(Subject::Path { root, below, .. }) = read().subject("file", &none) else {
        panic!("it is a path")
    };
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).unwrap();
    assert_eq!((root.as_str(), below.as_str()), (here.to_str().unwrap(), "README.md"));
    assert_eq!(read().subject("file", &json!({ "file": "../x" })), Some(Subject::Unknown));
    assert_eq!(write().subject("to", &json!({ "to": "Ada" })), Some(Subject::Text("ada".into())));
}
