//! Runs over several workers, and over nodes of a cluster, that are killed. Nothing acknowledged is lost, nothing is stored twice, and what is
//! repeated was at work when its process ended.
//!
//! The tests do a few runs; `just restate-proof` does a thousand.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use superstep_graph::{Checkpointer, State as _};
use superstep_restate::{Endpoint, Restate};
use superstep_testing::{
    proof::{
        chains,
        checker::{Operation, Outcome, Violation, What, check},
        journal::{self, Journal, Journaled},
        order::{Order, Outside, WORK, expected, graph},
    },
    wrapped::Wrapped,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{cluster::Cluster, node::free_ports, partition};

/// The address of the workers of a cluster on this machine.
const LOCAL: &str = "127.0.0.1";

const ADDRESS: &str = "SUPERSTEP_PROOF_ADDRESS";
const FOLDER: &str = "SUPERSTEP_PROOF_FOLDER";
const PROCESS: &str = "SUPERSTEP_PROOF_PROCESS";

/// The number of processes.
const WORKERS: usize = 2;

/// The number of runs of each thread, one after the other.
const RUNS: usize = 2;

/// The number of threads that run at the same time.
const AT_ONCE: usize = 64;

/// The time for which a node is paused, in which the others replace it.
const PAUSED: Duration = Duration::from_secs(6);

/// The time for which a node is down.
const DOWN: Duration = Duration::from_secs(3);

/// Runs in the processes of the workers only.
#[tokio::test]
async fn the_worker() {
    let var = |name| std::env::var(name).ok();
    let (Some(address), Some(folder), Some(process)) = (var(ADDRESS), var(FOLDER), var(PROCESS)) else {
        return;
    };
    let journal = Journal::create(Path::new(&folder), &process);
    let written = journal.clone();
    let work = Duration::from_millis(number("SUPERSTEP_PROOF_WORK_MS", WORK.as_millis() as u64));
    let endpoint = Endpoint::builder().graph(graph(&Outside::Journal(journal, work))).layer(
        move |store: Arc<dyn Checkpointer>| {
            // The handler of an object has no lease: a leader of the cluster that does not know that it was replaced may begin an
            // attempt, whose requests are never answered.
            let journaled = Journaled { store, journal: written.clone(), leases_by_request: true };
            let layer: Arc<dyn Checkpointer> = Arc::new(Wrapped(journaled));
            layer
        },
    );
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        // Its parent has ended with its input.
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
        stopped.cancel();
    });
    endpoint.build().unwrap().serve(address.parse().unwrap(), stop).await.unwrap();
}

/// The processes of the workers, which listen on one address.
struct Workers {
    folder: PathBuf,
    address: String,
    children: Vec<Child>,
    started: usize,
}

impl Workers {
    fn start(folder: &Path, address: String) -> Self {
        let mut workers = Self { folder: folder.to_owned(), address, children: Vec::new(), started: 0 };
        for _ in 0..WORKERS {
            let child = workers.spawn();
            workers.children.push(child);
        }
        workers
    }

    fn spawn(&mut self) -> Child {
        self.started += 1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "proof::the_worker", "--nocapture"]);
        command.env(ADDRESS, &self.address).env(FOLDER, &self.folder);
        // It ends with its input.
        command.env(PROCESS, format!("w{}", self.started)).stdin(Stdio::piped()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    }

    async fn kill(&mut self, nth: usize, pause: Duration) {
        let _ = self.children[nth].kill();
        self.children[nth].wait().unwrap();
        tokio::time::sleep(pause).await;
        self.children[nth] = self.spawn();
        // It has begun once its journal is there, which takes long on a busy machine.
        let begun = Instant::now();
        while !self.folder.join(format!("w{}", self.started)).exists() && begun.elapsed() < DOWN {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The numbers of a proof.
#[derive(Debug, Default)]
pub(crate) struct Report {
    runs: usize,
    /// The time from the first input to the end of the last run, without the check.
    ran: Duration,
    workers_killed: usize,
    nodes_killed: usize,
    executions: usize,
    effects: usize,
    longest: Duration,
    /// The threads on which an attempt began, and was never answered, while an earlier one went on.
    replaced: usize,
    wrong: Vec<String>,
    violations: Vec<Violation>,
}

/// Runs a thread to its end, several times, and returns the longest run.
async fn order(restate: &Restate, nth: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for run in 0..RUNS {
        let begun = Instant::now();
        let id = format!("in-{nth}-{run}");
        let thread = restate.thread("order", format!("order-{nth}")).input_id(&id);
        let mut end = thread.run(Order::update().inputs([id])).await.unwrap();
        while let Some(waiting) = end.interrupts.first() {
            end = thread.answer(&waiting.id.clone(), "yes").await.unwrap();
        }
        assert_eq!(end.status, "completed");
        longest = longest.max(begun.elapsed());
    }
    longest
}

/// The faults of a proof.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Faults {
    KilledWorkers,
    /// And killed workers.
    KilledNodes,
    /// And killed workers: a node goes on as the leader that it was.
    PausedNodes,
    /// One node is cut off from the others, once.
    Partition,
}

/// Runs threads on a cluster with faults, and checks their history. The workers listen on `host`.
pub(crate) async fn prove(
    cluster: &mut Cluster,
    host: &str,
    threads: usize,
    seed: u64,
    faults: Faults,
) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("{host}:{}", free_ports::<1>()[0]);
    let mut workers = Workers::start(folder.path(), address.clone());
    let restate = cluster.client();
    let until = Instant::now() + Duration::from_secs(30);
    while restate.register(&format!("http://{address}")).await.is_err() {
        assert!(Instant::now() < until, "no worker can be registered");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (begun, is_done, done) = (Instant::now(), AtomicBool::new(false), AtomicUsize::new(0));
    let mut rng = StdRng::seed_from_u64(seed);
    let work = async {
        let orders = stream::iter(0..threads).map(|nth| {
            let (restate, done) = (&restate, &done);
            async move {
                let longest = order(restate, nth).await;
                done.fetch_add(1, Ordering::Relaxed);
                longest
            }
        });
        let longest =
            orders.buffer_unordered(AT_ONCE).fold(Duration::ZERO, async |one, other| one.max(other));
        let longest = longest.await;
        is_done.store(true, Ordering::Relaxed);
        (begun.elapsed(), longest)
    };
    let kills = async {
        let mut killed = 0;
        while faults != Faults::Partition && !is_done.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(rng.random_range(250..500))).await;
            let nth = rng.random_range(0..WORKERS);
            workers.kill(nth, Duration::from_millis(rng.random_range(20..100))).await;
            killed += 1;
        }
        killed
    };
    let nodes = async {
        let mut killed = 0;
        if faults == Faults::Partition {
            partition::cut_and_heal(cluster).await;
        }
        while faults == Faults::KilledNodes && !is_done.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let nth = killed % cluster.len();
            cluster.kill(nth);
            tokio::time::sleep(DOWN).await;
            cluster.start_again(nth);
            killed += 1;
        }
        while faults == Faults::PausedNodes && !is_done.load(Ordering::Relaxed) {
            tokio::time::sleep(DOWN).await;
            cluster.pause(killed % cluster.len(), true);
            tokio::time::sleep(PAUSED).await;
            cluster.pause(killed % cluster.len(), false);
            killed += 1;
        }
        killed
    };
    let ((ran, longest), workers_killed, nodes_killed) = tokio::join!(work, kills, nodes);
    let store = restate.checkpointer().unwrap();
    let plain = graph(&Outside::Nowhere).with_checkpointer(store.clone());
    let (log, receipts) = expected(RUNS).await;
    let operations = journal::read(folder.path());
    let mut executed: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for operation in &operations {
        if let What::Execute { name, key } = &operation.what {
            executed.entry((&operation.thread, name)).or_default().push(key);
        }
    }
    let mut report = Report {
        runs: threads * RUNS,
        ran,
        workers_killed,
        nodes_killed,
        longest,
        effects: executed.len(),
        executions: executed.values().map(Vec::len).sum(),
        ..Report::default()
    };
    for (effect, keys) in &executed {
        if keys.iter().collect::<BTreeSet<_>>().len() > 1 {
            report.wrong.push(format!("effect {effect:?} has several keys: {keys:?}"));
        }
    }
    let all: BTreeSet<&str> = executed.values().flatten().copied().collect();
    for nth in 0..threads {
        let state = plain.thread(format!("order-{nth}")).state().await.unwrap();
        let own: BTreeSet<_> = state.values.receipts.iter().map(String::as_str).collect();
        let is_right = state.next.is_empty()
            && state
                .values
                .inputs
                .iter()
                .eq(&(0..RUNS).map(|run| format!("in-{nth}-{run}")).collect::<Vec<_>>())
            && state.values.log.iter().eq(&log)
            && state.values.receipts.len() == receipts
            && own.len() == receipts
            && own.is_subset(&all);
        if !is_right {
            report.wrong.push(format!("{:?}: next {:?}", state.values, state.next));
        }
    }
    let chains = chains(&*store).await;
    report.violations = check(&operations, &chains);
    report.replaced = check(&as_if_leased(&operations), &chains)
        .iter()
        .filter(|violation| matches!(violation, Violation::Fenced { .. }))
        .count();
    if !report.violations.is_empty() {
        let kept = folder.keep();
        std::fs::write(kept.with_extension("chains"), format!("{chains:#?}")).unwrap();
        println!("the requests of the processes are in {}, the threads beside it", kept.display());
    }
    report
}

/// Returns the operations as if each attempt had received a lease at its begin.
fn as_if_leased(operations: &[Operation]) -> Vec<Operation> {
    let mut operations = operations.to_vec();
    for lease in operations.iter_mut().filter(|operation| matches!(operation.what, What::Lease)) {
        lease.ended = Some((lease.begun, Outcome::Done { head: 0 }));
    }
    operations
}

impl Report {
    #[track_caller]
    pub(crate) fn check(&self) {
        let repeated = self.executions - self.effects;
        println!(
            "{} runs in {:.1} s: {} workers and {} nodes killed, {} of {} effects repeated, longest run {:.1} s, {} attempts of replaced leaders, {} wrong, {} violations",
            self.runs,
            self.ran.as_secs_f64(),
            self.workers_killed,
            self.nodes_killed,
            repeated,
            self.effects,
            self.longest.as_secs_f64(),
            self.replaced,
            self.wrong.len(),
            self.violations.len(),
        );
        assert_eq!((&self.violations, &self.wrong), (&Vec::new(), &Vec::new()));
        assert!(self.effects >= self.runs * 5, "the check has something to check");
    }
}

/// Returns the number in a variable, or a default.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_over_killed_workers_keep_every_promise() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let threads = number("SUPERSTEP_PROOF_RUNS", 16) as usize / RUNS;
    let report =
        prove(&mut cluster, LOCAL, threads, number("SUPERSTEP_PROOF_SEED", 15), Faults::KilledWorkers).await;
    report.check();
    assert!(report.workers_killed > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_over_killed_nodes_keep_every_promise() {
    over_nodes(Faults::KilledNodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_over_paused_nodes_keep_every_promise() {
    over_nodes(Faults::PausedNodes).await;
}

async fn over_nodes(faults: Faults) {
    let nodes = number("SUPERSTEP_PROOF_NODES", 0) as usize;
    if nodes == 0 {
        // Three servers are too much beside the other tests; `just restate-proof` starts them.
        return;
    }
    let Some(mut cluster) = Cluster::start(nodes) else { return };
    let threads = number("SUPERSTEP_PROOF_RUNS", 16) as usize / RUNS;
    let seed = number("SUPERSTEP_PROOF_SEED", 15);
    prove(&mut cluster, LOCAL, threads, seed, faults).await.check();
}
