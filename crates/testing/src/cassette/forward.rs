//! The real server behind a recording.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use reqwest::{Client, Method, Url};
use superstep_llm::http;

use super::{
    lock,
    tape::{Exchange, HEAD, Recorded, Removals, Reply},
};
use crate::wire::Received;

/// The headers of a connection, which the client of the real server sets itself.
const OF_CONNECTION: [&str; 5] =
    ["accept-encoding", "connection", "content-length", "host", "transfer-encoding"];

/// A client of the real server, and the file that receives the exchanges.
#[derive(Debug)]
pub(super) struct Forward {
    client: Client,
    upstream: Url,
    path: PathBuf,
    file: Mutex<fs::File>,
}

impl Forward {
    pub(super) fn new(upstream: &str, path: &Path) -> io::Result<Self> {
        let upstream = http::base_url(upstream);
        let upstream = upstream.map_err(|problem| io::Error::other(format!("the upstream {problem}")))?;
        let client = http::client(&upstream, Duration::from_secs(30)).map_err(io::Error::other)?;
        let mut file = fs::File::create(path)?;
        file.write_all(HEAD.as_bytes())?;
        Ok(Self { client, upstream, path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Passes a request to the real server, and adds the exchange to the file. The reply is that of a replay, without secrets.
    ///
    /// # Errors
    /// If there is no reply, or it cannot be written.
    pub(super) async fn exchange(
        &self,
        received: Received,
        request: Recorded,
        removals: &Removals,
    ) -> Result<Reply, String> {
        let failed = |what: String| format!("the recording of `{}` failed: {what}\n", request.line);
        let (method, path) = received.line.split_once(' ').unwrap_or(("", &received.line));
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| failed(error.to_string()))?;
        let url = format!("{}{path}", self.upstream.as_str().trim_end_matches('/'));
        let mut sent = self.client.request(method, url).body(received.text.clone());
        for (name, value) in &received.headers {
            if !OF_CONNECTION.contains(&name.as_str()) {
                sent = sent.header(name, value);
            }
        }
        // An error may repeat the address with its query.
        let hidden = |error: reqwest::Error| failed(removals.of(&http::root_cause(&error.without_url())));
        let replied = sent.send().await.map_err(hidden)?;
        let status = replied.status().as_u16();
        let headers = replied.headers().iter();
        let headers: Vec<_> = headers
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .collect();
        let body = replied.bytes().await.map_err(hidden)?;
        let text = String::from_utf8_lossy(&body);
        let reply = Reply::of(status, headers.into_iter(), &text, removals);
        let exchange = Exchange { request, reply };
        let written = lock(&self.file).write_all(exchange.to_string().as_bytes());
        let path = self.path.display();
        written.map_err(|error| format!("cassette {path} cannot be written: {error}\n"))?;
        Ok(exchange.reply)
    }
}
