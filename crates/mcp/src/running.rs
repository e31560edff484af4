//! Programs and their termination: the end of their input, then SIGTERM, then SIGKILL, to the whole process
//! group.

use std::{
    collections::BTreeSet,
    io,
    process::Stdio,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[cfg(unix)]
use process_wrap::tokio::{CommandWrap, CommandWrapper as _, ProcessSession};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    runtime::Handle,
    sync::watch,
    time::{sleep, timeout},
};

/// The time for a program to end after the end of its input, and again after SIGTERM.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// The interval of checks whether a process of a group is left.
const LOOK: Duration = Duration::from_millis(20);

/// The running programs of this process, by the ids of their groups.
static RUNNING: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));
static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Waits until all unused servers that were started as programs have ended.
///
/// A server that is dropped ends in the background, which takes up to four seconds if it ignores the end of
/// its input. Wait for this, with a time limit, before the process exits.
pub async fn all_ended() {
    let mut running = RUNNING.subscribe();
    while !groups().is_empty() && running.changed().await.is_ok() {}
}

/// Kills all running servers that were started as programs, for a process that is about to exit.
pub fn kill_all() {
    for group in groups().iter() {
        signal(*group, Signal::Kill);
    }
}

fn groups() -> MutexGuard<'static, BTreeSet<u32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program in a session and a process group of its own. Dropping it ends it in the background, or kills it if there is no
/// runtime.
pub(crate) struct Running(Option<Group>);

/// The process group of a program. Dropping it kills it.
struct Group {
    id: u32,
    leader: Child,
    is_over: bool,
}

#[derive(Clone, Copy)]
enum Signal {
    Term,
    Kill,
}

/// The ends of a program's pipes.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Running {
    /// Starts a program in a session of its own, without a terminal: it does not receive Ctrl-C, cannot read keys, and cannot write
    /// to the screen.
    pub(crate) fn start(mut command: Command) -> io::Result<(Self, Pipes)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        ProcessSession.pre_spawn(&mut command, &CommandWrap::with_new("", |_| {}))?;
        let mut leader = command.spawn()?;
        let pipes = (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else { unreachable!("all of them are piped") };
        let id = leader.id().expect("it was not waited for");
        groups().insert(id);
        Ok((Self(Some(Group { id, leader, is_over: false })), Pipes { stdin, stdout, stderr }))
    }

    /// Ends the program after its input was closed.
    pub(crate) async fn end(&mut self) {
        // It remains here until it has ended, in case this future is dropped.
        if let Some(group) = &mut self.0 {
            group.end().await;
        }
        self.0 = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut group) = self.0.take() else { return };
        if let Ok(runtime) = Handle::try_current() {
            // A runtime that shuts down drops the task, and with it the group.
            runtime.spawn(async move { group.end().await });
        }
    }
}

impl Group {
    async fn end(&mut self) {
        if timeout(GRACE, self.leader.wait()).await.is_err() && signal(self.id, Signal::Term) {
            let _ = timeout(GRACE, self.leader.wait()).await;
        }
        if self.leader.try_wait().is_ok_and(|status| status.is_some()) && signal(self.id, Signal::Term) {
            // Child processes have outlived the program.
            let left = async {
                while signal(self.id, Signal::Term) {
                    sleep(LOOK).await;
                }
            };
            let _ = timeout(GRACE, left).await;
        }
        signal(self.id, Signal::Kill);
        let _ = self.leader.wait().await;
        self.is_over = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            signal(self.id, Signal::Kill);
            let _ = self.leader.start_kill();
        }
        groups().remove(&self.id);
        RUNNING.send_replace(());
    }
}

/// Sends a signal to a group. Returns whether any process received it.
#[cfg(unix)]
fn signal(group: u32, which: Signal) -> bool {
    use rustix::process::{Pid, Signal as Unix, kill_process_group};
    let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) else { return false };
    let which = match which {
        Signal::Term => Unix::TERM,
        Signal::Kill => Unix::KILL,
    };
    kill_process_group(group, which).is_ok()
}

/// Does nothing without process groups; the program itself is killed when it is dropped.
#[cfg(not(unix))]
fn signal(_: u32, _: Signal) -> bool {
    false
}
