//! Who approves edits, and what cannot be undone: nobody, everybody, or the person at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use superstep::agent::{Approval, ApprovalFuture, ApprovalRequest, Approver};

use crate::{args::TurnArgs, output::printable};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approve {
    All,
    Ask,
    Nothing,
}

impl Approve {
    /// Asks only where somebody sees the question and can answer it.
    pub(crate) fn new(args: &TurnArgs) -> Self {
        if args.yes {
            Self::All
        } else if !args.json && io::stdin().is_terminal() && io::stderr().is_terminal() {
            Self::Ask
        } else {
            Self::Nothing
        }
    }
}

impl Approver for Approve {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> ApprovalFuture<'a> {
        Box::pin(async move {
            match self {
                Self::All => Approval::Approve,
                Self::Nothing => Approval::Deny(
                    "nobody can be asked here, because this is no terminal; edits need `--yes`".to_owned(),
                ),
                Self::Ask => {
                    // So that what the run has told so far is shown before the question.
                    tokio::task::yield_now().await;
                    let question = printable(&request.question);
                    let asked = tokio::task::spawn_blocking(move || {
                        ask(&question, "Allow this edit?", &mut io::stdin().lock(), &mut anstream::stderr())
                    });
                    match asked.await {
                        Ok(Ok(true)) => Approval::Approve,
                        Ok(Ok(false)) => Approval::Deny("the user said no".to_owned()),
                        _ => Approval::Deny("the user could not be asked".to_owned()),
                    }
                }
            }
        })
    }
}

/// Asks whether something is to be done that cannot be undone. Where nobody can be asked, the command line has said it.
pub(crate) fn confirm(what: &str, args_say_yes: bool) -> io::Result<bool> {
    if args_say_yes || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    ask(&printable(what), "Go on?", &mut io::stdin().lock(), &mut anstream::stderr())
}

/// Asks until the answer is yes or no; the end of the input is a no.
fn ask(about: &str, question: &str, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<bool> {
    writeln!(output, "{about}")?;
    loop {
        write!(output, "{question} [y/n] ")?;
        output.flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            writeln!(output)?;
            return Ok(false);
        }
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(typed: &str) -> (bool, String) {
        let mut output = Vec::new();
        let yes = ask("edit 'a'", "Go on?", &mut typed.as_bytes(), &mut output).unwrap();
        (yes, String::from_utf8(output).unwrap())
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        assert_eq!(answer("y\n"), (true, "edit 'a'\nGo on? [y/n] ".into()));
        assert!(answer("YES\n").0);
        assert!(!answer("n\n").0);
        assert!(!answer("").0, "the end of the input");
        let (yes, shown) = answer("what?\n\nyes\n");
        assert!(yes);
        assert_eq!(shown.matches("[y/n]").count(), 3);
    }
}
