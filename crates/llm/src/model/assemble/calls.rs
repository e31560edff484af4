//! The calls of a streamed answer: which piece belongs to which, and which of them are repetitions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, value::RawValue};

use super::is_json_object;
use crate::{messages::origin::Fields, texts::nesting::Nesting};

/// The calls of an answer so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    calls: Vec<PartialCall>,
    /// The position of the latest call by index, and of each call by its ids and indexes.
    latest: BTreeMap<usize, usize>,
    by_id: BTreeMap<String, BTreeMap<usize, usize>>,
    /// The call that the last piece belongs to.
    newest: usize,
}

#[derive(Clone, Debug, Default)]
struct PartialCall {
    index: usize,
    id: Option<String>,
    name: Option<String>,
    arguments: String,
    fields: Fields,
    nesting: Nesting,
    /// The result of the check for complete arguments, which later white space does not change.
    complete: Option<bool>,
    /// The tool was named again after complete arguments.
    named_again: bool,
}

/// A call of the answer.
pub(super) struct Whole<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    pub(super) fields: &'a Fields,
    index: usize,
}

impl Calls {
    /// Adds a piece of a call.
    pub(super) fn push(&mut self, index: usize, id: Option<&str>, name: Option<&str>, arguments: &str) {
        let found = self.find(index, id, name);
        let over = found.filter(|&at| self.calls[at].is_over(name, arguments));
        self.newest = match found {
            Some(at) if over.is_none() => at,
            _ => {
                let named = name.filter(|_| id.is_none()).and_then(|name| self.unfinished(index, name));
                named.unwrap_or_else(|| self.open(index, over.filter(|_| name.is_none())))
            }
        };
        let call = &mut self.calls[self.newest];
        if let Some(id) = id {
            call.id.get_or_insert_with(|| id.to_owned());
            self.by_id.entry(id.to_owned()).or_default().insert(index, self.newest);
        }
        if let Some(name) = name {
            call.name = Some(name.to_owned());
        }
        call.arguments.push_str(arguments);
        call.nesting.push(arguments);
    }

    /// Returns the call that a piece continues: by its index, then by its id.
    fn find(&self, index: usize, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let latest = self.latest.get(&index).copied();
        let Some(id) = id else { return latest };
        let known = self.by_id.get(id);
        if let Some(at) = known.and_then(|known| known.get(&index)) {
            return Some(*at);
        }
        // The id arrives late: the call was opened without one.
        if let Some(at) = latest.filter(|&at| self.calls[at].id.is_none()) {
            return Some(at);
        }
        // The index differs between the pieces of a call; a name begins another one.
        let elsewhere = known.and_then(|known| known.values().next_back().copied());
        if let Some(at) = elsewhere.filter(|_| name.is_none()) {
            return Some(at);
        }
        // The id does.
        latest.filter(|&at| match name {
            Some(name) => self.calls[at].is_begun() && self.calls[at].name.as_deref() == Some(name),
            None => true,
        })
    }

    /// Returns the latest call of a tool under an index whose arguments are not complete.
    fn unfinished(&self, index: usize, name: &str) -> Option<usize> {
        let is_it = |call: &PartialCall| call.index == index && call.name.as_deref() == Some(name);
        self.calls.iter().rposition(|call| is_it(call) && !call.nesting.is_closed())
    }

    /// Opens a call; `named` is the one before if its name was repeated for this one, perhaps with its id.
    fn open(&mut self, index: usize, named: Option<usize>) -> usize {
        let at = self.calls.len();
        let (id, name) = match named.map(|before| &self.calls[before]) {
            Some(before) => (before.id.clone(), before.name.clone()),
            None => (None, None),
        };
        self.latest.insert(index, at);
        if let Some(id) = &id {
            self.by_id.entry(id.clone()).or_default().insert(index, at);
        }
        self.calls.push(PartialCall { index, id, name, ..PartialCall::default() });
        at
    }

    /// Returns the unknown fields of the call under an index, to add some.
    pub(super) fn extra(&mut self, index: usize) -> Option<&mut Fields> {
        let is_newest = self.calls.get(self.newest).is_some_and(|call| call.index == index);
        let at = if is_newest { self.newest } else { *self.latest.get(&index)? };
        Some(&mut self.calls[at].fields)
    }

    /// Returns the number of calls so far.
    pub(crate) fn count(&self) -> usize {
        self.calls.len()
    }

    /// Returns the name of the last piece's call, with the length and nesting of its arguments.
    pub(crate) fn newest(&self) -> Option<(&str, usize, usize)> {
        let call = self.calls.get(self.newest)?;
        Some((call.name.as_deref().unwrap_or_default(), call.arguments.len(), call.nesting.most))
    }

    /// Returns the number of values in the arguments of all calls, from above.
    pub(crate) fn values(&self) -> usize {
        self.calls.iter().map(|call| call.nesting.values).sum()
    }

    fn in_order(&self) -> Vec<&PartialCall> {
        let mut calls: Vec<&PartialCall> = self.calls.iter().filter(|call| !call.is_empty()).collect();
        calls.sort_by_key(|call| call.index);
        calls
    }

    /// Returns the names and the arguments as they arrived, without calls that may be repetitions.
    pub(super) fn arrived(&self) -> Vec<(&str, &str)> {
        let mut seen = BTreeSet::new();
        let calls = self.in_order().into_iter();
        let calls = calls.filter(|call| call.id.is_none() || seen.insert((&call.id, &call.name)));
        calls.map(|call| (call.name.as_deref().unwrap_or_default(), call.arguments.as_str())).collect()
    }

    /// Returns the calls without repetitions, in their order.
    pub(super) fn whole(&self) -> Vec<Whole<'_>> {
        let mut calls: Vec<Whole<'_>> = Vec::new();
        for call in self.in_order() {
            let next = Whole {
                id: call.id.as_deref(),
                name: call.name.as_deref().unwrap_or_default(),
                arguments: call.given(),
                fields: &call.fields,
                index: call.index,
            };
            if calls.iter().any(|before| next.repeats(before)) {
                continue;
            }
            calls.retain(|before| !before.begins(&next));
            calls.push(next);
        }
        calls
    }
}

impl PartialCall {
    /// Returns whether a piece with this name and these arguments must belong to another call.
    fn is_over(&mut self, name: Option<&str>, arguments: &str) -> bool {
        if let (Some(own), Some(name)) = (&self.name, name) {
            if own != name {
                return true;
            }
            // Some servers repeat the name with every piece, also with an empty one at the end.
            self.named_again |= self.is_complete();
        }
        self.named_again && !arguments.trim().is_empty()
    }

    /// Returns whether the arguments are a complete object. Parses them at most once.
    fn is_complete(&mut self) -> bool {
        self.nesting.is_closed() && *self.complete.get_or_insert_with(|| is_json_object(&self.arguments))
    }

    /// Returns whether the arguments have begun and go on.
    fn is_begun(&self) -> bool {
        self.nesting.most > 0 && !self.nesting.is_closed()
    }

    fn is_empty(&self) -> bool {
        self.id.is_none() && self.name.is_none() && self.arguments.trim().is_empty()
    }

    /// Returns the arguments once, if they consist of several equal values, and without empty ones before them.
    fn given(&self) -> &str {
        let text = self.arguments.as_str();
        if !self.nesting.trailing && !text.trim_start().starts_with(['n', '"']) {
            return text;
        }
        let values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        let Ok(values) = values.map(|value| value.map(RawValue::get)).collect::<Result<Vec<_>, _>>() else {
            return text;
        };
        let is_empty = |value: &str| ["null", "\"\"", "{}"].contains(&value);
        let mut filled = values.iter().copied().filter(|value| !is_empty(value));
        match filled.next() {
            Some(first) if filled.all(|value| is_equal(first, value)) => first,
            Some(_) => text,
            None => values.last().copied().unwrap_or(text),
        }
    }
}

impl Whole<'_> {
    /// Returns whether the server has reported this call before.
    fn repeats(&self, before: &Self) -> bool {
        let is_same = match (self.id, before.id) {
            (Some(id), Some(before)) => id == before,
            (None, None) => self.index == before.index,
            _ => false,
        };
        let is_named = self.name.is_empty() || self.name == before.name;
        is_same && is_named && (self.has_no_arguments() || is_equal(self.arguments, before.arguments))
    }

    /// Returns whether this is only the beginning of the next call: under its id, or with an id for each piece.
    fn begins(&self, next: &Self) -> bool {
        let is_same = self.index == next.index || self.id.is_some() && self.id == next.id;
        is_same && self.name == next.name && self.has_no_arguments() && !next.has_no_arguments()
    }

    fn has_no_arguments(&self) -> bool {
        self.arguments.trim().is_empty()
    }
}

/// Returns whether two JSON texts have the same value.
fn is_equal(one: &str, other: &str) -> bool {
    let value = |text| serde_json::from_str::<Value>(text).ok();
    one == other || value(one).is_some_and(|one| Some(one) == value(other))
}
