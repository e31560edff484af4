//! The bounds of an answer's size and time.
//!
//! Start at [`AnswerLimits`].

use std::{fmt, time::Duration};

use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::{
    Assembler, Delta, ModelError, ModelErrorKind, ResponseStream,
    model::{
        retry::{from_ms, to_ms},
        timers::check_timers,
    },
    texts::nesting::MAX_VALUES,
};

/// Bounds of one answer of a model.
///
/// An answer that exceeds one of them is ended with an error of the kind [`ModelErrorKind::AnswerLimit`],
/// which names the bound and its value. The request is not sent again to the same model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerLimits {
    /// The maximum number of bytes of text, reasoning, tool calls and fields that go back to the server together.
    pub answer_bytes: usize,
    /// The maximum number of received bytes, including comments and ignored fields.
    pub received_bytes: usize,
    /// The maximum number of bytes of one line of the stream, or of an answer that is not a stream.
    pub line_bytes: usize,
    /// The maximum number of tool calls.
    pub tool_calls: usize,
    /// The maximum number of bytes of one call's arguments.
    pub argument_bytes: usize,
    /// The maximum nesting of objects and lists in one call's arguments.
    pub argument_depth: usize,
    /// The maximum number of values in the arguments of all calls. A small object takes a hundred times its text in memory.
    pub argument_values: usize,
    /// The maximum number of bytes of an error body; the rest is not read.
    pub error_bytes: usize,
    /// The maximum time from the request to the end of the answer.
    #[serde(rename = "time_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub time: Duration,
}

impl Default for AnswerLimits {
    /// Returns 4 MiB of 128 MiB received, lines and arguments of 1 MiB, 128 calls, a depth of 64, 20,000 values, 16 KiB
    /// of an error, half an hour.
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            answer_bytes: 4 * MIB,
            received_bytes: 128 * MIB,
            line_bytes: MIB,
            tool_calls: 128,
            argument_bytes: MIB,
            argument_depth: 64,
            argument_values: MAX_VALUES,
            error_bytes: 16 * 1024,
            time: Duration::from_secs(1800),
        }
    }
}

/// Creates the error of an answer that exceeded the bound `setting`.
pub(crate) fn over(what: &str, setting: &str, value: impl fmt::Display) -> ModelError {
    let message = format!(
        "{what}, the limit `{setting}` of an answer is {value}: the model or its server does not stop on \
         its own; raise `limits.{setting}` of the model if such long answers are expected"
    );
    ModelError::new(ModelErrorKind::AnswerLimit, message)
}

/// Ends a stream of deltas with an error when its answer exceeds one of the bounds.
///
/// `received_bytes`, `line_bytes` and `error_bytes` are about bytes on the wire, so that the reader of those
/// must enforce them. After [`Delta::Finish`] the answer is complete: a later timeout just ends the stream.
pub fn bounded(deltas: ResponseStream<'_>, limits: AnswerLimits) -> ResponseStream<'_> {
    let begun = Some((deltas, Meter::new(limits), None));
    stream::unfold(begun, |begun| async {
        let (mut deltas, mut meter, mut deadline) = begun?;
        if let (None, Err(error)) = (deadline, check_timers()) {
            return Some((Err(error.into()), None));
        }
        let deadline = *deadline.get_or_insert_with(|| Instant::now().checked_add(meter.limits.time));
        let next = match deadline {
            Some(deadline) => timeout_at(deadline, deltas.next()).await,
            None => Ok(deltas.next().await),
        };
        let delta = match next {
            Ok(None) => return None,
            Ok(Some(Ok(delta))) => delta,
            Ok(Some(Err(error))) => return Some((Err(error), None)),
            Err(_) if meter.finished => return None,
            Err(_) => return Some((Err(meter.too_slow()), None)),
        };
        match meter.take(&delta) {
            Ok(()) => Some((Ok(delta), Some((deltas, meter, Some(deadline))))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

/// The measured part of an answer.
struct Meter {
    limits: AnswerLimits,
    bytes: usize,
    /// The tool calls only.
    calls: Assembler,
    finished: bool,
}

impl Meter {
    fn new(limits: AnswerLimits) -> Self {
        Self { limits, bytes: 0, calls: Assembler::new(), finished: false }
    }

    fn too_slow(&self) -> ModelError {
        let ms = self.limits.time.as_millis();
        over(&format!("the answer did not end within {ms} ms"), "time_ms", ms)
    }

    fn take(&mut self, delta: &Delta) -> Result<(), ModelError> {
        let limits = self.limits;
        if let Delta::AttemptDiscarded { .. } = delta {
            *self = Self::new(limits);
        }
        self.bytes += match delta {
            Delta::Text(text) | Delta::Reasoning(text) | Delta::Extra { fields: text, .. } => text.len(),
            Delta::Item { item, .. } => item.len(),
            Delta::ToolCall { id, name, arguments, .. } => {
                let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
                arguments.len() + length(id) + length(name)
            }
            Delta::Finish(_) => {
                self.finished = true;
                0
            }
            _ => 0,
        };
        if self.bytes > limits.answer_bytes {
            let what = "the answer is too long";
            return Err(over(what, "answer_bytes", limits.answer_bytes));
        }
        if !matches!(delta, Delta::ToolCall { .. }) {
            return Ok(());
        }
        self.calls.push(delta);
        let calls = self.calls.partial_calls();
        if calls.count() > limits.tool_calls {
            return Err(over("the answer has too many tool calls", "tool_calls", limits.tool_calls));
        }
        let Some((name, length, depth)) = calls.newest() else { return Ok(()) };
        let of = |what: &str| {
            format!("the arguments of a call of `{}` are {what}", crate::http::error::excerpt(name))
        };
        if length > limits.argument_bytes {
            return Err(over(&of("too long"), "argument_bytes", limits.argument_bytes));
        }
        if depth > limits.argument_depth {
            return Err(over(&of("nested too deeply"), "argument_depth", limits.argument_depth));
        }
        if calls.values() > limits.argument_values {
            let what = "the arguments of the calls have too many values";
            return Err(over(what, "argument_values", limits.argument_values));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FinishReason;

    fn call(index: usize, id: &str, arguments: &str) -> Delta {
        Delta::ToolCall {
            index,
            id: (!id.is_empty()).then(|| id.to_owned()),
            name: (!id.is_empty()).then(|| "echo".to_owned()),
            arguments: arguments.to_owned(),
        }
    }

    /// Returns the number of deltas before the error, and the error.
    async fn stopped(limits: AnswerLimits, deltas: impl Iterator<Item = Delta> + Send) -> (usize, String) {
        let seen: Vec<_> = bounded(stream::iter(deltas.map(Ok)).boxed(), limits).collect().await;
        let error = seen.last().and_then(|last| last.as_ref().err()).expect("it was stopped");
        assert_eq!(error.kind, ModelErrorKind::AnswerLimit);
        (seen.len() - 1, error.message.clone())
    }

    #[tokio::test]
    async fn every_exceeded_limit_is_named_with_its_value() {
        let limits = AnswerLimits {
            answer_bytes: 100,
            tool_calls: 3,
            argument_bytes: 20,
            argument_depth: 2,
            argument_values: 9,
            ..AnswerLimits::default()
        };
        let endless = |delta: Delta| std::iter::repeat(delta);
        let (seen, error) = stopped(limits, endless(Delta::Text("ten bytes.".into()))).await;
        assert_eq!(seen, 10);
        assert_eq!(
            error,
            "the answer is too long, the limit `answer_bytes` of an answer is 100: the model or its server \
             does not stop on its own; raise `limits.answer_bytes` of the model if such long answers are \
             expected"
        );
        let (seen, error) = stopped(limits, endless(Delta::Reasoning("hm".into()))).await;
        assert_eq!((seen, error.contains("`answer_bytes` of an answer is 100")), (50, true), "{error}");
        let (seen, error) = stopped(limits, (0..).map(|n| call(n, &format!("c{n}"), "{}"))).await;
        assert_eq!(seen, 3);
        assert!(
            error.starts_with("the answer has too many tool calls, the limit `tool_calls` of an answer is 3")
        );
        let pieces = std::iter::once(call(0, "c", "")).chain(endless(call(0, "", "12345")));
        let (seen, error) = stopped(limits, pieces).await;
        assert_eq!(seen, 5);
        assert!(
            error.starts_with("the arguments of a call of `echo` are too long, the limit `argument_bytes`"),
            "{error}"
        );
        let pieces = std::iter::once(call(0, "c", "")).chain(endless(call(0, "", "[")));
        let (seen, error) = stopped(limits, pieces).await;
        assert_eq!(seen, 3);
        assert!(error.contains("nested too deeply, the limit `argument_depth` of an answer is 2"), "{error}");
        let pieces = [call(0, "c", "[0,[],0,0]"), call(1, "d", "[{},0,0"), call(1, "", ",0]")];
        let (seen, error) = stopped(limits, pieces.into_iter()).await;
        assert_eq!(seen, 2);
        assert!(
            error.contains("have too many values, the limit `argument_values` of an answer is 9"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn brackets_in_texts_are_not_nesting() {
        let limits = AnswerLimits { argument_depth: 1, ..AnswerLimits::default() };
        let pieces =
            [call(0, "c", r#"{"x":"[[\"["#), call(0, "", r#"{{\\"}"#), Delta::Finish(FinishReason::Stop)];
        let seen: Vec<_> = bounded(stream::iter(pieces.map(Ok)).boxed(), limits).collect().await;
        assert!(seen.iter().all(Result::is_ok), "{seen:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_response_is_stopped_at_its_time_limit() {
        let limits = AnswerLimits { time: Duration::from_secs(60), ..AnswerLimits::default() };
        let slow = || {
            stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(7)).await;
                Some((Ok(Delta::Text("a".into())), ()))
            })
        };
        let begun = Instant::now();
        let seen: Vec<_> = bounded(slow().boxed(), limits).collect().await;
        let error = seen.last().unwrap().as_ref().unwrap_err();
        assert_eq!((seen.len(), begun.elapsed()), (9, Duration::from_secs(60)));
        assert!(
            error.message.starts_with(
                "the answer did not end within 60000 ms, the limit `time_ms` of an answer is 60000"
            ),
            "{error}"
        );
        // Endless data after a complete answer does not invalidate it.
        let finished = stream::iter([Ok(Delta::Finish(FinishReason::Stop))]).chain(stream::pending());
        let seen: Vec<_> = bounded(finished.boxed(), limits).collect().await;
        assert_eq!(seen.len(), 1);
        assert!(seen[0].is_ok());
    }
}
