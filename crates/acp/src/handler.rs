//! The sessions behind a connection.
//!
//! Start at [`Handler`].

use tokio_util::sync::CancellationToken;

use crate::{
    stream::PromptContent,
    wire::{
        ConfigOption, InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, Meta,
        NewSessionRequest, NewSessionResponse, OpenSessionRequest, PromptRequest, PromptResponse, RpcError,
        SessionId, SessionState, SetConfigOptionRequest, SetModeRequest, SteerOutcome,
    },
};

/// The sessions of an agent, one method for each method of the protocol.
///
/// Requests run concurrently, also those of one session, except that the turns of a session run one after the other. If a client
/// cancels a request other than a prompt, its future is dropped. A panic fails its request only.
pub trait Handler: Send + Sync + 'static {
    /// Describes the agent. Called by the reader of lines: must not block. The client's abilities are in
    /// [`Client::capabilities`](crate::Client::capabilities) too.
    fn initialize(&self, request: InitializeRequest) -> InitializeResponse;

    /// Creates a session and stores it.
    fn new_session(
        &self,
        request: NewSessionRequest,
    ) -> impl Future<Output = Result<NewSessionResponse, RpcError>> + Send;

    /// Opens a session and sends its conversation as updates, before the response.
    fn load_session(
        &self,
        request: OpenSessionRequest,
    ) -> impl Future<Output = Result<SessionState, RpcError>> + Send;

    /// Opens a session without sending its conversation.
    fn resume_session(
        &self,
        request: OpenSessionRequest,
    ) -> impl Future<Output = Result<SessionState, RpcError>> + Send;

    /// Copies a session, at the checkpoint `superstep.checkpoint` of the extension field or at its head.
    fn fork_session(
        &self,
        request: OpenSessionRequest,
    ) -> impl Future<Output = Result<NewSessionResponse, RpcError>> + Send;

    /// Lists sessions, newest first.
    fn list_sessions(
        &self,
        request: ListSessionsRequest,
    ) -> impl Future<Output = Result<ListSessionsResponse, RpcError>> + Send;

    /// Closes a session. Its turns were cancelled and answered before.
    fn close_session(&self, session: SessionId) -> impl Future<Output = Result<(), RpcError>> + Send;

    /// Closes and deletes a session, if there is one. Its turns were cancelled and answered before.
    fn delete_session(&self, session: SessionId) -> impl Future<Output = Result<(), RpcError>> + Send;

    /// Changes the mode, and sends the updates of modes and options.
    fn set_mode(&self, request: SetModeRequest) -> impl Future<Output = Result<(), RpcError>> + Send;

    /// Changes an option, and returns all of them.
    fn set_config_option(
        &self,
        request: SetConfigOptionRequest,
    ) -> impl Future<Output = Result<Vec<ConfigOption>, RpcError>> + Send;

    /// Runs a turn and sends its updates. All updates have to be sent when the future ends.
    ///
    /// `cancel` is cancelled by `session/cancel`, `$/cancel_request`, a later prompt, and when the session or the connection is
    /// closed; the response is then `cancelled` in any case, with the returned extension field. The turn before has ended.
    fn prompt(
        &self,
        prompt: Prompt,
        cancel: CancellationToken,
    ) -> impl Future<Output = Result<PromptResponse, RpcError>> + Send;

    /// Adds a message to the running turn, or begins a turn.
    fn steer(&self, prompt: Prompt) -> impl Future<Output = Result<SteerOutcome, RpcError>> + Send;

    /// Cancels a turn that no prompt began, such as one of [`steer`](Self::steer). Called by the reader of lines, also for idle and
    /// unknown sessions: must not block. The turn of a prompt is cancelled by its token.
    fn cancel(&self, session: &SessionId);

    /// Closes all sessions when the client is gone or the program ends. Dropped after 300 ms.
    fn close_all(&self) -> impl Future<Output = ()> + Send;
}

/// A message for a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The session.
    pub session_id: SessionId,
    /// The message. Not empty.
    pub content: PromptContent,
    /// The extension field.
    pub meta: Meta,
}

impl TryFrom<PromptRequest> for Prompt {
    type Error = RpcError;

    fn try_from(request: PromptRequest) -> Result<Self, RpcError> {
        let PromptRequest { session_id, prompt, meta } = request;
        Ok(Self { session_id, content: PromptContent::of(prompt)?, meta })
    }
}
