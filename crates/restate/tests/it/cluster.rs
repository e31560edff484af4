//! Clusters whose nodes can be killed, each of a test of its own.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use superstep_restate::Restate;
use tokio::time::Instant;

use crate::node::{free_ports, is_healthy, program};

/// The longest start of a cluster, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(90);

/// Ends a node when its input ends, which is when this process ends or drops it.
const GUARD: &str = r#"DO_NOT_TRACK=1 $3 "$1" --no-logo -c "$2" >> "$2.log" 2>&1 < /dev/null & id=$!
echo $id > "$2.pid"; cat > /dev/null; kill -9 $id; wait $id 2> /dev/null"#;

/// A cluster in a temporary folder.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    program: PathBuf,
    /// The ports of each node: of the cluster, the ingress and the admin API.
    ports: Vec<[u16; 3]>,
    /// The addresses of the nodes, which each have a network of their own in the namespaces of [`crate::partition`].
    hosts: Vec<String>,
    nodes: Vec<Option<Child>>,
}

impl Cluster {
    /// Starts a cluster with this number of nodes; `None` if the server is not installed.
    pub(crate) fn start(nodes: usize) -> Option<Self> {
        Self::start_at(vec!["127.0.0.1".to_owned(); nodes])
    }

    /// Starts a cluster whose nodes have these addresses.
    pub(crate) fn start_at(hosts: Vec<String>) -> Option<Self> {
        let Some(program) = program() else {
            superstep_testing::skipped(
                "the Restate server is not installed; crates/restate/tests/install.sh does",
            );
            return None;
        };
        let folder = tempfile::Builder::new().prefix("superstep-restate").tempdir().unwrap();
        let nodes = hosts.len();
        let ports: Vec<[u16; 3]> = (0..nodes).map(|_| free_ports()).collect();
        let mut cluster = Self { folder, program, ports, hosts, nodes: Vec::new() };
        for nth in 0..nodes {
            fs::write(cluster.settings(nth), cluster.toml(nth)).unwrap();
            let node = cluster.spawn(nth);
            cluster.nodes.push(Some(node));
        }
        let begun = Instant::now();
        while !(0..nodes).all(|nth| cluster.is_ready(nth)) {
            assert!(begun.elapsed() < PATIENCE, "the cluster does not start: {}", cluster.log());
            pause();
        }
        Some(cluster)
    }

    pub(crate) fn len(&self) -> usize {
        self.ports.len()
    }

    /// Returns a client that knows all nodes.
    pub(crate) fn client(&self) -> Restate {
        let others = 1..self.len();
        others.fold(self.client_of(0), |client, nth| {
            let [_, ingress, admin] = self.ports[nth];
            client.ingress(&self.url(nth, ingress)).unwrap().admin(&self.url(nth, admin)).unwrap()
        })
    }

    /// Returns a client that knows one node.
    pub(crate) fn client_of(&self, nth: usize) -> Restate {
        let [_, ingress, admin] = self.ports[nth];
        Restate::connect(&self.url(nth, ingress)).unwrap().admin(&self.url(nth, admin)).unwrap()
    }

    fn url(&self, nth: usize, port: u16) -> String {
        format!("http://{}:{port}", self.hosts[nth])
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Kills a node.
    pub(crate) fn kill(&mut self, nth: usize) {
        drop_node(self.nodes[nth].take());
    }

    /// Stops a node as a pause of its machine does, or lets it go on.
    pub(crate) fn pause(&self, nth: usize, is_paused: bool) {
        let id = fs::read_to_string(self.settings(nth).with_extension("toml.pid")).unwrap();
        let id = Pid::from_raw(id.trim().parse().unwrap()).unwrap();
        kill_process(id, if is_paused { Signal::STOP } else { Signal::CONT }).unwrap();
    }

    /// Starts a node that was killed.
    pub(crate) fn start_again(&mut self, nth: usize) {
        self.nodes[nth] = Some(self.spawn(nth));
    }

    fn spawn(&self, nth: usize) -> Child {
        let mut guard = Command::new("setsid");
        guard.args(["--wait", "sh", "-c", GUARD, "guard"]).arg(&self.program).arg(self.settings(nth));
        if !self.hosts[nth].starts_with("127.") {
            guard.arg(crate::partition::within(nth));
        }
        guard.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        guard.spawn().unwrap()
    }

    fn settings(&self, nth: usize) -> PathBuf {
        self.folder.path().join(format!("n{nth}.toml"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.settings(0).with_extension("toml.log")).unwrap_or_default()
    }

    fn is_ready(&self, nth: usize) -> bool {
        let [_, ingress, admin] = self.ports[nth];
        let host = &*self.hosts[nth];
        is_healthy((host, admin), "/health") && is_healthy((host, ingress), "/restate/health")
    }

    fn toml(&self, nth: usize) -> String {
        let ([node, ingress, admin], is_first) = (self.ports[nth], nth == 0);
        let host = &self.hosts[nth];
        let all =
            self.ports.iter().enumerate().map(|(nth, [node, ..])| format!("\"{}\"", self.url(nth, *node)));
        let all: Vec<_> = all.collect();
        let (all, replication) = (all.join(", "), if self.len() > 2 { 2 } else { 1 });
        let data = self.folder.path().join(format!("n{nth}"));
        let data = data.display();
        format!(
            r#"cluster-name = "test"
node-name = "n{nth}"
base-dir = "{data}"
bind-ip = "{host}"
bind-port = {node}
advertised-address = "http://{host}:{node}"
listen-mode = "tcp"
disable-telemetry = true
default-num-partitions = 8
default-replication = {replication}
rocksdb-total-memory-size = "384MB"
auto-provision = {is_first}
roles = ["http-ingress", "admin", "worker", "log-server", "metadata-server"]
[metadata-client]
addresses = [{all}]
[bifrost]
default-provider = "replicated"
[admin]
bind-port = {admin}
[ingress]
bind-port = {ingress}
"#
        )
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.drain(..).for_each(drop_node);
    }
}

fn drop_node(node: Option<Child>) {
    let Some(mut node) = node else { return };
    drop(node.stdin.take());
    node.wait().unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}
