//! Runs over several workers under faults, whose history is checked: nothing acknowledged is lost, nothing is stored twice, each superstep
//! has one writer.
//!
//! The tests do a few runs; `just crash-proof` does a thousand.

mod chaos;
mod network;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use superstep_graph::{
    Checkpointer, CompiledGraph, State, ThreadId,
    checkpoint::{TaskKey, TaskRecord},
};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
use superstep_testing::{
    lines::superstep,
    proof::{
        chains,
        checker::{self, Chain, Operation, Violation, What, check},
        journal::{self, Journal, Journaled},
        order::{Order, Outside, WORK, expected, graph},
    },
    wrapped::Wrapped,
};
use superstep_worker::{Jobs, Listed, Worker};
use tokio::time::Instant;

use self::{
    chaos::{Chaos, Events, Workers},
    network::Network,
};
use crate::server::{Server, shared, url_of};

const URL: &str = "SUPERSTEP_PROOF_URL";
const SCHEMA: &str = "SUPERSTEP_PROOF_SCHEMA";
const FOLDER: &str = "SUPERSTEP_PROOF_FOLDER";
const PROCESS: &str = "SUPERSTEP_PROOF_PROCESS";

/// The time of the leases, past which a worker is stopped.
const LEASE: Duration = Duration::from_secs(1);

/// The number of processes.
const WORKERS: usize = 4;

/// The number of runs of each thread, one after the other.
const RUNS: usize = 2;

/// The number of threads that run at the same time.
const AT_ONCE: usize = 16;

/// The pause between two readings of all threads.
const POLL: Duration = Duration::from_millis(20);

fn options(url: String, schema: String) -> PostgresOptions {
    PostgresOptions::new(url)
        .schema(schema)
        .connections(4)
        .lease(LEASE)
        .lease_wait(Duration::from_millis(50))
        .statement_timeout(Duration::from_secs(5))
        .reconnect(Duration::from_secs(20))
}

/// Runs in the processes of the workers only.
#[tokio::test]
async fn the_worker() {
    let var = |name| std::env::var(name).ok();
    let (Some(url), Some(schema), Some(folder), Some(process)) =
        (var(URL), var(SCHEMA), var(FOLDER), var(PROCESS))
    else {
        return;
    };
    let journal = Journal::create(Path::new(&folder), &process);
    let options = options(url, schema);
    let store = Journaled {
        store: Arc::new(PostgresCheckpointer::open(options.clone()).unwrap()),
        journal: journal.clone(),
        leases_by_request: false,
    };
    let graph = graph(&Outside::Journal(journal, WORK)).with_checkpointer(Wrapped(store));
    let jobs = Jobs::open(options).await.unwrap();
    let worker = Worker::new(&jobs).graph(graph).heartbeat(Duration::from_millis(300));
    // Its parent has ended with its input.
    let orphaned = async {
        let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        let _ = read.await;
    };
    worker.run_until(orphaned).await.unwrap();
}

/// The threads with their runs, as a user of the workers sees them.
struct Users {
    graph: CompiledGraph<Order>,
    jobs: Jobs,
    journal: Arc<Journal>,
    rng: StdRng,
    /// The threads that are not done, with the number of inputs sent to them.
    active: BTreeMap<usize, usize>,
    /// The number of threads that were begun.
    begun: usize,
    answered: BTreeSet<String>,
}

fn thread_of(nth: usize) -> ThreadId {
    ThreadId::from(format!("order-{nth}"))
}

impl Users {
    /// Sends an input until it is acknowledged, and some of them again.
    async fn send(&mut self, nth: usize, run: usize) {
        let (thread, id) = (thread_of(nth), format!("in-{nth}-{run}"));
        let mut times = if self.rng.random_range(0..4) == 0 { 2 } else { 1 };
        while times > 0 {
            let input = Order::update().inputs([id.clone()]);
            let request = self.jobs.run(&self.graph, thread.clone(), input).id(id.clone());
            let is_sent = self.journal.send(&thread, &id, async { request.send().await.is_ok() }).await;
            times -= usize::from(is_sent);
        }
    }

    /// Begins this number of threads, and further ones until the chaos is over, and waits for the end of all.
    async fn run(&mut self, threads: usize, is_over: &AtomicBool) {
        loop {
            let is_enough = self.begun >= threads && is_over.load(Ordering::Relaxed);
            if !is_enough && self.active.len() < AT_ONCE {
                self.send(self.begun, 0).await;
                self.active.insert(self.begun, 1);
                self.begun += 1;
                continue;
            }
            if self.active.is_empty() {
                return;
            }
            self.step().await;
            tokio::time::sleep(POLL).await;
        }
    }

    /// Answers questions, begins second runs, and lets failed jobs be tried again.
    async fn step(&mut self) {
        for (nth, sent) in self.active.clone() {
            let thread = thread_of(nth);
            // There may be no thread yet, and no server.
            let Ok(state) = self.graph.thread(thread.clone()).state().await else { continue };
            for interrupt in state.tasks.iter().flat_map(|task| &task.interrupts) {
                if self.answered.contains(&format!("{nth}-{}", interrupt.id)) {
                    continue;
                }
                let answer = self.jobs.answer(&self.graph, thread.clone(), interrupt.id.clone(), "yes");
                if answer.id(format!("answer-{nth}-{}", interrupt.id)).send().await.is_ok() {
                    self.answered.insert(format!("{nth}-{}", interrupt.id));
                }
            }
            let is_done = state.next.is_empty() && state.values.inputs.len() == sent;
            if is_done && sent < RUNS {
                self.send(nth, sent).await;
                self.active.insert(nth, sent + 1);
            } else if is_done {
                self.active.remove(&nth);
            }
        }
        // An operator does not wait for the pause after an error.
        for job in self.jobs.list(Listed::All).await.unwrap_or_default() {
            if job.last_error.is_some() {
                let _ = self.jobs.retry(job.id).await;
            }
        }
    }
}

/// The result of some runs.
struct Proof {
    runs: usize,
    events: Events,
    lost: u64,
    operations: Vec<Operation>,
    chains: Vec<Chain>,
    violations: Vec<Violation>,
    wrong: Vec<String>,
}

/// Runs threads under faults, and checks their history.
async fn prove(server: &Server, runs: usize, seed: u64) -> Proof {
    let folder = tempfile::tempdir().unwrap();
    let network = Network::start(server.folder(), seed, false);
    // A migration may take longer than any other request.
    let statement_timeout = Duration::from_secs(60);
    let options = options(server.url(), server.schema()).statement_timeout(statement_timeout);
    let store = Arc::new(PostgresCheckpointer::open(options.clone()).unwrap());
    let outside = Outside::Nowhere;
    let mut users = Users {
        graph: graph(&outside).with_checkpointer(store.clone()),
        jobs: Jobs::open(options.clone()).await.unwrap(),
        journal: Journal::create(folder.path(), "users"),
        rng: StdRng::seed_from_u64(seed),
        active: BTreeMap::new(),
        begun: 0,
        answered: BTreeSet::new(),
    };
    let workers = Workers::start(WORKERS, folder.path().to_owned(), &network, &options.schema);
    let rng = StdRng::seed_from_u64(seed);
    let mut chaos = Chaos { workers, network: &network, server, rng, events: Events::default() };
    let (is_over, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let faults = async {
        while !is_over.load(Ordering::Relaxed) || !is_done.load(Ordering::Relaxed) {
            chaos.step().await;
            is_over.store(chaos.events.has_all(), Ordering::Relaxed);
        }
    };
    let work = async {
        users.run(runs.div_ceil(RUNS), &is_over).await;
        is_done.store(true, Ordering::Relaxed);
    };
    tokio::join!(work, faults);
    let lost = network.faults().lost.load(Ordering::Relaxed);
    let events = chaos.events;
    drop(chaos);
    let (log, receipts) = expected(RUNS).await;
    let (operations, chains) = (journal::read(folder.path()), chains(&*store).await);
    let executed: BTreeSet<&str> = operations
        .iter()
        .filter_map(|operation| match &operation.what {
            What::Execute { key, .. } => Some(key.as_str()),
            _ => None,
        })
        .collect();
    let mut wrong = Vec::new();
    for nth in 0..users.begun {
        let state = users.graph.thread(thread_of(nth)).state().await.unwrap();
        let inputs: Vec<_> = (0..RUNS).map(|run| format!("in-{nth}-{run}")).collect();
        let own: BTreeSet<_> = state.values.receipts.iter().map(String::as_str).collect();
        let is_right = state.next.is_empty()
            && state.values.inputs.iter().eq(&inputs)
            && state.values.log.iter().eq(&log)
            && state.values.receipts.len() == receipts
            && own.len() == receipts
            && own.is_subset(&executed);
        if !is_right {
            wrong.push(format!("{:?}: next {:?}", state.values, state.next));
        }
    }
    let violations = check(&operations, &chains);
    Proof { runs: users.begun * RUNS, events, lost, operations, chains, violations, wrong }
}

impl Proof {
    fn print(&self, begun: Instant) {
        let count = |is: &dyn Fn(&Operation) -> bool| {
            self.operations.iter().filter(|operation| is(operation)).count()
        };
        let commits = count(&|operation| matches!(operation.what, What::Commit { .. }));
        let open = count(&|operation| {
            matches!(operation.what, What::Commit { .. })
                && !matches!(operation.ended, Some((_, checker::Outcome::Done { .. })))
        });
        let executed = count(&|operation| matches!(operation.what, What::Execute { .. }));
        let keys: BTreeSet<_> = self
            .operations
            .iter()
            .filter_map(|operation| match &operation.what {
                What::Execute { key, .. } => Some(key),
                _ => None,
            })
            .collect();
        let stored: usize = self.chains.iter().map(|chain| chain.checkpoints.len()).sum();
        let Events { killed, stopped, bursts, crashes } = self.events;
        println!(
            "{} runs in {:.0} s: {} operations, {stored} checkpoints of {} threads, {commits} commits requested, {open} of them without \
             acknowledgement; {killed} workers killed, {stopped} stopped past their lease, {} connections lost in {bursts} bursts, \
             {crashes} crashes of the server; {} keys of effects, {executed} executions; {} wrong states, {} violations",
            self.runs,
            begun.elapsed().as_secs_f64(),
            self.operations.len(),
            self.chains.len(),
            self.lost,
            keys.len(),
            self.wrong.len(),
            self.violations.len(),
        );
    }
}

/// Returns the number in a variable, or a default.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_over_killed_stopped_and_disconnected_workers_keep_every_promise() {
    if shared().is_none() {
        return;
    }
    // The long form has the server's default settings.
    let runs = number("SUPERSTEP_PROOF_RUNS", 16);
    let seed = number("SUPERSTEP_PROOF_SEED", 15);
    let settings: &[&str] =
        if runs > 100 { &["max_connections=200"] } else { &["fsync=off", "max_connections=200"] };
    let (server, begun) = (Server::start(settings).unwrap(), Instant::now());
    let runs = usize::try_from(runs).unwrap();
    let proof = prove(&server, runs, seed).await;
    proof.print(begun);
    assert_eq!((proof.violations, proof.wrong), (Vec::new(), Vec::new()), "seed {seed}");
    // The check has something to check.
    let executed = |operation: &&Operation| matches!(operation.what, What::Execute { .. });
    assert!(proof.operations.iter().filter(executed).count() >= runs * 5);
}

/// An owner whose lease another process receives writes once more; returns the violations of the history.
async fn a_late_owner(server: &Server, has_no_fence: bool) -> Vec<Violation> {
    let folder = tempfile::tempdir().unwrap();
    let network = Network::start(server.folder(), 1, has_no_fence);
    // No renewal comes between.
    let lease = Duration::from_secs(3600);
    let direct = options(server.url(), server.schema()).lease(lease);
    let late = options(url_of(network.folder()), direct.schema.clone()).lease(lease);
    let open = |options: &PostgresOptions, name| {
        let (store, journal) = (
            Arc::new(PostgresCheckpointer::open(options.clone()).unwrap()),
            Journal::create(folder.path(), name),
        );
        Wrapped(Journaled { store, journal, leases_by_request: false })
    };
    let (one, other) = (open(&late, "one"), open(&direct, "other"));
    for name in ["commit", "record"] {
        let thread = ThreadId::from(name);
        let _lease = one.lease(&thread).await.unwrap();
        let head = one.commit(&thread, None, superstep(None, "1")).await.unwrap();
        server.sql(&format!("UPDATE {}.leases SET expires_at = '2000-01-01'", direct.schema));
        let _taken = other.lease(&thread).await.unwrap();
        let is_stored = match name {
            "commit" => one.commit(&thread, Some(head), superstep(Some(head), "2")).await.is_ok(),
            _ => {
                let task = TaskKey { thread: thread.clone(), checkpoint: head, slot: 0 };
                let once = [("paid".to_owned(), "1".into())].into();
                one.record(&task, TaskRecord::Started { attempts: 0, once }).await.is_ok()
            }
        };
        assert_eq!(is_stored, has_no_fence);
    }
    let store = PostgresCheckpointer::open(direct).unwrap();
    check(&journal::read(folder.path()), &chains(&store).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checker_finds_the_late_writes_of_a_server_without_the_check_of_tokens() {
    let Some(server) = shared() else { return };
    assert_eq!(a_late_owner(server, false).await, []);
    let found = a_late_owner(server, true).await;
    let fenced = |violation: &Violation| match violation {
        Violation::Fenced { thread, .. } => Some(thread.clone()),
        _ => None,
    };
    assert_eq!(found.iter().filter_map(fenced).collect::<Vec<_>>(), ["commit", "record"], "{found:?}");
}
