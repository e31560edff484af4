//! Ctrl-C, and what else ends a program: SIGTERM, and SIGHUP when its terminal is gone.

use std::io::Write;

use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// The first signal cancels the run, which then ends by itself; the second ends the program at once.
#[cfg(unix)]
pub(crate) async fn watch(cancel: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    // Without a handler, which takes no more than a free file, the system ends the program as usual.
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return };
    let mut hangup = if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() };
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
    stopped().await;
    stop(&cancel);
    stopped().await;
    superstep::mcp::kill_all();
    std::process::exit(Exit::Interrupted as i32);
}

/// Whether the program was started to outlive its terminal, as by `nohup`. Only Linux says so.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & HANGUP != 0)
}

/// See above; there is only Ctrl-C.
#[cfg(not(unix))]
pub(crate) async fn watch(cancel: CancellationToken) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop(&cancel);
        let _ = tokio::signal::ctrl_c().await;
        superstep::mcp::kill_all();
        std::process::exit(Exit::Interrupted as i32);
    }
}

fn stop(cancel: &CancellationToken) {
    let _ = writeln!(anstream::stderr(), "\nstopping; once more to stop at once");
    cancel.cancel();
}
