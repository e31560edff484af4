//! The client, as the agent sees it.
//!
//! Start at [`Client`].

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    message,
    wire::{
        ClientCapabilities, ElicitationRequest, ElicitationResponse, PermissionRequest, PermissionResponse,
        RequestId, RpcError, SessionId, SessionUpdate,
    },
};

/// The number of lines that wait for the writer. Senders wait for space.
const MAX_QUEUED: usize = 256;

/// The time for the answer to a cancelled request.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// The client: receives updates and answers questions. Clones are the same client.
///
/// Lines arrive in the order in which the calls return. A call waits while the client does not read.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    queue: mpsc::Sender<String>,
    capabilities: Mutex<Arc<ClientCapabilities>>,
    requests: Mutex<Requests>,
}

/// The unanswered requests of the agent.
#[derive(Default)]
struct Requests {
    next_id: i64,
    open: BTreeMap<i64, oneshot::Sender<Answer>>,
    /// `true` once the client is gone.
    is_closed: bool,
}

type Answer = Result<Box<RawValue>, RpcError>;

/// A request that the client did not answer.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection is closed.
    #[error("the client is gone")]
    Closed,
    /// The request was cancelled, and not answered for a second.
    #[error("the request was cancelled")]
    Cancelled,
    /// The client refused.
    #[error("the client failed: {0}")]
    Failed(RpcError),
    /// The answer has other fields or types.
    #[error("invalid answer of the client: {0}")]
    Invalid(String),
}

impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Creates the client of a connection, with the lines for its writer.
    pub(crate) fn new() -> (Self, mpsc::Receiver<String>) {
        let (queue, lines) = mpsc::channel(MAX_QUEUED);
        let (capabilities, requests) = Default::default();
        (Self(Arc::new(Shared { queue, capabilities, requests })), lines)
    }

    /// Returns the abilities of the client, all `false` before it sent `initialize`.
    pub fn capabilities(&self) -> Arc<ClientCapabilities> {
        self.0.capabilities.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_capabilities(&self, capabilities: ClientCapabilities) {
        *self.0.capabilities.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(capabilities);
    }

    /// Sends a change of a session. Notices and compactions are omitted if the client does not accept them: some fail.
    ///
    /// Clients drop updates that arrive before the response of `session/new`, and those of the 100 ms after it.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub async fn update(&self, session: &SessionId, update: &SessionUpdate) -> Result<(), ClientError> {
        let accepted = &self.capabilities().session;
        let is_accepted = match update {
            SessionUpdate::Notice { .. } => accepted.notices,
            SessionUpdate::CompactionUpdate { .. } => accepted.compaction,
            _ => true,
        };
        if !is_accepted {
            return Ok(());
        }
        self.notify("session/update", json!({ "sessionId": session, "update": update })).await
    }

    /// Requests a decision about a call. If `cancel` is cancelled, the client is informed and has one second to answer; a dropped
    /// future informs the client as well.
    ///
    /// # Errors
    /// [`ClientError`]. The call must not run.
    pub async fn request_permission(
        &self,
        request: &PermissionRequest,
        cancel: &CancellationToken,
    ) -> Result<PermissionResponse, ClientError> {
        self.request("session/request_permission", request, cancel).await
    }

    /// Requests the values of a form, or opens an address. `cancel` has the effect of that of
    /// [`request_permission`](Self::request_permission).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn elicit(
        &self,
        request: &ElicitationRequest,
        cancel: &CancellationToken,
    ) -> Result<ElicitationResponse, ClientError> {
        self.request("elicitation/create", request, cancel).await
    }

    /// Reports that the user finished at the address of a request.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub async fn elicitation_complete(&self, elicitation_id: &str) -> Result<(), ClientError> {
        self.notify("elicitation/complete", json!({ "elicitationId": elicitation_id })).await
    }

    /// Sends the response of a request of the client.
    pub(crate) async fn respond<T: Serialize>(&self, id: &RequestId, result: Result<T, RpcError>) {
        let message = match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        };
        // A client that is gone needs no response.
        let _ = self.send(message).await;
    }

    /// Takes the response to a request of the agent. A late or second one has no effect.
    pub(crate) fn answered(&self, id: &RequestId, answer: Answer) {
        let open = match id {
            RequestId::Integer(id) => self.requests().open.remove(id),
            RequestId::Null | RequestId::Text(_) => None,
        };
        match open {
            Some(open) => drop(open.send(answer)),
            None => tracing::debug!(?id, "a response without a request"),
        }
    }

    /// Fails all requests of the agent, also later ones.
    pub(crate) fn close_requests(&self) {
        let mut requests = self.requests();
        requests.is_closed = true;
        requests.open.clear();
    }

    /// Waits until the writer has ended.
    pub(crate) async fn closed(&self) {
        self.0.queue.closed().await;
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, message: Value) -> Result<(), ClientError> {
        self.0.queue.send(message.to_string()).await.map_err(|_| ClientError::Closed)
    }

    async fn notify(&self, method: &str, params: Value) -> Result<(), ClientError> {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await
    }

    async fn request<P: Serialize, T: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
        cancel: &CancellationToken,
    ) -> Result<T, ClientError> {
        if cancel.is_cancelled() {
            return Err(ClientError::Cancelled);
        }
        let (mut request, mut answer) = OpenRequest::new(self)?;
        let message = json!({ "jsonrpc": "2.0", "id": request.id, "method": method, "params": params });
        let answered = async {
            self.send(message).await?;
            (&mut answer).await.map_err(|_| ClientError::Closed)
        };
        let answer = tokio::select! {
            answer = answered => answer?,
            () = cancel.cancelled() => {
                request.is_cancelled = true;
                let late = async {
                    self.send(request.cancellation()).await?;
                    answer.await.map_err(|_| ClientError::Closed)
                };
                timeout(CANCEL_GRACE, late).await.map_err(|_| ClientError::Cancelled)??
            }
        };
        message::read(answer.map_err(ClientError::Failed)?.get()).map_err(ClientError::Invalid)
    }
}

/// A request of the agent without an answer yet.
struct OpenRequest<'a> {
    client: &'a Client,
    id: i64,
    is_cancelled: bool,
}

impl<'a> OpenRequest<'a> {
    fn new(client: &'a Client) -> Result<(Self, oneshot::Receiver<Answer>), ClientError> {
        let mut requests = client.requests();
        if requests.is_closed {
            return Err(ClientError::Closed);
        }
        let (sender, answer) = oneshot::channel();
        let id = requests.next_id;
        requests.next_id += 1;
        requests.open.insert(id, sender);
        Ok((Self { client, id, is_cancelled: false }, answer))
    }

    fn cancellation(&self) -> Value {
        json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": self.id } })
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        let was_open = self.client.requests().open.remove(&self.id).is_some();
        // A client with a full queue does not read, and gets no second request either.
        if was_open
            && !self.is_cancelled
            && let Err(error) = self.client.0.queue.try_send(self.cancellation().to_string())
        {
            tracing::debug!(%error, "a request is not cancelled");
        }
    }
}
