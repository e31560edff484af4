//! The progress of a script, whose requests are compared with the expected ones.
//!
//! Start at [`Progress`].

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::{
    expectations::{Expectations, Wanted},
    provider::{Refused, Rules},
    script::{Answer, Script, http},
};

/// The progress of a script. Both players have one.
#[derive(Debug)]
pub(crate) struct Progress {
    answers: VecDeque<Answer>,
    overrun: usize,
    rules: Rules,
    refused: Vec<Refused>,
    expected: Expectations,
}

impl Progress {
    pub(crate) fn new(script: Script, rules: Rules) -> Self {
        let (answers, expected) = (script.answers.into(), Expectations::default());
        Self { answers, overrun: 0, rules, refused: Vec::new(), expected }
    }

    /// Creates a script without answers, each of which is for an expected request.
    pub(crate) fn expecting(rules: Rules) -> Self {
        Self { expected: Expectations::none(), ..Self::new(Script::default(), rules) }
    }

    /// Adds an expected request, and its answer.
    pub(crate) fn expect(&mut self, wanted: Wanted, answer: Answer) {
        self.expected.push(wanted);
        self.answers.push_back(answer);
    }

    /// Returns new ids of tool calls.
    pub(crate) fn call_ids(&mut self, count: usize) -> Vec<String> {
        self.expected.call_ids(count)
    }

    /// Returns `true` if no request is examined.
    pub(crate) fn accepts_anything(&self) -> bool {
        self.rules.anything && !self.expected.are_on()
    }

    /// Returns the answer to a request with this body: 400 if a provider would reject it, or it is not the expected one.
    pub(crate) fn answer(&mut self, body: &Value) -> Answer {
        let rejected = |message: String| {
            let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
            http(400, &[], &error.to_string())
        };
        if let Err(refused) = self.rules.check(body) {
            let answer = rejected(refused.to_string());
            self.refused.push(refused);
            return answer;
        }
        match self.expected.meet(body) {
            Ok(()) => self.next(),
            Err(difference) => rejected(difference),
        }
    }

    /// Returns the answer to the next request; a 500 if none is left.
    pub(crate) fn next(&mut self) -> Answer {
        self.answers.pop_front().unwrap_or_else(|| {
            self.overrun += 1;
            http(500, &[], r#"{"error":{"message":"the script is exhausted"}}"#)
        })
    }

    pub(crate) fn unused(&self) -> usize {
        self.answers.len()
    }

    pub(crate) fn refused(&self) -> Vec<Refused> {
        self.refused.clone()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(refused) = self.refused.first() {
            return Err(format!(
                "{} requests were refused, the first because of {refused}",
                self.refused.len()
            ));
        }
        self.expected.check()?;
        match (self.overrun, self.answers.len()) {
            (0, 0) => Ok(()),
            (0, left) => Err(format!("{left} scripted answers were not used")),
            (over, _) => Err(format!("{over} requests came after the last scripted answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::txt;

    #[test]
    fn progress_distinguishes_too_few_requests_from_too_many() {
        let good = json!({"model": "m", "messages": [{"role": "user", "content": "u"}]});
        let mut progress = Progress::new(Script::new([txt("a"), txt("b")]), Rules::default());
        assert_eq!(progress.answer(&good), txt("a"));
        assert_eq!(progress.check(), Err("1 scripted answers were not used".into()));
        assert_eq!(progress.answer(&good), txt("b"));
        assert_eq!(progress.check(), Ok(()));
        assert!(matches!(progress.answer(&good), Answer::Http { status: 500, .. }));
        assert_eq!(progress.check(), Err("1 requests came after the last scripted answer".into()));
    }

    #[test]
    fn a_request_that_a_provider_would_refuse_gets_no_answer_of_the_script() {
        let bad = json!({"model": "m", "messages": []});
        let mut progress = Progress::new(Script::new([txt("a")]), Rules::default());
        assert!(matches!(progress.answer(&bad), Answer::Http { status: 400, .. }));
        assert_eq!(
            progress.check(),
            Err("1 requests were refused, the first because of messages: is empty".into())
        );
        assert_eq!(Progress::new(Script::new([txt("a")]), Rules::anything()).answer(&bad), txt("a"));
    }
}
