//! The expected calls of a scripted model, and their comparison with the calls that are made.
//!
//! Start at [`Expectations`].

mod body;
mod request;
mod shown;

use std::{collections::VecDeque, thread};

use serde_json::Value;

pub(crate) use self::{request::Wanted, shown::difference};

/// The expected calls that were not made yet, and the first failure.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    /// `None` if the script has no expectations.
    open: Option<VecDeque<Wanted>>,
    /// The number of calls so far.
    calls: usize,
    /// The number of ids of tool calls so far.
    ids: usize,
    last: Value,
    failure: Option<String>,
}

impl Expectations {
    /// Creates an empty list, which expects no call.
    pub(crate) fn none() -> Self {
        Self { open: Some(VecDeque::new()), ..Self::default() }
    }

    /// Returns `true` if calls are compared with expectations.
    pub(crate) fn are_on(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn push(&mut self, wanted: Wanted) {
        self.open.get_or_insert_default().push_back(wanted);
    }

    pub(crate) fn call_ids(&mut self, count: usize) -> Vec<String> {
        let first = self.ids + 1;
        self.ids += count;
        (first..).take(count).map(|id| format!("call_{id}")).collect()
    }

    /// Compares a call with the next expected one, and takes that if it matches.
    ///
    /// # Errors
    /// The first failure of all calls.
    pub(crate) fn meet(&mut self, body: &Value) -> Result<(), String> {
        let Some(open) = &mut self.open else { return Ok(()) };
        self.calls += 1;
        self.last = body.clone();
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let differs = match open.front() {
            Some(wanted) => wanted.compare(body).err().map(|text| {
                format!("model call {} does not match what {} expects\n{text}", self.calls, wanted.place())
            }),
            None => Some(format!("model call {} is not expected\n", self.calls)),
        };
        match differs {
            None => drop(open.pop_front()),
            Some(text) => self.failure = Some(format!("{text}{}", shown::conversation(body))),
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns the first failure, or the calls that were not made.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let open: Vec<_> = self.open.iter().flatten().collect();
        if open.is_empty() {
            return Ok(());
        }
        let mut text = match open.len() {
            1 => "an expected model call was not made\n".to_owned(),
            count => format!("{count} expected model calls were not made\n"),
        };
        for (call, wanted) in (self.calls + 1..).zip(open) {
            text.push_str(&format!("  call {call}, of {}: {wanted}\n", wanted.place()));
        }
        match self.calls {
            0 => text.push_str("no call was made\n"),
            calls => {
                text.push_str(&format!("call {calls} was the last one\n{}", shown::conversation(&self.last)))
            }
        }
        Err(text)
    }
}

/// Implements `assert_done` and `Drop` for a type with `check` and `is_over`: a test fails if it did not make the expected calls.
macro_rules! checked_at_end {
    ($checked:ty, $panics:literal) => {
        impl $checked {
            /// Ends the test, as a drop does.
            ///
            /// # Panics
            #[doc = $panics]
            #[track_caller]
            pub fn assert_done(mut self) {
                self.is_over = true;
                if let Err(text) = self.check() {
                    panic!("{text}");
                }
            }
        }

        impl Drop for $checked {
            fn drop(&mut self) {
                if !std::mem::replace(&mut self.is_over, true) {
                    $crate::expectations::end(self.check());
                }
            }
        }
    };
}

pub(crate) use checked_at_end;

/// Panics with the text of an unmet expectation; prints it if the thread panics already, which may be its consequence.
#[expect(clippy::print_stderr, reason = "a failing test shows it")]
pub(crate) fn end(checked: Result<(), String>) {
    match checked {
        Ok(()) => {}
        Err(text) if thread::panicking() => eprintln!("{text}"),
        Err(text) => panic!("{text}"),
    }
}
