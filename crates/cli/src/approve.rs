//! Who decides about calls that are to be approved: the command line, the person at the terminal, or someone later.
//!
//! A call that waits is an interrupt of the run. A decision is its answer, with which the run goes on, in this process or in
//! any other.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Write},
};

use clap::Args;
use superstep::{
    Answers, Interrupt,
    agent::{Approval, ApprovalRequest},
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::TurnArgs,
    exit::{Exit, Failure},
    output::printable,
};

const SAID_NO: &str = "the user said no";

/// What `resume` is told about calls that wait.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Decisions about calls that wait")]
pub(crate) struct DecisionArgs {
    /// Let a call run; without an ID, all that no other flag names.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    approve: Vec<String>,
    /// Let it run, and do not ask about its tool again on this thread.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    always: Vec<String>,
    /// Do not let it run, and tell the model why.
    #[arg(long, value_name = "[ID=]REASON")]
    deny: Vec<String>,
    /// Let it run with other arguments.
    #[arg(long, value_name = "ID=JSON")]
    edit: Vec<String>,
    /// Do not let it run, and give the model this as its result.
    #[arg(long, value_name = "ID=TEXT")]
    respond: Vec<String>,
}

/// A call that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    interrupt: String,
    /// What people call it.
    pub(crate) id: String,
    pub(crate) request: ApprovalRequest,
}

/// Who decides while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approve {
    /// Nobody: everything is approved.
    All,
    /// The person at the terminal.
    Ask,
    /// Nobody who is here: the run ends, and `resume` goes on with it.
    Later,
}

impl Waiting {
    /// # Errors    Something waits that is no call.
    pub(crate) fn of<'a>(interrupts: impl IntoIterator<Item = &'a Interrupt>) -> Result<Vec<Self>, Failure> {
        let waiting = |asked: &Interrupt| {
            let request = serde_json::from_value(asked.question.clone()).map_err(|_| {
                let what =
                    format!("node `{}` asks what this program cannot answer: {}", asked.node, asked.question);
                Failure::new(Exit::Failed, what)
            })?;
            Ok(Self { interrupt: asked.id.clone(), id: asked.key.clone(), request })
        };
        interrupts.into_iter().map(waiting).collect()
    }

    fn is_named(&self, name: &str) -> bool {
        [&self.id, &self.request.call_id, &self.interrupt].into_iter().any(|id| id == name)
    }

    /// The question, and what was wrong with the answer before.
    pub(crate) fn question(&self) -> String {
        let problem = self.request.problem.as_ref().map(|problem| format!("\nnot possible: {problem}"));
        printable(&format!("{}{}", self.request.question, problem.unwrap_or_default()))
    }
}

impl DecisionArgs {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { approve, always, deny, edit, respond } = self;
        [approve, always, deny, edit, respond].into_iter().all(Vec::is_empty)
    }

    /// The answers to calls that wait.
    ///
    /// # Errors    A flag names a call that does not wait, or one is decided twice, or there is nothing to decide.
    pub(crate) fn answers(&self, thread: &str, waiting: &[Waiting]) -> Result<Answers, Failure> {
        if waiting.is_empty() && !self.is_empty() {
            return Err(Failure::new(
                Exit::Thread,
                format!("no call waits for a decision on thread `{thread}`"),
            ));
        }
        let mut decided = Decided { thread, waiting, by_interrupt: BTreeMap::new(), rest: None };
        for (ids, approval) in [(&self.approve, Approval::Approve), (&self.always, Approval::Always)] {
            for id in ids {
                match id.as_str() {
                    "" => decided.the_rest(approval.clone())?,
                    id => decided.one(id, approval.clone())?,
                }
            }
        }
        for given in &self.deny {
            match given.split_once('=').filter(|(id, _)| waiting.iter().any(|call| call.is_named(id))) {
                Some((id, reason)) => decided.one(id, Approval::Deny(reason.to_owned()))?,
                None => decided.the_rest(Approval::Deny(given.clone()))?,
            }
        }
        for given in &self.edit {
            let (id, json) = named("--edit", "JSON", given, waiting)?;
            let args = serde_json::from_str(json)
                .map_err(|error| Failure::usage(format!("the arguments for `{id}` are no JSON: {error}")))?;
            decided.one(id, Approval::Edit(args))?;
        }
        for given in &self.respond {
            let (id, text) = named("--respond", "TEXT", given, waiting)?;
            decided.one(id, Approval::Respond(text.to_owned()))?;
        }
        decided.answers()
    }
}

fn named<'a>(
    flag: &str,
    what: &str,
    given: &'a str,
    waiting: &[Waiting],
) -> Result<(&'a str, &'a str), Failure> {
    given.split_once('=').ok_or_else(|| {
        Failure::usage(match waiting.iter().any(|call| call.is_named(given)) {
            true => format!("`{flag}` says nothing for the call `{given}`: `{flag} {given}={what}`"),
            false => format!("`{flag}` needs the call's id: `{flag} ID={given}`"),
        })
    })
}

/// What was decided so far.
struct Decided<'a> {
    thread: &'a str,
    waiting: &'a [Waiting],
    by_interrupt: BTreeMap<&'a str, Approval>,
    /// About all that are not named.
    rest: Option<Approval>,
}

impl Decided<'_> {
    fn one(&mut self, id: &str, approval: Approval) -> Result<(), Failure> {
        let Some(call) = self.waiting.iter().find(|call| call.is_named(id)) else {
            let ids: Vec<_> = self.waiting.iter().map(|call| format!("`{}`", printable(&call.id))).collect();
            let (thread, ids) = (self.thread, ids.join(", "));
            return Err(Failure::usage(format!(
                "no call `{id}` waits on thread `{thread}`; there are: {ids}"
            )));
        };
        match self.by_interrupt.insert(&call.interrupt, approval) {
            None => Ok(()),
            Some(_) => Err(Failure::usage(format!("call `{id}` is decided twice"))),
        }
    }

    fn the_rest(&mut self, approval: Approval) -> Result<(), Failure> {
        match self.rest.replace(approval) {
            None => Ok(()),
            Some(_) => {
                Err(Failure::usage("only one decision can be without an id, for all that no other names"))
            }
        }
    }

    fn answers(self) -> Result<Answers, Failure> {
        let mut answers = Answers::new();
        let mut left = 0;
        for call in self.waiting {
            let decision = self.by_interrupt.get(call.interrupt.as_str());
            left += usize::from(decision.is_none());
            if let Some(approval) = decision.or(self.rest.as_ref()) {
                answers = answers.answer(&call.interrupt, approval.clone());
            }
        }
        match self.rest {
            Some(_) if left == 0 => {
                Err(Failure::usage("every call is named, so no decision is left without an id"))
            }
            _ => Ok(answers),
        }
    }
}

impl Approve {
    /// Asks only where somebody sees the question and can answer it.
    pub(crate) fn new(args: &TurnArgs) -> Self {
        if args.yes {
            Self::All
        } else if !args.json && io::stdin().is_terminal() && io::stderr().is_terminal() {
            Self::Ask
        } else {
            Self::Later
        }
    }

    /// Decides about calls; `None` if nobody does now.
    pub(crate) async fn decide(self, waiting: &[Waiting], cancel: &CancellationToken) -> Option<Answers> {
        let mut answers = Answers::new();
        for call in waiting {
            let approval = match self {
                Self::Later => return None,
                Self::All => Approval::Approve,
                Self::Ask => {
                    let question = call.question();
                    let asked = tokio::task::spawn_blocking(move || {
                        ask_approval(&question, &mut io::stdin().lock(), &mut anstream::stderr())
                    });
                    tokio::select! {
                        // What is read from the terminal then is read by nobody; the program ends.
                        () = cancel.cancelled() => return None,
                        decided = asked => decided.ok()?.ok()??,
                    }
                }
            };
            answers = answers.answer(&call.interrupt, approval);
        }
        Some(answers)
    }
}

/// Asks until the answer is a decision; `None` at the end of the input.
fn ask_approval(
    about: &str,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<Option<Approval>> {
    writeln!(output, "{about}")?;
    loop {
        let Some(answer) =
            answer("Allow this? [y]es, [n]o WHY, [a]lways, [e]dit JSON, [r]espond TEXT:", input, output)?
        else {
            return Ok(None);
        };
        let (word, rest) = answer.split_once(char::is_whitespace).unwrap_or((&answer, ""));
        let rest = rest.trim();
        return Ok(Some(match (word.to_lowercase().as_str(), rest) {
            ("y" | "yes", "") => Approval::Approve,
            ("a" | "always", "") => Approval::Always,
            ("n" | "no", "") => Approval::Deny(SAID_NO.to_owned()),
            ("n" | "no", why) => Approval::Deny(why.to_owned()),
            ("r" | "respond", text) if !text.is_empty() => Approval::Respond(text.to_owned()),
            ("e" | "edit", json) => match serde_json::from_str(json) {
                Ok(args) => Approval::Edit(args),
                Err(error) => {
                    writeln!(output, "these arguments are no JSON: {error}")?;
                    continue;
                }
            },
            _ => continue,
        }));
    }
}

/// Asks whether something is to be done that cannot be undone. Where nobody can be asked, the command line has said it.
pub(crate) fn confirm(what: &str, args_say_yes: bool) -> io::Result<bool> {
    if args_say_yes || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    let mut output = anstream::stderr();
    writeln!(output, "{}", printable(what))?;
    ask_yes(&mut io::stdin().lock(), &mut output)
}

/// Asks until the answer is yes or no; the end of the input is a no.
fn ask_yes(input: &mut impl BufRead, output: &mut impl Write) -> io::Result<bool> {
    loop {
        match answer("Go on? [y/n]", input, output)?.map(|answer| answer.to_lowercase()).as_deref() {
            Some("y" | "yes") => return Ok(true),
            Some("n" | "no") | None => return Ok(false),
            Some(_) => {}
        }
    }
}

/// A line that somebody types; `None` at the end of the input.
fn answer(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<Option<String>> {
    write!(output, "{question} ")?;
    output.flush()?;
    let mut typed = String::new();
    if input.read_line(&mut typed)? == 0 {
        writeln!(output)?;
        return Ok(None);
    }
    Ok(Some(typed.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let yes = |typed: &str| ask_yes(&mut typed.as_bytes(), &mut Vec::new()).unwrap();
        assert!(yes("y\n") && yes("YES\n") && yes("what?\n\nyes\n"));
        assert!(!yes("n\n") && !yes("") && !yes("what?\n"));
    }

    #[test]
    fn a_decision_is_a_word_and_what_belongs_to_it() {
        let decided = |typed: &str| {
            let mut output = Vec::new();
            let approval = ask_approval("run:\nls", &mut typed.as_bytes(), &mut output).unwrap();
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
        assert_eq!(decided("what\ny maybe\nr\ne {\n"), (None, 5));
    }

    fn waiting(ids: &[&str]) -> Vec<Waiting> {
        let interrupt = |id: &&str| Interrupt {
            id: format!("tools:4.0:{id}"),
            node: "tools".into(),
            key: (*id).to_owned(),
            question: json!({"call_id": id, "tool": "shell", "args": {}, "question": "run"}),
            schema: None,
        };
        let asked: Vec<_> = ids.iter().map(interrupt).collect();
        Waiting::of(&asked).unwrap()
    }

    fn answers(flags: &[&str], ids: &[&str]) -> Result<Answers, String> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            decisions: DecisionArgs,
        }
        let line = <Line as clap::Parser>::try_parse_from([&["x"], flags].concat()).unwrap();
        line.decisions.answers("t", &waiting(ids)).map_err(|failure| failure.message)
    }

    fn to(decided: &[(&str, Value)]) -> Result<Answers, String> {
        let all = decided.iter().cloned();
        Ok(all.fold(Answers::new(), |answers, (id, value)| answers.answer(format!("tools:4.0:{id}"), value)))
    }

    #[test]
    fn flags_decide_about_one_call_or_about_the_rest() {
        let two = ["c1", "c2"];
        assert_eq!(answers(&[], &two), to(&[]));
        assert_eq!(answers(&["--approve"], &two), to(&[("c1", json!("approve")), ("c2", json!("approve"))]));
        assert_eq!(answers(&["--approve", "c2"], &two), to(&[("c2", json!("approve"))]));
        assert_eq!(
            answers(&["--deny", "a=b", "--always", "tools:4.0:c2"], &two),
            to(&[("c1", json!({"deny": "a=b"})), ("c2", json!("always"))])
        );
        assert_eq!(
            answers(&["--respond", "c2=x=y", "--deny", "c1=no"], &two),
            to(&[("c1", json!({"deny": "no"})), ("c2", json!({"respond": "x=y"}))])
        );
        assert_eq!(answers(&["--edit", "c1={\"a\":1}"], &two), to(&[("c1", json!({"edit": {"a": 1}}))]));
    }

    #[test]
    fn decisions_that_make_no_sense_are_refused() {
        for (flags, wrong) in [
            (&["--approve", "c9"][..], "no call `c9` waits on thread `t`; there are: `c1`"),
            (&["--approve", "c1", "--deny", "c1=no"], "call `c1` is decided twice"),
            (
                &["--approve", "--deny", "no"],
                "only one decision can be without an id, for all that no other names",
            ),
            (&["--approve", "c1", "--always"], "every call is named, so no decision is left without an id"),
            (&["--edit", "{}"], "`--edit` needs the call's id: `--edit ID={}`"),
        ] {
            assert_eq!(answers(flags, &["c1"]), Err(wrong.to_owned()));
        }
        let wrong = answers(&["--edit", "c1={"], &["c1"]).unwrap_err();
        assert!(wrong.starts_with("the arguments for `c1` are no JSON: "), "{wrong}");
        let wrong = answers(&["--approve"], &[]).unwrap_err();
        assert_eq!(wrong, "no call waits for a decision on thread `t`");
    }
}
