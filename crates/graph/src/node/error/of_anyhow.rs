//! Conversions between [`NodeError`] and [`anyhow::Error`].

use std::{any::Any, error::Error, fmt};

use super::NodeError;

/// A node's failure in an `anyhow::Error`, which takes types that implement [`Error`] only.
struct Failure(NodeError);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause().source()
    }
}

/// Data and marks of the failure stay with it, also behind a context.
impl From<NodeError> for anyhow::Error {
    fn from(failure: NodeError) -> Self {
        Self::new(Failure(failure))
    }
}

/// Converts an `anyhow::Error`.
///
/// # Errors
/// `cause` itself if it is of another type.
pub(super) fn failure<E: 'static>(cause: E) -> Result<NodeError, E> {
    let mut cause = Some(cause);
    let any: &mut dyn Any = &mut cause;
    match any.downcast_mut::<Option<anyhow::Error>>().and_then(Option::take) {
        Some(error) => Ok(of(error)),
        None => Err(cause.expect("it is taken only if it is an `anyhow::Error`")),
    }
}

/// Returns the failure that `error` itself wraps; its causes begin behind that of the failure.
pub(super) fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a NodeError> {
    error.downcast_ref::<Failure>().map(|Failure(failure)| failure)
}

fn of(error: anyhow::Error) -> NodeError {
    let inner = error.chain().find_map(inner);
    let (fatal, refusal, data) =
        inner.map_or((false, false, None), |of| (of.fatal, of.refusal, of.data.clone()));
    // The conversion by `Into` would hide the type, by which retries are decided.
    match error.reallocate_into_boxed_dyn_error_without_backtrace().downcast::<Failure>() {
        Ok(failure) => failure.0,
        Err(source) => NodeError { source, fatal, refusal, data },
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;

    use crate::{Cx, END, NodeError, NodeOptions, RetryPolicy, START, State, StateGraph};

    #[test]
    fn the_type_of_an_error_in_anyhow_decides_about_retries() {
        let missing = || anyhow::Error::from(io::Error::from(io::ErrorKind::NotFound));
        assert!(!NodeError::from(missing()).is_transient());
        assert!(!NodeError::from(missing().context("reading")).is_transient());
        assert!(NodeError::from(anyhow::anyhow!("something")).is_transient());
    }

    #[test]
    fn a_failure_is_the_same_behind_anyhow() {
        let failure = || NodeError::new("no").with_data(452).refusal();
        let same = NodeError::from(anyhow::Error::from(failure()));
        assert_eq!(same.to_string(), "no");
        let behind = NodeError::from(anyhow::Error::from(failure()).context("sending"));
        assert_eq!(behind.to_string(), "sending");
        assert_eq!(behind.cause().source().expect("the failure is its source").to_string(), "no");
        for error in [same, behind] {
            assert!(error.is_fatal() && error.is_refusal());
            assert_eq!(error.data(), Some(&452.into()));
        }
    }

    #[derive(State, Clone, Debug, Default)]
    struct Order {
        receipt: String,
    }

    async fn pay(_: Order, cx: Cx) -> anyhow::Result<OrderUpdate> {
        let receipt: String = cx.once("charge", async |_| anyhow::Ok("r-1".to_owned())).await?;
        let missing: anyhow::Result<String> = cx
            .once("print", async |_| Err(io::Error::from(io::ErrorKind::NotFound)))
            .await
            .map_err(Into::into);
        missing.with_context(|| format!("printing {receipt}"))?;
        Ok(Order::update().receipt(receipt))
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_node_with_anyhow_runs_effects_and_does_not_repeat_a_missing_file() {
        let mut graph = StateGraph::<Order>::new("orders");
        let pay = graph.add_node("pay", pay);
        graph.configure(pay, NodeOptions::new().retry(RetryPolicy::attempts(3)));
        graph.add_edge(START, pay);
        graph.add_edge(pay, END);
        let error = graph.compile().expect("the graph is complete").run(Order::update()).await.unwrap_err();
        assert!(error.to_string().contains("`pay` failed after 1 attempt"), "{error}");
        assert!(format!("{error:?}").contains("printing r-1"), "{error:?}");
    }
}
