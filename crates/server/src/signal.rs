//! The signals that stop a server.

/// Waits for Ctrl-C or, on Unix, for SIGTERM, which service managers send: the end of
/// [`Server::serve_until`](crate::Server::serve_until). Signals count from this call, before the future is polled. Later ones do not end
/// the program any more.
///
/// # Panics
/// Outside a tokio runtime, and if the system refuses a handler.
pub fn stop_signal() -> impl Future<Output = ()> + Send + 'static {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let begin = |kind| signal(kind).expect("the system accepts a handler of this signal");
        let (mut interrupt, mut terminate) = (begin(SignalKind::interrupt()), begin(SignalKind::terminate()));
        async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
    }
    #[cfg(not(unix))]
    async {
        tokio::signal::ctrl_c().await.expect("the system accepts a handler of this signal");
    }
}
