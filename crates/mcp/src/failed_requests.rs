//! Messages that did not reach a server, or got no answer.

use std::{
    error::Error,
    fmt,
    io::{self, ErrorKind},
};

use rmcp::transport::streamable_http_client::StreamableHttpError;

/// The advice for a server that requires authentication.
const TOKEN: &str =
    "put a token into `headers`, from an environment variable: Authorization = \"Bearer ${NAME}\"";

/// The maximum size of a cause, in bytes.
const MAX_CAUSE_BYTES: usize = 300;

/// The reason why a message was not sent. It leaves out the server's text and address: both may contain
/// secrets.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(crate) fate: SendOutcome,
    cause: String,
}

/// The fate of a message whose sending failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// The server is available and rejected it.
    Refused,
    /// The request did not reach the server.
    NotThere,
    /// Unknown.
    InDoubt,
}

impl RequestFailure {
    fn new(fate: SendOutcome, cause: impl Into<String>) -> Self {
        let mut cause: String = cause.into();
        cause.truncate(cause.floor_char_boundary(MAX_CAUSE_BYTES));
        Self { fate, cause }
    }

    /// Converts a connection error; its first cause is described without the address.
    fn broken(error: &(dyn Error + 'static)) -> Self {
        let mut first = error;
        while let Some(cause) = first.source() {
            first = cause;
        }
        let is_refused = first
            .downcast_ref::<io::Error>()
            .is_some_and(|cause| cause.kind() == ErrorKind::ConnectionRefused);
        Self::new(if is_refused { SendOutcome::NotThere } else { SendOutcome::InDoubt }, first.to_string())
    }

    fn status(status: u16) -> Self {
        // Proxies use these statuses for timeouts, too, while the server behind them may continue.
        let is_refused = (400..500).contains(&status) && status != 408;
        let cause = match status {
            401 => format!("HTTP 401: it does not know who asks; {TOKEN}"),
            403 => format!("HTTP 403: it does not permit that; {TOKEN}"),
            _ => format!("HTTP {status}"),
        };
        Self::new(if is_refused { SendOutcome::Refused } else { SendOutcome::InDoubt }, cause)
    }

    /// Adds that the server describes how to get a token, which needs a browser or a registered client.
    fn with_oauth(mut self) -> Self {
        self.cause.push_str("; OAuth, which it offers, is not supported");
        self
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl Error for RequestFailure {}

impl From<io::Error> for RequestFailure {
    fn from(error: io::Error) -> Self {
        Self::broken(&error)
    }
}

impl<E: Error + Send + Sync + 'static> From<StreamableHttpError<E>> for RequestFailure {
    fn from(error: StreamableHttpError<E>) -> Self {
        use StreamableHttpError as Http;
        match error {
            Http::HttpStatus(error) => Self::status(error.status),
            Http::AuthRequired(_) => Self::status(401).with_oauth(),
            Http::InsufficientScope(_) => Self::status(403).with_oauth(),
            Http::UnexpectedServerResponse(text) => match status_of(&text) {
                Some(status) => Self::status(status),
                None => Self::new(SendOutcome::InDoubt, "its answer does not follow the protocol"),
            },
            Http::UnexpectedContentType(_) => {
                Self::new(SendOutcome::InDoubt, "its answer is neither JSON nor a stream of events")
            }
            Http::ReservedHeaderConflict(name) => {
                Self::new(SendOutcome::Refused, format!("the header `{name}` is for the protocol alone"))
            }
            Http::SessionExpired => Self::new(SendOutcome::NotThere, "it ended the session (HTTP 404)"),
            Http::ReinitializationFailed(_) => {
                Self::new(SendOutcome::NotThere, "it ended the session, and does not begin another")
            }
            Http::Client(error) => Self::broken(&error),
            error => Self::broken(&error),
        }
    }
}

/// Parses the status at the start of a text; rmcp uses such texts for errors without a variant.
fn status_of(text: &str) -> Option<u16> {
    text.strip_prefix("HTTP ")?.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_own_text_is_not_passed_on() {
        let request_failure = |text: &'static str| {
            RequestFailure::from(StreamableHttpError::<io::Error>::UnexpectedServerResponse(text.into()))
        };
        let refused = request_failure("HTTP 403 Forbidden: the key sk-1 is none");
        let wanted = format!("HTTP 403: it does not permit that; {TOKEN}");
        assert_eq!((refused.fate, refused.to_string()), (SendOutcome::Refused, wanted));
        let unreadable = request_failure("no JSON: sk-1");
        assert_eq!(
            (unreadable.fate, &*unreadable.to_string()),
            (SendOutcome::InDoubt, "its answer does not follow the protocol")
        );
    }

    #[test]
    fn a_call_is_in_doubt_unless_it_certainly_did_not_run() {
        let fate = |kind: ErrorKind| RequestFailure::from(io::Error::from(kind)).fate;
        assert_eq!(
            (fate(ErrorKind::ConnectionRefused), fate(ErrorKind::BrokenPipe)),
            (SendOutcome::NotThere, SendOutcome::InDoubt)
        );
        let fates = [401, 408, 413, 429, 500, 502].map(|status| RequestFailure::status(status).fate);
        assert_eq!(
            fates,
            [
                SendOutcome::Refused,
                SendOutcome::InDoubt,
                SendOutcome::Refused,
                SendOutcome::Refused,
                SendOutcome::InDoubt,
                SendOutcome::InDoubt
            ]
        );
        assert_eq!(
            RequestFailure::new(SendOutcome::InDoubt, "é".repeat(MAX_CAUSE_BYTES)).cause.len(),
            MAX_CAUSE_BYTES
        );
    }
}
