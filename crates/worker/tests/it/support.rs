//! Databases, graphs and waits of the tests.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use superstep_graph::{CompiledGraph, Cx, END, Log, NodeError, Route, START, State, StateGraph};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_worker::{Jobs, Listed};
use tokio::sync::Notify;

use crate::server::Server;

/// Returns the options for a fresh schema.
pub(crate) fn fresh(server: &Server) -> PostgresOptions {
    let lease_wait = Duration::from_millis(50);
    PostgresOptions::new(server.url()).schema(server.schema()).connections(4).lease_wait(lease_wait)
}

#[derive(State, Clone, Debug, Default)]
pub(crate) struct Trip {
    pub(crate) name: String,
    /// The sum of the inputs: more than one if an input was accepted twice.
    #[channel(sum)]
    pub(crate) inputs: i64,
    #[channel(append)]
    pub(crate) log: Log<String>,
    pub(crate) again: bool,
}

#[derive(State, Clone, Debug, Default)]
pub(crate) struct Form {
    #[channel(append)]
    pub(crate) log: Log<String>,
}

pub(crate) fn log_entry(text: &str) -> FormUpdate {
    Form::update().log([text.to_owned()])
}

#[derive(Route, Clone, Copy, Debug)]
enum Next {
    Again,
    End,
}

pub(crate) fn input(name: &str) -> TripUpdate {
    Trip::update().name(name).inputs(1)
}

/// The behaviour of the nodes of a test, and their reports.
#[derive(Clone, Default)]
pub(crate) struct Control {
    /// The threads whose node `work` began, in order.
    began: Arc<Mutex<Vec<String>>>,
    pub(crate) begins: Arc<Notify>,
    /// The name of the thread that waits for `release`.
    pub(crate) waits: Arc<Mutex<Option<String>>>,
    pub(crate) release: Arc<Notify>,
    pub(crate) fails: Arc<AtomicBool>,
    /// `true` to repeat the node.
    pub(crate) repeats: Arc<AtomicBool>,
    pub(crate) at_once: Arc<AtomicUsize>,
    pub(crate) most: Arc<AtomicUsize>,
}

impl Control {
    pub(crate) fn began(&self) -> Vec<String> {
        self.began.lock().unwrap().clone()
    }

    /// Makes the thread of this name wait in its node `work`.
    pub(crate) fn hold(&self, name: &str) {
        *self.waits.lock().unwrap() = Some(name.to_owned());
    }

    /// Waits until this number of nodes have begun.
    pub(crate) async fn until_began(&self, number: usize) {
        loop {
            let began = self.begins.notified();
            if self.began.lock().unwrap().len() >= number {
                return;
            }
            began.await;
        }
    }
}

/// A graph of two nodes, `work` and `end`, that does as `control` says.
pub(crate) fn trip(options: &PostgresOptions, control: &Control) -> CompiledGraph<Trip> {
    let mut graph = StateGraph::<Trip>::new("trip");
    let work = graph.add_node_with("work", control.clone(), async |control: Control, trip: Trip, _: Cx| {
        let at_once = control.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        control.most.fetch_max(at_once, Ordering::SeqCst);
        control.began.lock().unwrap().push(trip.name.clone());
        control.begins.notify_waiters();
        let holds = control.waits.lock().unwrap().as_ref() == Some(&trip.name);
        if holds {
            control.release.notified().await;
        }
        control.at_once.fetch_sub(1, Ordering::SeqCst);
        if control.fails.load(Ordering::SeqCst) {
            return Err(NodeError::from("no train"));
        }
        let again = control.repeats.load(Ordering::SeqCst);
        let log = (!again).then(|| "work".to_owned());
        Ok(Trip::update().log(log.into_iter().collect::<Vec<_>>()).again(again))
    });
    let end = graph.add_node("end", async |_: Trip, _: Cx| Trip::update().log(["end".to_owned()]));
    graph.add_edge(START, work);
    let next = |trip: &Trip| if trip.again { Next::Again } else { Next::End };
    graph.add_conditional_edges(work, next, |next| match next {
        Next::Again => work,
        Next::End => end,
    });
    graph.add_edge(end, END);
    graph.compile().unwrap().with_checkpointer(PostgresCheckpointer::open(options.clone()).unwrap())
}

/// Waits until no job is stored.
pub(crate) async fn until_done(jobs: &Jobs) {
    while !jobs.list(Listed::All).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asserts that a thread ran to its end on one input.
#[track_caller]
pub(crate) fn assert_whole(trip: &Trip) {
    assert_eq!(trip.inputs, 1);
    assert_eq!(trip.log, ["work".to_owned(), "end".to_owned()]);
}
