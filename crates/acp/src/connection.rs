//! The connection of a client: each line becomes a call of the handler.
//!
//! Start at [`serve`].

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    client::Client,
    handler::{Handler, Prompt},
    message::{self, Message, Params},
    requests::Requests,
    transport::{self, Line, Lines, MAX_LINE},
    turns::Turns,
    wire::{
        InitializeRequest, PromptRequest, PromptResponse, RequestId, RpcError, SessionId, SessionRef,
        StopReason, code,
    },
};

/// The time for turns and other requests when the connection ends, then for the handler, then for the last lines: below one second
/// in total.
const REQUESTS_GRACE: Duration = Duration::from_millis(500);
const HANDLER_GRACE: Duration = Duration::from_millis(300);
const WRITER_GRACE: Duration = Duration::from_millis(100);

/// Serves a client until its input ends, its output breaks, or `shutdown` ends. Then cancels all turns, answers them, calls
/// [`Handler::close_all`], and returns within one second.
///
/// `output` must carry nothing else. If `input` is tokio's stdin, the runtime cannot end by itself after `shutdown`, because a thread
/// still reads: use `Runtime::shutdown_background` or `std::process::exit`.
///
/// `handler` creates the sessions' handler, which sends updates to the [`Client`].
pub async fn serve<H: Handler>(
    handler: impl FnOnce(Client) -> H,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: impl Future<Output = ()>,
) {
    let (client, lines) = Client::new();
    let closing = CancellationToken::new();
    let writer = tokio::spawn(transport::write(output, lines, closing.clone()));
    let mut connection = Connection {
        handler: Arc::new(handler(client.clone())),
        client: client.clone(),
        requests: Requests::default(),
        turns: Turns::default(),
        tasks: JoinSet::new(),
        is_initialized: false,
    };
    tokio::select! {
        () = connection.read(Lines::new(input)) => {}
        () = shutdown => {}
        () = client.closed() => {}
    }
    connection.close().await;
    closing.cancel();
    let abort = writer.abort_handle();
    if timeout(WRITER_GRACE, writer).await.is_err() {
        tracing::debug!("the client does not read its last lines");
        abort.abort();
    }
}

struct Connection<H> {
    handler: Arc<H>,
    client: Client,
    requests: Requests,
    turns: Turns,
    /// The running requests.
    tasks: JoinSet<()>,
    is_initialized: bool,
}

/// The result of requests without one.
#[derive(Serialize)]
struct Empty {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelRequest {
    request_id: RequestId,
}

impl<H: Handler> Connection<H> {
    /// Reads until the end of the input.
    async fn read(&mut self, mut lines: Lines<impl AsyncRead + Unpin>) {
        loop {
            match lines.next().await {
                Ok(Some(Line::Whole(line))) => self.handle(line).await,
                Ok(Some(Line::TooLong)) => {
                    let problem = format!("a line has more than {MAX_LINE} bytes");
                    self.fail(&RequestId::Null, RpcError::new(code::INVALID_REQUEST, problem)).await;
                }
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "the client's lines cannot be read"),
            }
        }
    }

    async fn handle(&mut self, line: &[u8]) {
        while self.tasks.try_join_next().is_some() {}
        match message::parse(line) {
            Ok(None) => {}
            Ok(Some(Message::Request { id, method, params })) => {
                if let Err(error) = self.request(id.clone(), &method, params) {
                    self.fail(&id, error).await;
                }
            }
            Ok(Some(Message::Notification { method, params })) => {
                if let Err(error) = self.notification(&method, params) {
                    tracing::debug!(%error, "a notification is ignored");
                }
            }
            Ok(Some(Message::Response { id, result })) => self.client.answered(&id, result),
            Err(invalid) => self.fail(&invalid.id, invalid.error).await,
        }
    }

    /// Responds with an error of the reader. Waits only for a client that sends invalid lines and does not read.
    async fn fail(&self, id: &RequestId, error: RpcError) {
        self.client.respond::<Empty>(id, Err(error)).await;
    }

    fn request(&mut self, id: RequestId, method: &str, params: Params<'_>) -> Result<(), RpcError> {
        if !self.is_initialized && method != "initialize" {
            return Err(RpcError::new(code::INVALID_REQUEST, "the first request has to be `initialize`"));
        }
        match method {
            "initialize" => {
                let request: InitializeRequest = params.read()?;
                self.client.set_capabilities(request.client_capabilities.clone());
                self.is_initialized = true;
                let response = self.handler.initialize(request);
                self.run(id, async move { Ok(response) })
            }
            "session/new" => {
                self.call(id, params, |handler, new| async move { handler.new_session(new).await })
            }
            "session/load" => {
                self.call(id, params, |handler, it| async move { handler.load_session(it).await })
            }
            "session/resume" => {
                self.call(id, params, |handler, it| async move { handler.resume_session(it).await })
            }
            "session/fork" => {
                self.call(id, params, |handler, it| async move { handler.fork_session(it).await })
            }
            "session/list" => {
                self.call(id, params, |handler, it| async move { handler.list_sessions(it).await })
            }
            "session/set_mode" => self.call(id, params, |handler, mode| async move {
                handler.set_mode(mode).await.map(|()| Empty {})
            }),
            "session/set_config_option" => self.call(id, params, |handler, option| async move {
                let options = handler.set_config_option(option).await?;
                Ok(json!({ "configOptions": options }))
            }),
            "session/close" => {
                self.end(id, params, |handler, session| async move { handler.close_session(session).await })
            }
            "session/delete" => {
                self.end(id, params, |handler, session| async move { handler.delete_session(session).await })
            }
            "session/prompt" => self.prompt(id, params),
            "_session/steering" => {
                let prompt = Prompt::try_from(params.read::<PromptRequest>()?)?;
                let handler = self.handler.clone();
                self.run(id, async move { handler.steer(prompt).await })
            }
            "authenticate" => Err(RpcError::invalid_params("there is no method of authentication")),
            _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("unknown method `{method:.100}`"))),
        }
    }

    fn notification(&self, method: &str, params: Params<'_>) -> Result<(), RpcError> {
        match method {
            "session/cancel" => {
                let SessionRef { session_id } = params.read()?;
                self.turns.cancel(&session_id);
                self.handler.cancel(&session_id);
            }
            "$/cancel_request" => self.requests.cancel(&params.read::<CancelRequest>()?.request_id),
            _ => tracing::debug!("an unknown notification is ignored: `{method:.100}`"),
        }
        Ok(())
    }

    /// Runs a request with its parameters.
    fn call<P: DeserializeOwned, T: Serialize + Send, F>(
        &mut self,
        id: RequestId,
        params: Params<'_>,
        run: impl FnOnce(Arc<H>, P) -> F,
    ) -> Result<(), RpcError>
    where
        F: Future<Output = Result<T, RpcError>> + Send + 'static,
    {
        let run = run(self.handler.clone(), params.read()?);
        self.run(id, run)
    }

    /// Runs a request, which is dropped if the client cancels it.
    fn run<T: Serialize + Send>(
        &mut self,
        id: RequestId,
        run: impl Future<Output = Result<T, RpcError>> + Send + 'static,
    ) -> Result<(), RpcError> {
        let request = self.requests.begin(id)?;
        let client = self.client.clone();
        self.tasks.spawn(async move {
            let run = async {
                tokio::select! {
                    result = run => result,
                    () = request.cancel.cancelled() => {
                        Err(RpcError::new(code::REQUEST_CANCELLED, "the client cancelled the request"))
                    }
                }
            };
            client.respond(&request.id, without_panic(run).await).await;
        });
        Ok(())
    }

    /// Runs a request that ends a session, after its turns are cancelled and answered. Later prompts wait.
    fn end<F>(
        &mut self,
        id: RequestId,
        params: Params<'_>,
        run: impl FnOnce(Arc<H>, SessionId) -> F + Send + 'static,
    ) -> Result<(), RpcError>
    where
        F: Future<Output = Result<(), RpcError>> + Send,
    {
        let SessionRef { session_id } = params.read()?;
        let (handler, turns) = (self.handler.clone(), self.turns.clone());
        // Registered before the next line, like a turn. Neither `session/cancel` nor a later prompt can stop it.
        let turn = turns.begin(&session_id, CancellationToken::new());
        self.run(id, async move {
            turn.is_first().await;
            run(handler, session_id).await.map(|()| Empty {})
        })
    }

    fn prompt(&mut self, id: RequestId, params: Params<'_>) -> Result<(), RpcError> {
        let prompt = Prompt::try_from(params.read::<PromptRequest>()?)?;
        let request = self.requests.begin(id)?;
        let turn = self.turns.begin(&prompt.session_id, request.cancel.clone());
        let (client, handler) = (self.client.clone(), self.handler.clone());
        self.tasks.spawn(async move {
            let cancelled = |meta| PromptResponse { stop_reason: StopReason::Cancelled, meta };
            let run = async {
                tokio::select! {
                    biased;
                    () = request.cancel.cancelled() => return Ok(cancelled(Default::default())),
                    () = turn.is_first() => {}
                }
                handler.prompt(prompt, request.cancel.clone()).await
            };
            let mut result = without_panic(run).await;
            if request.cancel.is_cancelled() {
                result = Ok(cancelled(result.map(|response| response.meta).unwrap_or_default()));
            }
            client.respond(&request.id, result).await;
            drop(turn);
        });
        Ok(())
    }

    /// Cancels everything and waits for it, for a limited time.
    async fn close(mut self) {
        self.turns.cancel_all();
        self.client.close_requests();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(REQUESTS_GRACE, ended).await.is_err() {
            tracing::debug!(requests = self.tasks.len(), "requests did not end in time");
            self.tasks.abort_all();
        }
        if timeout(HANDLER_GRACE, self.handler.close_all()).await.is_err() {
            tracing::debug!("the sessions did not close in time");
        }
    }
}

/// Converts a panic to an error, so that each request is answered.
async fn without_panic<T>(run: impl Future<Output = Result<T, RpcError>>) -> Result<T, RpcError> {
    let failed = |_| Err(RpcError::internal("panic", "a part of the program failed; see its log"));
    AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(failed)
}
