//! Clusters whose nodes can be killed, each of a test of its own.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use superstep_restate::Restate;
use tokio::time::Instant;

use crate::node::{free_ports, is_healthy, program};

/// The longest start of a cluster, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(90);

/// Ends a node when its input ends, which is when this process ends or drops it.
const GUARD: &str = r#"DO_NOT_TRACK=1 "$1" --no-logo -c "$2" >> "$2.log" 2>&1 < /dev/null & id=$!
cat > /dev/null; kill -9 $id; wait $id 2> /dev/null"#;

/// A cluster in a temporary folder.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    program: PathBuf,
    /// The ports of each node: of the cluster, the ingress and the admin API.
    ports: Vec<[u16; 3]>,
    nodes: Vec<Option<Child>>,
}

impl Cluster {
    /// Starts a cluster with this number of nodes; `None` if the server is not installed.
    pub(crate) fn start(nodes: usize) -> Option<Self> {
        let Some(program) = program() else {
            superstep_testing::skipped(
                "the Restate server is not installed; crates/restate/tests/install.sh does",
            );
            return None;
        };
        let folder = tempfile::Builder::new().prefix("superstep-restate").tempdir().unwrap();
        let ports: Vec<[u16; 3]> = (0..nodes).map(|_| free_ports()).collect();
        let mut cluster = Self { folder, program, ports, nodes: Vec::new() };
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
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let [[_, ingress, admin], others @ ..] = &self.ports[..] else { panic!("a cluster has a node") };
        let first = Restate::connect(&url(*ingress)).unwrap().admin(&url(*admin)).unwrap();
        others.iter().fold(first, |client, [_, ingress, admin]| {
            client.ingress(&url(*ingress)).unwrap().admin(&url(*admin)).unwrap()
        })
    }

    /// Kills a node.
    pub(crate) fn kill(&mut self, nth: usize) {
        drop_node(self.nodes[nth].take());
    }

    /// Starts a node that was killed.
    pub(crate) fn start_again(&mut self, nth: usize) {
        self.nodes[nth] = Some(self.spawn(nth));
    }

    fn spawn(&self, nth: usize) -> Child {
        let mut guard = Command::new("setsid");
        guard.args(["--wait", "sh", "-c", GUARD, "guard"]).arg(&self.program).arg(self.settings(nth));
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
        is_healthy(admin, "/health") && is_healthy(ingress, "/restate/health")
    }

    fn toml(&self, nth: usize) -> String {
        let ([node, ingress, admin], is_first) = (self.ports[nth], nth == 0);
        let all: Vec<_> =
            self.ports.iter().map(|[node, ..]| format!("\"http://127.0.0.1:{node}\"")).collect();
        let (all, replication) = (all.join(", "), if self.len() > 2 { 2 } else { 1 });
        let data = self.folder.path().join(format!("n{nth}"));
        let data = data.display();
        format!(
            r#"cluster-name = "test"
node-name = "n{nth}"
base-dir = "{data}"
bind-ip = "127.0.0.1"
bind-port = {node}
advertised-address = "http://127.0.0.1:{node}"
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
