//! Ctrl-C.

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
    let mut stopped = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    stopped().await;
    stop(&cancel);
    stopped().await;
    std::process::exit(Exit::Interrupted as i32);
}

/// See above; there is only Ctrl-C.
#[cfg(not(unix))]
pub(crate) async fn watch(cancel: CancellationToken) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop(&cancel);
        let _ = tokio::signal::ctrl_c().await;
        std::process::exit(Exit::Interrupted as i32);
    }
}

fn stop(cancel: &CancellationToken) {
    let _ = writeln!(anstream::stderr(), "\nstopping; once more to stop at once");
    cancel.cancel();
}
