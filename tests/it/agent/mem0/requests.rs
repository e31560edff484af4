//! The requests on the wire, byte for byte, and the parsing of the responses in Mem0's documentation.

use serde_json::{Value, json};
use superstep::{
    agent::deps::{LongTermMemory, MemoryEntry},
    memory::{Mem0, Mem0Config},
};
use superstep_testing::{
    mem0::Mem0Kind,
    script::{Answer, Script, http},
    wire::WireServer,
};

use super::{KEY, config, says};
use crate::agent::real;

/// Creates a client, and the server with these responses.
pub(super) async fn scripted(
    kind: Mem0Kind,
    answers: impl IntoIterator<Item = Answer>,
) -> (WireServer, Mem0) {
    scripted_with(kind, answers, |config| config).await
}

pub(super) async fn scripted_with(
    kind: Mem0Kind,
    answers: impl IntoIterator<Item = Answer>,
    change: impl FnOnce(Mem0Config) -> Mem0Config,
) -> (WireServer, Mem0) {
    let server = WireServer::start(Script::new(answers)).await.unwrap();
    let base_url = server.base_url().trim_end_matches("/v1").to_owned();
    let memory = Mem0::new(change(config(kind, base_url))).unwrap();
    (server, memory)
}

pub(super) fn ok(body: &Value) -> Answer {
    http(200, &[("content-type", "application/json")], &body.to_string())
}

/// Returns the requests, each with its relevant header.
fn sent(server: &WireServer, kind: Mem0Kind) -> Vec<(String, Value)> {
    server.check().unwrap();
    let received = server.received();
    for request in &received {
        let mut head = request.headers.clone();
        assert!(head.remove("host").is_some());
        assert_eq!(head.remove("content-length").is_some(), request.body != Value::Null);
        let (name, key) = match kind {
            Mem0Kind::Hosted => ("authorization", format!("Token {KEY}")),
            Mem0Kind::SelfHosted => ("x-api-key", KEY.to_owned()),
        };
        assert_eq!(head.remove(name), Some(key));
        assert_eq!(head.remove("accept").as_deref(), Some("application/json"));
        assert!(head.remove("user-agent").unwrap().starts_with("superstep/"));
        let has_body = request.body != Value::Null;
        assert_eq!(head.remove("content-type"), has_body.then(|| "application/json".to_owned()));
        assert!(head.is_empty(), "{head:?}");
    }
    received.into_iter().map(|request| (request.line, request.body)).collect()
}

fn entry(id: &str, text: &str, score: Option<f64>) -> MemoryEntry {
    MemoryEntry { id: id.into(), text: text.into(), score }
}

#[test]
fn requests_to_the_hosted_form_and_its_polling() {
    let event = |status: &str, results: Value| {
        ok(
            &json!({"id": "evt-1", "event_type": "ADD", "status": status, "payload": {}, "results": results, "latency": 12}),
        )
    };
    real(async {
        let nothing = json!({"count": 0, "next": null, "previous": null, "results": []});
        let queued = json!({
            "message": "Memory processing has been queued for background execution",
            "status": "PENDING", "event_id": "evt-1",
        });
        let stored = json!([{"id": "m-1", "event": "ADD", "memory": "Likes tea"}]);
        let answers = [
            ok(&nothing),
            ok(&queued),
            event("PENDING", json!([])),
            event("RUNNING", json!([])),
            event("SUCCEEDED", stored),
        ];
        let (server, memory) = scripted(Mem0Kind::Hosted, answers).await;
        let added = memory.add(says("remember that I like tea"), "ada", "t/1/0").await.unwrap();
        assert_eq!(added, [entry("m-1", "Likes tea", None)]);
        let look = ("GET /v1/event/evt-1/".to_owned(), Value::Null);
        assert_eq!(
            sent(&server, Mem0Kind::Hosted),
            [
                (
                    "POST /v3/memories/?page=1&page_size=200".to_owned(),
                    json!({"filters": {"AND": [{"user_id": "ada"}, {"metadata": {"superstep_key": "t/1/0"}}]}})
                ),
                (
                    "POST /v3/memories/add/".to_owned(),
                    json!({
                        "messages": [{"role": "user", "content": "remember that I like tea"}],
                        "user_id": "ada", "metadata": {"superstep_key": "t/1/0"}, "infer": true,
                    })
                ),
                look.clone(),
                look.clone(),
                look,
            ]
        );
    });
}

#[test]
fn requests_to_the_self_hosted_form() {
    real(async {
        let stored =
            json!({"results": [{"id": "m-1", "memory": "Likes tea", "event": "ADD"}], "relations": []});
        let (server, memory) =
            scripted(Mem0Kind::SelfHosted, [ok(&json!({"results": []})), ok(&stored)]).await;
        let added = memory.add(says("remember that I like tea"), "ada", "t/1/0").await.unwrap();
        assert_eq!(added, [entry("m-1", "Likes tea", None)]);
        assert_eq!(
            sent(&server, Mem0Kind::SelfHosted),
            [
                (
                    "POST /search".to_owned(),
                    json!({
                        "query": "remember that I like tea",
                        "filters": {"user_id": "ada", "superstep_key": "t/1/0"}, "top_k": 200, "threshold": 0.0,
                    })
                ),
                (
                    "POST /memories".to_owned(),
                    json!({
                        "messages": [{"role": "user", "content": "remember that I like tea"}],
                        "user_id": "ada", "metadata": {"superstep_key": "t/1/0"}, "infer": true,
                    })
                ),
            ]
        );
    });
}

#[test]
fn a_search_filters_by_user_and_preserves_the_order() {
    let result = |id: &str, score: f64| json!({"id": id, "memory": format!("fact {id}"), "user_id": "ada", "score": score, "metadata": {}, "categories": ["x"]});
    real(async {
        for (kind, line) in
            [(Mem0Kind::Hosted, "POST /v3/memories/search/"), (Mem0Kind::SelfHosted, "POST /search")]
        {
            let answer = ok(&json!({"results": [result("m-1", 0.82), result("m-2", 0.9)]}));
            let change = |config| Mem0Config { top_k: 5, threshold: 0.25, ..config };
            let (server, memory) = scripted_with(kind, [answer], change).await;
            let found = memory.search("what does she drink?", "ada", 50).await.unwrap();
            assert_eq!(found, [entry("m-1", "fact m-1", Some(0.82)), entry("m-2", "fact m-2", Some(0.9))]);
            let body = json!({
                "query": "what does she drink?", "filters": {"user_id": "ada"}, "top_k": 5, "threshold": 0.25,
            });
            assert_eq!(sent(&server, kind), [(line.to_owned(), body)]);
        }
    });
}

#[test]
fn a_memory_is_read_before_it_is_deleted() {
    let memory = json!({"id": "m-1", "memory": "Likes tea", "user_id": "ada"});
    real(async {
        for (kind, path, deleted) in [
            (Mem0Kind::Hosted, "/v1/memories/m-1/", http(204, &[], "")),
            (Mem0Kind::SelfHosted, "/memories/m-1", ok(&json!({"message": "Memory deleted successfully"}))),
        ] {
            let (server, client) = scripted(kind, [ok(&memory), deleted, ok(&memory)]).await;
            assert!(client.forget("m-1", "ada").await.unwrap());
            assert!(!client.forget("m-1", "bob").await.unwrap());
            // Without a request: these ids would be other addresses.
            for id in ["", "..", "a/b", "m-1?x"] {
                assert!(!client.forget(id, "ada").await.unwrap());
            }
            let lines: Vec<_> = sent(&server, kind).into_iter().map(|(line, _)| line).collect();
            assert_eq!(lines, [format!("GET {path}"), format!("DELETE {path}"), format!("GET {path}")]);
        }
    });
}

#[test]
fn a_server_of_ones_own_may_do_without_a_key_and_without_a_model() {
    real(async {
        let stored = json!({"results": [{"id": "m-1", "memory": "tea!", "event": "ADD"}]});
        let change = |config: Mem0Config| Mem0Config {
            infer: false,
            ..Mem0Config::self_hosted(format!("{}/mem0/", config.base_url), Default::default())
        };
        let answers = [ok(&json!({"results": []})), ok(&stored)];
        let (server, memory) = scripted_with(Mem0Kind::SelfHosted, answers, change).await;
        memory.add(says("tea!"), "ada", "k").await.unwrap();
        let received = server.received();
        assert!(received.iter().all(|request| !request.headers.contains_key("x-api-key")));
        assert_eq!(received[1].line, "POST /mem0/memories");
        assert_eq!(received[1].body["infer"], false);
    });
}

#[test]
fn empty_arguments_make_no_request() {
    real(async {
        let (server, memory) = scripted(Mem0Kind::Hosted, []).await;
        assert_eq!(memory.add(Vec::new(), "ada", "k").await.unwrap(), []);
        assert_eq!(memory.add(says(" \n"), "ada", "k").await.unwrap(), []);
        assert_eq!(memory.search("  ", "ada", 5).await.unwrap(), []);
        assert_eq!(memory.list("ada", 0).await.unwrap(), []);
        let much = memory.add(says(&"x".repeat(300_000)), "ada", "k").await.unwrap_err();
        assert!(much.to_string().contains("messages of 300000 bytes"), "{much}");
        assert!(server.received().is_empty());
    });
}
