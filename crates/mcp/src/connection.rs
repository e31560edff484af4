//! Connecting to a server.

use std::{
    collections::{HashMap, VecDeque},
    env,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, redirect::Policy};
use rmcp::{
    RoleClient, serve_client,
    service::{ClientInitializeError, RunningService},
    transport::{
        StreamableHttpClientTransport, common::client_side_sse::SseRetryPolicy,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use superstep_llm::{http::client_builder, timers::check_timers};
use tokio::{
    io::AsyncReadExt,
    process::{ChildStderr, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    Endpoint, MAX_MESSAGE_BYTES, McpConfig,
    config::HANDED_ON,
    http::Bounded,
    notifications::{CallListeners, Notifications},
    observed_transport::ObservedTransport,
    program::Program,
    running::{GRACE, Pipes, Running},
    secrets::{Secrets, looked_up},
};

/// A connection to a server. Dropping it ends the session.
pub(crate) type Connection = RunningService<RoleClient, Arc<CallListeners>>;

/// The maximum number of bytes retained from a program's stderr.
const MAX_STDERR_BYTES: usize = 2_000;

/// The time limit for a failed program to close its stderr: as long as for its end.
const WORDS_TIMEOUT: Duration = GRACE.saturating_mul(3);

/// The time that an idle connection to an address stays open for the next call. Servers close theirs after
/// five seconds or more.
const KEPT_OPEN: Duration = Duration::from_secs(4);

/// The maximum number of redirects of one address.
const MAX_REDIRECTS: usize = 10;

/// The number of reconnections of a broken stream of answers, and the delays before them.
#[derive(Debug)]
struct Reconnects;

impl SseRetryPolicy for Reconnects {
    fn retry(&self, times: usize) -> Option<Duration> {
        // A caller waits for the answer; without a limit, a lost server would never be detected.
        const WAITS_MS: [u64; 4] = [250, 500, 1_000, 2_000];
        WAITS_MS.get(times).copied().map(Duration::from_millis)
    }
}

/// Starts the program or contacts the address, and negotiates a protocol version.
///
/// # Errors
/// The problem, without secrets.
pub(crate) async fn connect(
    config: &McpConfig,
    notifications: Arc<Notifications>,
) -> Result<Connection, String> {
    check_timers().map_err(|error| error.to_string())?;
    let listeners = Arc::new(CallListeners::new(notifications.clone()));
    match &config.endpoint {
        Endpoint::Program { command, args, env, cwd } => {
            let (env, secrets) = looked_up(env)?;
            notifications.hide(secrets.clone());
            if let Some(cwd) = cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
                return Err(format!("the working folder `{}` does not exist", cwd.display()));
            }
            let spawned = spawn(command, args, env, cwd.as_deref());
            let (running, Pipes { stdin, stdout, stderr }) = spawned.map_err(|cause| match cause.kind() {
                std::io::ErrorKind::NotFound => format!("program `{command}` not found"),
                _ => format!("`{command}` cannot be started: {cause}"),
            })?;
            let last_words = StderrTail::of(stderr, secrets.longest());
            let transport = Program::new(running, stdin, stdout, notifications.clone());
            let transport = ObservedTransport::new(transport, listeners.clone());
            let served = in_time(config.start_timeout, serve_client(listeners, transport)).await;
            match served {
                Ok(connection) => Ok(connection),
                Err(problem) => {
                    // What it sent instead of an answer.
                    let noise = notifications.take().pop().map(|line| format!("; {}", line.trim_end()));
                    let problem = secrets.short(problem + &noise.unwrap_or_default());
                    Err(last_words.after(problem, &secrets).await)
                }
            }
        }
        Endpoint::Http { url, headers } => {
            let mut read = HashMap::new();
            let (headers, secrets) = looked_up(headers)?;
            notifications.hide(secrets.clone());
            for (name, value) in headers {
                let bad = |_| format!("header `{name}` has a name or a value that HTTP does not allow");
                let header: HeaderName = name.parse().map_err(|_| bad(()))?;
                let mut value: HeaderValue = value.parse().map_err(|_| bad(()))?;
                value.set_sensitive(true);
                read.insert(header, value);
            }
            let mut transport = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(read)
                .max_sse_event_size(MAX_MESSAGE_BYTES);
            transport.retry_config = Arc::new(Reconnects);
            let transport = StreamableHttpClientTransport::with_client(Bounded(client()?), transport);
            let transport = ObservedTransport::new(transport, listeners.clone());
            let served = in_time(config.start_timeout, serve_client(listeners, transport)).await;
            served.map_err(|problem| secrets.short(problem))
        }
    }
}

async fn in_time(
    limit: Duration,
    served: impl Future<Output = Result<Connection, ClientInitializeError>>,
) -> Result<Connection, String> {
    match timeout(limit, served).await {
        Ok(served) => served.map_err(|error| problem_of(&error)),
        Err(_) => Err(format!("it did not answer for {} ms", limit.as_millis())),
    }
}

/// Describes why a session did not begin. The texts of rmcp contain names of types and debug output.
fn problem_of(error: &ClientInitializeError) -> String {
    use ClientInitializeError as Begin;
    match error {
        Begin::TransportError { error, .. } => error.error.to_string(),
        Begin::ConnectionClosed(_) => "it ended before the session began".to_owned(),
        Begin::JsonRpcError(refused) => format!("it rejected the session: {}", refused.message),
        Begin::ExpectedInitResponse(_) | Begin::ExpectedInitResult(_) => {
            "its reply to `initialize` does not follow the protocol".to_owned()
        }
        Begin::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<_> = server_supported.iter().map(ToString::to_string).collect();
            format!("it supports only other versions of the protocol: {}", versions.join(", "))
        }
        Begin::LegacyFallbackFailed { fallback, .. } => problem_of(fallback),
        other => other.to_string(),
    }
}

fn spawn(
    command: &str,
    args: &[String],
    env: Vec<(String, String)>,
    cwd: Option<&Path>,
) -> std::io::Result<(Running, Pipes)> {
    let mut program = Command::new(command);
    let handed_on = HANDED_ON.iter().filter_map(|name| Some((name, env::var_os(name)?)));
    program.args(args).env_clear().envs(handed_on).envs(env);
    if let Some(cwd) = cwd {
        program.current_dir(cwd);
    }
    Running::start(program)
}

/// Creates the client for an address, with connections shared by calls. A redirect is followed only if the
/// message and the secrets of the configuration go to the same server.
fn client() -> Result<Client, String> {
    let same_server = Policy::custom(|attempt| {
        let keeps_message =
            [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT].contains(&attempt.status());
        let first = attempt.previous().first().map(|url| url.origin());
        if !keeps_message || first != Some(attempt.url().origin()) || attempt.previous().len() > MAX_REDIRECTS
        {
            attempt.stop()
        } else {
            attempt.follow()
        }
    });
    let failed = |cause: &dyn std::fmt::Display| format!("cannot create an HTTP client: {cause}");
    let client = client_builder().map_err(|cause| failed(&cause))?;
    client.pool_idle_timeout(KEPT_OPEN).redirect(same_server).build().map_err(|cause| failed(&cause))
}

/// The end of a program's stderr, for error messages.
struct StderrTail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    listening: JoinHandle<()>,
    /// The maximum number of stored bytes, chosen so that no secret crosses the start of the shown text.
    most: usize,
}

impl StderrTail {
    /// Reads until the program closes its stderr, on which it may print secrets of at most this length.
    fn of(stderr: ChildStderr, longest: usize) -> Self {
        let most = MAX_STDERR_BYTES + longest;
        let kept = Arc::<Mutex<VecDeque<u8>>>::default();
        let listen = |mut stderr: ChildStderr| {
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.extend(&buffer[..read]);
                    let surplus = kept.len().saturating_sub(most);
                    kept.drain(..surplus);
                }
            })
        };
        let listening = listen(stderr);
        Self { kept, listening, most }
    }

    /// Appends the end of stderr to a problem. The program has ended by now.
    async fn after(self, problem: String, secrets: &Secrets) -> String {
        let _ = timeout(WORDS_TIMEOUT, self.listening).await;
        let words: Vec<u8> =
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let shown = secrets.hide_in(String::from_utf8_lossy(&words).into_owned());
        // The stored text may begin in the middle of a secret.
        let surplus = if words.len() < self.most { 0 } else { secrets.longest() };
        let surplus = shown.ceil_char_boundary(surplus.max(shown.len().saturating_sub(MAX_STDERR_BYTES)));
        match shown[surplus..].trim() {
            "" => problem,
            words => format!("{problem}; its output was: {words}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_does_not_begin_has_a_reason_without_names_of_types() {
        type Transport = ObservedTransport<Program>;
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let unsent = ClientInitializeError::transport::<Transport>(refused.into(), "send initialize request");
        for (error, wanted) in [
            (unsent, "connection refused"),
            (ClientInitializeError::ConnectionClosed("x".to_owned()), "it ended before the session began"),
            (
                ClientInitializeError::ExpectedInitResult(None),
                "its reply to `initialize` does not follow the protocol",
            ),
        ] {
            assert_eq!(problem_of(&error), wanted);
        }
    }
}
