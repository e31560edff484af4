//! Connections of clients, which are bounded in number, and in the time that the head of a request takes.
//!
//! Start at [`serve`].

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, extract::ConnectInfo};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1::Builder,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::limits::Limits;

/// The pause after a failure to accept, for example because the process has too many open files.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves until `stopped` is ready; then connections end after their requests, or are cut off after [`Limits::drain`]. If the future is
/// dropped, they are cut off at once.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: &Limits,
    stopped: impl Future<Output = ()>,
) {
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.arrival);
    let (ending, cut, connections) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
    let _cut_off = cut.clone().drop_guard();
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut stopped = pin!(stopped);
    loop {
        let accepting = async {
            let place = places.clone().acquire_owned().await;
            (place, accept(&listener).await)
        };
        let (place, (stream, address)) = tokio::select! {
            accepted = accepting => accepted,
            () = &mut stopped => break,
        };
        let routes = TowerToHyperService::new(routes.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(address));
            routes.call(request)
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let (ending, cut) = (ending.clone(), cut.clone());
        connections.spawn(async move {
            let _place = place;
            let mut connection = pin!(connection);
            let ended = async {
                tokio::select! {
                    ended = &mut connection => ended,
                    () = ending.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                }
            };
            if let Some(Err(error)) = cut.run_until_cancelled(ended).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended");
            }
        });
    }
    drop(listener);
    ending.cancel();
    connections.close();
    // A client that does not read must not keep the server from its end.
    let _ = tokio::time::timeout(limits.drain, connections.wait()).await;
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Small events are sent at once; without effect on a stream that is lost already.
                let _ = stream.set_nodelay(true);
                return (stream, address);
            }
            Err(error) if is_of_client(&error) => {}
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "no connection is accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Returns whether a client gave up before its connection was accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
