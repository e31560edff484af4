//! Approval of tool calls: from the command line, the user at the terminal, or a later command.
//!
//! A waiting call is an interrupt of the run. A decision is its answer, which resumes the run in this or any
//! other process.

mod shown;

use std::{
    collections::BTreeMap,
    env,
    io::{self, BufRead, IsTerminal, StdinLock, Write},
    process::{Command, Stdio},
};

use clap::Args;
use serde_json::Value;
use superstep::{
    Answers, Interrupt,
    agent::{Approval, ApprovalRequest},
};
use tokio_util::sync::CancellationToken;

use self::shown::Unseen;
use crate::{
    args::TurnArgs,
    exit::{Exit, Failure},
    output::{printable, printable_line},
};

const SAID_NO: &str = "the user said no";
const ANSWER: &str = "Answer this? [a]nswer JSON, [y]es without values, [n]o, [c]ancel, [v]iew all:";
const ALLOW: &str = "Allow this? [y]es, [n]o WHY, [a]lways, [e]dit JSON, [r]espond TEXT, [v]iew all:";

/// Maximum length of a question that is shown without `v`, in lines and in bytes.
const MOST_LINES: usize = 60;
const MOST_BYTES: usize = 8 << 10;

/// The decisions on waiting calls, given to `resume`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Decisions about calls that wait")]
pub(crate) struct DecisionArgs {
    /// Let a call run; without an ID, all that no other flag names.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    approve: Vec<String>,
    /// Let it run, and do not require approval for its tool again on this thread.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    always: Vec<String>,
    /// Do not let it run, and give the model this reason.
    #[arg(long, value_name = "ID[=REASON]")]
    deny: Vec<String>,
    /// Deny all calls that no other flag names, and give the model this reason.
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "")]
    deny_all: Option<String>,
    /// Let it run with other arguments.
    #[arg(long, value_name = "ID=JSON")]
    edit: Vec<String>,
    /// Do not let it run, and give the model this as its result.
    #[arg(long, value_name = "ID=TEXT")]
    respond: Vec<String>,
    /// Answer a tool's question with these values. `--approve` answers without values, `--deny` declines.
    #[arg(long, value_name = "ID=JSON")]
    answer: Vec<String>,
    /// Dismiss a tool's question without an answer.
    #[arg(long, value_name = "ID")]
    cancel: Vec<String>,
}

/// A waiting call.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) interrupt: String,
    /// The id shown to the user.
    pub(crate) id: String,
    pub(crate) request: ApprovalRequest,
}

/// The input for answers.
trait Keys: BufRead {
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

/// The source of decisions while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approve {
    /// The user at the terminal.
    Ask,
    /// None: the run ends, and `resume` continues it.
    Later,
}

impl Waiting {
    /// Converts interrupts to waiting calls.
    ///
    /// # Errors    An interrupt is not that of a call.
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

    /// Returns the question, truncated if long, and the problem with the previous answer.
    pub(crate) fn question(&self) -> String {
        let mut text = printable(self.first_lines());
        let more = self.request.question.len() - self.first_lines().len();
        if more > 0 {
            text.push_str(&format!("\n… [{more} more bytes]"));
        }
        if let Some(problem) = &self.request.problem {
            text.push_str(&format!("\nnot possible: {}", printable(problem)));
        }
        text
    }

    /// Returns the part of the question that is shown first.
    fn first_lines(&self) -> &str {
        let question = self.request.question.as_str();
        let lines = question.match_indices('\n').nth(MOST_LINES - 1).map_or(question.len(), |(at, _)| at);
        &question[..question.floor_char_boundary(lines.min(MOST_BYTES))]
    }

    /// Returns the arguments that [`question`](Self::question) omits or shows ambiguously; `None` if it shows
    /// all of them.
    pub(crate) fn hidden(&self) -> Option<String> {
        let shown = self.first_lines();
        let Unseen { hidden, words } = shown::unseen(&printable(shown), self.request.args.as_object());
        let hidden = hidden.into_iter().map(|(name, value)| match value {
            Value::String(text) => {
                format!("`{}` ({} characters)", printable_line(name), text.chars().count())
            }
            _ => format!("`{}`", printable_line(name)),
        });
        let cut = (shown.len() < self.request.question.len()).then(|| "the question".to_owned());
        let hidden: Vec<_> = cut.into_iter().chain(hidden).collect();
        let hidden = (!hidden.is_empty()).then(|| format!("not shown in full: {}", hidden.join(", ")));
        let words = words.into_iter().map(|(name, text)| format!("`{}` is `{text}`", printable_line(name)));
        let all: Vec<_> = hidden.into_iter().chain(words).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Returns everything that a decision covers: the call, the question, and the arguments as the tool will
    /// receive them.
    pub(crate) fn whole(&self) -> String {
        let ApprovalRequest { tool, args, question, .. } = &self.request;
        let (id, tool) = (printable_line(&self.id), printable_line(tool));
        let mut text = format!("call `{id}` of {tool}\n");
        let mut block = |name: &str, content: &str| {
            text.push_str(&format!("{name}:\n"));
            content.split('\n').for_each(|line| text.push_str(&format!("  | {}\n", printable(line))));
        };
        block("question", question);
        match args.as_object() {
            None => block("arguments", &args.to_string()),
            Some(args) => args.iter().for_each(|(name, value)| {
                let name = format!("argument `{}`", printable_line(name));
                match value {
                    Value::String(content) => block(&name, content),
                    other => block(&name, &other.to_string()),
                }
            }),
        }
        text
    }
}

impl DecisionArgs {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { approve, always, deny, deny_all, edit, respond, answer, cancel } = self;
        let named = [approve, always, deny, edit, respond, answer, cancel];
        deny_all.is_none() && named.into_iter().all(Vec::is_empty)
    }

    /// Returns the answers to waiting calls.
    ///
    /// # Errors    A flag names a call that does not wait, a call is decided twice, or there is nothing to
    /// decide.
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
            let (id, reason) = named(given, waiting);
            decided.one(id, Approval::Deny(reason.unwrap_or(SAID_NO).to_owned()))?;
        }
        if let Some(reason) = &self.deny_all {
            let reason = if reason.is_empty() { SAID_NO } else { reason };
            decided.the_rest(Approval::Deny(reason.to_owned()))?;
        }
        for given in &self.edit {
            let (id, json) = with_value("--edit", "JSON", given, waiting)?;
            let args = serde_json::from_str(json)
                .map_err(|error| Failure::usage(format!("the arguments for `{id}` are no JSON: {error}")))?;
            decided.one(id, Approval::Edit(args))?;
        }
        for given in &self.respond {
            let (id, text) = with_value("--respond", "TEXT", given, waiting)?;
            decided.one(id, Approval::Respond(text.to_owned()))?;
        }
        for given in &self.answer {
            let (id, json) = with_value("--answer", "JSON", given, waiting)?;
            let values = serde_json::from_str(json)
                .map_err(|error| Failure::usage(format!("the answer to `{id}` is not JSON: {error}")))?;
            decided.one(id, Approval::Answer(values))?;
        }
        for id in &self.cancel {
            decided.one(id, Approval::Cancel)?;
        }
        decided.answers()
    }
}

/// Splits `ID=VALUE`. Prefers the id of a waiting call, because an id may contain `=`.
fn named<'a>(given: &'a str, waiting: &[Waiting]) -> (&'a str, Option<&'a str>) {
    let ends = given.match_indices('=').map(|(at, _)| at).chain([given.len()]);
    let id = ends.map(|end| &given[..end]).find(|id| waiting.iter().any(|call| call.is_named(id)));
    match id {
        Some(id) => (id, given[id.len()..].strip_prefix('=')),
        None => given.split_once('=').map_or((given, None), |(id, value)| (id, Some(value))),
    }
}

fn with_value<'a>(
    flag: &str,
    what: &str,
    given: &'a str,
    waiting: &[Waiting],
) -> Result<(&'a str, &'a str), Failure> {
    let (id, value) = named(given, waiting);
    let is_there = waiting.iter().any(|call| call.is_named(id));
    value.map(|value| (id, value)).ok_or_else(|| {
        Failure::usage(match is_there {
            true => format!("`{flag}` says nothing for the call `{given}`: `{flag} {given}={what}`"),
            false => format!("`{flag}` needs the call's id: `{flag} ID={given}`"),
        })
    })
}

/// The decisions so far.
struct Decided<'a> {
    thread: &'a str,
    waiting: &'a [Waiting],
    by_interrupt: BTreeMap<&'a str, Approval>,
    /// The decision on all calls that are not named.
    rest: Option<Approval>,
}

impl Decided<'_> {
    fn one(&mut self, id: &str, approval: Approval) -> Result<(), Failure> {
        let Some(call) = self.waiting.iter().find(|call| call.is_named(id)) else {
            let ids: Vec<_> = self.waiting.iter().map(|call| format!("`{}`", printable(&call.id))).collect();
            let (thread, ids) = (self.thread, ids.join(", "));
            return Err(Failure::usage(format!(
                "no call `{id}` waits on thread `{thread}`; there are: {ids}; for all of them: `--approve`, `--always` or \
                 `--deny-all REASON`"
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
    /// Asks the user only if stdin and stderr are terminals; otherwise later.
    pub(crate) fn new(args: &TurnArgs) -> Self {
        if !args.json && io::stdin().is_terminal() && io::stderr().is_terminal() {
            Self::Ask
        } else {
            Self::Later
        }
    }

    /// Decides on calls; `None` if they are not decided now.
    pub(crate) async fn decide(self, waiting: &[Waiting], cancel: &CancellationToken) -> Option<Answers> {
        let mut answers = Answers::new();
        for call in waiting {
            let approval = match self {
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
            answers = answers.answer(&call.interrupt, approval);
        }
        Some(answers)
    }
}

/// Asks until the answer is valid; `None` at the end of the input.
///
/// `view` shows everything that the decision covers.
fn ask_approval(
    call: &Waiting,
    view: impl Fn(&str) -> io::Result<()>,
    input: &mut impl Keys,
    output: &mut impl Write,
) -> io::Result<Option<Approval>> {
    writeln!(output, "{}", call.question())?;
    if let Some(hidden) = call.hidden() {
        writeln!(output, "[{hidden}; `v` shows all of it]")?;
    }
    let is_form = call.request.form.is_some();
    let asks = if is_form { ANSWER } else { ALLOW };
    loop {
        let Some(answer) = answer(asks, input, output)? else {
            return Ok(None);
        };
        let (word, rest) = answer.split_once(char::is_whitespace).unwrap_or((&answer, ""));
        let rest = rest.trim();
        return Ok(Some(match (word.to_lowercase().as_str(), rest) {
            ("v" | "view", "") => {
                view(&call.whole())?;
                continue;
            }
            ("y" | "yes", "") => Approval::Approve,
            ("c" | "cancel", "") if is_form => Approval::Cancel,
            ("a" | "answer", json) if is_form => match serde_json::from_str(json) {
                Ok(values) => Approval::Answer(values),
                Err(error) => {
                    writeln!(output, "this answer is not JSON: {error}")?;
                    continue;
                }
            },
            ("n" | "no", _) if is_form => Approval::Deny(SAID_NO.to_owned()),
            (word, _) if is_form && !matches!(word, "y" | "yes") => continue,
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

/// Shows a text in the user's pager, or directly if that cannot be started.
fn page(text: &str) -> io::Result<()> {
    let pager = env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    let mut command = Command::new("sh");
    command.args(["-c", pager.as_deref().unwrap_or("less")]).stdin(Stdio::piped());
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

/// Asks for confirmation of an irreversible action. Without a terminal, returns the command line's flag.
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
        match answer("Go on? [y/n]", input, output)?.map(|answer| answer.to_lowercase()).as_deref() {
            Some("y" | "yes") => return Ok(true),
            Some("n" | "no") | None => return Ok(false),
            Some(_) => {}
        }
    }
}

/// Reads the line typed after a question; `None` at the end of the input.
fn answer(question: &str, input: &mut impl Keys, output: &mut impl Write) -> io::Result<Option<String>> {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::{Value, json};

    use super::*;

    impl Keys for &[u8] {
        fn discard(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        let yes = |typed: &str| ask_yes(&mut typed.as_bytes(), &mut Vec::new()).unwrap();
        assert!(yes("y\n") && yes("YES\n") && yes("what?\n\nyes\n"));
        assert!(!yes("n\n") && !yes("") && !yes("what?\n"));
    }

    #[test]
    fn a_decision_is_a_word_and_what_belongs_to_it() {
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

    fn asking(question: &str, args: Value) -> Waiting {
        let (call_id, tool) = ("c\u{202e}1".to_owned(), "write\nfile".to_owned());
        let request = ApprovalRequest {
            call_id: call_id.clone(),
            tool,
            args,
            question: question.to_owned(),
            form: None,
            problem: None,
        };
        Waiting { interrupt: "i".to_owned(), id: call_id, request }
    }

    #[test]
    fn what_the_question_leaves_out_is_named() {
        for (question, args, hidden) in [
            ("edit a.rs\n-b\n+c", json!({"path": "a.rs", "old": "b", "new": "c"}), None),
            (
                "make one",
                json!({"path": "one", "content": "x"}),
                Some("not shown in full: `content` (1 characters); `path` is `one`"),
            ),
            ("go", json!({"to": "x\n", "n": 5}), Some("not shown in full: `n`, `to` (2 characters)")),
            (&"x\n".repeat(100), json!({}), Some("not shown in full: the question")),
            (&"é".repeat(9_000), json!({}), Some("not shown in full: the question")),
        ] {
            assert_eq!(asking(question, args).hidden().as_deref(), hidden, "{question}");
        }
        let long = asking(&"x\n".repeat(100), json!({})).question();
        assert_eq!((long.lines().count(), long.ends_with("\n… [81 more bytes]")), (61, true), "{long}");
    }

    #[test]
    fn all_of_what_is_approved_can_be_seen() {
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
        call.request.form = Some(superstep::llm::ToolQuestion { from, message, schema });
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
            answers(&["--deny-all", "a=b", "--always", "tools:4.0:c2"], &two),
            to(&[("c1", json!({"deny": "a=b"})), ("c2", json!("always"))])
        );
        assert_eq!(
            answers(&["--deny", "c=1=no", "--deny", "c2", "--deny-all"], &["c=1", "c2", "c3"]),
            to(&[
                ("c=1", json!({"deny": "no"})),
                ("c2", json!({"deny": SAID_NO})),
                ("c3", json!({"deny": SAID_NO}))
            ])
        );
        assert_eq!(
            answers(&["--respond", "c2=x=y", "--deny", "c1=no"], &two),
            to(&[("c1", json!({"deny": "no"})), ("c2", json!({"respond": "x=y"}))])
        );
        assert_eq!(answers(&["--edit", "c1={\"a\":1}"], &two), to(&[("c1", json!({"edit": {"a": 1}}))]));
        assert_eq!(
            answers(&["--answer", "c1={\"a\":1}", "--cancel", "c2"], &two),
            to(&[("c1", json!({"answer": {"a": 1}})), ("c2", json!("cancel"))])
        );
    }

    #[test]
    fn decisions_that_make_no_sense_are_refused() {
        let no_call = "no call `c9` waits on thread `t`; there are: `c1`; for all of them: `--approve`, `--always` or \
                       `--deny-all REASON`";
        for (flags, wrong) in [
            (&["--approve", "c9"][..], no_call),
            (&["--deny", "c9=no"], no_call),
            (&["--deny", "c9"], no_call),
            (&["--approve", "c1", "--deny", "c1=no"], "call `c1` is decided twice"),
            (
                &["--approve", "--deny-all", "no"],
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
