//! The cost of a superstep beside that of the calls of Restate that it is made of. It prints figures and asserts none: they depend on the machine.
//!
//! The test is short; `just restate-speed` has more rounds and longer runs.

use std::{
    convert::Infallible,
    future::ready,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use restate_sdk::prelude::*;
use serde_json::json;
use superstep_graph::{CompiledGraph, Durability, END, Route, RunOptions, START, State, StateGraph};
use superstep_restate::{RestateThread, listen};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

use crate::{node::shared, proof::number, service::Service};

/// The bytes of a value, about those of a commit of the graph here.
const BYTES: usize = 420;

/// An object with the calls of a superstep, and nothing else.
struct Bare;

#[restate_sdk::object(lazy_state)]
impl Bare {
    /// Journals values, and sets each.
    #[handler]
    async fn steps(&self, context: ObjectContext<'_>, Json(steps): Json<u64>) -> HandlerResult<()> {
        for step in 0..steps {
            let value = context.run(|| async { Ok("x".repeat(BYTES)) }).name("step").await?;
            let value: String = value;
            context.set(&format!("k{step}"), value);
        }
        Ok(())
    }
}

/// Serves that object until the end of the test.
async fn serve_bare() -> SocketAddr {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let bare = Endpoint::builder().bind(Bare).build();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let bare = bare.clone();
            let service = service_fn(move |request| ready(Ok::<_, Infallible>(bare.handle(request))));
            tokio::spawn(
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    address
}

/// Sends a request to a port of this machine, and returns the time until the reply.
async fn post(port: u16, path: &str, body: &str) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 2"), "{reply}");
    begun.elapsed()
}

#[derive(State, Clone, Debug, Default)]
struct Count {
    n: u64,
    most: u64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

type Times = Arc<Mutex<Vec<Instant>>>;

/// Counts, and remembers the time of each step.
fn counting(times: &Times) -> CompiledGraph<Count> {
    let mut graph = StateGraph::<Count>::new("counts");
    let count = graph.add_node_with("count", times.clone(), async |times: Times, count: Count, _| {
        times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        Count::update().n(count.n + 1)
    });
    graph.add_edge(START, count);
    let next = |count: &Count| if count.n < count.most { Next::Again } else { Next::Done };
    graph.add_conditional_edges(count, next, move |next| match next {
        Next::Again => count,
        Next::Done => END,
    });
    graph.compile().unwrap()
}

/// Runs a number of supersteps, and returns the time.
async fn run(thread: &RestateThread, steps: u64) -> Duration {
    let begun = Instant::now();
    let end = thread.run(Count::update().n(0).most(steps)).await.unwrap();
    assert_eq!(end.values["n"], json!(steps));
    begun.elapsed()
}

/// Returns the median in milliseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_of_supersteps() {
    let Some(node) = shared() else { return };
    let (rounds, steps) = (number("SUPERSTEP_SPEED_ROUNDS", 1), number("SUPERSTEP_SPEED_STEPS", 20));
    let longest = number("SUPERSTEP_SPEED_LONGEST", 60);
    let times = Times::default();
    let limit = RunOptions::new().step_limit(1_000_000);
    let sync = Service::start(node, |endpoint| endpoint.graph(counting(&times)).options(limit.clone()));
    let fast = limit.clone().durability(Durability::Async);
    let fast = Service::start(node, |endpoint| endpoint.graph(counting(&times)).options(fast));
    let bare = serve_bare().await;
    post(node.admin, "/deployments", &json!({"uri": format!("http://{bare}")}).to_string()).await;
    let [mut bares, mut syncs, mut fasts, mut ones] = [const { Vec::new() }; 4];
    // The first round warms the server up.
    for round in 0..=rounds {
        let bare = post(node.ingress, &format!("/Bare/b-{round}/steps"), &steps.to_string()).await;
        let of = |service: &Service, name| service.restate.thread("counts", format!("{name}-{round}"));
        let (stored, unstored) = (run(&of(&sync, "s"), steps).await, run(&of(&fast, "f"), steps).await);
        let one = run(&of(&sync, "o"), 1).await;
        if round > 0 {
            let each = |time: Duration| time / u32::try_from(steps).unwrap();
            bares.push(each(bare));
            syncs.push(each(stored));
            fasts.push(each(unstored));
            ones.push(one);
        }
    }
    let (bare, stored) = (median(bares), median(syncs));
    println!(
        "{rounds} rounds of {steps} supersteps: run and set of {BYTES} bytes {bare:.2} ms, a superstep {stored:.2} ms \
         ({:.2} of it), with Async {:.2} ms, a run of one superstep {:.1} ms",
        stored / bare,
        median(fasts),
        median(ones),
    );

    // A long journal, then a long thread.
    times.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let long = sync.restate.thread("counts", "long");
    run(&long, longest).await;
    let times = times.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let window = times.len() / 6;
    let cost = |times: &[Instant]| median(times.windows(2).map(|pair| pair[1] - pair[0]).collect());
    println!(
        "a superstep at {window} of a run {:.2} ms, at {longest} {:.2} ms",
        cost(&times[window / 2..window * 3 / 2]),
        cost(&times[times.len() - window..]),
    );
    let short = sync.restate.thread("counts", "short");
    run(&short, 8).await;
    let [mut shorts, mut longs, mut loads] = [const { Vec::new() }; 3];
    for _ in 0..=rounds {
        shorts.push(run(&short, 1).await);
        longs.push(run(&long, 1).await);
        let begun = Instant::now();
        long.stored(&counting(&Times::default())).unwrap().state().await.unwrap();
        loads.push(begun.elapsed());
    }
    println!(
        "a run of one superstep on a thread with 10 checkpoints {:.1} ms, with {longest} {:.1} ms; the head of that is read in {:.1} ms",
        median(shorts),
        median(longs),
        median(loads),
    );
}
