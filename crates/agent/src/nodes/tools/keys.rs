//! The keys under which a round stores its questions and results. Stable format.

use std::{collections::BTreeSet, ops::Bound};

/// The keys of a round's questions: the ids of its calls, and what is derived from them.
///
/// ```text
/// c1          whether the call may run
/// c1.2        the same again, because the first answer was not accepted
/// c1.asks.1   the first question of the running tool
/// ```
///
/// Models choose the ids. If one of them begins like a key that is derived from another, there are more dots: `c1..2`.
pub(super) struct QuestionKeys {
    dots: String,
}

impl QuestionKeys {
    /// Returns the keys for calls with these ids.
    pub(super) fn of<'a>(ids: impl Iterator<Item = &'a str>) -> Self {
        let ids: BTreeSet<&str> = ids.collect();
        let looks_derived = |id: &&str| {
            let begin = format!("{id}.");
            let mut behind = ids.range::<str, _>((Bound::Included(&*begin), Bound::Unbounded));
            behind.next().is_some_and(|other| other.starts_with(&begin))
        };
        let dots_in = |id: &&str| id.split(|c| c != '.').map(str::len).max().unwrap_or(0);
        let most = if ids.iter().any(looks_derived) { ids.iter().map(dots_in).max() } else { None };
        Self { dots: ".".repeat(most.unwrap_or(0) + 1) }
    }

    /// Returns the key of a question in this round of its repetition, from 1.
    pub(super) fn again(&self, key: &str, round: usize) -> String {
        match round {
            1 => key.to_owned(),
            _ => format!("{key}{}{round}", self.dots),
        }
    }

    /// Returns the key of the `nth` question of a running call, from 1.
    pub(super) fn form(&self, id: &str, nth: usize) -> String {
        format!("{id}{0}asks{0}{nth}", self.dots)
    }
}

/// Returns the key that records the start of a call, after this number of questions of its tool.
pub(super) fn begun(position: usize, questions: usize) -> String {
    match questions {
        0 => format!("begun.{position}"),
        questions => format!("begun.{position}.{questions}"),
    }
}

/// Returns the key that records the result of a call.
pub(super) fn result_of(position: usize) -> String {
    format!("call.{position}")
}

/// Returns the key that records the emitted start of a sub-agent's call.
pub(super) fn start_event_key(position: usize) -> String {
    format!("told.{position}")
}

/// Returns the key of a call's question after this number of others.
pub(super) fn asks(position: usize, before: usize) -> String {
    format!("asks.{position}.{before}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_are_short_unless_an_id_looks_like_one() {
        let keys = |ids: &[&str]| {
            let keys = QuestionKeys::of(ids.iter().copied());
            (keys.again(ids[0], 1), keys.again(ids[0], 2), keys.form(ids[0], 1))
        };
        let plain = |id: &str| (id.to_owned(), format!("{id}.2"), format!("{id}.asks.1"));
        assert_eq!(keys(&["c1"]), plain("c1"));
        assert_eq!(keys(&["c1", "c10", "c2", "c2"]), plain("c1"));
        assert_eq!(keys(&["functions.read:0", "functions.read:1"]), plain("functions.read:0"));
        let apart = ("c1".to_owned(), "c1..2".to_owned(), "c1..asks..1".to_owned());
        assert_eq!(keys(&["c1", "c1.2"]), apart);
        assert_eq!(keys(&["c1", "c1.asks.1"]), apart);
        assert_eq!(keys(&["c1", "c1-", "c1."]), apart);
        assert_eq!(keys(&["c1", "c1.", "c1..2"]).1, "c1...2");
    }

    #[test]
    fn no_two_questions_share_a_key() {
        let parts = ["", ".", "..", "2", "asks", "1"];
        let mut ids: Vec<String> = vec!["c".to_owned()];
        for _ in 0..3 {
            let longer: Vec<_> =
                ids.iter().flat_map(|id| parts.iter().map(move |part| format!("{id}{part}"))).collect();
            ids.extend(longer);
        }
        ids.sort_unstable();
        ids.dedup();
        // All of them at once, and pairs, which need fewer dots.
        let pairs = ids.iter().flat_map(|one| ids.iter().map(move |other| vec![one, other]));
        for ids in pairs.chain([ids.iter().collect()]) {
            let ids: BTreeSet<&str> = ids.into_iter().map(String::as_str).collect();
            let keys = QuestionKeys::of(ids.iter().copied());
            let mut seen = BTreeSet::new();
            for id in &ids {
                for base in [(*id).to_owned(), keys.form(id, 1), keys.form(id, 2)] {
                    for round in 1..=2 {
                        let key = keys.again(&base, round);
                        assert!(seen.insert(key.clone()), "{key} of {ids:?}");
                    }
                }
            }
        }
    }
}
