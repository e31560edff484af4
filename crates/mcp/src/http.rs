//! The HTTP transport, whose answers are bounded, in bytes and in values, before they are parsed.

use std::{collections::HashMap, io, sync::Arc};

use ::http::{
    HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use reqwest::{Client, Response};
use rmcp::{
    model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage},
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

use crate::{
    MAX_MESSAGE_BYTES,
    message::{self, ServerLine},
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

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let most = MAX_MESSAGE_BYTES;
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, most).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        most: usize,
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
        let kind = header(CONTENT_TYPE).unwrap_or_default().to_owned();
        let begun = header(HeaderName::from_static("mcp-session-id")).map(str::to_owned);
        let (is_json, is_stream) =
            (kind.starts_with(JSON_MIME_TYPE), kind.starts_with(EVENT_STREAM_MIME_TYPE));
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
            _ if !status.is_success() => {
                let is_auth = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
                let error = match is_json && !is_auth {
                    true => read(response, MAX_REFUSAL_BYTES, &asked).await.ok().flatten(),
                    false => None,
                };
                match error {
                    Some(error @ JsonRpcMessage::Error(_)) => {
                        Ok(StreamableHttpPostResponse::Json(error, begun))
                    }
                    _ => Err(HttpStatusError::new(status.as_u16(), None).into()),
                }
            }
            _ if is_stream => Ok(StreamableHttpPostResponse::Sse(events(response, most), begun)),
            // Messages without an answer have no body.
            _ if asked.is_empty() => Ok(StreamableHttpPostResponse::Accepted),
            _ if is_json => match read(response, most, &asked).await? {
                Some(message) => Ok(StreamableHttpPostResponse::Json(message, begun)),
                None => Err(StreamableHttpError::UnexpectedServerResponse("not a message".into())),
            },
            _ => Err(StreamableHttpError::UnexpectedContentType(Some(kind))),
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
        self.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<Events, Failure> {
        let events =
            self.0.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most).await?;
        Ok(events.map_ok(readable).boxed())
    }
}

/// Reads the message of a body; `None` if it is not one.
async fn read(
    response: Response,
    most: usize,
    asked: &[rmcp::model::RequestId],
) -> Result<Option<ServerJsonRpcMessage>, Failure> {
    let (mut bytes, mut body) = (response.bytes_stream(), Vec::new());
    while let Some(part) = bytes.try_next().await? {
        if body.len() + part.len() > most {
            return Err(StreamableHttpError::ResponseBodyTooLarge { max_size: most });
        }
        body.extend_from_slice(&part);
    }
    Ok(match message::read(&body, asked) {
        ServerLine::Message(message) => Some(*message),
        ServerLine::Noise(_) => None,
    })
}

/// Returns the events of a body, none of which has more than this many bytes.
fn events(response: Response, most: usize) -> Events {
    let mut size = EventSize::default();
    let bounded = move |part: reqwest::Result<tokio_util::bytes::Bytes>| {
        let part = part.map_err(io::Error::other)?;
        match size.most_in(&part) > most {
            true => Err(io::Error::other(format!("an event has more than {most} bytes"))),
            false => Ok(part),
        }
    };
    until_error(SseStream::from_bytes_stream(response.bytes_stream().map(bounded))).map_ok(readable).boxed()
}

/// Returns the stream up to its first error.
fn until_error<T, E>(stream: impl Stream<Item = Result<T, E>>) -> impl Stream<Item = Result<T, E>> {
    stream.scan(false, |has_failed, item| {
        let goes_on = !std::mem::replace(has_failed, item.is_err());
        std::future::ready(goes_on.then_some(item))
    })
}

/// Returns the event, with an error in place of a message that has too many values to be read.
fn readable(event: Sse) -> Sse {
    let refused = event.data.as_deref().and_then(|data| message::overfull(data.as_bytes(), &[]));
    match refused {
        None => event,
        Some(ServerLine::Noise(_)) => Sse { data: None, ..event },
        Some(ServerLine::Message(message)) => {
            Sse { data: Some(serde_json::to_string(&message).expect("a message becomes JSON")), ..event }
        }
    }
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
    fn an_event_with_too_many_values_becomes_an_error_for_its_call() {
        let event = |data: &str| readable(Sse { data: Some(data.to_owned()), ..Sse::default() }).data;
        assert_eq!(event(r#"{"id":7,"result":[0,0]}"#).as_deref(), Some(r#"{"id":7,"result":[0,0]}"#));
        let many = format!(r#"{{"id":7,"result":[0{}]}}"#, ",0".repeat(message::MAX_VALUES));
        let error: serde_json::Value = serde_json::from_str(&event(&many).unwrap()).unwrap();
        assert_eq!(
            (&error["id"], &error["error"]["message"]),
            (&7.into(), &"it has more than 100000 values".into())
        );
    }
}
