//! Shared helpers of the tests: a working folder, and one function to start the program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use superstep_testing::{script::Answer, script::Script, wire::WireServer};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// A limit longer than any test.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// A folder with some files, and a secret outside of it.
pub(crate) struct Place {
    dir: TempDir,
}

/// The end of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The running program.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        fs::write(dir.path().join("secret.txt"), "the secret\n").unwrap();
        let place = Self { dir };
        place.file("notes.txt", "first line\nthe needle is here\nlast line\n");
        place
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Returns a path next to the folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, content: &str) {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Returns the user's state folder on this machine.
    pub(crate) fn state_folder(&self) -> PathBuf {
        self.beside("state")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.work().join(".superstep/threads.db")
    }

    /// Returns the program's command in the folder, without environment variables that it reads.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bare(Path::new(env!("CARGO_BIN_EXE_superstep")));
        command.args(args);
        command
    }

    /// Creates the program's command as for another user on another machine, identified by name.
    pub(crate) fn command_of(&self, user: &str, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.env("SUPERSTEP_STATE_DIR", self.beside(user));
        command
    }

    /// Returns the command of any program in the folder.
    pub(crate) fn bare(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.work())
            .env_remove("OPENAI_BASE_URL")
            .env_remove("OPENAI_MODEL")
            .env_remove("OPENAI_API_KEY")
            .env_remove("ANTHROPIC_BASE_URL")
            .env_remove("ANTHROPIC_API_KEY")
            .env_remove("GEMINI_BASE_URL")
            .env_remove("GEMINI_API_KEY")
            .env_remove("GOOGLE_API_KEY")
            .env_remove("GOOGLE_ACCESS_TOKEN")
            .env_remove("GOOGLE_ACCESS_TOKEN_COMMAND")
            .env_remove("GOOGLE_CLOUD_PROJECT")
            .env_remove("GOOGLE_CLOUD_LOCATION")
            .env_remove("SUPERSTEP_DB")
            .env_remove("SUPERSTEP_TRUST_FOLDER")
            .env_remove("SUPERSTEP_KEY")
            .env_remove("SUPERSTEP_OLD_KEY")
            .env_remove("SUPERSTEP_REQUIRE_ENCRYPTION")
            .env_remove("RUST_LOG")
            .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
            .env_remove("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .env_remove("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
            .env_remove("TRACEPARENT")
            .env("SUPERSTEP_LOCAL_SERVERS", "")
            .env("SUPERSTEP_STATE_DIR", self.state_folder())
            .env("XDG_CONFIG_HOME", self.beside("config"))
            .env("NO_PROXY", "*")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        ended(&mut self.command(args)).await
    }

    /// Returns the command of the example program with graphs of its own.
    pub(crate) fn own_command(&self, args: &[&str]) -> Command {
        let mut command = self.bare(&example("own_program"));
        command.args(args);
        command
    }

    /// Runs the example program with graphs of its own.
    pub(crate) async fn own(&self, args: &[&str]) -> Ran {
        ended(&mut self.own_command(args)).await
    }

    /// Runs it with text on stdin.
    pub(crate) async fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Ran {
        ended_with_stdin(self.command(args), stdin).await
    }

    /// Starts it with its stdout read line by line.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::of(self.command(args))
    }

    /// Returns the output of `state --json` for a thread.
    pub(crate) async fn state(&self, thread: &str) -> Value {
        let ran = self.run(&["state", thread, "--json"]).await.ok();
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// Returns the steps and next nodes of a thread's checkpoints, newest first.
    pub(crate) async fn steps(&self, thread: &str) -> Vec<Value> {
        let ran = self.run(&["history", thread, "--json"]).await.ok();
        ran.lines().into_iter().map(|line| line["control"].clone()).collect()
    }
}

impl Ran {
    pub(crate) fn of(output: std::process::Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Asserts success.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Asserts that it ended with this code and this error, and without stdout.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, error: &str) -> Self {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{self:?}");
        assert!(
            self.stderr.ends_with(&format!("error: {error}\n")),
            "wanted: {error}\n got: {}",
            self.stderr
        );
        self
    }

    /// Parses the lines of stdout as JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the thread of the `final` line.
    pub(crate) fn thread(&self) -> String {
        let last = self.lines().pop().unwrap();
        last["data"]["thread"].as_str().unwrap().to_owned()
    }
}

impl Running {
    /// Starts a program.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads the next line of stdout; `None` at its end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        timeout(LIMIT, self.lines.next_line()).await.expect("it goes on").unwrap()
    }

    /// Reads until a line has this text.
    pub(crate) async fn line_with(&mut self, text: &str) {
        while !self.line().await.expect("the line comes").contains(text) {}
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs");
        let kill = std::process::Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status();
        assert!(kill.unwrap().success());
    }

    /// Closes its stdout and waits for the end.
    pub(crate) async fn unread(self) -> Ran {
        drop(self.lines);
        Ran::of(timeout(LIMIT, self.child.wait_with_output()).await.expect("it ends").unwrap())
    }

    /// Waits for the end; stdout is the unread rest.
    pub(crate) async fn end(mut self) -> Ran {
        let mut stdout = String::new();
        while let Some(line) = self.line().await {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        let output = timeout(LIMIT, self.child.wait_with_output()).await.expect("it ends").unwrap();
        Ran { stdout, ..Ran::of(output) }
    }
}

/// Runs a program with text on stdin.
pub(crate) async fn ended_with_stdin(mut command: Command, stdin: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // The program may end before it has read all of it.
    let _ = pipe.write_all(stdin).await;
    drop(pipe);
    Ran::of(timeout(LIMIT, child.wait_with_output()).await.expect("it ends").unwrap())
}

/// Returns the built example of this name, which `cargo test` builds if no target is selected.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).expect("a test is in target/PROFILE/deps");
    let file = folder.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(file.exists(), "build the examples: cargo build --workspace --all-features --examples");
    file
}

pub(crate) async fn ended(command: &mut Command) -> Ran {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    Ran::of(timeout(LIMIT, output).await.expect("it ends").unwrap())
}

pub(crate) async fn serve(answers: impl IntoIterator<Item = Answer>) -> WireServer {
    WireServer::start(Script::new(answers)).await.unwrap()
}

/// Waits until this number of requests has arrived.
pub(crate) async fn received(server: &WireServer, requests: usize) {
    let waiting = async {
        while server.received().len() < requests {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, waiting).await.expect("the requests come");
}
