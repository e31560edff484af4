//! Requests to the ingress and to the admin API of Restate.
//!
//! Start at [`Http::call`].

use std::{error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use reqwest::{
    Client, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
    redirect::Policy,
};
use rustls::{
    ClientConfig,
    crypto::{CryptoProvider, ring},
};
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde_json::Value;
use superstep_checkpoint::CheckpointError;
use tokio::time::Instant;

/// The maximum wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The time for which requests are repeated that do not reach a node, or a node that cannot serve them.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest pause between two attempts, and the first one; each is twice as long as the one before.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// The longest part of a reply in an error.
const MAX_SHOWN: usize = 500;

/// A client of a cluster.
#[derive(Clone)]
pub(super) struct Http {
    client: Client,
    /// The URLs of one node or several.
    ingress: Vec<Url>,
    admin: Vec<Url>,
    pub(super) token: Option<Arc<str>>,
    patience: Duration,
}

/// A failed request.
#[derive(Debug)]
pub(super) enum CallError {
    /// Restate cannot be reached, or refused the request.
    Failed(CheckpointError),
    /// The handler has ended with an error.
    Ended { status: StatusCode, message: String },
}

impl CallError {
    /// Returns whether a program outside has leased the thread.
    pub(super) fn is_locked(&self) -> bool {
        matches!(self, Self::Ended { status, .. } if *status == StatusCode::LOCKED)
    }
}

impl From<CallError> for CheckpointError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed(error) => error,
            CallError::Ended { message, .. } => Self::Storage { what: message, source: None },
        }
    }
}

impl Http {
    pub(super) fn new(url: &str) -> Result<Self, CheckpointError> {
        let ingress = parsed(url)?;
        let client = client(&ingress)
            .map_err(|cause| failed("the HTTP client of Restate cannot start".to_owned(), Some(cause)))?;
        Ok(Self { client, ingress: vec![ingress], admin: Vec::new(), token: None, patience: PATIENCE })
    }

    pub(super) fn add_ingress(&mut self, url: &str) -> Result<(), CheckpointError> {
        self.ingress.push(parsed(url)?);
        Ok(())
    }

    pub(super) fn add_admin(&mut self, url: &str) -> Result<(), CheckpointError> {
        self.admin.push(parsed(url)?);
        Ok(())
    }

    /// Calls a handler: object, key and name. With an idempotency key it is executed once.
    pub(super) async fn call(
        &self,
        (object, key, handler): (impl AsRef<str>, impl AsRef<str>, &str),
        idempotency_key: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Bytes, CallError> {
        self.post(&[object.as_ref(), key.as_ref(), handler], None, idempotency_key, body).await
    }

    /// Lets a handler be called after some time, and does not wait for it.
    pub(super) async fn send_later(
        &self,
        (object, key, handler): (impl AsRef<str>, impl AsRef<str>, &str),
        idempotency_key: &str,
        delay: Duration,
        body: Vec<u8>,
    ) -> Result<(), CallError> {
        let path = [object.as_ref(), key.as_ref(), handler, "send"];
        self.post(&path, Some(delay), Some(idempotency_key), body).await.map(drop)
    }

    async fn post(
        &self,
        path: &[&str],
        delay: Option<Duration>,
        idempotency_key: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Bytes, CallError> {
        let body = Bytes::from(body);
        let request = |ingress: &Url| {
            let mut url = below(ingress, path);
            if let Some(delay) = delay.filter(|delay| !delay.is_zero()) {
                url.query_pairs_mut().append_pair("delay", &format!("{}ms", delay.as_millis()));
            }
            let mut request = self.client.post(url);
            if !body.is_empty() {
                request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
            }
            match idempotency_key {
                Some(key) => request.header("idempotency-key", key),
                None => request,
            }
        };
        self.send(&self.ingress, request).await
    }

    /// Sends a request to the admin API, which replies with JSON.
    pub(super) async fn admin(&self, path: &str, body: &Value) -> Result<Value, CheckpointError> {
        if self.admin.is_empty() {
            let what = "threads are listed by the admin API of Restate; set its URL with `admin`";
            return Err(failed(what.to_owned(), None));
        }
        let request = |admin: &Url| {
            let request = self.client.post(below(admin, &[path])).header(CONTENT_TYPE, "application/json");
            request.header(ACCEPT, "application/json").body(body.to_string())
        };
        let reply = self.send(&self.admin, request).await?;
        serde_json::from_slice(&reply).map_err(|cause| {
            failed(format!("the reply of Restate to `{path}` is not JSON"), Some(cause.into()))
        })
    }

    /// Sends a request to one node after the other, until one serves it.
    async fn send(
        &self,
        nodes: &[Url],
        request: impl Fn(&Url) -> RequestBuilder,
    ) -> Result<Bytes, CallError> {
        let mut until = Instant::now() + self.patience;
        let mut pause = PAUSE;
        let mut places = nodes.iter().cycle();
        loop {
            let place = places.next().expect("there is a node");
            let mut request = request(place);
            if let Some(token) = &self.token {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            let begun = Instant::now();
            let replied = replied(request).await;
            if begun.elapsed() > LONGEST_PAUSE && was_accepted(&replied) {
                // The node was lost while it waited for the end of a run, which may take any time.
                (until, pause) = (Instant::now() + self.patience, PAUSE);
            }
            let error = match replied {
                Ok((status, body)) if status.is_success() => return Ok(body),
                Ok((status, body)) => {
                    let message = message(&body);
                    if !is_transient(status) {
                        return Err(CallError::Ended { status, message });
                    }
                    failed(format!("Restate at {place} cannot serve a request ({status}: {message})"), None)
                }
                Err(cause) => failed(
                    format!("Restate at {place} cannot be reached; check the URL, and that its nodes run"),
                    Some(cause.without_url().into()),
                ),
            };
            if Instant::now() + pause > until {
                return Err(CallError::Failed(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

async fn replied(request: RequestBuilder) -> Result<(StatusCode, Bytes), reqwest::Error> {
    let reply: Response = request.send().await?;
    let status = reply.status();
    Ok((status, reply.bytes().await?))
}

/// Returns whether a node, or a proxy in front of it, had a request that it lost.
fn was_accepted(replied: &Result<(StatusCode, Bytes), reqwest::Error>) -> bool {
    match replied {
        Ok((status, _)) => *status == StatusCode::GATEWAY_TIMEOUT,
        Err(cause) => !cause.is_connect(),
    }
}

/// Returns whether a later attempt may succeed.
fn is_transient(status: StatusCode) -> bool {
    [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ]
    .contains(&status)
}

/// Returns the message of an error, which Restate sends as JSON.
fn message(body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let message = json.as_ref().and_then(|json| json["message"].as_str()).map(str::to_owned);
    message.unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(MAX_SHOWN).collect())
}

/// Appends segments to the path of a URL.
fn below(url: &Url, segments: &[&str]) -> Url {
    let mut url = url.clone();
    url.path_segments_mut().expect("a URL with a host has a path").pop_if_empty().extend(segments);
    url
}

fn parsed(text: &str) -> Result<Url, CheckpointError> {
    let url = Url::parse(text.trim())
        .map_err(|cause| failed(format!("`{text}` is not a URL of Restate"), Some(cause.into())))?;
    if ["http", "https"].contains(&url.scheme()) && url.has_host() && url.password().is_none() {
        return Ok(url);
    }
    Err(failed("a URL of Restate begins with http:// or https://, and has no password".to_owned(), None))
}

pub(super) fn failed(what: String, source: Option<Box<dyn Error + Send + Sync>>) -> CheckpointError {
    CheckpointError::Storage { what, source }
}

fn client(url: &Url) -> Result<Client, Box<dyn Error + Send + Sync>> {
    let provider = CryptoProvider::get_default().cloned();
    let tls =
        ClientConfig::builder_with_provider(provider.unwrap_or_else(|| Arc::new(ring::default_provider())))
            .with_safe_default_protocol_versions()?
            .with_platform_verifier()?
            .with_no_client_auth();
    #[expect(clippy::disallowed_methods, reason = "the provider of cryptography is given")]
    let client = Client::builder();
    let client = client
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT)
        .redirect(Policy::none())
        .tcp_nodelay(true);
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let client = if is_loopback { client.no_proxy() } else { client };
    Ok(client.build()?)
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = |urls: &[Url]| urls.iter().map(|url| url.as_str().to_owned()).collect::<Vec<_>>();
        f.debug_struct("Http")
            .field("ingress", &texts(&self.ingress))
            .field("admin", &texts(&self.admin))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn a_request_that_a_node_has_lost_is_repeated_however_long_it_took() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut http = Http::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        http.patience = LONGEST_PAUSE / 2;
        let node = async {
            for nth in 0..3 {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
                if nth < 2 {
                    tokio::time::sleep(LONGEST_PAUSE + PAUSE).await;
                } else {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nend").await.unwrap();
                }
            }
        };
        let call = async || http.call(("object", "key", "handler"), Some("id"), Vec::new()).await;
        let (end, ()) = tokio::join!(call(), node);
        assert_eq!(&*end.unwrap(), b"end");
        drop(listener);
        let error = call().await.unwrap_err();
        assert!(matches!(error, CallError::Failed(_)), "{error:?}");
    }
}
