//! Decisions on calls that wait, by the ids of the calls.
//!
//! Start at [`CallDecisions`].

use std::collections::BTreeMap;

use superstep::{Answers, agent::Approval};
use superstep_session::{error::SessionError, text::printable, turn::waiting::Waiting};

/// Splits `ID=VALUE`. Prefers the id of a waiting call, because an id may contain `=`.
pub(crate) fn named<'a>(given: &'a str, waiting: &[Waiting]) -> (&'a str, Option<&'a str>) {
    let ends = given.match_indices('=').map(|(at, _)| at).chain([given.len()]);
    let id = ends.map(|end| &given[..end]).find(|id| waiting.iter().any(|call| call.is_named(id)));
    match id {
        Some(id) => (id, given[id.len()..].strip_prefix('=')),
        None => given.split_once('=').map_or((given, None), |(id, value)| (id, Some(value))),
    }
}

pub(crate) fn with_value<'a>(
    flag: &str,
    what: &str,
    given: &'a str,
    waiting: &[Waiting],
) -> Result<(&'a str, &'a str), SessionError> {
    let (id, value) = named(given, waiting);
    let is_there = waiting.iter().any(|call| call.is_named(id));
    value.map(|value| (id, value)).ok_or_else(|| {
        SessionError::usage(if is_there {
            format!("`{flag}` needs a value for the call `{given}`: `{flag} {given}={what}`")
        } else {
            format!("`{flag}` needs the call's id: `{flag} ID={given}`")
        })
    })
}

/// The decisions so far.
pub(crate) struct CallDecisions<'a> {
    thread: &'a str,
    waiting: &'a [Waiting],
    by_interrupt: BTreeMap<&'a str, Approval>,
    /// The decision on all calls that are not named.
    rest: Option<Approval>,
}

impl<'a> CallDecisions<'a> {
    pub(crate) fn new(thread: &'a str, waiting: &'a [Waiting]) -> Self {
        Self { thread, waiting, by_interrupt: BTreeMap::new(), rest: None }
    }

    /// Decides on the call of an id.
    ///
    /// # Errors
    /// No call of it waits, or several do, or it is decided already.
    pub(crate) fn one(&mut self, id: &str, approval: Approval) -> Result<(), SessionError> {
        let call = match &Waiting::named(self.waiting, id)[..] {
            [call] => *call,
            [] => {
                let ids: Vec<_> =
                    self.waiting.iter().map(|call| format!("`{}`", printable(&call.id))).collect();
                let (thread, ids) = (self.thread, ids.join(", "));
                return Err(SessionError::usage(format!(
                    "no call `{id}` waits on thread `{thread}`; waiting calls: {ids}; for all of them: \
                     `--approve`, `--always` or `--deny-all REASON`"
                )));
            }
            several => {
                let ids: Vec<_> =
                    several.iter().map(|call| format!("`{}`", printable(&call.interrupt))).collect();
                return Err(SessionError::usage(format!(
                    "several calls `{id}` wait on thread `{}`; name each by the id of its interrupt: {}",
                    self.thread,
                    ids.join(", ")
                )));
            }
        };
        match self.by_interrupt.insert(&call.interrupt, approval) {
            None => Ok(()),
            Some(_) => Err(SessionError::usage(format!("call `{id}` is decided twice"))),
        }
    }

    /// Decides on all calls that are not named.
    ///
    /// # Errors
    /// They are decided already.
    pub(crate) fn the_rest(&mut self, approval: Approval) -> Result<(), SessionError> {
        match self.rest.replace(approval) {
            None => Ok(()),
            Some(_) => Err(SessionError::usage(
                "only one decision can be without an id, for all that no other names",
            )),
        }
    }

    /// Returns the answers.
    ///
    /// # Errors
    /// A decision on the rest covers no call.
    pub(crate) fn answers(self) -> Result<Answers, SessionError> {
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
                Err(SessionError::usage("every call is named, so no decision is left without an id"))
            }
            _ => Ok(answers),
        }
    }
}
