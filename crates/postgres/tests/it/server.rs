//! A server of PostgreSQL for the tests of this process, in a temporary folder: on a socket of the file system, so that no port is
//! taken.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

static SERVER: LazyLock<Option<Server>> = LazyLock::new(|| Server::start(&["fsync=off"]));

/// The server of this process; `None` where PostgreSQL is not installed.
pub(crate) fn shared() -> Option<&'static Server> {
    let server = SERVER.as_ref();
    if server.is_none() {
        superstep_testing::skipped("PostgreSQL is not installed");
    }
    server
}

/// A running server.
pub(crate) struct Server {
    folder: PathBuf,
    /// The folder of its programs; `None` for those of the path.
    programs: Option<PathBuf>,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
    schemas: AtomicU32,
    /// Ends the server and removes its folder when its input ends, which is when this process ends.
    _guard: Child,
}

/// The script of that process. A server writes its id to the first line of a file.
const GUARD: &str = r#"cat > /dev/null; id=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null)
if [ -n "$id" ]; then kill -QUIT "$id"; while kill -0 "$id" 2> /dev/null; do sleep 0.05; done; fi
rm -rf -- "$1""#;

impl Server {
    /// Starts a server with some settings; `None` if it is not installed.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        Self::start_from(None, settings)
    }

    /// Starts a server whose programs are in a folder.
    pub(crate) fn start_from(programs: Option<&Path>, settings: &[&str]) -> Option<Self> {
        let initdb = program(programs, "initdb")?;
        // The path of a socket is short.
        let folder = tempfile::Builder::new().prefix("superstep-pg").tempdir_in("/tmp").unwrap().keep();
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard"]).arg(&folder).process_group(0).stdin(Stdio::piped());
        let guard = guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // A server refuses to run as root.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let data = folder.join("data");
        let mut made = plain(&initdb);
        made.args([OsStr::new("-D"), data.as_os_str()]);
        made.args(["--username=test", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        let made = made.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let programs = programs.map(Path::to_owned);
        let (child, schemas) = (Mutex::new(None), AtomicU32::new(0));
        let server = Self { folder, programs, settings, child, schemas, _guard: guard };
        server.run();
        Some(server)
    }

    /// Starts the process, and waits until it accepts connections.
    pub(crate) fn run(&self) {
        self.run_with(&self.settings);
    }

    /// Starts the process with other settings than the first time.
    pub(crate) fn run_with(&self, settings: &[impl AsRef<str>]) {
        assert!(self.try_run_with(settings), "the server ended");
    }

    /// Starts the process with other settings; returns `false` if it ends, as it does if its port is taken.
    pub(crate) fn try_run_with(&self, settings: &[impl AsRef<str>]) -> bool {
        let data = self.folder.join("data");
        let mut command = plain(&program(self.programs.as_deref(), "postgres").unwrap());
        command.arg("-D").arg(&data).arg("-k").arg(&self.folder).args(["-c", "listen_addresses="]);
        for setting in settings {
            command.args(["-c", setting.as_ref()]);
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready to accept connections") {
            line.clear();
            if log.read_line(&mut line).unwrap() == 0 {
                child.wait().unwrap();
                return false;
            }
        }
        // What it says later must not fill the pipe.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        true
    }

    /// Stops the process at once, without a checkpoint of its own, as a crash does.
    pub(crate) fn stop(&self) {
        if let Some(mut child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        url_of(&self.folder)
    }

    /// Returns the folder with its socket.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the name of a fresh schema.
    pub(crate) fn schema(&self) -> String {
        format!("test_{}", self.schemas.fetch_add(1, Ordering::Relaxed))
    }

    /// Executes SQL as another program does, and returns its output.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let mut psql = Command::new("psql");
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            "--username=test",
        ]);
        psql.arg("--host").arg(&self.folder).arg("postgres").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.spawn().unwrap();
        child.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{sql}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// Returns the URL of the server with its socket in a folder.
pub(crate) fn url_of(folder: &Path) -> String {
    let folder = folder.display().to_string().replace('/', "%2F");
    format!("postgres://test:s3cret@{folder}/postgres")
}

/// Finds a program of the server.
fn program(programs: Option<&Path>, name: &str) -> Option<PathBuf> {
    if let Some(folder) = programs {
        return Some(folder.join(name));
    }
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())?;
    found.canonicalize().ok()
}

/// Returns a command that does not run as root.
fn plain(program: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/").process_group(0);
    command
}
