//! The errors of a database, with remedies.

use std::{error::Error, fmt, io};

use deadpool_postgres::{HookError, PoolError, TimeoutType};
use superstep_checkpoint::CheckpointError;
use tokio_postgres::error::SqlState;

use crate::location::Location;

/// A failed attempt of a request.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The server or the connection.
    Server(tokio_postgres::Error),
    /// The pool had no connection in time.
    NoConnection,
    /// The server did not answer in time.
    NoAnswer,
    /// Not to be repeated.
    Refused(CheckpointError),
}

impl From<tokio_postgres::Error> for Failed {
    fn from(cause: tokio_postgres::Error) -> Self {
        Self::Server(cause)
    }
}

impl From<CheckpointError> for Failed {
    fn from(error: CheckpointError) -> Self {
        Self::Refused(error)
    }
}

impl From<PoolError> for Failed {
    fn from(cause: PoolError) -> Self {
        match cause {
            PoolError::Backend(cause) | PoolError::PostCreateHook(HookError::Backend(cause)) => {
                Self::Server(cause)
            }
            PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle)
            | PoolError::PostCreateHook(HookError::Message(_)) => Self::NoAnswer,
            _ => Self::NoConnection,
        }
    }
}

impl Failed {
    /// Returns whether the same request may succeed later: the connection broke, the server restarts, or two transactions waited
    /// for each other.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Server(cause) => match cause.code() {
                Some(code) => {
                    let class = &code.code()[..2];
                    class == "08"
                        || [
                            SqlState::ADMIN_SHUTDOWN,
                            SqlState::CRASH_SHUTDOWN,
                            SqlState::CANNOT_CONNECT_NOW,
                            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                            SqlState::T_R_SERIALIZATION_FAILURE,
                            SqlState::T_R_DEADLOCK_DETECTED,
                        ]
                        .contains(code)
                }
                None => (cause.is_closed() || is_io(cause)) && tls_advice(cause).is_none(),
            },
            Self::NoAnswer => true,
            Self::NoConnection | Self::Refused(_) => false,
        }
    }

    /// Returns whether a server has answered.
    pub(crate) fn is_of_server(&self) -> bool {
        matches!(self, Self::Server(cause) if cause.code().is_some())
    }

    /// Returns whether another transaction has held a lock for too long.
    pub(crate) fn is_lock(&self) -> bool {
        matches!(self, Self::Server(cause) if cause.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// Converts the failure of `action`.
    pub(crate) fn into_error(self, place: &Location, action: &str) -> CheckpointError {
        match self {
            Self::Server(cause) => database(place, action, cause),
            Self::NoConnection => CheckpointError::Storage {
                what: format!(
                    "cannot {action} in database `{place}`: no connection is free in time; set more connections, or check the server"
                ),
                source: None,
            },
            Self::NoAnswer => CheckpointError::Storage {
                what: format!(
                    "cannot {action} in database `{place}`: the server does not answer; check it and the network"
                ),
                source: None,
            },
            Self::Refused(error) => error,
        }
    }
}

/// Returns whether reading or writing a connection failed.
fn is_io(cause: &tokio_postgres::Error) -> bool {
    let mut next = cause.source();
    while let Some(cause) = next {
        if cause.is::<io::Error>() {
            return true;
        }
        next = cause.source();
    }
    false
}

/// Returns the advice for a failure of TLS that lasts: the certificate is not valid, or the two sides have no protocol in common.
fn tls_advice(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    use rustls::{AlertDescription as Alert, Error as Tls};

    let mut next = cause.source();
    while let Some(cause) = next {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<Tls>());
        match cause.downcast_ref::<Tls>().or(inner) {
            Some(Tls::InvalidCertificate(_) | Tls::NoCertificatesPresented | Tls::UnsupportedNameType) => {
                return Some(
                    "the server's certificate is not valid; check the host in the URL, and the authorities of the operating system or in `SSL_CERT_FILE`",
                );
            }
            // The alerts are the server's words for the same.
            Some(
                Tls::PeerIncompatible(_)
                | Tls::AlertReceived(Alert::ProtocolVersion | Alert::HandshakeFailure),
            ) => return Some("the server and this program have no TLS version or cipher in common"),
            _ => next = cause.source(),
        }
    }
    None
}

/// The beginning of the message of a handshake that failed, also because the server has no TLS.
const HANDSHAKE: &str = "error performing TLS handshake";

/// The message of the server with its code.
#[derive(Debug)]
struct Refusal {
    message: String,
    code: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code)
    }
}

impl Error for Refusal {}

/// Converts an error of the server during `action`.
fn database(place: &Location, action: &str, cause: tokio_postgres::Error) -> CheckpointError {
    let failed = format!("cannot {action} in database `{place}`");
    let Some(refused) = cause.as_db_error() else {
        let advice = if let Some(advice) = tls_advice(&cause) {
            advice
        } else if cause.is_closed() || is_io(&cause) {
            "the server cannot be reached, or closed the connection; check that it runs, and the URL"
        } else if cause.to_string().starts_with(HANDSHAKE) {
            "the server offers no TLS, which the URL requires; set `ssl = on` in the server"
        } else {
            "the client of PostgreSQL refused"
        };
        return storage(format!("{failed}: {advice}"), cause);
    };
    let code = refused.code();
    let advice = match code.code() {
        "57P01" | "57P02" | "57P03" => "the server is shutting down or starting; try again",
        "28000" | "28P01" => "the server refused the user or the password; check the URL",
        "3D000" => "the database does not exist; create it, or use another",
        "42501" => "the user has not the right; grant it, or use another user",
        "42P01" | "3F000" => "it has no tables of superstep; open it for writing once",
        "53100" => "the server's disk is full; free some space and resume from the last checkpoint",
        "53300" => "the server has too many connections; lower those of its clients, or raise its limit",
        "57014" => "the statement took too long; raise its limit, or check the server's load",
        "55P03" => "another program holds a lock for too long; wait until it is done, or end it",
        "25006" => "the server or the connection is for reading only; use the primary server",
        "XX001" | "XX002" => {
            let what = format!("{failed}: database `{place}` is damaged; restore it from a backup");
            return corrupt(what, refusal(refused));
        }
        _ => "the server refused",
    };
    storage(format!("{failed}: {advice}"), refusal(refused))
}

/// Without the details of the message, which quote stored values.
fn refusal(refused: &tokio_postgres::error::DbError) -> Refusal {
    Refusal { message: refused.message().to_owned(), code: refused.code().code().to_owned() }
}

/// Creates the error of a database of another program, or of a newer version of this one.
pub(crate) fn not_ours(place: &Location, why: &str) -> CheckpointError {
    CheckpointError::Storage { what: format!("cannot open database `{place}`: {why}"), source: None }
}

pub(crate) fn no_tls(cause: impl Error + Send + Sync + 'static) -> CheckpointError {
    storage("cannot set up TLS for PostgreSQL; check the certificates of the system".to_owned(), cause)
}

pub(crate) fn no_service(cause: io::Error) -> CheckpointError {
    storage("cannot start the OS thread that serves a PostgreSQL database".to_owned(), cause)
}

/// Creates the error of a request whose task panicked.
pub(crate) fn service_ended(place: &Location) -> CheckpointError {
    let what = format!("the OS thread that served database `{place}` has panicked; open it again");
    CheckpointError::Storage { what, source: None }
}

pub(crate) fn read_only(place: &Location) -> CheckpointError {
    let what = format!("{place} was opened for reading only; open it for writing");
    CheckpointError::Storage { what, source: None }
}

/// Creates the error of a thread whose own row was changed.
pub(crate) fn damaged_thread(
    place: &Location,
    thread: &str,
    cause: impl Into<Box<dyn Error + Send + Sync>>,
) -> CheckpointError {
    let what = format!(
        "the row of {thread} in the table `threads` in database `{place}` is damaged; restore the database from a backup, or delete the \
         thread"
    );
    corrupt(what, cause)
}

pub(crate) fn storage(what: String, cause: impl Into<Box<dyn Error + Send + Sync>>) -> CheckpointError {
    CheckpointError::Storage { what, source: Some(cause.into()) }
}

fn corrupt(what: String, cause: impl Into<Box<dyn Error + Send + Sync>>) -> CheckpointError {
    CheckpointError::Corrupt { what, source: Some(cause.into()) }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertificateError, Error as Tls, PeerIncompatible};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn only_failures_of_tls_that_last_have_an_advice() {
        let advice = |cause: Tls| tls_advice(&Outer(io::Error::other(cause)));
        let invalid = advice(Tls::InvalidCertificate(CertificateError::Expired)).unwrap();
        assert!(invalid.contains("certificate is not valid"), "{invalid}");
        let incompatible = [
            Tls::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
            Tls::AlertReceived(AlertDescription::ProtocolVersion),
        ];
        for cause in incompatible {
            let advice = advice(cause).unwrap();
            assert!(advice.contains("no TLS version or cipher in common"), "{advice}");
        }
        assert_eq!(advice(Tls::DecryptError), None);
        assert_eq!(advice(Tls::AlertReceived(AlertDescription::InternalError)), None);
        assert_eq!(tls_advice(&Outer(io::ErrorKind::ConnectionReset.into())), None);
    }
}
