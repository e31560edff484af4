//! Helpers of tool calls: the blocking half of a call, its cancellation, and formatting.

use std::io::{self, Read};

use superstep_llm::{Behaviour, ToolCx, ToolError};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The behaviour of tools that change nothing: an interrupted call may be repeated.
pub(crate) const REPEATABLE: Behaviour =
    Behaviour { exclusive: false, poll: false, answers: false, idempotent: true, timeout: None };

/// Creates a token that stops the blocking half of a call when the call is cancelled or its future dropped.
pub(crate) fn stop_signal(cx: &ToolCx) -> (CancellationToken, DropGuard) {
    let stop = cx.cancel.child_token();
    (stop.clone(), stop.drop_guard())
}

/// Runs the blocking half of a call that changes nothing; does not wait for its result after cancellation.
pub(crate) async fn run_blocking<F>(cx: ToolCx, work: F) -> Result<String, ToolError>
where
    F: FnOnce(&CancellationToken) -> Result<String, ToolError> + Send + 'static,
{
    let (stop, _guard) = stop_signal(&cx);
    let task = tokio::task::spawn_blocking({
        let stop = stop.clone();
        move || work(&stop)
    });
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(cancelled()),
        done = task => done.unwrap_or_else(|_| Err(crashed())),
    }
}

/// Runs the blocking half of a call that changes something. It is always awaited, even after cancellation,
/// because "cancelled" must not be reported for a change that was made.
pub(crate) async fn change<F>(cx: ToolCx, work: F) -> Result<String, ToolError>
where
    F: FnOnce(&CancellationToken) -> Result<String, ToolError> + Send + 'static,
{
    let (stop, _guard) = stop_signal(&cx);
    tokio::task::spawn_blocking(move || work(&stop)).await.unwrap_or_else(|_| Err(crashed()))
}

pub(crate) fn cancelled() -> ToolError {
    ToolError::failed("cancelled")
}

pub(crate) fn crashed() -> ToolError {
    ToolError::failed("the tool crashed on this call; find another way")
}

pub(crate) fn check_stop(stop: &CancellationToken) -> Result<(), ToolError> {
    if stop.is_cancelled() { Err(cancelled()) } else { Ok(()) }
}

/// A reader that fails once the call is cancelled, so that reading a large file does not outlive its call.
pub(crate) struct Stoppable<'a, R> {
    pub(crate) inner: R,
    pub(crate) stop: &'a CancellationToken,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.inner.read(buffer)
    }
}

/// Formats 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the longest prefix of `text` of at most `max` bytes that ends on a character boundary.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Returns whether a file with this beginning is binary, by the rule of git and grep.
pub(crate) fn is_binary(start: &[u8]) -> bool {
    start.contains(&0)
}

/// Escapes the control characters of `text`.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn numbers_are_grouped_by_three() {
        let texts = [0, 12, 123, 1234, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "12", "123", "1,234", "1,234,567"]);
    }

    #[tokio::test]
    async fn a_dropped_call_stops_its_blocking_half() {
        let cx = testing::cx();
        let (started, seen) = tokio::sync::oneshot::channel();
        let (ended, end) = tokio::sync::oneshot::channel();
        let call = run_blocking(cx, move |stop| {
            started.send(()).expect("the test waits for the start");
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            ended.send(()).expect("the test waits for the end");
            Err(cancelled())
        });
        tokio::select! {
            _ = call => panic!("nothing has cancelled it"),
            _ = seen => {}
        }
        end.await.expect("the blocking half has seen the drop");
    }
}
