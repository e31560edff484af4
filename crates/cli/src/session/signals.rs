//! Signals that end the program: Ctrl-C, SIGTERM, and SIGHUP when its terminal is closed.

use std::io::Write;

use tokio_util::sync::CancellationToken;

use crate::output::exit::Exit;

/// Cancels the run at the first signal, which then ends by itself; ends the program at the second. Signals count from this call, before
/// the future is polled.
pub(crate) fn watch(cancel: CancellationToken) -> impl Future<Output = ()> + Send {
    watched(Some(cancel))
}

/// Ends the program at the first signal. A handler that was installed once remains, so that without a receiver signals have no
/// effect.
pub(crate) fn end_at_once() -> impl Future<Output = ()> + Send {
    watched(None)
}

#[cfg(unix)]
fn watched(cancel: Option<CancellationToken>) -> impl Future<Output = ()> + Send {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    // Without a handler, which only fails if no file descriptor is free, the system ends the program as
    // usual.
    let mut hangup = if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() };
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return };
        let mut stopped = async || {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hung_up => {}
            }
        };
        if let Some(cancel) = cancel {
            stopped().await;
            stop(&cancel);
        }
        stopped().await;
        superstep::mcp::kill_all();
        std::process::exit(Exit::Interrupted as i32);
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

/// Does the same for Ctrl-C, the only signal on this system.
#[cfg(not(unix))]
async fn watched(cancel: Option<CancellationToken>) {
    if let Some(cancel) = cancel {
        if tokio::signal::ctrl_c().await.is_err() {
            return;
        }
        stop(&cancel);
    }
    if tokio::signal::ctrl_c().await.is_ok() {
        superstep::mcp::kill_all();
        std::process::exit(Exit::Interrupted as i32);
    }
}

fn stop(cancel: &CancellationToken) {
    let _ = writeln!(anstream::stderr(), "\nstopping; once more to stop at once");
    cancel.cancel();
}
