//! The HTTP transport, whose answers are bounded, in bytes and in values, before they are parsed.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ::http::{
    HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use reqwest::{Client, Response};
use rmcp::{
    model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::{
        common::http_header::{
            EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
        },
        streamable_http_client::{
            AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
            StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use sse_stream::{Sse, SseStream};
use tokio_util::bytes::Bytes;

use crate::{
    MAX_MESSAGE_BYTES,
    message::{self, OpenRequests, ServerLine, with_whole_pairs},
};

/// The maximum size of an error body, in bytes.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// An HTTP client that reads no more of an answer than the maximum message size.
#[derive(Clone)]
pub(crate) struct Bounded(pub(crate) Client);

type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl StreamableHttpClient for Bounded {
    type Error = reqwest::Error;

    // The variant that receives the maximum size of an event calls it; the maximum of this client is the same.
    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let mut request = self.0.post(uri.as_ref());
        for (name, value) in headers {
            let ours = [ACCEPT.as_str(), HEADER_SESSION_ID, HEADER_LAST_EVENT_ID];
            if ours.iter().any(|ours| name.as_str().eq_ignore_ascii_case(ours)) {
                return Err(StreamableHttpError::ReservedHeaderConflict(name.to_string()));
            }
            request = request.header(name, value);
        }
        request = request.header(ACCEPT, [EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE].join(", "));
        if let Some(session) = &session {
            request = request.header(HEADER_SESSION_ID, session.as_ref());
        }
        let response = request.json(&message).send().await?;
        let asked = match &message {
            JsonRpcMessage::Request(request) => vec![request.id.clone()],
            _ => Vec::new(),
        };
        let status = response.status();
        let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let kind = header(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
        let begun = header(HeaderName::from_static("mcp-session-id")).map(str::to_owned);
        let (is_json, is_stream) = (kind.contains("json"), kind.starts_with(EVENT_STREAM_MIME_TYPE));
        let is_auth = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
        match (status, response.headers().get(WWW_AUTHENTICATE)) {
            // Instructions for getting a token do not apply here; see `RequestFailure`.
            (StatusCode::UNAUTHORIZED, Some(_)) => {
                Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(String::new())))
            }
            (StatusCode::FORBIDDEN, Some(_)) => {
                let error = InsufficientScopeError::new(String::new(), None);
                Err(StreamableHttpError::InsufficientScope(error))
            }
            (StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _) => Ok(StreamableHttpPostResponse::Accepted),
            (StatusCode::NOT_FOUND, _) if session.is_some() => Err(StreamableHttpError::SessionExpired),
            // A notification has no answer; a server that rejects it does not know it.
            _ if matches!(message, JsonRpcMessage::Notification(_)) && !is_auth => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            _ if !status.is_success() => {
                let has_errors = is_json && !is_auth;
                let errors =
                    if has_errors { read(response, MAX_REFUSAL_BYTES, &asked).await } else { Ok(Vec::new()) };
                let errors = errors.unwrap_or_default();
                match errors.into_iter().find(|it| matches!(it, JsonRpcMessage::Error(_))) {
                    Some(error) => Ok(StreamableHttpPostResponse::Json(error, begun)),
                    None => Err(HttpStatusError::new(status.as_u16(), None).into()),
                }
            }
            // Messages without an answer have no body.
            _ if asked.is_empty() => Ok(StreamableHttpPostResponse::Accepted),
            _ if is_stream => Ok(StreamableHttpPostResponse::Sse(events(response, asked), begun)),
            // Some servers name no content type, or another one.
            _ => {
                let mut messages = read(response, MAX_MESSAGE_BYTES, &asked).await?;
                match messages.len() {
                    0 if is_json => {
                        Err(StreamableHttpError::UnexpectedServerResponse("not a message".into()))
                    }
                    0 => Err(StreamableHttpError::UnexpectedContentType(Some(kind))),
                    1 => Ok(StreamableHttpPostResponse::Json(messages.remove(0), begun)),
                    _ => {
                        let events = messages.iter().map(|message| Ok(event(message))).collect::<Vec<_>>();
                        Ok(StreamableHttpPostResponse::Sse(stream::iter(events).boxed(), begun))
                    }
                }
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        let most = MAX_MESSAGE_BYTES;
        let events =
            self.0.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most).await?;
        Ok(each_message(events, |event| messages(event, &[], false)))
    }
}

/// Reads the messages of a body.
async fn read(
    response: Response,
    most: usize,
    asked: &[RequestId],
) -> Result<Vec<ServerJsonRpcMessage>, Failure> {
    let (mut bytes, mut body) = (response.bytes_stream(), Vec::new());
    while let Some(part) = bytes.try_next().await? {
        if body.len() + part.len() > most {
            return Err(StreamableHttpError::ResponseBodyTooLarge { max_size: most });
        }
        body.extend_from_slice(&part);
    }
    Ok(messages_in(&body, asked))
}

fn messages_in(text: &[u8], asked: &[RequestId]) -> Vec<ServerJsonRpcMessage> {
    let read = message::read(text, OpenRequests { ids: asked, are_all: false });
    let message = |line| match line {
        ServerLine::Message(message) => Some(*message),
        ServerLine::Noise(_) => None,
    };
    read.into_iter().filter_map(message).collect()
}

/// Returns the events of a body, none of which has more bytes than a message may have.
fn events(response: Response, asked: Vec<RequestId>) -> Events {
    let most = MAX_MESSAGE_BYTES;
    let mut size = EventSize::default();
    let bounded = move |part: reqwest::Result<Bytes>| {
        let part = part.map_err(io::Error::other)?;
        if size.most_in(&part) > most {
            return Err(io::Error::other(format!("an event has more than {most} bytes")));
        }
        Ok(part)
    };
    // The last event may lack the empty line that ends it.
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let end = stream::once(async move {
        over.store(true, Ordering::Release);
        Ok(Bytes::from_static(b"\n\n"))
    });
    let bytes = response.bytes_stream().map(bounded).chain(end);
    let events = until_error(SseStream::from_bytes_stream(bytes));
    each_message(events, move |event| messages(event, &asked, is_over.load(Ordering::Acquire)))
}

/// Replaces each event by those of its messages.
fn each_message(
    events: impl Stream<Item = Result<Sse, SseError>> + Send + 'static,
    messages: impl Fn(Sse) -> Vec<Sse> + Send + 'static,
) -> Events {
    let each = move |event: Result<Sse, SseError>| match event {
        Ok(event) => stream::iter(messages(event).into_iter().map(Ok).collect::<Vec<_>>()),
        Err(error) => stream::iter(vec![Err(error)]),
    };
    events.flat_map(each).boxed()
}

/// Returns the events of the messages in an event. Heartbeats and other events have none, regardless of their names; an event
/// that the end of the stream cuts off has none either.
fn messages(event: Sse, asked: &[RequestId], is_last: bool) -> Vec<Sse> {
    let data = event.data.as_deref().unwrap_or_default();
    let is_whole = || serde_json::from_str::<serde::de::IgnoredAny>(&with_whole_pairs(data)).is_ok();
    let read = if is_last && !is_whole() { Vec::new() } else { messages_in(data.as_bytes(), asked) };
    let mut events: Vec<Sse> = read.iter().map(self::event).collect();
    if events.is_empty() {
        events.push(Sse::default());
    }
    // A stream that breaks is resumed after the last one.
    let last = events.last_mut().expect("an event was added if there was none");
    (last.id, last.retry) = (event.id, event.retry);
    events
}

fn event(message: &ServerJsonRpcMessage) -> Sse {
    let data = serde_json::to_string(message).expect("a message becomes JSON");
    Sse { data: Some(data), ..Sse::default() }
}

/// Returns the stream up to its first error.
fn until_error<T, E>(stream: impl Stream<Item = Result<T, E>>) -> impl Stream<Item = Result<T, E>> {
    stream.scan(false, |has_failed, item| {
        let goes_on = !std::mem::replace(has_failed, item.is_err());
        std::future::ready(goes_on.then_some(item))
    })
}

/// The size of the current event in a stream of bytes.
#[derive(Default)]
struct EventSize {
    event: usize,
    line: usize,
    was_return: bool,
}

impl EventSize {
    /// Returns the maximum size that an event reaches within the next bytes.
    fn most_in(&mut self, bytes: &[u8]) -> usize {
        let mut most = self.event;
        for byte in bytes {
            match byte {
                b'\n' if std::mem::take(&mut self.was_return) => {}
                b'\n' | b'\r' => {
                    self.event = if self.line == 0 { 0 } else { self.event + 1 };
                    self.line = 0;
                    self.was_return = *byte == b'\r';
                }
                _ => {
                    (self.event, self.line, self.was_return) = (self.event + 1, self.line + 1, false);
                }
            }
            most = most.max(self.event);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_measured_with_any_line_ending() {
        for end in ["\n", "\r", "\r\n"] {
            let mut size = EventSize::default();
            let stream = format!("data: a{end}data: b{end}{end}: c{end}{end}").repeat(3);
            let most = stream.as_bytes().iter().map(|byte| size.most_in(&[*byte])).max();
            assert_eq!(most, Some(16), "{end:?}");
        }
    }

    #[test]
    fn events_that_are_no_messages_are_empty() {
        let event = |name: Option<&str>, data: &str, is_last| {
            let event = Sse { event: name.map(str::to_owned), data: Some(data.to_owned()), ..Sse::default() };
            messages(event.id("1"), &[RequestId::Number(7)], is_last)
        };
        for (name, data) in [
            (None, r#"{"type":"heartbeat"}"#),
            (None, "keep-alive"),
            (None, ""),
            (Some("ping"), "\"\""),
            (Some("endpoint"), "/messages?x=1"),
        ] {
            assert_eq!(event(name, data, false), [Sse::default().id("1")], "{data}");
        }
        let cut = r#"{"jsonrpc":"2.0","id":7,"resul"#;
        assert_eq!(event(None, cut, true), [Sse::default().id("1")]);
        assert!(event(None, cut, false)[0].data.as_deref().is_some_and(|data| data.contains("-32999")));
        let batch = r#"[{"jsonrpc":"2.0","id":7,"result":{}},{"jsonrpc":"2.0","method":"notifications/x"}]"#;
        let events = event(Some("message"), batch, true);
        assert!(events.len() == 2 && events[0].id.is_none() && events[1].id.is_some(), "{events:?}");
    }

    #[test]
    fn an_event_with_too_many_values_becomes_an_error_for_its_call() {
        let event = |data: &str| {
            let event = Sse { data: Some(data.to_owned()), ..Sse::default() };
            messages(event, &[], false).remove(0).data
        };
        let whole = r#"{"jsonrpc":"2.0","id":7,"result":[0,0]}"#;
        assert_eq!(event(whole).as_deref(), Some(whole));
        let many = format!(r#"{{"id":7,"result":[0{}]}}"#, ",0".repeat(message::MAX_VALUES));
        let error: serde_json::Value = serde_json::from_str(&event(&many).unwrap()).unwrap();
        assert_eq!(
            (&error["id"], &error["error"]["message"]),
            (&7.into(), &"it has more than 100000 values".into())
        );
    }
}
