//! The errors of nodes.
//!
//! Start at [`NodeError`].

use std::{error::Error, fmt, io};

use serde_json::Value;
use superstep_checkpoint::store::{NoStore, StoreError};
use superstep_state::{Panicked, internal::encode};

#[cfg(feature = "anyhow")]
mod of_anyhow;

/// A failure of a node. Any error becomes one with `?`: types that implement [`Error`], boxed errors,
/// `anyhow::Error`, text.
///
/// With the feature `anyhow` it also becomes an `anyhow::Error` with `?`, so that a node that returns `anyhow::Result` can use
/// [`Cx::once`](crate::Cx::once) and [`Cx::call`](crate::Cx::call). Without the feature, an `anyhow::Error` hides the type of the
/// error in it, and counts as an unknown one for [`is_transient`](Self::is_transient).
///
/// The node's [`NodeOptions`](crate::NodeOptions) decide about retries; [`Fatal::fatal`] forbids them.
pub struct NodeError {
    source: Box<dyn Error + Send + Sync>,
    fatal: bool,
    refusal: bool,
    data: Option<Value>,
}

impl NodeError {
    /// Creates a failure with this text or this cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: cause.into(), fatal: false, refusal: false, data: None }
    }

    /// Forbids retries of the failure.
    #[must_use]
    pub fn fatal(self) -> Self {
        Self { fatal: true, ..self }
    }

    /// Marks the failure as a refusal of this run, for example because of its
    /// [context](crate::Thread::context): the answers that this run gave to the task are not accepted, and
    /// their questions remain pending for the next run. Forbids retries, too.
    ///
    /// An error handler of the node receives a refusal like any other failure, and the answers are then accepted. They are too if
    /// the process ends before the node has refused.
    ///
    /// After any other failure the answers are retained, and the task gets them when it runs again.
    #[must_use]
    pub fn refusal(self) -> Self {
        Self { refusal: true, ..self.fatal() }
    }

    /// Adds data for the error handler: [`NodeFailure::data`](crate::NodeFailure::data). If the failure is
    /// nested too deep to be stored, the handler reads only the data.
    #[must_use]
    pub fn with_data(self, data: impl Into<Value>) -> Self {
        let data = data.into();
        let data = encode::check_depth(&data).map_or_else(|error| error.to_string().into(), |()| data);
        Self { data: Some(data), ..self }
    }

    /// Returns the data set with [`with_data`](Self::with_data).
    pub fn data(&self) -> Option<&Value> {
        self.data.as_ref()
    }

    /// Returns whether it must not be retried.
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Returns whether it refuses the run.
    pub fn is_refusal(&self) -> bool {
        self.refusal
    }

    /// Returns the underlying error.
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }

    /// Returns whether another attempt may succeed, judged by the error's type. This applies to connections,
    /// timeouts and unknown errors, not to errors of logic (parsing, formatting, wrong arguments, missing
    /// files).
    ///
    /// # Source
    /// langgraph's `default_retry_on`, carried over to Rust's error types.
    pub fn is_transient(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&*self.source);
        while let Some(error) = cause {
            #[cfg(feature = "anyhow")]
            if let Some(failure) = of_anyhow::inner(error) {
                return failure.is_transient();
            }
            if let Some(io) = error.downcast_ref::<io::Error>() {
                return is_transient_io(io.kind());
            }
            if is_logic(error) {
                return false;
            }
            cause = error.source();
        }
        true
    }

    /// Returns the underlying error and the additional data.
    pub(crate) fn into_parts(self) -> (Box<dyn Error + Send + Sync>, Option<Value>) {
        (self.source, self.data)
    }
}

// Time-outs of the system are transient, unlike in LangGraph. Errors of HTTP clients are unknown here and therefore
// retried, a 404 as well as a 503; the models of `llm` have a retry layer that distinguishes them.
fn is_transient_io(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::BrokenPipe
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::TimedOut
            | Kind::Interrupted
            | Kind::WouldBlock
            | Kind::ResourceBusy
            | Kind::UnexpectedEof
    )
}

fn is_logic(error: &(dyn Error + 'static)) -> bool {
    error.is::<std::num::ParseIntError>()
        || error.is::<std::num::ParseFloatError>()
        || error.is::<std::num::TryFromIntError>()
        || error.is::<std::str::Utf8Error>()
        || error.is::<std::string::FromUtf8Error>()
        || error.is::<std::str::ParseBoolError>()
        || error.is::<std::char::ParseCharError>()
        || error.is::<std::net::AddrParseError>()
        || error.is::<std::env::VarError>()
        || error.is::<fmt::Error>()
        || error.is::<serde_json::Error>()
        || error.is::<Panicked>()
        || error.is::<NoStore>()
        || error.downcast_ref::<StoreError>().is_some_and(StoreError::is_misuse)
}

impl<E: Into<Box<dyn Error + Send + Sync>> + 'static> From<E> for NodeError {
    fn from(cause: E) -> Self {
        #[cfg(feature = "anyhow")]
        let cause = match of_anyhow::failure(cause) {
            Ok(failure) => return failure,
            Err(cause) => cause,
        };
        Self::new(cause)
    }
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeError").field("source", &self.source).field("fatal", &self.fatal).finish()
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// Marks failures that a retry cannot fix.
pub trait Fatal<T> {
    /// Forbids retries of the result's error.
    fn fatal(self) -> Result<T, NodeError>;
}

impl<T, E: Into<NodeError>> Fatal<T> for Result<T, E> {
    fn fatal(self) -> Result<T, NodeError> {
        self.map_err(|error| error.into().fatal())
    }
}
