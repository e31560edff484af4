//! Hostile model servers.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{loopback::Loopback, wire::receive};

/// The answer of a hostile server to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attack {
    /// Endless text.
    Tokens,
    /// Endless text, one letter in each event.
    Letters,
    /// Endless reasoning.
    Reasoning,
    /// One endless line.
    Line,
    /// Endless events of empty lists, of the maximum line length.
    Lists,
    /// 30,000 tool calls.
    Calls,
    /// Endless arguments of one call.
    Arguments,
    /// Arguments of 100,000 nested objects.
    Depth,
    /// Arguments of 100,000 small objects.
    Values,
    /// Endless comments, as fast as they are read.
    Comments,
    /// Endless events without content.
    Nothing,
    /// Endless single bytes with delays.
    Slow,
    /// A complete answer, then endless comments.
    Behind,
    /// An endless answer that is not a stream.
    Body,
    /// An endless error body.
    Error,
    /// Endless headers.
    Headers,
    /// Bytes with a `Content-Encoding` of compression.
    Packed,
    /// Any bytes.
    Garbage,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Tokens,
        Self::Letters,
        Self::Reasoning,
        Self::Line,
        Self::Lists,
        Self::Calls,
        Self::Arguments,
        Self::Depth,
        Self::Values,
        Self::Comments,
        Self::Nothing,
        Self::Slow,
        Self::Behind,
        Self::Body,
        Self::Error,
        Self::Headers,
        Self::Packed,
        Self::Garbage,
    ];

    fn head(self) -> &'static str {
        match self {
            Self::Headers => "HTTP/1.1 200 OK\r\n",
            Self::Error => "HTTP/1.1 500 Hostile\r\ncontent-type: text/plain\r\n\r\nno such luck ",
            Self::Body => {
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"choices\":[{\"message\":{\"content\":\""
            }
            Self::Packed => {
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n"
            }
            Self::Line => {
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\""
            }
            _ => "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
        }
    }

    /// Returns the next data; `None` at the end.
    fn next(self, n: u64, rng: &mut StdRng) -> Option<Vec<u8>> {
        let event = |delta: &str| format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
        let call = |arguments: &str| {
            let arguments = serde_json::Value::from(arguments);
            let call =
                format!(r#""index":0,"id":"c","function":{{"name":"calculate","arguments":{arguments}}}"#);
            event(&format!(r#"{{"tool_calls":[{{{call}}}]}}"#)).into_bytes()
        };
        Some(match self {
            Self::Tokens => event(&format!(r#"{{"content":"{}"}}"#, "so ".repeat(1000))).into_bytes(),
            Self::Letters => event(r#"{"content":"a"}"#).repeat(100).into_bytes(),
            Self::Reasoning => event(&format!(r#"{{"reasoning":"{}"}}"#, "hm ".repeat(1000))).into_bytes(),
            Self::Line | Self::Body | Self::Error => vec![b'a'; 997],
            Self::Lists => format!("data: {{\"choices\":[{}]}}\n\n", vec!["{}"; 300_000].join(",")).into_bytes(),
            Self::Calls if n == 30_000 => {
                b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n".to_vec()
            }
            Self::Calls if n > 30_000 => return None,
            Self::Calls => event(&format!(
                r#"{{"tool_calls":[{{"index":{n},"id":"c{n}","function":{{"name":"calculate","arguments":"{{}}"}}}}]}}"#
            ))
            .into_bytes(),
            Self::Arguments => call(&"1+".repeat(1000)),
            Self::Depth | Self::Values if n > 0 => return None,
            Self::Depth => call(&r#"{"a":"#.repeat(100_000)),
            Self::Values => call(&format!(r#"{{"a":[{}]}}"#, vec![r#"{"":0}"#; 100_000].join(","))),
            Self::Comments => b": still here\n\n".repeat(100),
            Self::Nothing => b"data: {}\n\ndata: {\"choices\":[]}\n\ndata:\n\n\n\n\r\r\n".repeat(100),
            Self::Slow => vec![b':'],
            Self::Behind if n == 0 => {
                b"data: {\"choices\":[{\"delta\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}\n\n".to_vec()
            }
            Self::Behind => b": still here\n\n".repeat(100),
            Self::Headers => format!("x-{n}: {}\r\n", "a".repeat(1000)).into_bytes(),
            Self::Packed | Self::Garbage => {
                let mut bytes = vec![0; 1000];
                rng.fill_bytes(&mut bytes);
                bytes
            }
        })
    }
}

/// A server on a free loopback port that answers every request with an [`Attack`], until it is dropped.
#[derive(Debug)]
pub struct HostileServer {
    server: Loopback,
    sent: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
}

impl HostileServer {
    /// Starts a server; `seed` determines its random bytes.
    ///
    /// # Errors
    /// If no loopback port is free.
    pub async fn start(attack: Attack, seed: u64) -> io::Result<Self> {
        let (sent, requests) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counted, asked) = (sent.clone(), requests.clone());
        let server = Loopback::start(move |connection| {
            serve(connection, attack, seed, counted.clone(), asked.clone())
        });
        Ok(Self { server: server.await?, sent, requests })
    }

    /// Returns the base URL, as in `http://127.0.0.1:4711/v1`.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.server.url())
    }

    /// Returns the number of sent bytes, including those in the buffers of the connection.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of answered requests.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

async fn serve(
    mut connection: TcpStream,
    attack: Attack,
    seed: u64,
    sent: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
) -> io::Result<()> {
    if receive(&mut connection).await?.is_none() {
        return Ok(());
    }
    requests.fetch_add(1, Ordering::Relaxed);
    let mut rng = StdRng::seed_from_u64(seed);
    connection.write_all(attack.head().as_bytes()).await?;
    for n in 0.. {
        let Some(bytes) = attack.next(n, &mut rng) else { break };
        connection.write_all(&bytes).await?;
        sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if attack == Attack::Slow {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    connection.shutdown().await
}
