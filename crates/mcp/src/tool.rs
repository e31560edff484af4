//! One tool of a server.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ServiceError,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, RequestId,
        ServerResult,
    },
    service::PeerRequestOptions,
};
use serde_json::Value;
use superstep_llm::{
    Behaviour, Tool, ToolCx, ToolError, ToolFuture, ToolReply, ToolSpec, calls::Sequence,
    text::printable_line, timers::check_timers,
};
use tokio::{runtime::Handle, sync::MutexGuard, time::sleep};
use tracing::Instrument as _;

use crate::{
    Ask, Endpoint,
    connection::Connection,
    content,
    failed_requests::{RequestFailure, SendOutcome},
    link::Link,
    listed::{Hints, Listed, raw},
    message::UNREADABLE,
    notifications::{ListenerGuard, Sent},
    trace,
};

pub(crate) struct McpTool {
    link: Arc<Link>,
    spec: ToolSpec,
    /// The server's name of the tool.
    name: String,
    hints: Hints,
}

impl McpTool {
    pub(crate) fn new(link: Arc<Link>, tool: &Listed, name: String) -> Self {
        let spec = ToolSpec { name, description: tool.description.clone(), parameters: tool.schema.clone() };
        Self { link, spec, name: tool.name.clone(), hints: tool.hints }
    }

    async fn run(&self, args: Value, cx: &ToolCx) -> Result<ToolReply, ToolError> {
        // The protocol does not name the call of a question, and a guess could show one user's question to another
        // user of the server. With one call at a time there is nothing to guess. The wait is not part of a call's
        // time, so that each sent call has a limit here.
        let asks = self.link.notifications.asks();
        let _turn = if asks { Some(self.turn(cx).await?) } else { None };
        match self.attempt(args.clone(), cx).await? {
            Some(reply) => Ok(reply),
            None => {
                // The protocol does not identify which of several calls asks the user something.
                let _turn = self.turn(cx).await?;
                let reply = self.attempt(args, cx).await?;
                reply.ok_or_else(|| {
                    let server = &self.link.name;
                    ToolError::Failed(format!(
                        "the MCP server `{server}` asks the user something, and several calls of it run; call it again \
                         when they have ended"
                    ))
                })
            }
        }
    }

    /// Waits until no other call is running that is sent alone.
    async fn turn(&self, cx: &ToolCx) -> Result<MutexGuard<'_, ()>, ToolError> {
        tokio::select! {
            biased;
            () = cx.cancel.cancelled() => Err(ToolError::failed("cancelled")),
            turn = self.link.notifications.turn.lock() => Ok(turn),
        }
    }

    /// Sends the call once; `None` if it must be sent again, alone.
    async fn attempt(&self, args: Value, cx: &ToolCx) -> Result<Option<ToolReply>, ToolError> {
        let server = &self.link.name;
        let hide = |text: String| self.link.notifications.hidden(text);
        let failed = |why: String| Err(ToolError::failed(content::cut(hide(why), content::MAX_RESULT_BYTES)));
        check_timers()?;
        let connection = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return failed("cancelled".to_owned()),
            connection = self.link.connection() => connection,
            // The start for another call, and one for this call.
            () = sleep(self.link.config.start_timeout.saturating_mul(2)) => {
                return failed(format!("the MCP server `{server}` did not start in time"));
            }
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(problem) => return failed(format!("the MCP server `{server}` cannot be reached: {problem}")),
        };
        let limit = self.link.config.call_timeout;
        let span = trace::call(server, &self.name);
        // A dropped call is cancelled at the server, too.
        let result = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return failed("cancelled".to_owned()),
            result = self.ask(&connection, args, cx).instrument(span.clone()) => result,
            () = sleep(limit) => {
                // A program may be slow; an address may have another server by now, which does not know this
                // session.
                if matches!(self.link.config.endpoint, Endpoint::Http { .. }) {
                    self.link.forget(&connection).await;
                }
                trace::failed(&span, "timeout");
                let (ms, outcome) = (limit.as_millis(), self.outcome());
                return failed(format!("the MCP server `{server}` did not answer in {ms} ms{outcome}"));
            }
        };
        if result.is_err() {
            trace::failed(&span, "mcp_error");
        }
        match result {
            Ok(None) => Ok(None),
            Ok(Some(result)) => content::reply(raw(result), &hide).map(Some),
            Err(ServiceError::McpError(error)) if error.code == UNREADABLE => failed(format!(
                "the answer of the MCP server `{server}` cannot be read ({}){}",
                error.message,
                self.outcome()
            )),
            Err(ServiceError::McpError(error)) => failed(error.message.into_owned()),
            Err(ServiceError::TransportClosed) => Err(self.lost(&connection, "").await),
            Err(ServiceError::TransportSend(error)) => match error.error.downcast_ref::<RequestFailure>() {
                Some(request_failure) if request_failure.fate == SendOutcome::Refused => {
                    failed(format!("the MCP server `{server}` refused this call: {request_failure}"))
                }
                Some(request_failure) if request_failure.fate == SendOutcome::NotThere => {
                    self.link.forget(&connection).await;
                    failed(format!(
                        "the MCP server `{server}` did not get this call: {request_failure}; the next call starts it again"
                    ))
                }
                Some(request_failure) => Err(self.lost(&connection, &format!(" ({request_failure})")).await),
                None => Err(self.lost(&connection, "").await),
            },
            Err(error) => failed(error.to_string()),
        }
    }

    /// Returns the model's text for a call that may have been executed.
    fn outcome(&self) -> &'static str {
        if self.is_repeatable() {
            ""
        } else {
            "; the outcome of this call is unknown, check before repeating it"
        }
    }

    fn is_repeatable(&self) -> bool {
        self.hints.only_reads || self.hints.idempotent
    }

    /// Drops a connection that broke during a call.
    async fn lost(&self, connection: &Arc<Connection>, cause: &str) -> ToolError {
        self.link.forget(connection).await;
        let cause = self.link.notifications.hidden(cause.to_owned());
        ToolError::failed(format!(
            "the MCP server `{}` was lost during this call{cause}, so its result is unknown; the next call \
             starts it again",
            self.link.name
        ))
    }

    /// Sends the call and waits for its result.
    async fn ask(
        &self,
        connection: &Arc<Connection>,
        args: Value,
        cx: &ToolCx,
    ) -> Result<Option<ServerResult>, ServiceError> {
        let mut params = CallToolRequestParams::new(self.name.clone());
        if let Value::Object(args) = args {
            params = params.with_arguments(args);
        }
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(Sent(cx.clone()));
        let request = ClientRequest::CallToolRequest(request);
        let guard = connection.service().listen(cx, self.is_repeatable());
        let again = guard.again.clone();
        let mut options = PeerRequestOptions::default();
        options.meta = trace::context();
        let sent = connection.send_request_with_option(request, options).await?;
        guard.is_sent(&sent.progress_token);
        let mut out = RunningCall { connection: connection.clone(), id: Some(sent.id.clone()), guard };
        tokio::select! {
            biased;
            // First, because the result may be the server's reaction to a question that was never asked.
            () = again.cancelled() => {
                out.cancel().await;
                Ok(None)
            }
            result = sent.await_response() => {
                out.id = None;
                result.map(Some)
            }
        }
    }
}

/// A running call. Dropping it cancels it.
struct RunningCall {
    connection: Arc<Connection>,
    id: Option<RequestId>,
    guard: ListenerGuard,
}

impl RunningCall {
    /// Cancels the call at the server. An unreachable server has lost the call anyway.
    async fn cancel(&mut self) {
        if let Some(id) = self.id.take() {
            let why = Some("it is sent again, alone".to_owned());
            let _ = self.connection.notify_cancelled(CancelledNotificationParam::new(Some(id), why)).await;
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        // Held until then, because a connection without owners is closed.
        let connection = self.connection.clone();
        // Its pending questions are answered after that, so that the server does not continue the call.
        let over = self.guard.over.take();
        runtime.spawn(async move {
            let why = "its result is no longer needed".to_owned();
            // An unreachable server has lost the call anyway.
            let _ = connection.notify_cancelled(CancelledNotificationParam::new(Some(id), Some(why))).await;
            drop(over);
        });
    }
}

/// Returns a name in one line, without the character that ends a quotation.
fn quoted(name: &str) -> String {
    printable_line(name).replace('`', "\\u{60}")
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        // The wait for a start of the server and each sent call have limits of their own. The wait for other calls is not the
        // time of this one.
        let timeout = Some(Duration::MAX);
        Behaviour { idempotent: self.is_repeatable(), timeout, ..Behaviour::default() }
    }

    /// Returns one sequence per server: it receives the calls of one answer in order, and those that are not
    /// read-only one at a time.
    fn sequence(&self) -> Option<Sequence<'_>> {
        Some(Sequence { name: &self.link.sequence, overlaps: self.hints.only_reads })
    }

    fn changes_files(&self) -> Option<bool> {
        // Read-only tools do not change files; the effects of others are unknown.
        self.hints.only_reads.then_some(false)
    }

    fn approval(&self, args: &Value) -> Option<String> {
        let asks = match self.link.config.ask {
            Ask::Always => true,
            Ask::Writes => !self.hints.only_reads,
            Ask::Never => false,
        };
        // The server writes the name: it must not look like a part of the question.
        asks.then(|| {
            format!(
                "Call `{}` of the MCP server `{}` with {args}?",
                quoted(&self.name),
                quoted(&self.link.name)
            )
        })
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move { self.run(args, &cx).await })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;
    use superstep_llm::calls::ToolAnswer;

    use super::*;
    use crate::{McpConfig, McpServer};

    /// A server whose tools repeat its token in each kind of message.
    const SERVER: &str = r#"
        say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
        note() { printf '{"jsonrpc":"2.0","method":"notifications/%s","params":%s}\n' "$1" "$2"; }
        while read -r line; do
            id=${line#*'"id":'}; id=${id%%[,\}]*}
            case $line in
            *'"initialize"'*) say '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
            *'"tools/list"'*)
                say '"result":{"tools":[{"name":"tell","description":"Uses '"$KEY"'.","inputSchema":{"type":"object"}},{"name":"error","inputSchema":{"type":"object"}},{"name":"failed","inputSchema":{"type":"object"}},{"name":"odd","inputSchema":{"type":"object"}}]}';;
            *'"name":"tell"'*)
                call=$id; token=${line#*'"progressToken":'}; token=${token%%[,\}]*}
                note message "{\"level\":\"info\",\"logger\":\"$TOK\",\"data\":{\"token\":\"$TOK\"}}"
                note message "{\"level\":\"info\",\"data\":\"$(printf %04085d 0)$TOK\"}"
                note progress "{\"progressToken\":$token,\"progress\":1,\"message\":\"with $TOK\"}"
                printf '{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"Use %s?","requestedSchema":{"type":"object","properties":{}}}}\n' "$KEY";;
            *'"action":"accept"'*) id=$call; say '"result":{"content":[{"type":"text","text":"used"}]}';;
            *'"name":"error"'*) say "\"error\":{\"code\":-32000,\"message\":\"bad token $TOK\"}";;
            *'"name":"failed"'*) say "\"result\":{\"isError\":true,\"content\":[{\"type\":\"text\",\"text\":\"bad token $TOK\"}]}";;
            *'"name":"odd"'*) say "\"result\":{\"content\":7,\"why\":\"bad token $TOK\"}";;
            esac
        done"#;

    async fn server() -> McpServer {
        let mut config = McpConfig::program("sh", ["-c", SERVER]);
        if let Endpoint::Program { env, .. } = &mut config.endpoint {
            env.insert("TOK".to_owned(), "a-secret-token".to_owned());
            env.insert("KEY".to_owned(), "${CARGO_MANIFEST_DIR}".to_owned());
            env.insert("LEVEL".to_owned(), "info".to_owned());
        }
        McpServer::connect("s", config).await.expect("it connects")
    }

    #[tokio::test]
    async fn no_error_of_a_server_shows_the_secrets_of_its_configuration() {
        let server = server().await;
        let tools = server.tools();
        assert_eq!(tools.len(), 4);
        for tool in &tools[1..] {
            let error = tool.call(json!({}), ToolCx::new("c")).await.unwrap_err().to_string();
            assert!(error.contains("bad token $TOK") && !error.contains("secret"), "{error}");
        }
        server.close().await;
    }

    #[tokio::test]
    async fn no_output_question_or_description_of_a_server_shows_them() {
        let server = server().await;
        let tool = &server.tools()[0];
        assert_eq!(tool.spec().description, "Uses $CARGO_MANIFEST_DIR.");
        let told = Arc::new(Mutex::new(Vec::new()));
        let (tells, asks) = (told.clone(), told.clone());
        let cx = ToolCx::new("c").with_output(move |chunk| tells.lock().unwrap().push(chunk.to_owned()));
        let cx = cx.with_asks(move |question| {
            asks.lock().unwrap().push(question.message);
            Box::pin(async { Ok(ToolAnswer::Accept(json!({}))) })
        });
        assert_eq!(tool.call(json!({}), cx).await.unwrap().text, "used");
        let told = told.lock().unwrap().clone();
        // A longer line would have ended in the middle of the token.
        let full = format!("[info] {}$TOK\n", "0".repeat(4_085));
        let wanted =
            ["[info $TOK] {\"token\":\"$TOK\"}\n", &full, "[1] with $TOK\n", "Use $CARGO_MANIFEST_DIR?"];
        assert_eq!(told, wanted);
        server.close().await;
    }

    /// A server that logs as JSON, requests something before the session begins, never ends its list, and sends half an emoji.
    const ODD: &str = r#"
        say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
        echo '{"level":"info","message":"ready"}'
        while read -r line; do
            id=${line#*'"id":'}; id=${id%%[,\}]*}
            case $line in
            *'"initialize"'*)
                echo '{"jsonrpc":"2.0","id":"r","method":"roots/list"}'; read -r answer
                say '"result":{"protocolVersion":"2025-06-18"}';;
            *'"tools/list"'*) say '"result":{"tools":[{"name":"a","inputSchema":{}}],"nextCursor":"0"}';;
            *'"tools/call"'*)
                echo '{"level":"info","msg":"calling"}'
                say '"result":{"content":[{"type":"text","text":"half \ud83d","annotations":{"audience":"user"}}]}';;
            esac
        done"#;

    #[tokio::test]
    async fn oddities_of_a_server_do_no_harm() {
        let server = McpServer::connect("s", McpConfig::program("sh", ["-c", ODD])).await.unwrap();
        assert!(
            server
                .logged()
                .concat()
                .contains("a line on its stdout is not a message: it answers no open request")
        );
        let tools = server.tools();
        assert_eq!(tools.len(), 1);
        let result = tools[0].call(json!({}), ToolCx::new("c")).await;
        assert_eq!(result.unwrap().text, "half \u{fffd}");
        server.close().await;
    }
}
