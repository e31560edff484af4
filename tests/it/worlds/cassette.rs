//! Recorded HTTP traffic of models.

use std::{fs, path::Path};

use superstep::llm::{ApiKey, Message, ModelErrorKind, OpenAiConfig, OpenAiModel, Request, complete};
use superstep_testing::{
    cassette::{Cassette, CassetteServer},
    script::{Answer, Script, http, txt},
    wire::WireServer,
};

use super::panic_of;

const KEY: &str = "sk-very-secret-key-17";

/// Calls a model behind this address.
async fn call(base_url: &str, text: &str) -> Result<String, (ModelErrorKind, String)> {
    let model = OpenAiModel::new(OpenAiConfig::new(base_url, ApiKey::new(KEY), "m")).unwrap();
    let request = Request { messages: vec![Message::user(text)], ..Request::default() };
    let response = complete(&model, request).await;
    response.map(|response| response.message.content.clone()).map_err(|error| (error.kind, error.message))
}

/// Records two calls of a server that repeats the key, and one that it rejects.
async fn record(path: &Path) {
    let repeats =
        Answer::stream().text([&format!("your key is {KEY}, "), "of Ada"]).end("stop").usage(3, 2).done();
    let busy = http(
        429,
        &[("Retry-After", "2"), ("Set-Cookie", "session=abcdefgh")],
        r#"{"error":{"message":"slow down"}}"#,
    );
    let real = WireServer::start(Script::new([txt("hello"), repeats, busy])).await.unwrap();
    let cassette = Cassette::new(path).upstream(real.base_url()).secret("Ada");
    let recording = cassette.record().await.unwrap();
    assert_eq!(call(&recording.base_url(), "hi").await.unwrap(), "hello");
    let text = call(&recording.base_url(), "I am Ada. What is my key?").await.unwrap();
    assert_eq!(text, "your key is [removed], of [removed]");
    let (kind, _) = call(&recording.base_url(), "again").await.unwrap_err();
    assert_eq!(kind, ModelErrorKind::RateLimited);
    recording.assert_done();
    real.check().unwrap();
    // The real server got the key.
    assert_eq!(real.received()[0].headers["authorization"], format!("Bearer {KEY}"));
}

async fn replay(path: &Path) -> CassetteServer {
    Cassette::new(path).secret("Ada").replay().await.unwrap()
}

#[tokio::test]
async fn recorded_traffic_is_replayed_without_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.jsonl");
    record(&path).await;
    let server = replay(&path).await;
    // In another order: each request gets its own reply.
    let text = call(&server.base_url(), "I am Ada. What is my key?").await.unwrap();
    assert_eq!(text, "your key is [removed], of [removed]");
    assert_eq!(call(&server.base_url(), "hi").await.unwrap(), "hello");
    assert_eq!(server.unused(), 1);
    let (kind, message) = call(&server.base_url(), "again").await.unwrap_err();
    assert_eq!(kind, ModelErrorKind::RateLimited);
    assert!(message.contains("slow down"), "{message}");
    server.assert_done();
}

#[tokio::test]
async fn a_file_has_no_keys_and_no_cookies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.jsonl");
    record(&path).await;
    let text = fs::read_to_string(&path).unwrap();
    for secret in [KEY, "Ada", "authorization", "Bearer", "session=", "abcdefgh", "127.0.0.1"] {
        assert!(!text.contains(secret), "`{secret}` is in\n{text}");
    }
    insta::assert_snapshot!(text, @r#"
    {"cassette":1}
    {"request":"POST /chat/completions","body":{"messages":[{"content":"hi","role":"user"}],"model":"m","stream":true,"stream_options":{"include_usage":true}}}
    {"status":200,"headers":{"content-type":"text/event-stream"}}
    {"data":{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}}
    {"data":{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}}
    {"data_text":"[DONE]"}
    {"request":"POST /chat/completions","body":{"messages":[{"content":"I am [removed]. What is my key?","role":"user"}],"model":"m","stream":true,"stream_options":{"include_usage":true}}}
    {"status":200,"headers":{"content-type":"text/event-stream"}}
    {"data":{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"your key is [removed], "},"finish_reason":null}]}}
    {"data":{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"content":"of [removed]"},"finish_reason":null}]}}
    {"data":{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}}
    {"data":{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}}
    {"data_text":"[DONE]"}
    {"request":"POST /chat/completions","body":{"messages":[{"content":"again","role":"user"}],"model":"m","stream":true,"stream_options":{"include_usage":true}}}
    {"status":429,"headers":{"retry-after":"2"}}
    {"body":{"error":{"message":"slow down"}}}
    "#);
}

#[tokio::test]
async fn a_request_that_differs_fails_with_its_difference() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.jsonl");
    record(&path).await;
    let server = replay(&path).await;
    call(&server.base_url(), "hi").await.unwrap();
    let (kind, _) = call(&server.base_url(), "I am Ada. What is my name?").await.unwrap_err();
    assert_eq!(kind, ModelErrorKind::BadRequest);
    insta::assert_snapshot!(panic_of(|| drop(server)), @r#"
    the request differs from recorded request 2 of 3
      body, - expected, + got
           "messages": [
             {
        -      "content": "I am [removed]. What is my key?",
        +      "content": "I am [removed]. What is my name?",
               "role": "user"
             }
    "#);

    let server = replay(&path).await;
    call(&server.base_url(), "hi").await.unwrap();
    assert_eq!(panic_of(|| server.assert_done()), "2 recorded exchanges were not used");
}

#[tokio::test]
async fn a_file_that_is_missing_or_no_cassette_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.jsonl");
    let error = Cassette::new(&path).replay().await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("cassette {}: ", path.display())), "{error}");
    for (text, problem) in [
        ("{}", "line 1: a cassette begins with {\"cassette\":1}"),
        ("{\"cassette\":2}", "line 1: a cassette begins with {\"cassette\":1}"),
        ("{\"cassette\":1}\n{\"status\":200}", "line 2: a reply without a request"),
        ("{\"cassette\":1}\n{\"request\":\"GET /\"}\n{\"headers\":{}}", "line 3: not a line of a cassette"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Cassette::new(&path).replay().await.unwrap_err();
        assert!(error.to_string().ends_with(problem), "{error}");
    }
    let error = Cassette::new(&path).record().await.unwrap_err();
    assert_eq!(error.to_string(), "a recording needs an upstream");
}

#[tokio::test]
async fn a_recording_without_a_reply_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.jsonl");
    let real = WireServer::start(Script::new([Answer::NoConnection])).await.unwrap();
    let recording = Cassette::new(&path).upstream(real.base_url()).record().await.unwrap();
    call(&recording.base_url(), "hi").await.unwrap_err();
    let text = panic_of(|| recording.assert_done());
    assert!(text.starts_with("the recording of `POST /chat/completions` failed: "), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"cassette\":1}\n");
}
