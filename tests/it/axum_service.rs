//! The example of a service, over loopback with an HTTP client.

use std::{
    future::IntoFuture as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::FutureExt as _;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use superstep::{Checkpointer, MemoryCheckpointer, llm::http::client_builder};
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle};

#[expect(dead_code, reason = "its `main` takes a fixed port")]
#[path = "../../examples/axum_service.rs"]
mod service;

use service::{Charge, Service};

/// A payment service that may take its time, and its calls.
#[derive(Clone, Default)]
struct Bank {
    keys: Arc<Mutex<Vec<String>>>,
    called: Arc<Notify>,
    is_slow: Arc<AtomicBool>,
    release: Arc<Notify>,
}

impl Bank {
    fn slow() -> Self {
        let bank = Self::default();
        bank.is_slow.store(true, Ordering::SeqCst);
        bank
    }

    fn charge(&self) -> Charge {
        let bank = self.clone();
        Arc::new(move |key| {
            let bank = bank.clone();
            async move {
                bank.keys.lock().unwrap().push(key.clone());
                bank.called.notify_one();
                if bank.is_slow.load(Ordering::SeqCst) {
                    bank.release.notified().await;
                }
                Ok(format!("receipt of {key}"))
            }
            .boxed()
        })
    }

    fn calls(&self) -> usize {
        self.keys.lock().unwrap().len()
    }
}

/// A running service, and its client.
struct Running {
    service: Service,
    base: String,
    client: Client,
    server: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Running {
    async fn start(store: &Arc<dyn Checkpointer>, bank: &Bank) -> Self {
        let service = Service::new(store.clone(), bank.charge()).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let serving = axum::serve(listener, service.routes()).into_future();
        let server = tokio::spawn(serving.map(|ended| ended.unwrap()));
        let client = client_builder().unwrap().build().unwrap();
        Self { service, base, client, server }
    }

    async fn post(&self, path: &str, body: Value) -> Response {
        self.client.post(format!("{}{path}", self.base)).json(&body).send().await.unwrap()
    }

    async fn place(&self, id: u32, euros: u32) -> (u16, Value) {
        read(self.post(&format!("/orders/{id}"), json!({"euros": euros})).await).await
    }

    async fn show(&self, id: u32) -> (u16, Value) {
        read(self.client.get(format!("{}/orders/{id}", self.base)).send().await.unwrap()).await
    }

    /// Waits until an order is shipped.
    async fn until_shipped(&self, id: u32) {
        while self.show(id).await.1["order"]["shipped"] != true {}
    }
}

async fn read(response: Response) -> (u16, Value) {
    (response.status().as_u16(), response.json().await.unwrap())
}

fn memory() -> Arc<dyn Checkpointer> {
    Arc::new(MemoryCheckpointer::new())
}

#[tokio::test]
async fn a_repeated_post_places_an_order_once() {
    let bank = Bank::default();
    let running = Running::start(&memory(), &bank).await;
    let (status, placed) = running.place(7, 20).await;
    assert_eq!(
        (status, &placed["status"], &placed["order"]["shipped"]),
        (200, &json!("completed"), &json!(true))
    );
    assert_eq!(running.place(7, 20).await, (200, placed.clone()));
    assert_eq!(bank.calls(), 1);
    assert_eq!(running.show(7).await.1["order"], placed["order"]);
    assert_eq!(running.show(8).await, (404, json!({"error": "unknown"})));
    assert_eq!(running.post("/orders/9", json!({"euros": "many"})).await.status(), 422);
    assert_eq!(running.show(9).await.0, 404);
}

#[tokio::test]
async fn a_question_is_accepted_and_answered_once() {
    let bank = Bank::default();
    let running = Running::start(&memory(), &bank).await;
    let (status, asked) = running.place(7, 120).await;
    assert_eq!((status, &asked["waits"][0]["question"]), (202, &json!(120)));
    assert_eq!(running.place(7, 120).await, (202, asked.clone()));
    assert_eq!(running.show(7).await.1["waits"], asked["waits"]);
    let given = json!({"interrupt": asked["waits"][0]["interrupt"], "value": true});
    let (status, placed) = read(running.post("/orders/7/answer", given.clone()).await).await;
    assert_eq!((status, &placed["order"]["shipped"]), (200, &json!(true)));
    let again = read(running.post("/orders/7/answer", given.clone()).await).await;
    assert_eq!(again, (422, json!({"error": "SS118"})));
    let unknown = read(running.post("/orders/8/answer", given).await).await;
    assert_eq!(unknown.0, 404);
    assert_eq!(bank.calls(), 1);
}

#[tokio::test]
async fn an_order_whose_client_leaves_is_finished_and_a_second_request_meanwhile_is_a_conflict() {
    let bank = Bank::slow();
    let running = Running::start(&memory(), &bank).await;
    let url = format!("{}/orders/7", running.base);
    let left = tokio::spawn(running.client.post(url).json(&json!({"euros": 20})).send());
    bank.called.notified().await;
    let second = running.post("/orders/7", json!({"euros": 20})).await;
    assert_eq!(second.headers()["retry-after"], "1");
    assert_eq!(read(second).await, (409, json!({"error": "SS301"})));
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    bank.release.notify_one();
    running.until_shipped(7).await;
    assert_eq!(bank.calls(), 1);
}

#[tokio::test]
async fn events_end_with_the_outcome() {
    let running = Running::start(&memory(), &Bank::default()).await;
    let response = running.post("/orders/7/events", json!({"euros": 20})).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, ["update", "update", "end"], "{text}");
    assert!(text.contains(r#""shipped":true"#), "{text}");
}

#[tokio::test]
async fn an_order_whose_client_leaves_its_events_is_finished() {
    let bank = Bank::slow();
    let running = Running::start(&memory(), &bank).await;
    let events = running.post("/orders/7/events", json!({"euros": 20})).await;
    bank.called.notified().await;
    drop(events);
    bank.release.notify_one();
    running.until_shipped(7).await;
}

#[test]
fn an_order_whose_process_ends_is_finished_after_the_restart() {
    let (store, bank) = (memory(), Bank::slow());
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let process = runtime();
    process.block_on(async {
        let running = Running::start(&store, &bank).await;
        let placing = running.place(7, 20);
        let called = bank.called.notified();
        tokio::select! {
            placed = placing => panic!("{placed:?}"),
            () = called => {}
        }
    });
    // Every task is dropped where it is.
    drop(process);
    bank.is_slow.store(false, Ordering::SeqCst);
    runtime().block_on(async {
        let running = Running::start(&store, &bank).await;
        running.service.recover().await.unwrap();
        running.until_shipped(7).await;
    });
    let keys = bank.keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] == keys[1], "the payment service knows the second call: {keys:?}");
}

#[tokio::test]
async fn a_shutdown_ends_between_two_supersteps_and_the_next_start_continues() {
    let (store, bank) = (memory(), Bank::slow());
    let running = Running::start(&store, &bank).await;
    let placing = running.place(7, 20);
    let stopping = async {
        bank.called.notified().await;
        running.service.stop();
        let refused = running.post("/orders/8", json!({"euros": 20})).await;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (503, &"1".parse().unwrap())
        );
        bank.release.notify_one();
        running.service.stopped().await;
    };
    let ((status, drained), ()) = futures::future::join(placing, stopping).await;
    assert_eq!(
        (status, &drained["status"], &drained["order"]["shipped"]),
        (503, &json!("drained"), &json!(false))
    );
    let next = Running::start(&store, &bank).await;
    next.service.recover().await.unwrap();
    next.until_shipped(7).await;
    assert_eq!(bank.calls(), 1);
}
