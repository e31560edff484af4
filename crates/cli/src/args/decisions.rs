//! Decisions about calls that wait, as flags of `resume`.

use clap::Args;
use superstep::{Answers, agent::Approval};
use superstep_session::{
    error::{ErrorKind, SessionError},
    turn::waiting::{SAID_NO, Waiting},
};

use crate::session::decisions::{CallDecisions, named, with_value};

/// The value of a flag without an ID: all calls that no other flag names. No argument of a program can contain
/// it, so that an empty variable as ID (`--approve "$ID"`) is not read as all calls.
const ALL_OTHERS: &str = "\0";

/// The decisions on waiting calls, given to `resume`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Decisions about calls that wait")]
pub(crate) struct DecisionArgs {
    /// Let a call run; without an ID, all that no other flag names.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = ALL_OTHERS)]
    pub(crate) approve: Vec<String>,
    /// Let it run, and do not require approval for its tool again on this thread.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = ALL_OTHERS)]
    pub(crate) always: Vec<String>,
    /// Do not let it run, and give the model this reason.
    #[arg(long, value_name = "ID[=REASON]")]
    pub(crate) deny: Vec<String>,
    /// Deny all calls that no other flag names, and give the model this reason.
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "")]
    pub(crate) deny_all: Option<String>,
    /// Let it run with other arguments.
    #[arg(long, value_name = "ID=JSON")]
    pub(crate) edit: Vec<String>,
    /// Do not let it run, and give the model this as its result.
    #[arg(long, value_name = "ID=TEXT")]
    pub(crate) respond: Vec<String>,
    /// Answer a tool's question with these values. `--approve` answers without values, `--deny` declines.
    #[arg(long, value_name = "ID=JSON")]
    pub(crate) answer: Vec<String>,
    /// Dismiss a tool's question without an answer.
    #[arg(long, value_name = "ID")]
    pub(crate) cancel: Vec<String>,
}

impl DecisionArgs {
    /// Returns whether nothing is decided.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { approve, always, deny, deny_all, edit, respond, answer, cancel } = self;
        let named = [approve, always, deny, edit, respond, answer, cancel];
        deny_all.is_none() && named.into_iter().all(Vec::is_empty)
    }

    /// Returns the answers to waiting calls.
    ///
    /// # Errors
    /// A flag names a call that does not wait, a call is decided twice, or there is nothing to
    /// decide.
    pub(crate) fn answers(&self, thread: &str, waiting: &[Waiting]) -> Result<Answers, SessionError> {
        if waiting.is_empty() && !self.is_empty() {
            return Err(SessionError::new(
                ErrorKind::Thread,
                format!("no call waits for a decision on thread `{thread}`"),
            ));
        }
        let mut decided = CallDecisions::new(thread, waiting);
        for (ids, approval) in [(&self.approve, Approval::Approve), (&self.always, Approval::Always)] {
            for id in ids {
                match id.as_str() {
                    ALL_OTHERS => decided.the_rest(approval.clone())?,
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
            let args = serde_json::from_str(json).map_err(|error| {
                SessionError::usage(format!("the arguments for `{id}` are not valid JSON: {error}"))
            })?;
            decided.one(id, Approval::Edit(args))?;
        }
        for given in &self.respond {
            let (id, text) = with_value("--respond", "TEXT", given, waiting)?;
            decided.one(id, Approval::Respond(text.to_owned()))?;
        }
        for given in &self.answer {
            let (id, json) = with_value("--answer", "JSON", given, waiting)?;
            let values = serde_json::from_str(json)
                .map_err(|error| SessionError::usage(format!("the answer to `{id}` is not JSON: {error}")))?;
            decided.one(id, Approval::Answer(values))?;
        }
        for id in &self.cancel {
            decided.one(id, Approval::Cancel)?;
        }
        decided.answers()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::session::sample::waiting;

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
        let no_call = "no call `c9` waits on thread `t`; waiting calls: `c1`; for all of them: `--approve`, `--always` or \
                       `--deny-all REASON`";
        let no_id = &no_call.replace("`c9`", "``");
        for (flags, wrong) in [
            (&["--approve", "c9"][..], no_call),
            (&["--deny", "c9=no"], no_call),
            (&["--approve", ""], no_id),
            (&["--approve=", "--deny", "c1"], no_id),
            (&["--always", ""], no_id),
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
        assert_eq!(
            answers(&["--approve", "c1"], &["c1", "c1"]),
            Err("several calls `c1` wait on thread `t`; name each by the id of its interrupt: `tools:4.0:c1`, `tools:4.0:c1`"
                .to_owned())
        );
        let wrong = answers(&["--edit", "c1={"], &["c1"]).unwrap_err();
        assert!(wrong.starts_with("the arguments for `c1` are not valid JSON: "), "{wrong}");
        let wrong = answers(&["--approve"], &[]).unwrap_err();
        assert_eq!(wrong, "no call waits for a decision on thread `t`");
    }
}
