//! A server on loopback that plays a script over HTTP.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    expect::Expect,
    loopback::Loopback,
    progress::Progress,
    provider::{Refused, Rules},
    script::{Answer, Piece, Reads, Script},
};

/// Plays a [`Script`] as a chat-completions server on a free loopback port, until it is dropped.
///
/// Each part of an answer is an HTTP chunk of its own, so that a client reads exactly the pieces of the
/// script.
#[derive(Debug)]
pub struct WireServer {
    server: Loopback,
    state: State,
}

/// The state of a server, which its connections share.
#[derive(Clone, Debug)]
struct State {
    progress: Arc<Mutex<Progress>>,
    received: Arc<Mutex<Vec<Received>>>,
}

/// A received request.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The request line: `POST /v1/chat/completions`.
    pub line: String,
    /// Headers with lower-case names; the values of a repeated one are joined.
    pub headers: BTreeMap<String, String>,
    /// The body, byte for byte.
    pub text: String,
    /// The body as JSON; null if it is not JSON.
    pub body: Value,
}

impl WireServer {
    /// Starts a server that plays `script`, and rejects the requests that providers reject.
    ///
    /// # Errors
    /// If no loopback port is free.
    pub async fn start(script: Script) -> io::Result<Self> {
        Self::start_with(script, Rules::default()).await
    }

    /// Starts a server that plays `script`, and rejects requests that violate these rules.
    ///
    /// # Errors
    /// If no loopback port is free.
    pub async fn start_with(script: Script, rules: Rules) -> io::Result<Self> {
        Self::play(Progress::new(script, rules)).await
    }

    /// Starts a server whose requests the test expects one after the other, each with its reply: see [`Expect`].
    ///
    /// # Errors
    /// If no loopback port is free.
    pub async fn pair() -> io::Result<(Self, Expect)> {
        let server = Self::play(Progress::expecting(Rules::default())).await?;
        let expect = Expect::new(server.state.progress.clone());
        Ok((server, expect))
    }

    async fn play(progress: Progress) -> io::Result<Self> {
        let state = State { progress: Arc::new(Mutex::new(progress)), received: Arc::default() };
        let shared = state.clone();
        let server = Loopback::start(move |connection| serve(connection, shared.clone())).await?;
        Ok(Self { server, state })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.state.progress)
    }

    /// Returns the base URL, as in `http://127.0.0.1:4711/v1`.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.server.url())
    }

    /// Returns the bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.received().into_iter().map(|received| received.body).collect()
    }

    /// Returns all requests so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.state.received).clone()
    }

    /// Returns the number of unused answers.
    pub fn unused(&self) -> usize {
        self.progress().unused()
    }

    /// Returns the requests that were refused.
    pub fn refused(&self) -> Vec<Refused> {
        self.progress().refused()
    }

    /// Checks that there were exactly as many requests as answers, and that none was rejected.
    ///
    /// # Errors
    /// The difference.
    pub fn check(&self) -> Result<(), String> {
        self.progress().check()
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(mut connection: TcpStream, state: State) -> io::Result<()> {
    connection.set_nodelay(true)?;
    // A connection without a request is ignored.
    let Some(received) = receive(&mut connection).await? else {
        return Ok(());
    };
    let answer = {
        let mut progress = lock(&state.progress);
        let answer = if received.line.ends_with("/chat/completions") {
            progress.answer(&received.body)
        } else {
            progress.next()
        };
        lock(&state.received).push(received);
        answer
    };
    match answer {
        Answer::NoConnection => Ok(()),
        Answer::Http { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} Scripted\r\nconnection: close\r\n");
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
            connection.write_all(head.as_bytes()).await?;
            connection.shutdown().await
        }
        Answer::Stream { pieces, reads } => stream(connection, pieces, reads).await,
    }
}

pub(crate) async fn receive(connection: &mut TcpStream) -> io::Result<Option<Received>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if connection.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let (name, value) = (name.to_lowercase(), value.trim());
        // A repeated header is a list.
        let separator = if name == "cookie" { "; " } else { ", " };
        headers
            .entry(name)
            .and_modify(|values| values.extend([separator, value]))
            .or_insert_with(|| value.to_owned());
    }
    let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while bytes.len() < head_end + 4 + length {
        if connection.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let text = String::from_utf8_lossy(&bytes[head_end + 4..]).into_owned();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Some(Received { line, headers, text, body }))
}

async fn stream(mut connection: TcpStream, pieces: Vec<Piece>, reads: Reads) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    connection.write_all(head.as_bytes()).await?;
    let mut cutter = Cutter::new(reads);
    for piece in pieces {
        match piece {
            Piece::Data(_) => {
                for part in cutter.push(&piece.bytes()) {
                    write_chunk(&mut connection, &part).await?;
                }
                continue;
            }
            Piece::Delay(_) | Piece::Stall | Piece::Cut => {
                write_chunk(&mut connection, &cutter.rest()).await?
            }
        }
        match piece {
            Piece::Delay(wait) => tokio::time::sleep(wait).await,
            Piece::Stall => {
                // Until the client disconnects.
                let mut nothing = [0; 64];
                while connection.read(&mut nothing).await? > 0 {}
                return Ok(());
            }
            // Closed without the last HTTP chunk: the client has an error after it has read all data, while a
            // reset might overtake the data.
            Piece::Data(_) | Piece::Cut => return connection.shutdown().await,
        }
    }
    write_chunk(&mut connection, &cutter.rest()).await?;
    connection.write_all(b"0\r\n\r\n").await?;
    connection.shutdown().await
}

async fn write_chunk(connection: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    // An empty chunk would end the answer.
    if bytes.is_empty() {
        return Ok(());
    }
    let mut frame = format!("{:x}\r\n", bytes.len()).into_bytes();
    frame.extend_from_slice(bytes);
    frame.extend_from_slice(b"\r\n");
    connection.write_all(&frame).await?;
    connection.flush().await
}

/// Splits a stream of bytes into the reads of a script.
struct Cutter {
    reads: Reads,
    sent: usize,
    held: Vec<u8>,
}

impl Cutter {
    fn new(reads: Reads) -> Self {
        Self { reads, sent: 0, held: Vec::new() }
    }

    /// Returns the parts that are complete with `bytes`.
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        match &self.reads {
            Reads::PerEvent => parts.push(bytes.to_vec()),
            Reads::Bytewise => parts.extend(bytes.iter().map(|byte| vec![*byte])),
            Reads::At(positions) => {
                for byte in bytes {
                    if positions.contains(&self.sent) {
                        parts.push(std::mem::take(&mut self.held));
                    }
                    self.held.push(*byte);
                    self.sent += 1;
                }
            }
        }
        parts
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_where_the_script_says() {
        let mut cutter = Cutter::new(Reads::At(vec![2, 5]));
        assert_eq!(cutter.push(b"abcd"), [b"ab".to_vec()]);
        assert_eq!(cutter.push(b"efg"), [b"cde".to_vec()]);
        assert_eq!(cutter.rest(), b"fg");
        assert_eq!(Cutter::new(Reads::Bytewise).push(b"ab"), [b"a".to_vec(), b"b".to_vec()]);
    }
}
