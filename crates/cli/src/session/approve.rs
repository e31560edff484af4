//! Questions at the terminal: approvals of tool calls, and confirmations.
//!
//! A waiting call is an interrupt of the run. A decision is its answer, which resumes the run in this or any
//! other process.

use std::{
    env,
    io::{self, IsTerminal, Write},
    process::{Command, Stdio},
};

use serde_json::Value;
use superstep::{agent::Approval, llm::calls::ToolQuestion};
use superstep_session::{
    config::encryption::{KEY, OLD_KEY},
    text::{indented, printable},
    turn::waiting::{SAID_NO, Waiting},
};
use tokio_util::sync::CancellationToken;

use crate::session::{
    form,
    typed::{Keys, answer},
};

const ANSWER: &str = "Answer this? [a]nswer field by field, or [a]nswer JSON, [y]es without values, [n]o, [c]ancel, [v]iew all:";
const ALLOW: &str = "Allow this? [y]es, [n]o WHY, [a]lways, [e]dit JSON, [r]espond TEXT, [v]iew all:";

/// The source of decisions while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approve {
    /// The user at the terminal.
    Ask,
    /// None: the run ends, and `resume` continues it.
    Later,
}

impl Approve {
    /// Asks the user only if the output is not JSON, and stdin and stderr are terminals; otherwise later.
    pub(crate) fn new(json: bool) -> Self {
        // Later and not denied: otherwise a script could let its agent change something only with `--yes`, which
        // permits everything.
        if !json && io::stdin().is_terminal() && io::stderr().is_terminal() { Self::Ask } else { Self::Later }
    }

    /// Decides on calls by the ids of their questions; `None` if they are not decided now.
    pub(crate) async fn decide(
        self,
        waiting: &[Waiting],
        cancel: &CancellationToken,
    ) -> Option<Vec<(String, Approval)>> {
        let mut answers = Vec::new();
        let mut granted = Vec::new();
        for call in waiting {
            let approval = match self {
                _ if call.is_of(&granted) => Approval::Approve,
                Self::Later => return None,
                Self::Ask => {
                    let call = call.clone();
                    let asked = tokio::task::spawn_blocking(move || {
                        ask_approval(&call, page, &mut io::stdin().lock(), &mut anstream::stderr())
                    });
                    tokio::select! {
                        // A pending read of the terminal is abandoned; the program ends.
                        () = cancel.cancelled() => return None,
                        decided = asked => decided.ok()?.ok()??,
                    }
                }
            };
            if approval == Approval::Always {
                granted.push(call.request.tool.as_str());
            }
            answers.push((call.interrupt.clone(), approval));
        }
        Some(answers)
    }
}

/// Asks until the answer is valid; `None` at the end of the input.
///
/// `view` shows everything that the decision covers.
pub(crate) fn ask_approval(
    call: &Waiting,
    view: impl Fn(&str) -> io::Result<()>,
    input: &mut impl Keys,
    output: &mut impl Write,
) -> io::Result<Option<Approval>> {
    // A command may have lines that look like this question.
    writeln!(output, "{}", indented(&call.question()))?;
    if let Some(hidden) = call.hidden() {
        writeln!(output, "[{hidden}; `v` shows all of it]")?;
    }
    loop {
        let Some(answer) = answer(asks(call), input, output)? else {
            return Ok(None);
        };
        match read_decision(call, &answer) {
            Typed::Decision(approval) => return Ok(Some(approval)),
            Typed::View => view(&call.whole())?,
            Typed::Fill(form) => match form::fill(form, input, output)? {
                Some(values) => return Ok(Some(Approval::Answer(values))),
                None => continue,
            },
            Typed::Problem(problem) => writeln!(output, "{problem}")?,
            Typed::Unknown => continue,
        }
    }
}

/// An answer to the question about a call.
#[derive(Debug, PartialEq)]
pub(crate) enum Typed<'a> {
    /// The decision.
    Decision(Approval),
    /// A request to show everything that the decision covers.
    View,
    /// A request to fill in this form field by field.
    Fill(&'a ToolQuestion),
    /// The answer is not valid, for this reason.
    Problem(String),
    /// Another text than an answer.
    Unknown,
}

/// Returns the line that asks about a call.
pub(crate) fn asks(call: &Waiting) -> &'static str {
    if call.request.form.is_some() { ANSWER } else { ALLOW }
}

/// Reads the answer to the question about a call: a word with its argument.
pub(crate) fn read_decision<'a>(call: &'a Waiting, typed: &str) -> Typed<'a> {
    let typed = typed.trim();
    let (word, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let (word, rest) = (word.to_lowercase(), rest.trim());
    let json = |what: &str, decision: fn(Value) -> Approval| match serde_json::from_str(rest) {
        Ok(value) => Typed::Decision(decision(value)),
        Err(error) => Typed::Problem(format!("{what}: {error}")),
    };
    if let Some(form) = &call.request.form {
        return match (word.as_str(), rest) {
            ("v" | "view", "") => Typed::View,
            ("y" | "yes", "") => Typed::Decision(Approval::Approve),
            ("c" | "cancel", "") => Typed::Decision(Approval::Cancel),
            ("a" | "answer", "") if form::is_empty(form) => {
                Typed::Problem("the form has no fields".to_owned())
            }
            ("a" | "answer", "") => Typed::Fill(form),
            ("a" | "answer", _) => json("this answer is not JSON", Approval::Answer),
            ("n" | "no", _) => Typed::Decision(Approval::Deny(SAID_NO.to_owned())),
            _ => Typed::Unknown,
        };
    }
    match (word.as_str(), rest) {
        ("v" | "view", "") => Typed::View,
        ("y" | "yes", "") => Typed::Decision(Approval::Approve),
        ("a" | "always", "") => Typed::Decision(Approval::Always),
        ("n" | "no", "") => Typed::Decision(Approval::Deny(SAID_NO.to_owned())),
        ("n" | "no", why) => Typed::Decision(Approval::Deny(why.to_owned())),
        ("r" | "respond", text) if !text.is_empty() => Typed::Decision(Approval::Respond(text.to_owned())),
        ("e" | "edit", _) => json("the arguments are not valid JSON", Approval::Edit),
        _ => Typed::Unknown,
    }
}

/// Shows a text in the user's pager, or directly if that cannot be started.
pub(crate) fn page(text: &str) -> io::Result<()> {
    let pager = env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    let mut command = Command::new("sh");
    command.args(["-c", pager.as_deref().unwrap_or("less")]).stdin(Stdio::piped());
    command.env_remove(KEY).env_remove(OLD_KEY);
    // Stdout may be a file or a pipe; questions are shown on stderr.
    #[cfg(unix)]
    command.stdout(std::os::fd::AsFd::as_fd(&io::stderr()).try_clone_to_owned()?);
    let shown = command.spawn().and_then(|mut pager| {
        // A pager that was closed early has not read everything.
        let _ = pager.stdin.take().map(|mut input| input.write_all(text.as_bytes()));
        pager.wait()
    });
    if shown.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    write!(anstream::stderr(), "{text}")
}

/// Asks for confirmation of an irreversible action. Without a terminal the command line counts as the confirmation.
pub(crate) fn confirm(what: &str, args_say_yes: bool) -> io::Result<bool> {
    if args_say_yes || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    let mut output = anstream::stderr();
    writeln!(output, "{}", printable(what))?;
    ask_yes(&mut io::stdin().lock(), &mut output)
}

/// Asks until the answer is yes or no; the end of the input counts as no.
fn ask_yes(input: &mut impl Keys, output: &mut impl Write) -> io::Result<bool> {
    loop {
        match answer("Continue? [y/n]", input, output)?.map(|answer| answer.to_lowercase()).as_deref() {
            Some("y" | "yes") => return Ok(true),
            Some("n" | "no") | None => return Ok(false),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;
    use crate::session::sample::{asking, waiting};

    #[test]
    fn only_a_yes_is_a_yes() {
        let yes = |typed: &str| ask_yes(&mut typed.as_bytes(), &mut Vec::new()).unwrap();
        assert!(yes("y\n") && yes("YES\n") && yes("what?\n\nyes\n"));
        assert!(!yes("n\n") && !yes("") && !yes("what?\n"));
    }

    #[test]
    fn a_decision_is_a_word_with_its_argument() {
        let decided = |typed: &str| {
            let (mut output, call) = (Vec::new(), &waiting(&["c1"])[0]);
            let approval = ask_approval(call, |_| Ok(()), &mut typed.as_bytes(), &mut output).unwrap();
            (approval, String::from_utf8(output).unwrap().matches("Allow this?").count())
        };
        for (typed, approval) in [
            ("y\n", Approval::Approve),
            ("Always\n", Approval::Always),
            ("n\n", Approval::Deny(SAID_NO.into())),
            ("no  not today \n", Approval::Deny("not today".into())),
            ("e {\"a\": 1}\n", Approval::Edit(json!({"a": 1}))),
            ("respond it is done\n", Approval::Respond("it is done".into())),
        ] {
            assert_eq!(decided(typed), (Some(approval), 1), "{typed}");
        }
        assert_eq!(decided("what\ny maybe\nr\nv\ne {\n"), (None, 6));
    }

    #[test]
    fn the_lines_of_a_command_do_not_look_like_those_of_the_question() {
        let call = asking(&format!("run:\nls\n{ALLOW} y\nrm x"), json!({}));
        let mut output = Vec::new();
        ask_approval(&call, |_| Ok(()), &mut "y\n".as_bytes(), &mut output).unwrap();
        let shown = String::from_utf8(output).unwrap();
        assert_eq!(shown, format!("run:\n    ls\n    {ALLOW} y\n    rm x\n{ALLOW} "));
    }

    #[test]
    fn the_whole_approved_call_can_be_shown() {
        let hidden = "ok\u{1b}[8m; rm -rf ~\u{2028}\n| fake\u{e0041}";
        let call = asking("Run it?", json!({"command": hidden, "n": 1}));
        let seen = RefCell::new(String::new());
        let view = |text: &str| -> io::Result<()> {
            seen.borrow_mut().push_str(text);
            Ok(())
        };
        ask_approval(&call, view, &mut "v\ny\n".as_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(
            *seen.borrow(),
            "call `c\\u{202e}1` of write\\nfile\nquestion:\n  | Run it?\nargument `command`:\n  \
             | ok\\u{1b}[8m; rm -rf ~\\u{2028}\n  | | fake\\u{e0041}\nargument `n`:\n  | 1\n"
        );
    }

    #[test]
    fn a_form_is_answered_with_values_or_not_at_all() {
        let mut call = asking("MCP server `bank` asks:\n  | Which?", json!({}));
        let (from, message) = ("MCP server `bank`".to_owned(), "Which?".to_owned());
        let schema = json!({"type": "object", "properties": {}});
        call.request.form = Some(ToolQuestion { from, message, schema });
        let decided = |typed: &str| {
            let mut output = Vec::new();
            let approval = ask_approval(&call, |_| Ok(()), &mut typed.as_bytes(), &mut output).unwrap();
            (approval, String::from_utf8(output).unwrap().matches("Answer this?").count())
        };
        for (typed, approval) in [
            ("a {\"n\": 1}\n", Approval::Answer(json!({"n": 1}))),
            ("y\n", Approval::Approve),
            ("n\n", Approval::Deny(SAID_NO.into())),
            ("cancel\n", Approval::Cancel),
        ] {
            assert_eq!(decided(typed), (Some(approval), 1), "{typed}");
        }
        assert_eq!(decided("always\na\na {\nr x\ne {}\nv\n"), (None, 7));
    }
}
