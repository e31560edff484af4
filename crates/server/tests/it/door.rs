//! Access: tokens, origins, bounds.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use superstep_server::{Limits, Server, ServerError};
use tokio::net::TcpListener;

use crate::{
    graphs,
    support::{Reader, serve, start},
};

#[tokio::test]
async fn another_host_needs_a_token() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = graphs::all(Server::new()).serve(listener).await.unwrap_err();
    assert!(matches!(refused, ServerError::TokenNeeded { .. }), "{refused}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = graphs::all(Server::new()).token("two words").serve(listener).await.unwrap_err();
    assert!(matches!(refused, ServerError::InvalidToken), "{refused}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = Server::new().serve(listener).await.unwrap_err();
    assert_eq!(format!("{refused:?}"), "the server has no graph; add one with `Server::graph`");
}

#[tokio::test]
async fn a_token_is_required_of_all_but_ok() {
    let server = graphs::all(Server::new()).token("secret");
    assert!(!format!("{server:?}").contains("secret"));
    let server = serve(server).await;
    let status = async |path: &str, header: Option<(&str, &str)>| {
        let mut request = server.request(Method::GET, path);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("/info", None).await, 401);
    assert_eq!(status("/info", Some(("x-api-key", "wrong!"))).await, 403);
    assert_eq!(status("/info", Some(("x-api-key", "secret"))).await, 200);
    assert_eq!(status("/info", Some(("authorization", "Bearer secret"))).await, 200);
    assert_eq!(status("/ok", None).await, 200);
}

#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let server = serve(graphs::all(Server::new()).allow_origin("https://chat.example.org")).await;
    let status = async |name: &str, value: &str| {
        server.request(Method::GET, "/info").header(name, value).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("host", "evil.example.org").await, 403);
    assert_eq!(status("host", "localhost:2024").await, 200);
    assert_eq!(status("origin", "https://evil.example.org").await, 403);
    assert_eq!(status("origin", "null").await, 403);
    assert_eq!(status("origin", "http://localhost:3000").await, 200);
    assert_eq!(status("origin", "https://chat.example.org").await, 200);
}

#[tokio::test]
async fn a_preflight_allows_what_browsers_need() {
    let server = start().await;
    let preflight = server
        .request(Method::OPTIONS, "/threads/t/runs/stream")
        .header("origin", "http://localhost:3000")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type,x-api-key,x-own")
        .send()
        .await
        .unwrap();
    assert_eq!(preflight.status(), 200);
    assert_eq!(preflight.headers()["access-control-allow-origin"], "http://localhost:3000");
    assert_eq!(preflight.headers()["access-control-allow-headers"], "content-type,x-api-key,x-own");
    let request = server.request(Method::GET, "/info").header("origin", "http://localhost:3000");
    let response = request.send().await.unwrap();
    let exposed = response.headers()["access-control-expose-headers"].to_str().unwrap();
    assert_eq!(exposed, "content-location,location,x-pagination-total,x-pagination-next");
    assert_eq!(response.headers()["access-control-allow-origin"], "http://localhost:3000");
}

#[tokio::test]
async fn bodies_queues_and_logs_are_bounded() {
    let limits = Limits { body: 2_000, queue: 1, log: 3_000, ..Limits::default() };
    let server = serve(graphs::all(Server::new()).limits(limits)).await;
    let large = json!({ "metadata": { "x": "x".repeat(3_000) } });
    assert_eq!(server.refused(Method::POST, "/threads", large).await.0, 413);
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "bounded" } });
    let path = format!("/threads/{thread}/runs");
    for _ in 0..2 {
        server.post(&path, body.clone()).await;
    }
    assert_eq!(server.refused(Method::POST, &path, body).await.0, 409);
    server.send(Method::POST, "/runs/cancel", json!({ "status": "all" })).await;
    // A log that is too small for its events: a late reader is told so, and the run is not disturbed.
    let thread = server.thread().await;
    let modes = ["values", "updates", "tasks", "checkpoints", "debug"];
    let body =
        json!({ "assistant_id": "counter", "input": {}, "stream_mode": modes, "stream_resumable": true });
    let run =
        server.post(&format!("/threads/{thread}/runs"), body).await["run_id"].as_str().unwrap().to_owned();
    assert_eq!(server.get(&format!("/threads/{thread}/runs/{run}/join")).await["n"], 2);
    let late = server.request(Method::GET, &format!("/threads/{thread}/runs/{run}/stream"));
    let late = crate::support::events(late.header("last-event-id", "0-8").send().await.unwrap()).await;
    assert_eq!((late.len(), &late[0].data["error"]), (1, &json!("StreamLagged")));
}

#[tokio::test]
async fn a_quiet_stream_shows_that_it_lives() {
    let limits = Limits { heartbeat: Duration::from_millis(20), ..Limits::default() };
    let server = serve(graphs::all(Server::new()).limits(limits)).await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "quiet" } });
    let stream = server.send(Method::POST, &format!("/threads/{thread}/runs/stream"), body).await;
    let join = server
        .request(Method::GET, &format!("{}/join", stream.headers()["content-location"].to_str().unwrap()));
    let mut join = join.send().await.unwrap();
    assert_eq!(join.chunk().await.unwrap().unwrap(), "\n");
    let mut stream = stream;
    let mut text = String::new();
    while !text.contains(": heartbeat\r\n\r\n") {
        text.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
    }
    graphs::open("quiet");
    let rest = join.text().await.unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&rest).unwrap()["log"][2], "after");
    assert!(Reader::new(stream).until("values").await.data["log"].is_array());
}
