//! Answers typed at the terminal.
//!
//! Start at [`answer`].

use std::io::{self, BufRead, IsTerminal as _, StdinLock, Write};

/// Reads the line typed after a question; `None` at the end of the input.
pub(crate) fn answer(
    question: &str,
    input: &mut impl Keys,
    output: &mut impl Write,
) -> io::Result<Option<String>> {
    input.discard()?;
    write!(output, "{question} ")?;
    output.flush()?;
    let mut typed = String::new();
    if input.read_line(&mut typed)? == 0 {
        writeln!(output)?;
        return Ok(None);
    }
    Ok(Some(typed.trim().to_owned()))
}

/// The input for answers.
pub(crate) trait Keys: BufRead {
    /// Discards input typed before the question was shown, because it cannot be the answer.
    fn discard(&mut self) -> io::Result<()>;
}

impl Keys for StdinLock<'_> {
    fn discard(&mut self) -> io::Result<()> {
        // A terminal delivers one line at a time, so no further input was read. A pipe is not a terminal: its
        // lines were written as the answers.
        #[cfg(unix)]
        if self.is_terminal() {
            rustix::termios::tcflush(&*self, rustix::termios::QueueSelector::IFlush)?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Keys for &[u8] {
    fn discard(&mut self) -> io::Result<()> {
        Ok(())
    }
}
