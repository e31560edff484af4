//! Signals that end the program: Ctrl-C, SIGTERM, and SIGHUP when its terminal is closed.

use std::{
    future::pending,
    io::Write,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{runtime::Handle, task::AbortHandle};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::output::exit::Exit;

/// Cancels the run at the first signal, which then ends by itself; ends the program at the second. Signals count from this call, before
/// the future is polled. After the future is dropped, the first signal ends the program.
pub(crate) fn watch(cancel: CancellationToken) -> impl Future<Output = ()> + Send {
    let (watch, mut signals) = (Watch::begin(), Signals::new());
    async move {
        let _watch = watch;
        signals.next().await;
        let _ = writeln!(anstream::stderr(), "\nstopping; press Ctrl-C again to stop at once");
        cancel.cancel();
        signals.next().await;
        end();
    }
}

/// Watches the signals while the second value exists: the first one cancels the token.
pub(crate) fn watching() -> (CancellationToken, AbortOnDropHandle<()>) {
    let cancel = CancellationToken::new();
    (cancel.clone(), AbortOnDropHandle::new(tokio::spawn(watch(cancel))))
}

/// Leaves later signals to the caller of a program that ended.
pub(crate) fn release() {
    if let Some(task) = Watches::lock().between.take() {
        task.abort();
    }
}

fn end() {
    superstep::mcp::kill_all();
    std::process::exit(Exit::Interrupted as i32);
}

/// The present futures of [`watch`].
static WATCHES: Mutex<Watches> = Mutex::new(Watches { number: 0, between: None });

struct Watches {
    number: usize,
    /// The task that ends the program at a signal while there is no watch: once tokio has installed its handler, a signal
    /// without a receiver would have no effect.
    between: Option<AbortHandle>,
}

impl Watches {
    fn lock() -> MutexGuard<'static, Self> {
        WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A present future of [`watch`].
struct Watch;

impl Watch {
    fn begin() -> Self {
        Watches::lock().number += 1;
        release();
        Self
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = Watches::lock();
        watches.number -= 1;
        if let (0, Ok(runtime)) = (watches.number, Handle::try_current()) {
            // A new receiver does not get the signals that the watch has received.
            let mut signals = Signals::new();
            let ends = async move {
                signals.next().await;
                end();
            };
            watches.between = Some(runtime.spawn(ends).abort_handle());
        }
    }
}

#[cfg(unix)]
struct Signals([Option<tokio::signal::unix::Signal>; 3]);

#[cfg(unix)]
impl Signals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        // Without a handler, which only fails if no file descriptor is free, the system ends the program as
        // usual.
        let hangup = if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() };
        Self([signal(SignalKind::interrupt()).ok(), signal(SignalKind::terminate()).ok(), hangup])
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = received(interrupt) => {}
            _ = received(terminate) => {}
            _ = received(hangup) => {}
        }
    }
}

#[cfg(unix)]
async fn received(signal: &mut Option<tokio::signal::unix::Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => pending().await,
    }
}

/// Returns whether the program was started to outlive its terminal, as by `nohup`. Only Linux reports it.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & HANGUP != 0)
}

/// Ctrl-C, the only signal on this system.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Self {
        Self
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            pending().await
        }
    }
}
