//! `shell`: runs a command, after approval.
//!
//! Start at [`shell()`].

mod ends;

use std::{collections::BTreeSet, io, path::Path, process::ExitStatus, sync::Arc, time::Duration};

#[cfg(unix)]
use process_wrap::tokio::{CommandWrap, CommandWrapper as _, ProcessSession};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use superstep_llm::{
    Behaviour, Subject, Tool, ToolCx, ToolError, ToolFuture, ToolSpec,
    telemetry::trace_headers,
    text::{printable, printable_line},
    timers::check_timers,
    variables::is_secret,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::{Instant, sleep_until},
};

use self::ends::{HeadAndTail, TextDecoder};
use crate::{
    call::cancelled,
    settings::ShellSettings,
    workspace::{Workspace, root::replaced},
};

/// The user has to read the command before approving it.
const MAX_COMMAND_BYTES: usize = 4 << 10;
const DEFAULT_SECONDS: u64 = 60;
const MAX_SECONDS: u64 = 600;
/// Time to wait for output that a remaining process holds open after the rest was killed.
const LINGER: Duration = Duration::from_millis(500);

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shell {
    /// The command, for `sh -c`.
    command: String,
    /// The folder to run it in; the workspace root if left out.
    cwd: Option<String>,
    /// When to end it, from 1 to 600 seconds; 60 if left out.
    timeout_seconds: Option<u64>,
}

impl Shell {
    /// Checks the arguments alone.
    fn parse(args: &Value) -> Result<Self, ToolError> {
        let wrong = |why: String| Err(ToolError::InvalidArguments(why));
        let args = Self::deserialize(args).map_err(|error| ToolError::InvalidArguments(error.to_string()))?;
        if args.command.trim().is_empty() {
            return wrong("`command` is empty".into());
        }
        if args.command.len() > MAX_COMMAND_BYTES {
            return wrong(format!(
                "`command` is longer than {MAX_COMMAND_BYTES} bytes; write a script with `write_file` and run that"
            ));
        }
        if args.command.contains('\0') {
            return wrong("`command` has a zero byte in it".into());
        }
        if !(1..=MAX_SECONDS).contains(&args.seconds()) {
            return wrong(format!("`timeout_seconds` is from 1 to {MAX_SECONDS}, got {}", args.seconds()));
        }
        Ok(args)
    }

    fn seconds(&self) -> u64 {
        self.timeout_seconds.unwrap_or(DEFAULT_SECONDS)
    }
}

/// The tool `shell{command, cwd?, timeout_seconds?}`: runs a command of the system's shell, after approval.
///
/// It starts in the workspace, without input and without the environment variables that may be secret ([`is_secret`]). Its
/// output is streamed, and truncated in the middle while it is read, which bounds the memory. When the shell
/// ends, times out, or the call is cancelled or dropped, all processes of its group are killed.
/// # Limits
/// The command is not confined. It can do everything that the user can, also outside of the
/// workspace, can read this program's memory, and can leave its process group to live on. Read each command
/// before approving it.
pub fn shell(workspace: &Workspace) -> impl Tool + use<> {
    shell_with(workspace, ShellSettings::default())
}

/// Creates the same tool, whose commands also get the variables that the settings name.
pub fn shell_with(workspace: &Workspace, settings: ShellSettings) -> impl Tool + use<> {
    Run {
        workspace: workspace.clone(),
        settings: settings.into(),
        spec: ToolSpec::of::<Shell>(
            "shell",
            "Runs a command with `sh -c` and tells its output and exit code. There is no input and no terminal. What it \
             leaves running in the background is ended with it. A person may be asked first.",
        ),
    }
}

struct Run {
    workspace: Workspace,
    settings: Arc<ShellSettings>,
    spec: ToolSpec,
}

impl Tool for Run {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        // The call sets its own timeout.
        let timeout = Some(Duration::from_secs(MAX_SECONDS) + 2 * LINGER);
        Behaviour { exclusive: true, timeout, ..Behaviour::default() }
    }

    fn approval(&self, args: &Value) -> Option<String> {
        let args = Shell::parse(args).ok()?;
        let place = args.cwd.map(|cwd| format!(" in {}", printable_line(&cwd))).unwrap_or_default();
        Some(format!("run{place}:\n{}", printable(&args.command)))
    }

    fn changes_files(&self) -> Option<bool> {
        Some(true)
    }

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        let given = args[argument].as_str();
        match argument {
            "command" if cfg!(unix) => Some(Subject::Command(given?.to_owned())),
            // The shells of other systems parse lines differently.
            "command" => Some(Subject::Unknown),
            "cwd" => Some(self.workspace.subject(given.unwrap_or("."), false)),
            _ => None,
        }
    }

    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Tool>>> {
        let workspace = Workspace::open_real(folder)?;
        Ok(Some(Arc::new(Self { workspace, settings: self.settings.clone(), spec: self.spec.clone() })))
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            let args = Shell::parse(&args)?;
            check_timers()?;
            let found = self.workspace.find(args.cwd.as_deref().unwrap_or("."))?;
            if !found.real.is_dir() {
                return Err(ToolError::Failed(format!("path '{}' is not a directory", found.shown)));
            }
            let failed = |error: io::Error| ToolError::Failed(format!("the command cannot be run: {error}"));
            if cx.cancel.is_cancelled() {
                return Err(cancelled());
            }
            // The path may have changed since the call was permitted.
            if !cx.permits("cwd", &self.workspace.subject(args.cwd.as_deref().unwrap_or("."), false)) {
                return Err(replaced(&found.shown));
            }
            let mut running = Running::start(&args.command, &found.real, &self.settings).map_err(failed)?;
            let mut output = HeadAndTail::default();
            let ended = tokio::select! {
                biased;
                () = cx.cancel.cancelled() => return Err(cancelled()),
                ended = running.follow(&mut output, &cx, Duration::from_secs(args.seconds())) => ended.map_err(failed)?,
            };
            let output = output.into_text();
            match ended {
                Some(status) => {
                    let hint = if status.success() { None } else { running.withheld_in(&args.command) };
                    Ok((text_of(&output, status) + &hint.unwrap_or_default()).into())
                }
                None => Err(ToolError::Failed(format!(
                    "the command took longer than {} s and was ended; its output until then:\n{output}",
                    args.seconds()
                ))),
            }
        })
    }
}

fn text_of(output: &str, status: ExitStatus) -> String {
    let ended = match status.code() {
        Some(code) => format!("exit code {code}"),
        None => format!("no exit code: {status}"),
    };
    match output.trim_end_matches('\n') {
        "" => format!("[no output, {ended}]"),
        output => format!("{output}\n[{ended}]"),
    }
}

/// A shell and its process group, killed on drop.
struct Running {
    child: Child,
    /// The variables that the command does not get, because they may be secret.
    withheld: Vec<String>,
    /// The process group, until the shell was waited for.
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
}

impl Running {
    fn start(command: &str, directory: &Path, settings: &ShellSettings) -> io::Result<Self> {
        let mut shell = shell_command(command);
        shell.current_dir(directory).env("TERM", "dumb").kill_on_drop(true);
        shell.stdin(std::process::Stdio::null());
        shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut withheld = Vec::new();
        for (name, value) in std::env::vars_os() {
            let text = name.to_string_lossy().into_owned();
            if is_secret(&text, &value.to_string_lossy()) && !settings.env.contains(&text) {
                shell.env_remove(name);
                withheld.push(text);
            }
        }
        // Programs that export their spans continue the trace of this call.
        for (name, value) in trace_headers() {
            shell.env(name.to_ascii_uppercase(), value);
        }
        // A session of its own has no terminal: no keys are read from it, and nothing is written to the screen.
        #[cfg(unix)]
        ProcessSession.pre_spawn(&mut shell, &CommandWrap::with_new("", |_| {}))?;
        let child = shell.spawn()?;
        Ok(Self {
            #[cfg(unix)]
            group: child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)),
            child,
            withheld,
        })
    }

    /// Returns a line about the withheld variables that a command names.
    fn withheld_in(&self, command: &str) -> Option<String> {
        let words: BTreeSet<&str> = command.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let named: Vec<&str> =
            self.withheld.iter().map(String::as_str).filter(|name| words.contains(name)).collect();
        let (first, all) = (named.first()?, named.join("`, `"));
        Some(format!(
            "\n[commands do not get `{all}`, unless the user names it in the configuration: `[shell] env = [\"{first}\"]`]"
        ))
    }

    /// Streams the output until the command ends. Returns `None` on timeout.
    async fn follow(
        &mut self,
        output: &mut HeadAndTail,
        cx: &ToolCx,
        limit: Duration,
    ) -> io::Result<Option<ExitStatus>> {
        let mut stdout = self.child.stdout.take();
        let mut stderr = self.child.stderr.take();
        let (mut from_stdout, mut from_stderr) = ([0; 8 << 10], [0; 8 << 10]);
        let (mut of_stdout, mut of_stderr) = (TextDecoder::default(), TextDecoder::default());
        let mut until = Instant::now() + limit;
        let mut status = None;
        while status.is_none() || stdout.is_some() || stderr.is_some() {
            tokio::select! {
                () = sleep_until(until) => {
                    self.end();
                    break;
                }
                read = read(&mut stdout, &mut from_stdout) => {
                    let bytes = read?;
                    cx.output(&of_stdout.text(bytes));
                    output.push(bytes);
                }
                read = read(&mut stderr, &mut from_stderr) => {
                    let bytes = read?;
                    cx.output(&of_stderr.text(bytes));
                    output.push(bytes);
                }
                ended = self.child.wait(), if status.is_none() => {
                    status = Some(ended?);
                    self.end();
                    until = Instant::now() + LINGER;
                }
            }
        }
        Ok(status)
    }

    /// Kills the process group; once, because its number may be reused later.
    fn end(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.group.take() {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        // Without process groups, at least the shell itself. A shell that has already ended needs nothing.
        let _ = self.child.start_kill();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(unix)]
fn shell_command(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    shell
}

#[cfg(not(unix))]
fn shell_command(command: &str) -> Command {
    let mut shell = Command::new("cmd");
    shell.arg("/C").arg(command);
    shell
}

/// Reads the available bytes; removes the pipe at its end.
async fn read<'a, R: AsyncRead + Unpin>(pipe: &mut Option<R>, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let Some(open) = pipe else { return std::future::pending().await };
    let count = open.read(buffer).await?;
    if count == 0 {
        *pipe = None;
    }
    Ok(&buffer[..count])
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;

    use serde_json::json;
    use superstep_llm::variables::withhold;
    use tokio::time::timeout;

    use super::*;
    use crate::{
        testing::{self, call, cx, refusal},
        workspace::testing::TestWorkspace,
    };

    fn args(command: &str) -> Value {
        json!({ "command": command })
    }

    /// Returns whether the process whose number was written to `file` is running.
    fn lives(place: &TestWorkspace, file: &str) -> bool {
        let id: i32 = fs::read_to_string(place.at(file)).unwrap().trim().parse().unwrap();
        let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // A zombie is still listed.
        !state.is_empty() && !state.contains(") Z ")
    }

    async fn dies(place: &TestWorkspace, file: &str) {
        let gone = async {
            while lives(place, file) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), gone).await.expect("it ends");
    }

    async fn appears(place: &TestWorkspace, file: &str) {
        let there = async {
            while fs::read_to_string(place.at(file)).unwrap_or_default().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), there).await.expect("it comes");
    }

    #[tokio::test]
    async fn reports_output_while_it_runs() {
        let place = TestWorkspace::new();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let cx = cx().with_output(move |chunk| tell.send(chunk.to_owned()).expect("somebody listens"));
        let tool = shell(&place.workspace);
        // The command ends once its output was received.
        let running = tool.call(args("printf 'é'; until [ -e heard ]; do sleep 0.01; done; echo b"), cx);
        let listening = async {
            assert_eq!(told.recv().await.as_deref(), Some("é"));
            place.file("heard", "");
            assert_eq!(told.recv().await.as_deref(), Some("b\n"));
        };
        let (ran, ()) = tokio::join!(running, listening);
        assert_eq!(ran.unwrap().text, "éb\n[exit code 0]");
    }

    #[tokio::test]
    async fn reports_the_output_and_the_exit_code() {
        let place = TestWorkspace::new();
        place.file("sub/a", "");
        let tool = shell(&place.workspace);
        assert_eq!(
            call(&tool, args("echo out; echo err >&2; exit 3")).await.lines().last(),
            Some("[exit code 3]")
        );
        assert_eq!(call(&tool, args("true")).await, "[no output, exit code 0]");
        assert_eq!(call(&tool, json!({"command": "ls; pwd -P", "cwd": "sub"})).await, {
            format!("a\n{}\n[exit code 0]", place.at("sub").canonicalize().unwrap().display())
        });
        assert_eq!(call(&tool, args("cat; echo done")).await, "done\n[exit code 0]", "there is no input");
        let killed = call(&tool, args("kill -9 $$")).await;
        assert_eq!(killed, "[no output, no exit code: signal: 9 (SIGKILL)]");
        assert_eq!(call(&tool, args("printf 'a\\377b'")).await, "a\u{fffd}b\n[exit code 0]");
    }

    #[tokio::test]
    async fn much_output_is_cut_in_the_middle_while_it_is_read() {
        let place = TestWorkspace::new();
        let text =
            call(&shell(&place.workspace), args("echo first; yes | head -c 50000000; echo last")).await;
        assert!(text.len() < 70_000, "{}", text.len());
        assert!(text.starts_with("first\ny\n") && text.ends_with("y\nlast\n[exit code 0]"));
        assert!(text.contains("bytes left out"));
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
        let place = TestWorkspace::new();
        let tool = shell(&place.workspace);
        let long = "sleep 1000 & echo $! > id; echo begun; wait";
        let text = refusal(&tool, json!({"command": long, "timeout_seconds": 1})).await;
        assert_eq!(text, "the command took longer than 1 s and was ended; its output until then:\nbegun\n");
        dies(&place, "id").await;
    }

    #[tokio::test]
    async fn background_processes_are_killed_and_not_waited_for() {
        let place = TestWorkspace::new();
        let text = call(&shell(&place.workspace), args("sleep 1000 & echo $! > id; echo done")).await;
        assert_eq!(text, "done\n[exit code 0]");
        dies(&place, "id").await;
    }

    #[tokio::test]
    async fn a_cancelled_or_dropped_call_kills_its_processes() {
        for drops in [false, true] {
            let place = TestWorkspace::new();
            let (tool, cx) = (shell(&place.workspace), cx());
            let cancel = cx.cancel.clone();
            let mut calling = tool.call(args("sh -c 'echo $$ > id; exec sleep 1000'"), cx);
            tokio::select! {
                ended = &mut calling => panic!("{ended:?}"),
                () = appears(&place, "id") => {}
            }
            assert!(lives(&place, "id"));
            if !drops {
                cancel.cancel();
                assert_eq!((&mut calling).await, Err(ToolError::Failed("cancelled".into())));
            }
            drop(calling);
            dies(&place, "id").await;
        }
        let place = TestWorkspace::new();
        let outcome = testing::cancelled(&shell(&place.workspace), args("touch made")).await;
        assert_eq!(outcome, Err(ToolError::Failed("cancelled".into())));
        assert!(!place.at("made").exists());
    }

    #[tokio::test]
    async fn rejects_invalid_commands_and_folders() {
        let place = TestWorkspace::new();
        place.file("file", "");
        place.file(".git/x", "");
        let tool = shell(&place.workspace);
        let at = |cwd: &str| json!({"command": "true", "cwd": cwd});
        for (args, expected) in [
            (args(" "), "`command` is empty"),
            (args("a\0b"), "`command` has a zero byte in it"),
            (
                args(&"x".repeat(4_097)),
                "`command` is longer than 4096 bytes; write a script with `write_file` and run that",
            ),
            (
                json!({"command": "true", "timeout_seconds": 601}),
                "`timeout_seconds` is from 1 to 600, got 601",
            ),
            (at(".."), "path '..' is outside the workspace root; use a path below it"),
            (at(".git"), "path '.git' is reserved: `.git` and `.superstep` are out of reach"),
            (at("missing"), "path 'missing' not found in the workspace"),
            (at("file"), "path 'file' is not a directory"),
        ] {
            assert_eq!(refusal(&tool, args).await, expected);
        }
    }

    #[tokio::test]
    async fn a_command_does_not_see_the_secrets() {
        // Cargo sets its own variables for tests; a configuration may name any of them as a key. PATH has to stay.
        withhold("CARGO_PKG_DESCRIPTION");
        let place = TestWorkspace::new();
        let seen = call(&shell(&place.workspace), args("env")).await;
        assert!(seen.contains("PATH=") && seen.contains("TERM=dumb"), "{seen}");
        assert!(std::env::var_os("CARGO_PKG_DESCRIPTION").is_some(), "cargo sets it");
        assert!(seen.contains("CARGO_PKG_NAME=") && !seen.contains("CARGO_PKG_DESCRIPTION="), "{seen}");
        let mut seen_ones = seen.lines().filter_map(|line| line.split_once('='));
        assert!(!seen_ones.any(|(name, value)| is_secret(name, value)), "{seen}");
        let named = args("test -n \"$CARGO_PKG_DESCRIPTION\"");
        assert_eq!(
            call(&shell(&place.workspace), named.clone()).await,
            "[no output, exit code 1]\n[commands do not get `CARGO_PKG_DESCRIPTION`, unless the user names it in the configuration: \
             `[shell] env = [\"CARGO_PKG_DESCRIPTION\"]`]"
        );
        let settings = ShellSettings { env: vec!["CARGO_PKG_DESCRIPTION".to_owned()] };
        let tool = shell_with(&place.workspace, settings);
        assert_eq!(call(&tool, named.clone()).await, "[no output, exit code 0]");
        let moved = tool.in_folder(place.workspace.root()).unwrap().unwrap();
        assert_eq!(moved.call(named, cx()).await.unwrap().text, "[no output, exit code 0]");
    }

    #[tokio::test]
    async fn a_command_is_the_leader_of_a_session_without_a_terminal() {
        let place = TestWorkspace::new();
        let seen =
            call(&shell(&place.workspace), args("cut -d' ' -f1,5-7 /proc/$$/stat; echo $$ > /dev/tty")).await;
        let numbers: Vec<&str> = seen.lines().next().unwrap().split(' ').collect();
        let [id, group, session, terminal] = numbers[..] else { panic!("{seen}") };
        assert_eq!((group, session, terminal), (id, id, "0"), "{seen}");
        assert!(seen.contains("/dev/tty"), "{seen}");
    }

    #[test]
    fn the_question_shows_the_whole_command() {
        let place = TestWorkspace::new();
        place.file("sub/a", "");
        let tool = shell(&place.workspace);
        assert_eq!(tool.approval(&args("a\nb\r\u{1b}[2K")).unwrap(), "run:\na\nb\\r\\u{1b}[2K");
        let long = "x".repeat(4_000);
        let asked = tool.approval(&json!({"command": long, "cwd": "sub"})).unwrap();
        assert_eq!(asked, format!("run in sub:\n{long}"));
        assert_eq!(tool.approval(&args("")), None);
    }
}
