//! The transport to a program: one message per line, over its stdin and stdout.

use std::{
    collections::VecDeque,
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
    message::{self, IdScan, OpenRequests, ServerLine},
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
    /// The messages of a line that are not received yet.
    received: VecDeque<RxJsonRpcMessage<RoleClient>>,
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
        Self {
            stdin,
            lines: Lines::of(stdout),
            received: VecDeque::new(),
            out: Arc::default(),
            notifications,
            running,
        }
    }

    fn out(&self) -> MutexGuard<'_, Vec<RequestId>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a line; what is not a message is reported.
    fn take(&mut self, line: Line) {
        let ids = self.out().clone();
        let open = OpenRequests { ids: &ids, are_all: true };
        let (read, line) = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => return,
            Line::Whole(line) => (message::read(&line, open), line),
            Line::TooLong(scan) => {
                let why = format!("it has more than {MAX_MESSAGE_BYTES} bytes");
                (vec![message::unreadable(scan, &why, open)], Vec::new())
            }
        };
        for said in read {
            match said {
                ServerLine::Message(message) => {
                    if let JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) = &*message {
                        let answered = message::answered(&message);
                        self.out().retain(|id| Some(id) != answered);
                    }
                    self.received.push_back(*message);
                }
                ServerLine::Noise(why) => {
                    let begin = &line[..line.len().min(READ_OF_NOISE)];
                    let shown = self.notifications.hidden(String::from_utf8_lossy(begin).into_owned());
                    let shown = &shown[..shown.floor_char_boundary(MAX_NOISE_LENGTH)];
                    self.notifications
                        .warn(&[format!("a line on its stdout is not a message: {why}: {}", shown.trim())]);
                }
            }
        }
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
            if let Some(message) = self.received.pop_front() {
                return Some(message);
            }
            let line = self.lines.next().await?;
            self.take(line);
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

/// The lines of a stream, without those that are too long. A message is whole without a line end, too, and may have several lines,
/// if the first one and the last one have only a bracket.
struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// The scan of the line for its id and its end.
    scan: IdScan,
    is_too_long: bool,
}

enum Line {
    Whole(Vec<u8>),
    /// A line that is too long, after a scan for its id.
    TooLong(IdScan),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn of(read: R) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), scan: IdScan::default(), is_too_long: false }
    }

    /// Cancel-safe: no line is lost if it is dropped.
    async fn next(&mut self) -> Option<Line> {
        loop {
            let read = self.read.fill_buf().await.ok()?;
            if read.is_empty() {
                return (!self.line.is_empty()).then(|| self.take());
            }
            // Another object begins: the lines before it were none.
            if self.line.ends_with(b"\n") && read[0] == b'{' {
                return Some(self.take());
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.map_or(read.len(), |end| end + 1)];
            self.scan.feed(part);
            if self.line.len() + part.len() > MAX_MESSAGE_BYTES {
                (self.is_too_long, self.line) = (true, Vec::new());
            } else if !self.is_too_long {
                self.line.extend_from_slice(part);
            }
            let taken = part.len();
            self.read.consume(taken);
            if self.is_over(end.is_some()) {
                return Some(self.take());
            }
        }
    }

    fn is_over(&self, ends_line: bool) -> bool {
        match self.line.trim_ascii_start() {
            // A line with a bracket only begins an object of several lines.
            [b'{', rest @ ..] => {
                self.scan.is_closed() || ends_line && !rest.starts_with(b"\n") && !rest.starts_with(b"\r\n")
            }
            _ => ends_line,
        }
    }

    fn take(&mut self) -> Line {
        let (line, scan) = (std::mem::take(&mut self.line), std::mem::take(&mut self.scan));
        if std::mem::take(&mut self.is_too_long) { Line::TooLong(scan) } else { Line::Whole(line) }
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
        let Some(Line::TooLong(scan)) = lines.next().await else { panic!("it is too long") };
        let ids = [NumberOrString::Number(7)];
        let answer = message::unreadable(scan, "long", OpenRequests { ids: &ids, are_all: true });
        assert!(matches!(answer, ServerLine::Message(_)) && lines.line.capacity() == 0);
        assert!(matches!(lines.next().await, Some(Line::Whole(line)) if line == b"{}\n"));
        assert!(lines.next().await.is_none());
    }

    #[tokio::test]
    async fn an_object_is_a_line_however_it_is_written() {
        let mut lines = Lines::of(&b"log\n{\n \"a\": {}\n}\n{\n{\"b\":[\"}\"]}\r\n{broken\nx\n{}"[..]);
        let mut read = Vec::new();
        while let Some(Line::Whole(line)) = lines.next().await {
            read.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(
            read,
            ["log\n", "{\n \"a\": {}\n}\n", "{\n", "{\"b\":[\"}\"]}\r\n", "{broken\n", "x\n", "{}"]
        );
        // The pipe stays open after it.
        let (mut to, from) = tokio::io::duplex(64);
        let mut lines = Lines::of(from);
        to.write_all(b"{\"a\":1}").await.unwrap();
        assert!(matches!(lines.next().await, Some(Line::Whole(line)) if line == b"{\"a\":1}"));
    }
}
