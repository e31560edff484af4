//! Requests of the server at the ends of runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::post};
use reqwest::Method;
use serde_json::{Value, json};
use superstep_server::Server;
use tokio::{net::TcpListener, sync::mpsc, time::timeout};

use crate::{graphs, support::serve};

/// Receives what is sent to the address, and refuses the first of all.
async fn receiver() -> (String, mpsc::UnboundedReceiver<Value>) {
    let (sender, received) = mpsc::unbounded_channel();
    let count = Arc::new(AtomicUsize::new(0));
    let receive = move |body: String| {
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        sender.send(serde_json::from_str(&body).unwrap()).unwrap();
        async move { if is_first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK } }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hook?secret=s", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", post(receive))).await });
    (address, received)
}

async fn next(received: &mut mpsc::UnboundedReceiver<Value>) -> Value {
    timeout(Duration::from_secs(30), received.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_end_of_a_run_is_sent_until_it_is_accepted() {
    let (address, mut received) = receiver().await;
    let server = serve(graphs::all(Server::new()).hide("counter", ["log"]).allow_private_webhooks()).await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "counter", "input": { "n": 1 }, "webhook": address });
    let path = format!("/threads/{thread}/runs/wait");
    assert_eq!(server.post(&path, body).await["n"], 3);
    let (refused, accepted) = (next(&mut received).await, next(&mut received).await);
    for sent in [&refused, &accepted] {
        assert_eq!((&sent["status"], &sent["thread_id"]), (&json!("success"), &json!(thread)), "{sent}");
        assert_eq!(sent["values"], json!({ "n": 3 }));
        assert!(sent["run_started_at"].as_str() <= sent["run_ended_at"].as_str(), "{sent}");
    }
    assert!(refused["webhook_sent_at"].as_str() < accepted["webhook_sent_at"].as_str());

    let body = json!({ "assistant_id": "fail", "input": {}, "webhook": address });
    server.post("/runs/wait", body).await;
    let failed = next(&mut received).await;
    assert_eq!((&failed["status"], &failed["values"]), (&json!("error"), &Value::Null), "{failed}");
    assert!(failed["error"]["message"].as_str().unwrap().contains("boom"), "{failed}");
    assert!(received.try_recv().is_err());
}

#[tokio::test]
async fn a_private_address_is_refused_unless_it_is_allowed() {
    let server = serve(graphs::all(Server::new())).await;
    for address in ["http://127.0.0.1:1/", "http://169.254.169.254/latest", "file:///etc/passwd"] {
        let body = json!({ "assistant_id": "counter", "input": {}, "webhook": address });
        let (status, detail) = server.refused(Method::POST, "/runs", body).await;
        assert!(status == 422 && detail.starts_with("webhook: "), "{status} {detail}");
    }
}
