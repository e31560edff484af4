//! Real HTTP traffic with a model, recorded once and replayed without a network.
//!
//! ```text
//! record   client ─▶ loopback ─▶ real server       each exchange is added to the file, without keys
//! replay   client ─▶ loopback ─▶ file              a request that differs from the recorded one fails
//! ```
//!
//! Start at [`Cassette`].

#[cfg(feature = "record")]
mod forward;
mod secrets;
mod tape;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{io::AsyncWriteExt, net::TcpStream};

use self::{
    secrets::Removals,
    tape::{Exchange, Recorded, Reply, read},
};
use crate::{
    expectations::{checked_at_end, difference},
    loopback::Loopback,
    wire::receive,
};

/// The environment variable that makes [`Cassette::start`] record, if it is `record`.
pub const CASSETTE_VARIABLE: &str = "SUPERSTEP_CASSETTE";

/// A file of HTTP exchanges with a server, and the settings of its recording.
///
/// The file has a JSON value per line: the request with its body, the status of the reply, and its body or its events, one per
/// line. It has no headers of requests, and no values of queries. Of replies it has the type of the content and `retry-after`.
/// From all else the following texts are removed, as they are and with the escapes of JSON: the values of headers that carry
/// keys, tokens or cookies, the values of parameters and fields such as `api_key`, `token` and `password`, and the
/// [secrets](Self::secret) that the test names. An exchange that still has a secret in a string of its JSON, or split over the
/// events of a stream, or that is not UTF-8, is not written and fails the test.
///
/// # Example
/// ```
/// use superstep_testing::cassette::Cassette;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("weather.jsonl");
/// # std::fs::write(&path, "{\"cassette\":1}\n{\"request\":\"GET /models\"}\n{\"status\":200}\n{\"body\":{\"data\":[]}}\n")?;
/// // Replays the file; `SUPERSTEP_CASSETTE=record cargo test` records it.
/// let server = Cassette::new(&path).upstream("https://api.openai.com/v1").start().await?;
/// let base_url = server.base_url(); // For any client.
/// # assert!(base_url.starts_with("http://127.0.0.1:"));
/// assert_eq!(server.unused(), 1); // A test whose client did not use all exchanges fails.
/// # std::mem::forget(server);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a cassette does nothing until it starts"]
pub struct Cassette {
    path: PathBuf,
    upstream: Option<String>,
    secrets: Vec<String>,
}

impl Cassette {
    /// Creates the settings of a cassette in this file.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), upstream: None, secrets: Vec::new() }
    }

    /// Sets the base URL of the real server, to which a recording appends the paths of requests.
    pub fn upstream(mut self, base_url: impl Into<String>) -> Self {
        self.upstream = Some(base_url.into());
        self
    }

    /// Removes a text from all that is stored, beside the keys in headers.
    ///
    /// A short one is removed from all words that contain it. Base64 and other encodings of it are not found.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Starts a replay, or a recording if the variable `SUPERSTEP_CASSETTE` is `record`.
    ///
    /// # Errors
    /// Those of [`replay`](Self::replay) and `record`. A recording needs the feature `record`.
    pub async fn start(self) -> io::Result<CassetteServer> {
        if std::env::var(CASSETTE_VARIABLE).is_ok_and(|mode| mode == "record") {
            #[cfg(feature = "record")]
            return self.record().await;
            #[cfg(not(feature = "record"))]
            return Err(io::Error::other("the recording of a cassette needs the feature `record`"));
        }
        self.replay().await
    }

    /// Starts a server that replays the file.
    ///
    /// # Errors
    /// If the file cannot be read or is not a cassette, or no loopback port is free.
    pub async fn replay(self) -> io::Result<CassetteServer> {
        let shown = self.path.display();
        let text = fs::read_to_string(&self.path)
            .map_err(|error| io::Error::new(error.kind(), format!("cassette {shown}: {error}")))?;
        let exchanges =
            read(&text).map_err(|error| io::Error::other(format!("cassette {shown}, {error}")))?;
        let open = exchanges.into_iter().map(Some).collect();
        let removals = Removals::new(self.secrets);
        CassetteServer::serve(Source::Replay(Mutex::new(open), removals)).await
    }

    /// Starts a server that passes requests to the real server, and writes the exchanges to the file in place of those that it
    /// had.
    ///
    /// # Errors
    /// If there is no valid [upstream](Self::upstream), the file cannot be written, or no loopback port is free.
    #[cfg(feature = "record")]
    pub async fn record(self) -> io::Result<CassetteServer> {
        let upstream = self.upstream.ok_or_else(|| io::Error::other("a recording needs an upstream"))?;
        let forward = forward::Forward::new(&upstream, &self.path, Removals::new(self.secrets))?;
        CassetteServer::serve(Source::Record(forward)).await
    }
}

/// A loopback server that replays or records a [`Cassette`], until it is dropped.
///
/// A request that differs from the recorded one gets an error that is not retried. Equal requests get their replies in the order of
/// the recording. It panics when it is dropped, if a request differed, or not all recorded ones arrived; not if its thread
/// panics already.
#[derive(Debug)]
pub struct CassetteServer {
    server: Loopback,
    player: Arc<Player>,
    is_over: bool,
}

#[derive(Debug)]
struct Player {
    source: Source,
    failure: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Source {
    /// The exchanges, each until it is used, and what requests do not have.
    Replay(Mutex<Vec<Option<Exchange>>>, Removals),
    #[cfg(feature = "record")]
    Record(forward::Forward),
}

impl CassetteServer {
    async fn serve(source: Source) -> io::Result<Self> {
        let player = Arc::new(Player { source, failure: Mutex::default() });
        let shared = player.clone();
        let server = Loopback::start(move |connection| answer(connection, shared.clone())).await?;
        Ok(Self { server, player, is_over: false })
    }

    /// Returns the base URL in place of that of the real server, without a path.
    pub fn base_url(&self) -> String {
        self.server.url()
    }

    /// Returns the number of recorded exchanges that were not used.
    pub fn unused(&self) -> usize {
        match &self.player.source {
            Source::Replay(open, _) => lock(open).iter().flatten().count(),
            #[cfg(feature = "record")]
            Source::Record(_) => 0,
        }
    }

    /// Checks that every request was recorded, and every recorded one arrived. A recording checks that every request got a reply.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self) -> Result<(), String> {
        if let Some(failure) = &*lock(&self.player.failure) {
            return Err(failure.clone());
        }
        match self.unused() {
            0 => Ok(()),
            count => Err(format!("{count} recorded exchanges were not used")),
        }
    }
}

checked_at_end!(CassetteServer, "If a request differed, or not all recorded ones arrived.");

impl Player {
    /// Returns the reply to a request; its failure is that of the test.
    async fn reply(&self, received: crate::wire::Received) -> Reply {
        let reply = match &self.source {
            Source::Replay(open, removals) => {
                let request = Recorded::of(&received, &removals.with(&received));
                take(&mut lock(open), &request)
            }
            #[cfg(feature = "record")]
            Source::Record(forward) => forward.exchange(received).await,
        };
        reply.unwrap_or_else(|failure| {
            lock(&self.failure).get_or_insert(failure.clone());
            Reply::error(&failure)
        })
    }
}

/// Takes the reply to a request that was recorded.
///
/// # Errors
/// The difference from the next recorded one.
fn take(open: &mut [Option<Exchange>], request: &Recorded) -> Result<Reply, String> {
    let equal = open.iter().position(|open| open.as_ref().is_some_and(|open| open.request == *request));
    if let Some(exchange) = equal.and_then(|position| open[position].take()) {
        return Ok(exchange.reply);
    }
    let count = open.len();
    let next = open.iter().enumerate().find_map(|(position, open)| Some((position, open.as_ref()?)));
    let Some((position, next)) = next else {
        return Err(format!("a request after the {count} recorded ones: {}\n", request.line));
    };
    let mut text = format!("the request differs from recorded request {} of {count}\n", position + 1);
    if next.request.line != request.line {
        text.push_str(&difference("request", &next.request.line, &request.line));
    }
    if next.request.body != request.body {
        let [expected, got] = [&next.request.body, &request.body].map(|body| format!("{body:#}"));
        text.push_str(&difference("body", &expected, &got));
    }
    Err(text)
}

async fn answer(mut connection: TcpStream, player: Arc<Player>) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let Some(received) = receive(&mut connection).await? else { return Ok(()) };
    let reply = player.reply(received).await;
    let mut head = format!("HTTP/1.1 {} Recorded\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let body = reply.bytes();
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(&body).await?;
    connection.shutdown().await
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
