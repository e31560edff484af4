//! A Restate server for the tests of this process, in a temporary folder.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::Duration,
};

use superstep_restate::Restate;
use tokio::time::Instant;

static NODE: LazyLock<Option<Node>> = LazyLock::new(Node::start);

/// The server of this process; `None` if it is not installed.
pub(crate) fn shared() -> Option<&'static Node> {
    let node = NODE.as_ref();
    if node.is_none() {
        superstep_testing::skipped(
            "the Restate server is not installed; crates/restate/tests/install.sh does",
        );
    }
    node
}

/// A running server.
pub(crate) struct Node {
    folder: PathBuf,
    pub(crate) ingress: u16,
    pub(crate) admin: u16,
    /// Ends the server and removes its folder when its input ends, which is when this process ends.
    guard: Child,
}

/// The script of that process: a session of its own, because servers die with their process group.
const GUARD: &str = r#"DO_NOT_TRACK=1 "$2" --no-logo -c "$1/node.toml" > "$1/log" 2>&1 < /dev/null & id=$!
echo $id > "$1/pid"; cat > /dev/null
kill -9 $id; wait $id 2> /dev/null; rm -rf -- "$1""#;

/// The longest start of a server, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

impl Node {
    /// Starts a server; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| String::new())
    }

    /// Starts a server with more settings, which may name files in its folder.
    pub(crate) fn start_with(more: impl FnOnce(&Path) -> String) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::Builder::new().prefix("superstep-restate").tempdir().unwrap().keep();
        let [node, ingress, admin] = free_ports();
        let (shown, more) = (folder.display(), more(&folder));
        let settings = format!(
            r#"{more}
cluster-name = "test"
node-name = "n1"
base-dir = "{shown}/data"
bind-ip = "127.0.0.1"
bind-port = {node}
advertised-address = "http://127.0.0.1:{node}"
listen-mode = "tcp"
disable-telemetry = true
default-num-partitions = 4
rocksdb-total-memory-size = "256MB"
auto-provision = true
roles = ["http-ingress", "admin", "worker", "log-server", "metadata-server"]
[metadata-client]
addresses = ["http://127.0.0.1:{node}"]
[admin]
bind-port = {admin}
[ingress]
bind-port = {ingress}
# The service has a policy of its own.
[default-retry-policy]
initial-interval = "10ms"
max-attempts = 3
on-max-attempts = "pause"
[log-server]
rocksdb-disable-wal-fsync = true
[metadata-server]
rocksdb-disable-wal-fsync = true
"#
        );
        fs::write(folder.join("node.toml"), settings).unwrap();
        let mut guard = Command::new("setsid");
        guard.args(["--wait", "sh", "-c", GUARD, "guard"]).arg(&folder).arg(program).process_group(0);
        let guard = guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Self { folder, ingress, admin, guard };
        started.wait();
        Some(started)
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
    fn wait(&self) {
        let begun = Instant::now();
        while !(is_healthy(("127.0.0.1", self.admin), "/health")
            && is_healthy(("127.0.0.1", self.ingress), "/restate/health"))
        {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "the server does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns a client of it.
    pub(crate) fn client(&self) -> Restate {
        let url = |port| format!("http://127.0.0.1:{port}");
        Restate::connect(&url(self.ingress)).unwrap().admin(&url(self.admin)).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        self.guard.wait().unwrap();
    }
}

pub(crate) fn program() -> Option<PathBuf> {
    let installed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/restate/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
    );
    let named = std::env::var_os("SUPERSTEP_RESTATE_SERVER").map(PathBuf::from);
    named.into_iter().chain([Path::new(installed).to_owned()]).find(|path| path.exists())
}

/// Returns ports that are free now.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: [TcpListener; N] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

pub(crate) fn is_healthy(address: (&str, u16), path: &str) -> bool {
    use std::io::{Read as _, Write as _};

    let Ok(mut stream) = std::net::TcpStream::connect(address) else { return false };
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    let mut reply = String::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut reply).is_ok()
        && reply.starts_with("HTTP/1.1 200")
}
