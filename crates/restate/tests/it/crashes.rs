//! A run whose worker ends before or after each request of it.
//!
//! The tests end it at some of them; `just restate-crashes` at each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::{BoxFuture, pending};
use superstep_graph::{
    CheckpointId, Checkpointer, State as _, ThreadId,
    checkpoint::{CheckpointError, Commit, TaskKey, TaskRecord},
    state::RawJson,
};
use superstep_restate::EndpointBuilder;
use superstep_testing::{
    proof::{
        chains,
        checker::{What, check},
        journal::{self, Journal, Journaled},
        order::{Order, Outside, WORK, expected, graph},
    },
    wrapped::{Wrapped, Wrapper},
};
use tokio::sync::Notify;

use crate::{node::shared, proof::number, service::Service};

/// Counts the requests of a run, and stops at one of them.
#[derive(Default)]
struct Places {
    /// The number of a place, each request has two; 0 for none.
    stops_at: usize,
    passed: AtomicUsize,
    reached: Notify,
}

impl Places {
    async fn pass(&self) {
        if self.passed.fetch_add(1, Ordering::Relaxed) + 1 == self.stops_at {
            self.reached.notify_one();
            pending::<()>().await;
        }
    }
}

struct Crashes {
    store: Arc<dyn Checkpointer>,
    places: Arc<Places>,
}

impl Crashes {
    async fn at_both_ends<T>(&self, request: BoxFuture<'_, T>) -> T {
        self.places.pass().await;
        let answer = request.await;
        self.places.pass().await;
        answer
    }
}

impl Wrapper for Crashes {
    fn store(&self) -> &dyn Checkpointer {
        &*self.store
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(self.at_both_ends(self.store.record(task, record)))
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        Box::pin(self.at_both_ends(self.store.add_effects(task, results)))
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        Box::pin(self.at_both_ends(self.store.commit(thread, expected, next)))
    }
}

fn worker(
    journal: &Arc<Journal>,
    places: &Arc<Places>,
) -> impl FnOnce(EndpointBuilder) -> EndpointBuilder + use<> {
    let (journal, places) = (journal.clone(), places.clone());
    move |endpoint| {
        let order = graph(&Outside::Journal(journal.clone(), WORK));
        endpoint.graph(order).layer(move |store: Arc<dyn Checkpointer>| {
            let store: Arc<dyn Checkpointer> =
                Arc::new(Wrapped(Journaled { store, journal: journal.clone(), leases_by_request: true }));
            let layer: Arc<dyn Checkpointer> = Arc::new(Wrapped(Crashes { store, places: places.clone() }));
            layer
        })
    }
}

/// Runs an order whose worker ends at a place, and returns whether the run reaches it.
async fn crashes_at(place: usize) -> bool {
    let Some(node) = shared() else { return false };
    let folder = tempfile::tempdir().unwrap();
    let journal = |name| Journal::create(folder.path(), name);
    let places = Arc::new(Places { stops_at: place, ..Places::default() });
    let mut service = Service::start(node, worker(&journal("first"), &places));
    let restate = service.restate.clone();
    let order = async {
        let thread = restate.thread("order", "order");
        let mut end = thread.run(Order::update().inputs(["0"])).await.unwrap();
        while let Some(waiting) = end.interrupts.first() {
            end = thread.answer(&waiting.id.clone(), "yes").await.unwrap();
        }
        assert_eq!(end.status, "completed");
    };
    tokio::pin!(order);
    let is_reached = tokio::select! {
        () = &mut order => false,
        () = places.reached.notified() => true,
    };
    if is_reached {
        let next = service.crash_before(worker(&journal("second"), &Arc::default()));
        service = next();
        order.await;
    }
    let store = restate.checkpointer().unwrap();
    let state = graph(&Outside::Nowhere).with_checkpointer(store.clone()).thread("order").state().await;
    let (state, (log, receipts)) = (state.unwrap().values, expected(1).await);
    assert!(state.log.iter().eq(&log), "place {place}: {:?}", state.log);
    let own: BTreeSet<&str> = state.receipts.iter().map(String::as_str).collect();
    assert_eq!((state.receipts.len(), own.len()), (receipts, receipts), "place {place}");
    let operations = journal::read(folder.path());
    assert_eq!(check(&operations, &chains(&*store).await), [], "place {place}");
    // That no effect is executed after its result was stored is a rule of the checker.
    let mut executed: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for operation in &operations {
        if let What::Execute { name, key } = &operation.what {
            *executed.entry(name).or_default().entry(key).or_default() += 1;
        }
    }
    for (name, keys) in executed {
        assert_eq!(keys.len(), 1, "place {place}: {name} has one key");
        let (key, times) = keys.into_iter().next().unwrap();
        assert!(own.contains(key) && times <= 2, "place {place}: {name}, {times} times");
        assert!(times == 1 || is_reached, "place {place}: {name} is repeated without a crash");
    }
    drop(service);
    is_reached
}

#[tokio::test]
async fn a_run_ends_right_if_its_worker_ends_at_any_request() {
    let every = number("SUPERSTEP_CRASH_EVERY", 9) as usize;
    let mut place = 1;
    while crashes_at(place).await {
        place += every;
    }
    println!("{place} places of a run, of which each {every}. was tried");
    assert!(place > 20 || shared().is_none(), "a run has more requests: {place}");
}
