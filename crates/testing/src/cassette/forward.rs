//! The real server behind a recording.

use std::{
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use reqwest::{Client, Method, Url};
use superstep_llm::http;

use super::{
    lock,
    secrets::{Removals, of_body, of_headers, of_request},
    tape::{Exchange, HEAD, Recorded, Reply},
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
    recording: Mutex<Recording>,
}

/// The exchanges of a recording as they were, because a later one may show that an earlier one has a secret.
struct Recording {
    removals: Removals,
    exchanges: Vec<Original>,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} exchanges", self.exchanges.len())
    }
}

/// An exchange with its secrets.
struct Original {
    request: Received,
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Original {
    fn without(&self, removals: &Removals) -> Exchange {
        let Self { request, status, headers, body } = self;
        let reply = Reply::of(*status, headers, body, removals);
        Exchange { request: Recorded::of(request, removals), reply }
    }

    /// Returns the exchange as it is stored.
    ///
    /// # Errors
    /// The place of a secret that it would still have.
    fn checked(&self, removals: &Removals) -> Result<Exchange, String> {
        let exchange = self.without(removals);
        exchange.check(removals).map_err(|place| {
            let line = &exchange.request.line;
            format!("the recording of `{}` is refused: there is a secret in {place}\n", removals.of(line))
        })?;
        Ok(exchange)
    }
}

impl Forward {
    pub(super) fn new(upstream: &str, path: &Path, removals: Removals) -> io::Result<Self> {
        let upstream = http::base_url(upstream);
        let upstream = upstream.map_err(|problem| io::Error::other(format!("the upstream {problem}")))?;
        let client = http::client(&upstream, Duration::from_secs(30)).map_err(io::Error::other)?;
        fs::write(path, HEAD)?;
        let recording = Mutex::new(Recording { removals, exchanges: Vec::new() });
        Ok(Self { client, upstream, path: path.to_owned(), recording })
    }

    /// Passes a request to the real server, and adds the exchange to the file. The reply is that of a replay, without secrets.
    ///
    /// # Errors
    /// If there is no reply, it has a secret that cannot be removed, or it cannot be written.
    pub(super) async fn exchange(&self, received: Received) -> Result<Reply, String> {
        let removals = lock(&self.recording).removals.with(&received);
        let line = removals.of_line(&received.line);
        let failed = |what: String| format!("the recording of `{line}` failed: {what}\n");
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
        if let Some((_, encoding)) =
            headers.iter().find(|(name, value)| name == "content-encoding" && value != "identity")
        {
            return Err(failed(format!(
                "the reply is encoded as `{encoding}`, so that it cannot be searched for secrets"
            )));
        }
        let body = String::from_utf8(body.into());
        let body = body.map_err(|_| {
            failed("the reply is not UTF-8, so that it cannot be searched for secrets".into())
        })?;
        self.add(Original { request: received, status, headers, body })
    }

    /// Adds an exchange to the file. If it shows secrets that earlier ones have, the whole file is written again.
    fn add(&self, new: Original) -> Result<Reply, String> {
        let mut recording = lock(&self.recording);
        let Recording { removals, exchanges } = &mut *recording;
        let headers = new.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let secrets =
            of_request(&new.request).into_iter().chain(of_headers(headers)).chain(of_body(&new.body));
        let is_known = !removals.add(secrets);
        let added = new.checked(removals);
        let mut failure = None;
        let written = match (is_known, &added) {
            (true, Err(_)) => Ok(()),
            (true, Ok(added)) => {
                let file = fs::OpenOptions::new().append(true).open(&self.path);
                file.and_then(|mut file| file.write_all(added.to_string().as_bytes()))
            }
            (false, _) => {
                let mut text = HEAD.to_owned();
                exchanges.retain(|exchange| match exchange.checked(removals) {
                    Ok(exchange) => {
                        text.push_str(&exchange.to_string());
                        true
                    }
                    Err(problem) => {
                        failure.get_or_insert(problem);
                        false
                    }
                });
                text.extend(added.iter().map(Exchange::to_string));
                fs::write(&self.path, text)
            }
        };
        let path = self.path.display();
        written.map_err(|error| format!("cassette {path} cannot be written: {error}\n"))?;
        let added = added?;
        exchanges.push(new);
        match failure {
            Some(failure) => Err(failure),
            None => Ok(added.reply),
        }
    }
}
