//! The studio of a chat.

use std::{
    future::pending,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use superstep::{Checkpointer, ThreadId, erased::JsonGraph};
use superstep_server::{Keys, Server};
use superstep_session::error::{ErrorKind, SessionError};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::graphs::graph_set::GraphSet;

/// The threads of a database for a browser on this machine, which changes nothing. It ends when dropped.
pub(super) struct Studio {
    address: SocketAddr,
    /// Other users of the machine do not know it.
    key: String,
    _task: AbortOnDropHandle<()>,
}

impl Studio {
    /// Begins to serve.
    ///
    /// # Errors
    /// The machine has no free port, or the database cannot be read.
    pub(super) async fn start(store: Arc<dyn Checkpointer>, graphs: &GraphSet) -> Result<Self, SessionError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listener.map_err(|cause| {
            SessionError::new(ErrorKind::Failed, format!("the studio cannot listen on this machine: {cause}"))
        })?;
        let key = Keys::generate();
        let add = |server: Server, graph: &Arc<dyn JsonGraph>| server.graph(graph.name(), graph.clone());
        let server = graphs.all().iter().fold(Server::new(), add);
        let server = server.checkpointer(store).token(&key).read_only();
        let served = server.start(listener, pending()).await;
        let served = served.map_err(|error| SessionError::caused(ErrorKind::Failed, &error))?;
        Ok(Self { address, key, _task: AbortOnDropHandle::new(tokio::spawn(served)) })
    }

    /// Returns the address of a thread, which has the key.
    pub(super) fn address(&self, thread: &ThreadId) -> String {
        let Self { address, key, .. } = self;
        let thread = utf8_percent_encode(thread.as_str(), NON_ALPHANUMERIC);
        format!("http://{address}/studio/t/{thread}#key={key}")
    }
}
