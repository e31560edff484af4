//! Orders behind HTTP, with axum.
//!
//! Shows: a run that outlives its handler, a POST that may be repeated, status codes, events as SSE, runs that continue after a restart, and a
//! shutdown between two supersteps.
//!
//! `cargo run -p superstep --example axum_service`
//!
//! `curl -X POST 127.0.0.1:3000/orders/7 -H 'content-type: application/json' -d '{"euros": 20}'`

#![expect(clippy::print_stderr, reason = "an example shows what it does")]

use std::{convert::Infallible, error::Error, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{self, Path},
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response, Sse, sse},
    routing::{get, post},
};
use futures::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep::{Interrupt, checkpoint::CheckpointError, prelude::*, thread::Drain};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::task::TaskTracker;

#[derive(State, Clone, Debug, Default, Serialize)]
struct Order {
    euros: u32,
    approved: bool,
    receipt: Option<String>,
    shipped: bool,
}

#[derive(Route, Clone, Copy)]
enum Size {
    Small,
    Large,
}

/// Charges a customer. A call with a known key returns the first receipt.
pub(crate) type Charge = Arc<dyn Fn(String) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

async fn approve(order: Order, cx: Cx) -> OrderUpdate {
    Order::update().approved(cx.interrupt::<bool>("approve", order.euros).await)
}

async fn pay(charge: Charge, order: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
    if order.euros > 50 && !order.approved {
        return Ok(Order::update());
    }
    let receipt: String = cx.once("charge", async |key: String| charge(key).await).await?;
    Ok(Order::update().receipt(receipt))
}

async fn ship(order: Order, _: Cx) -> OrderUpdate {
    Order::update().shipped(order.receipt.is_some())
}

fn orders(charge: Charge) -> Result<CompiledGraph<Order>, CompileError> {
    let mut graph = StateGraph::new("orders");
    let approve = graph.add_node("approve", approve);
    let pay = graph.add_node_with("pay", charge, pay);
    let ship = graph.add_node("ship", ship);
    let size = |order: &Order| if order.euros > 50 { Size::Large } else { Size::Small };
    graph.add_conditional_edges(START, size, |size| match size {
        Size::Small => pay,
        Size::Large => approve,
    });
    graph.add_edge(approve, pay);
    graph.add_edge(pay, ship);
    graph.add_edge(ship, END);
    graph.compile()
}

/// What all handlers share.
#[derive(Clone)]
pub(crate) struct Service {
    graph: CompiledGraph<Order>,
    store: Arc<dyn Checkpointer>,
    /// Ends every run after its current superstep.
    drain: Drain,
    /// The runs, also those whose handler is gone.
    runs: TaskTracker,
}

impl Service {
    pub(crate) fn new(store: Arc<dyn Checkpointer>, charge: Charge) -> Result<Self, CompileError> {
        let graph = orders(charge)?.with_checkpointer(store.clone());
        Ok(Self { graph, store, drain: Drain::new(), runs: TaskTracker::new() })
    }

    pub(crate) fn routes(&self) -> Router {
        Router::new()
            .route("/orders/{id}", get(show).post(place))
            .route("/orders/{id}/events", post(place_with_events))
            .route("/orders/{id}/answer", post(answer))
            .with_state(self.clone())
    }

    /// Resumes the runs that a crash or a shutdown interrupted. One that waits for an answer continues to wait, and one that another
    /// process has is left to it.
    pub(crate) async fn recover(&self) -> Result<(), CheckpointError> {
        for (thread, head) in self.store.threads().await? {
            if !head.control.next.is_empty() {
                let thread = self.graph.thread(thread).drain(self.drain.clone());
                self.runs.spawn(async move {
                    if let Err(error) = thread.resume().await {
                        eprintln!("thread `{:?}`: {error}", thread.id());
                    }
                });
            }
        }
        Ok(())
    }

    /// Accepts no more work, and lets each run finish its superstep.
    pub(crate) fn stop(&self) {
        self.drain.request("shutdown");
        self.runs.close();
    }

    /// Waits for the end of all runs, after [`stop`](Self::stop).
    pub(crate) async fn stopped(&self) {
        self.runs.wait().await;
    }

    fn thread(&self, id: &str) -> Result<Thread<Order>, Refused> {
        match self.drain.requested() {
            Some(_) => Err(Refused::Stopping),
            None => Ok(self.graph.thread(id).drain(self.drain.clone())),
        }
    }

    /// Runs to the end, even if the client leaves: axum drops the handler of a closed connection, and with it all that it awaits.
    async fn run(
        &self,
        run: impl Future<Output = Result<Outcome<Order>, RunError>> + Send + 'static,
    ) -> Result<Response, Refused> {
        Ok(reply(self.runs.spawn(run).await.map_err(|_| Refused::Panicked)??))
    }
}

#[derive(Deserialize)]
struct NewOrder {
    euros: u32,
}

#[derive(Deserialize)]
struct GivenAnswer {
    interrupt: String,
    value: Value,
}

type Shared = extract::State<Service>;

/// Places an order once: its id is the id of the input, so that a repeated request continues the order or returns its outcome.
async fn place(
    extract::State(service): Shared,
    Path(id): Path<String>,
    Json(order): Json<NewOrder>,
) -> Result<Response, Refused> {
    let thread = service.thread(&id)?.input_id(&id);
    service.run(async move { thread.run(Order::update().euros(order.euros)).await }).await
}

/// Does the same, and streams the updates. The run does not wait for a client that reads slowly, and does not stop for one that leaves.
async fn place_with_events(
    extract::State(service): Shared,
    Path(id): Path<String>,
    Json(order): Json<NewOrder>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Refused> {
    let thread = service.thread(&id)?.input_id(&id);
    let mut run = thread.stream(Order::update().euros(order.euros), [StreamMode::Updates]);
    let (events, shown) = mpsc::channel(256);
    service.runs.spawn(async move {
        let mut client = Some(events);
        while let Some(event) = run.next().await {
            let event = sse::Event::default().event("update").json_data(&event);
            client = client.filter(|client| event.is_ok_and(|event| client.try_send(event).is_ok()));
        }
        let end = match run.outcome().await {
            Ok(end) => sse::Event::default().event("end").data(body(&end).to_string()),
            Err(error) => sse::Event::default().event("error").data(error.code()),
        };
        client.map(|client| client.try_send(end))
    });
    let shown = stream::unfold(shown, async |mut shown| shown.recv().await.map(|event| (Ok(event), shown)));
    Ok(Sse::new(shown).keep_alive(sse::KeepAlive::default()))
}

/// Answers a question by its id, and continues the order.
async fn answer(
    extract::State(service): Shared,
    Path(id): Path<String>,
    Json(given): Json<GivenAnswer>,
) -> Result<Response, Refused> {
    let thread = service.thread(&id)?.answer(given.interrupt, given.value);
    service.run(async move { thread.resume().await }).await
}

async fn show(extract::State(service): Shared, Path(id): Path<String>) -> Result<Json<Value>, Refused> {
    let state = service.graph.thread(&*id).state().await?;
    if !state.exists() {
        return Err(Refused::Unknown);
    }
    let waits: Vec<_> = state.tasks.iter().flat_map(|task| &task.interrupts).map(question).collect();
    Ok(Json(json!({"order": state.values, "pending": state.next, "waits": waits})))
}

fn question(waiting: &Interrupt) -> Value {
    json!({"interrupt": waiting.id, "key": waiting.key, "question": waiting.question})
}

fn body(end: &Outcome<Order>) -> Value {
    let waits: Vec<_> = end.interrupts.iter().map(question).collect();
    json!({"status": end.status.as_str(), "order": end.state, "waits": waits})
}

/// 200: done. 202: accepted, and somebody has to answer. 503: accepted, and continued after the restart.
fn reply(end: Outcome<Order>) -> Response {
    let status = match end.status {
        Status::Completed => StatusCode::OK,
        Status::Interrupted => StatusCode::ACCEPTED,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let retry = (status == StatusCode::SERVICE_UNAVAILABLE).then_some([(RETRY_AFTER, "5")]);
    (status, retry, Json(body(&end))).into_response()
}

/// The reasons why a request has no outcome.
enum Refused {
    Stopping,
    Unknown,
    Panicked,
    Failed(RunError),
}

impl From<RunError> for Refused {
    fn from(error: RunError) -> Self {
        Self::Failed(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, code) = match &self {
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping".to_owned()),
            Self::Unknown => (StatusCode::NOT_FOUND, "unknown".to_owned()),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "panicked".to_owned()),
            Self::Failed(error) => {
                // The client gets the code; the text may name nodes, values and paths.
                eprintln!("{error:?}");
                (status(error), error.code())
            }
        };
        let is_temporary = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::CONFLICT].contains(&status);
        let retry = is_temporary.then_some([(RETRY_AFTER, "1")]);
        (status, retry, Json(json!({"error": code}))).into_response()
    }
}

fn status(error: &RunError) -> StatusCode {
    match error {
        _ if error.is_busy() || error.is_unfinished() => StatusCode::CONFLICT,
        _ if error.is_not_found() => StatusCode::NOT_FOUND,
        _ if error.is_rejected_answer() || error.is_rejected_input() => StatusCode::UNPROCESSABLE_ENTITY,
        RunError::Checkpoint(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let charge: Charge = Arc::new(|key| async move { Ok(format!("receipt of {key}")) }.boxed());
    // With `SqliteCheckpointer` or `PostgresCheckpointer` the orders outlive the process.
    let service = Service::new(Arc::new(MemoryCheckpointer::new()), charge)?;
    service.recover().await?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let stop = service.clone();
    let stopping = async move {
        // Without handlers of signals the service stops at once.
        let _ = tokio::signal::ctrl_c().await;
        stop.stop();
    };
    axum::serve(listener, service.routes()).with_graceful_shutdown(stopping).await?;
    if tokio::time::timeout(Duration::from_secs(30), service.stopped()).await.is_err() {
        eprintln!("some supersteps did not end; they run again after the next start");
    }
    Ok(())
}
