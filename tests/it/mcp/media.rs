//! Images, audio and resources of servers: for models that accept them, and for others.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use superstep::{
    Checkpointer, MemoryCheckpointer,
    agent::{Agent, AgentOutcome, ReactConfig, config::MediaConfig},
    llm::{
        ChatModel, Message, Request, ResponseStream, Role,
        media::{Accepts, Media},
        wire::WireConfig,
    },
    mcp::McpServer,
};
use superstep_testing::{
    script::{Answer, Script, call, http, txt},
    scripted::ScriptedModel,
};

use super::{notices::allowed, odd::Odd};
use crate::agent::{
    crash::{Level, Lives, STOPS, lives, state},
    real,
};

const BOTH: Accepts = Accepts { images: true, audio: true, pdf: false };
const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
const WAV: &str = "UklGRi4uLi5XQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// Creates an image, audio, and resources that are a text, an image and a document.
fn content() -> Value {
    json!([
        {"type": "text", "text": "This is it:"},
        {"type": "image", "data": GIF, "mimeType": "image/gif"},
        {"type": "audio", "data": WAV, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "a text"}},
        {"type": "resource", "resource": {"uri": "file:///b.gif", "blob": GIF, "mimeType": "image/gif"}},
        {"type": "resource", "resource": {"uri": "file:///c.zip", "blob": "UEsDBAo=", "mimeType": "application/zip"}},
    ])
}

const TEXT: &str = "This is it:\n[image: image/gif, 42 bytes]\n[audio: audio/wav, 44 bytes]\n[resource file:///a.txt]\na text\n\
                    [resource file:///b.gif: image/gif, 42 bytes]\n\
                    [resource file:///c.zip: application/zip, 5 bytes, not shown: not of a type that models take]";

/// Starts a server with a read-only tool that returns this content.
async fn server(odd: &Odd, content: &Value) -> Arc<McpServer> {
    let tools = r#"[{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]"#;
    let answer = format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":{content}}}}}"#);
    // The server uses it as a format string.
    let answer = answer.replace('%', "%%").replace('\\', "\\\\");
    Arc::new(McpServer::connect("odd", odd.config(&[("TOOLS", tools), ("ANSWER", &answer)])).await.unwrap())
}

fn config() -> ReactConfig {
    ReactConfig { permissions: allowed(), loops: Vec::new(), ..ReactConfig::graph(9) }
}

fn looks(times: usize) -> Vec<Answer> {
    let calls = (1..=times).map(|n| call(&format!("c{n}"), "odd_look", "{}"));
    calls.chain([txt("I see.")]).collect()
}

fn scripted(answers: Vec<Answer>, accepts: Accepts) -> ScriptedModel {
    ScriptedModel::new(Script::new(answers)).accepting(accepts)
}

/// Returns the wire form of a request.
fn wire(request: &Request, accepts: Accepts) -> Value {
    serde_json::to_value(WireConfig { accepts, ..WireConfig::default() }.body(request)).unwrap()
}

fn shown(message: &Message) -> Vec<String> {
    message.media.iter().map(ToString::to_string).collect()
}

fn results(request: &Request) -> Vec<&Message> {
    request.messages.iter().filter(|message| message.role == Role::Tool).collect()
}

#[tokio::test]
async fn a_model_that_takes_them_gets_images_and_audio_behind_the_results() {
    let (odd, store) = (Odd::new(), Arc::new(MemoryCheckpointer::new()));
    let server = server(&odd, &content()).await;
    let agent = |model: &ScriptedModel| {
        let agent = Agent::builder(Arc::new(model.clone())).tool_source(server.clone());
        agent.config(config()).checkpointer(store.clone()).build().unwrap()
    };
    let model = scripted(looks(1), BOTH);
    let agent_of = agent(&model);
    let reply = agent_of.thread("t").ask("Look.").await.unwrap();
    assert_eq!((reply.text.as_str(), model.check()), ("I see.", Ok(())));
    let request = &model.requests()[1];
    assert_eq!(results(request)[0].content, TEXT);
    let sent = wire(request, BOTH);
    let about =
        "[This is from a tool, not from the user: the images, audio and files of the result of call c1]";
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/gif;base64,{GIF}")}});
    let sound = json!({"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}});
    let wanted = json!([
        {"role": "tool", "tool_call_id": "c1", "content": TEXT},
        {"role": "user", "content": [{"type": "text", "text": about}, image, sound, image]},
    ]);
    assert_eq!(sent["messages"].as_array().unwrap()[2..], wanted.as_array().unwrap()[..]);

    // It is stored once: the record of the call refers to the conversation.
    let head = store.load(&"t".into(), None).await.unwrap().unwrap();
    let stored: String = head.commits.iter().flatten().map(|update| update.to_string()).collect();
    assert_eq!((stored.matches(GIF).count(), stored.matches(WAV).count()), (2, 1), "{stored}");
    agent(&scripted(vec![], BOTH)).graph().thread("t").replay().run().await.unwrap().assert_same();
}

#[tokio::test]
async fn a_model_without_media_receives_a_description() {
    let odd = Odd::new();
    let server = server(&odd, &content()).await;
    let images = Accepts { images: true, ..Accepts::NOTHING };
    for (accepts, wanted) in [
        (Accepts::NOTHING, &[][..]),
        (images, &["[image: image/gif, 42 bytes]", "[resource file:///b.gif: image/gif, 42 bytes]"]),
    ] {
        let model = scripted(looks(1), accepts);
        let agent = Agent::builder(Arc::new(model.clone())).tool_source(server.clone()).config(config());
        agent.build().unwrap().ask("Look.").await.unwrap();
        let request = &model.requests()[1];
        let result = results(request)[0];
        assert_eq!(
            (result.content.as_str(), shown(result).as_slice()),
            (TEXT, &wanted.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()[..])
        );
        assert!(!wire(request, accepts).to_string().contains("UklGR"));
    }
}

/// A model that accepts all media, and its requests.
struct Seeing {
    model: Arc<dyn ChatModel>,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl ChatModel for Seeing {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn accepts(&self) -> Accepts {
        BOTH
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        self.seen.lock().unwrap().push(request.clone());
        self.model.stream(request)
    }
}

#[test]
fn a_program_that_stops_around_a_call_with_an_image_is_followed_by_one_that_sends_it() {
    for stops in STOPS {
        real(async {
            for n in 1.. {
                let odd = Odd::new();
                let seen = Arc::<Mutex<Vec<Request>>>::default();
                let program = async |model, store| {
                    let model = Arc::new(Seeing { model, seen: seen.clone() });
                    let agent = Agent::builder(model).tool_source(server(&odd, &content()).await);
                    agent.config(config()).checkpointer(store).build().unwrap()
                };
                let Lives { stopped, reply, agent } =
                    lives((stops, n), Level::Here, &looks(1), program).await;
                assert_eq!(reply.outcome, AgentOutcome::Completed, "{n}");
                let media = [
                    "[image: image/gif, 42 bytes]",
                    "[audio: audio/wav, 44 bytes]",
                    "[resource file:///b.gif: image/gif, 42 bytes]",
                ];
                let state = state(&agent).await;
                let stored: Vec<_> = state.messages.iter().flat_map(shown).collect();
                assert_eq!(stored, media, "{n}");
                let last = seen.lock().unwrap().last().cloned().unwrap();
                assert_eq!(shown(results(&last)[0]), media, "{n}");
                if !stopped {
                    break;
                }
            }
        });
    }
}

#[tokio::test]
async fn a_thread_continues_with_its_images_after_a_failed_request() {
    let (odd, store) = (Odd::new(), Arc::new(MemoryCheckpointer::new()));
    let server = server(&odd, &content()).await;
    let agent = |model: ScriptedModel| {
        let agent = Agent::builder(Arc::new(model)).tool_source(server.clone());
        agent.config(config()).checkpointer(store.clone()).build().unwrap()
    };
    let refused = vec![call("c1", "odd_look", "{}"), http(400, &[], "{}")];
    let reply = agent(scripted(refused, BOTH)).thread("t").ask("Look.").await.unwrap();
    assert_eq!(reply.outcome, AgentOutcome::LlmError);
    // A provider that rejects them does not receive them again.
    for accepts in [BOTH, Accepts::NOTHING] {
        let model = scripted(vec![txt("ok")], accepts);
        agent(model.clone()).thread("t").ask("And?").await.unwrap();
        let expected = if accepts == BOTH { 3 } else { 0 };
        assert_eq!(results(&model.requests()[0])[0].media.len(), expected);
    }
}

#[tokio::test]
async fn hostile_media_are_limited_and_described() {
    let image = |data: &str, mime: &str| json!({"type": "image", "data": data, "mimeType": mime});
    let odd = Odd::new();
    let mut content = vec![image(GIF, "image/gif"); 100];
    content.extend([image("R0lG*", "image/gif"), image(GIF, "image/png"), image(GIF, "text/html")]);
    let server = server(&odd, &json!(content)).await;
    let model = scripted(looks(5), BOTH);
    let media = MediaConfig { per_result: 8, per_request: 20, ..MediaConfig::default() };
    let agent = Agent::builder(Arc::new(model.clone())).tool_source(server);
    let agent = agent.config(ReactConfig { media, ..config() }).build().unwrap();
    agent.ask("Look.").await.unwrap();
    let requests = model.requests();
    let text = &results(&requests[1])[0].content;
    let tail = "[image: image/gif, 3 bytes, not shown: its data is not valid base64]\n\
                [image: image/png, 42 bytes, not shown: its data is not image/png]\n\
                [image: text/html, 42 bytes, not shown: not of a type that models take]\n\
                [92 of 100 images, audio clips or files left out: a result may have 8 with 5242880 bytes]";
    assert!(text.ends_with(tail), "{text}");
    let counts = |n: usize| results(&requests[n]).iter().map(|result| result.media.len()).collect::<Vec<_>>();
    // The older half is dropped together with the first excess image, so that the next requests have the same
    // beginning.
    let wanted = [vec![8], vec![8, 8], vec![0, 5, 8], vec![0, 0, 2, 8], vec![0, 0, 2, 8, 8]];
    assert_eq!([1, 2, 3, 4, 5].map(counts), wanted);
    let left = |n: usize, at: usize| results(&requests[n])[at].content.lines().last().unwrap().to_owned();
    assert_eq!(left(3, 0), "[8 of these images, audio clips or files are not sent any more]");
    assert_eq!(left(3, 1), "[3 of these images, audio clips or files are not sent any more]");
    let (four, five) = (wire(&requests[4], BOTH), wire(&requests[5], BOTH));
    let four = four["messages"].as_array().unwrap();
    assert_eq!(four[..], five["messages"].as_array().unwrap()[..four.len()]);
}

#[test]
fn an_older_message_has_no_media_and_a_newer_one_is_read_back() {
    let old: Message =
        serde_json::from_value(json!({"role": "tool", "content": "x", "tool_call_id": "c1"})).unwrap();
    assert_eq!(old, Message::tool("c1", "x"));
    let new = old.with(|message| message.media = vec![Media::new("image/gif", GIF).unwrap()]);
    let stored = serde_json::to_value(&new).unwrap();
    assert_eq!(stored["media"], json!([{"mime": "image/gif", "data": GIF}]));
    assert_eq!(serde_json::from_value::<Message>(stored).unwrap(), new);
}
