//! The answers that flags of `resume` give to calls that wait.

use std::collections::BTreeMap;

use superstep::{Answers, agent::Approval};

use crate::{
    args::decisions::{ALL_OTHERS, DecisionArgs},
    output::{
        exit::{Exit, Failure},
        text::printable,
    },
    session::waiting::Waiting,
};

/// The reason of a denial without one.
pub(super) const SAID_NO: &str = "the user said no";

impl DecisionArgs {
    /// Returns the answers to waiting calls.
    ///
    /// # Errors
    /// A flag names a call that does not wait, a call is decided twice, or there is nothing to
    /// decide.
    pub(crate) fn answers(&self, thread: &str, waiting: &[Waiting]) -> Result<Answers, Failure> {
        if waiting.is_empty() && !self.is_empty() {
            return Err(Failure::new(
                Exit::Thread,
                format!("no call waits for a decision on thread `{thread}`"),
            ));
        }
        let mut decided = CallDecisions { thread, waiting, by_interrupt: BTreeMap::new(), rest: None };
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
                Failure::usage(format!("the arguments for `{id}` are not valid JSON: {error}"))
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
            true => format!("`{flag}` needs a value for the call `{given}`: `{flag} {given}={what}`"),
            false => format!("`{flag}` needs the call's id: `{flag} ID={given}`"),
        })
    })
}

/// The decisions so far.
struct CallDecisions<'a> {
    thread: &'a str,
    waiting: &'a [Waiting],
    by_interrupt: BTreeMap<&'a str, Approval>,
    /// The decision on all calls that are not named.
    rest: Option<Approval>,
}

impl CallDecisions<'_> {
    fn one(&mut self, id: &str, approval: Approval) -> Result<(), Failure> {
        let call = match &Waiting::named(self.waiting, id)[..] {
            [call] => *call,
            [] => {
                let ids: Vec<_> =
                    self.waiting.iter().map(|call| format!("`{}`", printable(&call.id))).collect();
                let (thread, ids) = (self.thread, ids.join(", "));
                return Err(Failure::usage(format!(
                    "no call `{id}` waits on thread `{thread}`; waiting calls: {ids}; for all of them: \
                     `--approve`, `--always` or `--deny-all REASON`"
                )));
            }
            several => {
                let ids: Vec<_> =
                    several.iter().map(|call| format!("`{}`", printable(&call.interrupt))).collect();
                return Err(Failure::usage(format!(
                    "several calls `{id}` wait on thread `{}`; name each by the id of its interrupt: {}",
                    self.thread,
                    ids.join(", ")
                )));
            }
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

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};
    use superstep::Interrupt;

    use super::*;

    pub(in crate::session) fn waiting(ids: &[&str]) -> Vec<Waiting> {
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
