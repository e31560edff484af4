//! The transport to a program: one message per line, over its stdin and stdout.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    RoleClient,
    model::{ClientNotification, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader},
    process::{ChildStdin, ChildStdout},
};

use crate::{
    MAX_MESSAGE_BYTES,
    message::{self, IdScan, ServerLine},
    notifications::Notifications,
    running::Running,
};

/// The maximum number of bytes shown of a line that is not a message.
const MAX_NOISE_LENGTH: usize = 200;

/// The maximum number of bytes of such a line that are read: more, so that no secret is cut before it is hidden.
const READ_OF_NOISE: usize = 64 << 10;

/// A connected program. Dropping it ends it.
pub(crate) struct Program {
    /// Closed before the program is ended.
    stdin: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    lines: Lines<ChildStdout>,
    /// The unanswered requests.
    out: Arc<Mutex<Vec<RequestId>>>,
    notifications: Arc<Notifications>,
    running: Running,
}

impl Program {
    pub(crate) fn new(
        running: Running,
        stdin: ChildStdin,
        stdout: ChildStdout,
        notifications: Arc<Notifications>,
    ) -> Self {
        let stdin = Arc::new(tokio::sync::Mutex::new(Some(stdin)));
        Self { stdin, lines: Lines::of(stdout), out: Arc::default(), notifications, running }
    }

    fn out(&self) -> MutexGuard<'_, Vec<RequestId>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport<RoleClient> for Program {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &message {
            JsonRpcMessage::Request(asked) => self.out().push(asked.id.clone()),
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification {
                    self.out().retain(|id| Some(id) != cancelled.params.request_id.as_ref());
                }
            }
            _ => {}
        }
        let stdin = self.stdin.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut stdin = stdin.lock().await;
            let stdin = stdin.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            stdin.write_all(&line).await?;
            stdin.flush().await
        }
    }

    /// Cancel-safe: no message is lost if it is dropped.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let line = self.lines.next().await?;
            let said = match &line {
                Line::Whole(line) if line.trim_ascii().is_empty() => continue,
                Line::Whole(line) => message::read(line, &self.out()),
                Line::TooLong(id) => {
                    let why = format!("it has more than {MAX_MESSAGE_BYTES} bytes");
                    message::unreadable(id.clone(), &why, &self.out())
                }
            };
            match said {
                ServerLine::Message(message) => {
                    if let JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) = &*message {
                        let answered = message::answered(&message);
                        self.out().retain(|id| Some(id) != answered);
                    }
                    return Some(*message);
                }
                ServerLine::Noise(why) => {
                    let shown = match &line {
                        Line::Whole(line) => {
                            let begin = &line[..line.len().min(READ_OF_NOISE)];
                            self.notifications.hidden(String::from_utf8_lossy(begin).into_owned())
                        }
                        Line::TooLong(_) => String::new(),
                    };
                    let shown = &shown[..shown.floor_char_boundary(MAX_NOISE_LENGTH)];
                    self.notifications
                        .warn(&[format!("a line on its stdout is not a message: {why}: {}", shown.trim())]);
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // An unfinished write means that the program does not read.
        if let Ok(mut stdin) = self.stdin.try_lock() {
            drop(stdin.take());
        }
        self.running.end().await;
        Ok(())
    }
}

/// The lines of a stream, without those that are too long.
struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// The scanner for the id of a line that is too long.
    too_long: Option<IdScan>,
}

enum Line {
    Whole(Vec<u8>),
    /// The id of a line that is too long, if found.
    TooLong(Option<RequestId>),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn of(read: R) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), too_long: None }
    }

    async fn next(&mut self) -> Option<Line> {
        loop {
            let read = self.read.fill_buf().await.ok()?;
            if read.is_empty() {
                let last = std::mem::take(&mut self.line);
                return (!last.is_empty()).then_some(Line::Whole(last));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            match &mut self.too_long {
                Some(scan) => scan.feed(part),
                None if self.line.len() + part.len() > MAX_MESSAGE_BYTES => {
                    let mut scan = IdScan::default();
                    scan.feed(&std::mem::take(&mut self.line));
                    scan.feed(part);
                    self.too_long = Some(scan);
                }
                None => self.line.extend_from_slice(part),
            }
            let taken = part.len() + usize::from(end.is_some());
            self.read.consume(taken);
            if end.is_some() {
                return Some(match self.too_long.take() {
                    Some(scan) => Line::TooLong(scan.found()),
                    None => Line::Whole(std::mem::take(&mut self.line)),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;

    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_dropped_and_its_id_is_found() {
        let flood = format!("{{\"result\":\"{}\",\"id\":7}}\n{{}}\n", "x".repeat(MAX_MESSAGE_BYTES));
        let mut lines = Lines::of(flood.as_bytes());
        let Some(Line::TooLong(Some(id))) = lines.next().await else { panic!("it is too long") };
        assert_eq!((id, lines.line.capacity()), (NumberOrString::Number(7), 0));
        assert!(matches!(lines.next().await, Some(Line::Whole(line)) if line == b"{}"));
        assert!(lines.next().await.is_none());
    }
}
