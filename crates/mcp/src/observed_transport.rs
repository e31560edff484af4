//! A transport that observes its messages, and limits the number of unanswered requests of a server.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    RoleClient,
    model::{
        ErrorCode, ErrorData, GetExtensions, JsonRpcMessage, RequestId, ServerNotification, ServerRequest,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::Notify;

use crate::{
    failed_requests::RequestFailure,
    notifications::{CallListeners, Sent},
};

/// The maximum number of unanswered requests of a server. Reading pauses until one is answered.
const MAX_UNANSWERED: usize = 64;

/// A transport that observes its messages.
pub(crate) struct ObservedTransport<T> {
    transport: T,
    listeners: Arc<CallListeners>,
    unanswered: Arc<Unanswered>,
    /// `true` once the server has answered `initialize`, the first request.
    has_begun: bool,
}

/// The unanswered requests of the server.
#[derive(Default)]
struct Unanswered {
    ids: Mutex<HashSet<RequestId>>,
    fewer: Notify,
}

impl Unanswered {
    fn ids(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, id: Option<&RequestId>) {
        if id.is_some_and(|id| self.ids().remove(id)) {
            self.fewer.notify_one();
        }
    }

    async fn are_few(&self) {
        while self.ids().len() >= MAX_UNANSWERED {
            self.fewer.notified().await;
        }
    }
}

impl<T> ObservedTransport<T> {
    pub(crate) fn new(transport: T, listeners: Arc<CallListeners>) -> Self {
        Self { transport, listeners, unanswered: Arc::default(), has_begun: false }
    }
}

impl<T: Transport<RoleClient, Error: Into<RequestFailure>>> Transport<RoleClient> for ObservedTransport<T> {
    type Error = RequestFailure;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), RequestFailure>> + Send + 'static {
        let (mut call, mut answered) = (None, None);
        match &message {
            JsonRpcMessage::Request(asked) => call = asked.request.extensions().get::<Sent>().cloned(),
            JsonRpcMessage::Response(answer) => answered = Some(answer.id.clone()),
            JsonRpcMessage::Error(answer) => answered.clone_from(&answer.id),
            JsonRpcMessage::Notification(_) => {}
        }
        let sent = self.transport.send(message);
        let unanswered = self.unanswered.clone();
        async move {
            let sent = sent.await;
            unanswered.remove(answered.as_ref());
            sent.map_err(Into::into)?;
            if let Some(Sent(cx)) = call {
                cx.sent();
            }
            Ok(())
        }
    }

    /// Cancel-safe: no message is lost if it is dropped.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            self.unanswered.are_few().await;
            let message = self.transport.receive().await?;
            match &message {
                // Some servers ask before they answer `initialize`; `rmcp` handles pings only.
                JsonRpcMessage::Request(asked)
                    if !self.has_begun && !matches!(asked.request, ServerRequest::PingRequest(_)) =>
                {
                    let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "not supported", None);
                    let answer = JsonRpcMessage::error(unknown, Some(asked.id.clone()));
                    // A server that does not get it does not answer either.
                    let _ = self.transport.send(answer).await;
                    continue;
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => self.has_begun = true,
                // A request with the id of an unanswered one cannot be answered.
                JsonRpcMessage::Request(asked) if !self.unanswered.ids().insert(asked.id.clone()) => continue,
                JsonRpcMessage::Notification(said) => match &said.notification {
                    ServerNotification::CancelledNotification(cancelled) => {
                        self.unanswered.remove(cancelled.params.request_id.as_ref());
                    }
                    // No other code needs it, and each would start a task.
                    said => {
                        self.listeners.handle(said);
                        continue;
                    }
                },
                _ => {}
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), RequestFailure> {
        self.transport.close().await.map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt;
    use serde_json::json;

    use super::*;

    /// A server that sends pings, and does not read.
    struct Deaf(i64);

    impl Transport<RoleClient> for Deaf {
        type Error = std::io::Error;

        fn send(
            &mut self,
            _: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
            pending()
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            self.0 += 1;
            let ping = json!({"jsonrpc": "2.0", "id": self.0, "method": "ping"});
            Some(serde_json::from_value(ping).expect("it is a message"))
        }

        fn close(&mut self) -> impl Future<Output = std::io::Result<()>> + Send {
            ready(Ok(()))
        }
    }

    #[test]
    fn a_server_that_does_not_read_its_answers_is_not_read() {
        let mut observed_transport =
            ObservedTransport::new(Deaf(0), Arc::new(CallListeners::new(Arc::default())));
        let mut taken = 0;
        while observed_transport.receive().now_or_never().is_some() {
            taken += 1;
        }
        assert_eq!((taken, observed_transport.transport.0), (MAX_UNANSWERED, 64));
        observed_transport.unanswered.remove(Some(&RequestId::Number(1)));
        assert!(observed_transport.receive().now_or_never().is_some());
        assert!(observed_transport.receive().now_or_never().is_none());
    }
}
