//! Lines from and to the client.

use tokio::{
    io::{self, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

/// The maximum length of a line, in bytes: that of the SDK for JavaScript.
pub(crate) const MAX_LINE: usize = 32 << 20;

/// The buffer that is retained between lines, in bytes.
const RETAINED: usize = 1 << 20;

/// The number of lines that the writer takes at once.
const BATCH: usize = 64;

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    /// A line beyond [`MAX_LINE`], which was skipped.
    TooLong,
}

/// The lines of a client, in bounded memory.
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input: BufReader::new(input), line: Vec::new() }
    }

    /// Returns the next line; `None` at the end. A last line needs no line break.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        self.line.shrink_to(RETAINED);
        let mut is_too_long = false;
        loop {
            let bytes = self.input.fill_buf().await?;
            if bytes.is_empty() {
                let has_line = is_too_long || !self.line.is_empty();
                return Ok(has_line.then(|| line(&self.line, is_too_long)));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            is_too_long |= self.line.len() + part.len() > MAX_LINE;
            if is_too_long {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(line(&self.line, is_too_long)));
            }
        }
    }
}

fn line(bytes: &[u8], is_too_long: bool) -> Line<'_> {
    if is_too_long { Line::TooLong } else { Line::Whole(bytes) }
}

/// Writes lines until the output breaks, or until `closing` and the queue is empty.
pub(crate) async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut queue: mpsc::Receiver<String>,
    closing: CancellationToken,
) {
    let mut lines = Vec::with_capacity(BATCH);
    loop {
        let taken = tokio::select! {
            taken = queue.recv_many(&mut lines, BATCH) => taken,
            () = closing.cancelled(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
        };
        if taken == 0 {
            return;
        }
        let written = async {
            for mut line in lines.drain(..) {
                line.push('\n');
                output.write_all(line.as_bytes()).await?;
            }
            output.flush().await
        };
        if let Err(error) = written.await {
            tracing::debug!(%error, "the client does not read");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn lines_of(text: &[u8]) -> Vec<Option<Vec<u8>>> {
        let (mut lines, mut found) = (Lines::new(text), Vec::new());
        while let Some(line) = lines.next().await.unwrap() {
            found.push(match line {
                Line::Whole(line) => Some(line.to_vec()),
                Line::TooLong => None,
            });
        }
        found
    }

    #[tokio::test]
    async fn lines_end_with_a_line_break_or_the_input() {
        let expected = ["{}", "", "x\r", "end"].map(|line| Some(line.as_bytes().to_vec()));
        assert_eq!(lines_of(b"{}\n\nx\r\nend").await, expected);
        assert_eq!(lines_of(b"").await, []);
    }

    #[tokio::test]
    async fn the_longest_line_is_read_and_a_longer_one_is_skipped() {
        let mut text = vec![b'a'; MAX_LINE];
        text.extend(b"\n");
        text.extend(vec![b'b'; MAX_LINE + 1]);
        text.extend(b"\nnext\n");
        let found = lines_of(&text).await;
        assert_eq!(
            found.iter().map(|line| line.as_ref().map(Vec::len)).collect::<Vec<_>>(),
            [Some(MAX_LINE), None, Some(4)]
        );
    }

    #[tokio::test]
    async fn an_endless_line_needs_no_memory() {
        let endless = io::repeat(b'[').take(3 * MAX_LINE as u64);
        let mut lines = Lines::new(endless);
        assert_eq!(lines.next().await.unwrap(), Some(Line::TooLong));
        assert_eq!(lines.line.capacity(), 0);
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn queued_lines_are_written_before_the_end() {
        let (mut client, output) = io::duplex(1 << 20);
        let (queue, lines) = mpsc::channel(1000);
        for n in 0..1000 {
            queue.try_send(n.to_string()).unwrap();
        }
        let closing = CancellationToken::new();
        closing.cancel();
        write(output, lines, closing).await;
        assert!(queue.is_closed());
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        let expected: String = (0..1000).map(|n| format!("{n}\n")).collect();
        assert_eq!(text, expected);
    }
}
