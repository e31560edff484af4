//! The bodies of requests to handlers, and of their replies. Stable format: a caller may be of another version.
//!
//! Start at [`Write`].

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use superstep_checkpoint::{CheckpointError, CheckpointId, ThreadId};
use superstep_state::chain;

use crate::{
    remote::Entries,
    request::{Reply, Request},
};

/// A write of a program outside of runs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Write {
    /// The token of the writer's lease, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    pub(crate) request: Request,
}

/// A lease that is taken, renewed or released.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// The opening of the cluster that the lease belongs to. It replaces leases of its own.
    pub(crate) owner: String,
    pub(crate) token: String,
    /// The time of the lease; `None` if it is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<i64>,
    /// The lease must still be there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_renewal: bool,
}

/// The entry `l`: the lease of a writer outside of runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Leased {
    pub(crate) owner: String,
    pub(crate) token: String,
    pub(crate) until_ms: i64,
}

/// The entry `x`: the run at work.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) invocation: String,
    pub(crate) graph: String,
}

/// A copy of another thread.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Copy {
    pub(crate) from: ThreadId,
    pub(crate) to: ThreadId,
}

/// The result of a write.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Written {
    Done,
    Id(CheckpointId),
    Is(bool),
    Count(usize),
    Busy(ThreadId),
    Conflict(ThreadId, Option<CheckpointId>),
    LeaseLost(ThreadId),
    ThreadExists(ThreadId),
    NoThread(ThreadId),
    Leftovers(ThreadId, Vec<ThreadId>),
    Storage(String, Option<String>),
    Key(String, Option<String>),
    Unencrypted(String),
    Corrupt(String, Option<String>),
}

type Source = Option<Box<dyn std::error::Error + Send + Sync>>;

impl From<Result<Reply, CheckpointError>> for Written {
    fn from(result: Result<Reply, CheckpointError>) -> Self {
        let text = |source: Source| source.map(|source| chain(&*source));
        match result {
            Ok(Reply::Done) => Self::Done,
            Ok(Reply::Id(id)) => Self::Id(id),
            Ok(Reply::Is(is)) => Self::Is(is),
            Ok(Reply::Count(count)) => Self::Count(count),
            Ok(_) => unreachable!("the reply to a write has no data"),
            Err(CheckpointError::Busy { thread }) => Self::Busy(thread),
            Err(CheckpointError::Conflict { thread, expected }) => Self::Conflict(thread, expected),
            Err(CheckpointError::LeaseLost { thread }) => Self::LeaseLost(thread),
            Err(CheckpointError::ThreadExists { thread }) => Self::ThreadExists(thread),
            Err(CheckpointError::NoThread { thread }) => Self::NoThread(thread),
            Err(CheckpointError::Leftovers { thread, children }) => Self::Leftovers(thread, children),
            Err(CheckpointError::Storage { what, source }) => Self::Storage(what, text(source)),
            Err(CheckpointError::Key { what, source }) => Self::Key(what, text(source)),
            Err(CheckpointError::Unencrypted { what }) => Self::Unencrypted(what),
            Err(CheckpointError::Corrupt { what, source }) => Self::Corrupt(what, text(source)),
            // The type may get more variants.
            Err(other) => Self::Storage(other.to_string(), None),
        }
    }
}

impl From<Written> for Result<Reply, CheckpointError> {
    fn from(written: Written) -> Self {
        let source = |text: Option<String>| text.map(Into::into);
        Err(match written {
            Written::Done => return Ok(Reply::Done),
            Written::Id(id) => return Ok(Reply::Id(id)),
            Written::Is(is) => return Ok(Reply::Is(is)),
            Written::Count(count) => return Ok(Reply::Count(count)),
            Written::Busy(thread) => CheckpointError::Busy { thread },
            Written::Conflict(thread, expected) => CheckpointError::Conflict { thread, expected },
            Written::LeaseLost(thread) => CheckpointError::LeaseLost { thread },
            Written::ThreadExists(thread) => CheckpointError::ThreadExists { thread },
            Written::NoThread(thread) => CheckpointError::NoThread { thread },
            Written::Leftovers(thread, children) => CheckpointError::Leftovers { thread, children },
            Written::Storage(what, text) => CheckpointError::Storage { what, source: source(text) },
            Written::Key(what, text) => CheckpointError::Key { what, source: source(text) },
            Written::Unencrypted(what) => CheckpointError::Unencrypted { what },
            Written::Corrupt(what, text) => CheckpointError::Corrupt { what, source: source(text) },
        })
    }
}

impl Write {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("requests have text keys only")
    }
}

/// Encodes the result of a write.
pub(crate) fn written(result: Result<Reply, CheckpointError>) -> Bytes {
    serde_json::to_vec(&Written::from(result)).expect("a result is JSON").into()
}

/// Decodes the result of a write.
pub(crate) fn written_of(thread: &ThreadId, body: &[u8]) -> Result<Reply, CheckpointError> {
    let written: Written = serde_json::from_slice(body).map_err(|cause| CheckpointError::Storage {
        what: format!(
            "the reply to a write of thread `{thread}` cannot be read, a newer version of superstep serves it"
        ),
        source: Some(cause.into()),
    })?;
    written.into()
}

/// The largest reply with several values, in bytes. One value may be larger.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Encodes the first of some values: a line with their lengths, then their bytes.
pub(crate) fn values(found: &[Option<Bytes>]) -> Bytes {
    let mut total = 0;
    let fits = |value: &&Option<Bytes>| {
        let is_first = total == 0;
        total += value.as_ref().map_or(0, Bytes::len) + 1;
        is_first || total <= MAX_PAGE_BYTES
    };
    let page: Vec<&Option<Bytes>> = found.iter().take_while(fits).collect();
    let lengths: Vec<_> = page.iter().map(|value| value.as_ref().map(Bytes::len)).collect();
    let mut body = serde_json::to_vec(&lengths).expect("lengths are JSON");
    body.push(b'\n');
    page.into_iter().flatten().for_each(|value| body.extend_from_slice(value));
    body.into()
}

/// Decodes some values.
pub(crate) fn values_of(body: &Bytes) -> Result<Vec<Option<Bytes>>, CheckpointError> {
    let (line, mut rest) = halves(body)?;
    let lengths: Vec<Option<usize>> = serde_json::from_slice(&line).map_err(|_| unreadable("values"))?;
    lengths.into_iter().map(|length| taken(&mut rest, length)).collect()
}

/// The first line of some entries.
#[derive(Serialize, Deserialize)]
struct EntriesHead {
    keys: Option<Vec<String>>,
    /// The names of entries, and the lengths of their values.
    values: Vec<(String, Option<usize>)>,
}

/// Encodes the entries that a read needs, or the smallest of them: a line of JSON, then the values.
pub(crate) fn entries(entries: Entries) -> Bytes {
    let Entries { keys, values } = entries;
    let mut values: Vec<_> = values.into_iter().collect();
    let length = |value: &Option<Bytes>| value.as_ref().map(Bytes::len);
    values.sort_by_key(|(_, value)| length(value));
    let mut total = 0;
    values.retain(|(key, value)| {
        total += key.len() + length(value).unwrap_or_default();
        total <= MAX_PAGE_BYTES
    });
    let lengths = values.iter().map(|(key, value)| (key.clone(), length(value))).collect();
    let mut body = serde_json::to_vec(&EntriesHead { keys, values: lengths }).expect("names are JSON");
    body.push(b'\n');
    values.iter().filter_map(|(_, value)| value.as_ref()).for_each(|value| body.extend_from_slice(value));
    body.into()
}

/// Decodes the entries that a read needs.
pub(crate) fn entries_of(body: &Bytes) -> Result<Entries, CheckpointError> {
    let (line, mut rest) = halves(body)?;
    let EntriesHead { keys, values } = serde_json::from_slice(&line).map_err(|_| unreadable("values"))?;
    let values = values.into_iter().map(|(key, length)| Ok((key, taken(&mut rest, length)?)));
    Ok(Entries { keys, values: values.collect::<Result<_, CheckpointError>>()? })
}

/// Returns the first line of a body, and the rest.
fn halves(body: &Bytes) -> Result<(Bytes, Bytes), CheckpointError> {
    let end = body.iter().position(|byte| *byte == b'\n').ok_or_else(|| unreadable("values"))?;
    Ok((body.slice(..end), body.slice(end + 1..)))
}

/// Takes a value of some length.
fn taken(rest: &mut Bytes, length: Option<usize>) -> Result<Option<Bytes>, CheckpointError> {
    match length {
        None => Ok(None),
        Some(length) if length > rest.len() => Err(unreadable("values")),
        Some(length) => Ok(Some(rest.split_to(length))),
    }
}

/// Decodes the names of entries.
pub(crate) fn keys_of(body: &[u8]) -> Result<Vec<String>, CheckpointError> {
    serde_json::from_slice(body).map_err(|_| unreadable("names"))
}

fn unreadable(what: &str) -> CheckpointError {
    let what = format!("the {what} of entries cannot be read, a newer version of superstep serves them");
    CheckpointError::Storage { what, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_of_a_write_returns() {
        let thread = || ThreadId::from("t");
        let what = || "the disk is full".to_owned();
        let source = || Some("no space".into());
        let results = [
            Ok(Reply::Done),
            Ok(Reply::Id(CheckpointId(7))),
            Ok(Reply::Is(true)),
            Ok(Reply::Count(3)),
            Err(CheckpointError::Busy { thread: thread() }),
            Err(CheckpointError::Conflict { thread: thread(), expected: None }),
            Err(CheckpointError::LeaseLost { thread: thread() }),
            Err(CheckpointError::ThreadExists { thread: thread() }),
            Err(CheckpointError::NoThread { thread: thread() }),
            Err(CheckpointError::Leftovers { thread: thread(), children: vec![thread()] }),
            Err(CheckpointError::Storage { what: what(), source: source() }),
            Err(CheckpointError::Key { what: what(), source: None }),
            Err(CheckpointError::Unencrypted { what: what() }),
            Err(CheckpointError::Corrupt { what: what(), source: source() }),
        ];
        for result in results {
            let shown = format!("{result:?}");
            assert_eq!(format!("{:?}", written_of(&thread(), &written(result))), shown);
        }
    }

    #[test]
    fn values_return_in_pages() {
        let large = Some(Bytes::from(vec![b'x'; MAX_PAGE_BYTES]));
        let found = [large.clone(), None, Some(Bytes::new()), Some("\n".into()), large];
        let mut returned = Vec::new();
        while returned.len() < found.len() {
            returned.extend(values_of(&values(&found[returned.len()..])).unwrap());
        }
        assert_eq!(returned, found);
        values_of(&Bytes::from_static(b"[3]\nxx")).unwrap_err();
    }

    #[test]
    fn entries_return_but_for_large_ones() {
        let text = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let large = Some(Bytes::from(vec![b'x'; MAX_PAGE_BYTES]));
        let values = [("h", text("1")), ("m1", None), ("t\n", text("")), ("u1", large)];
        let values = values.map(|(key, value)| (key.to_owned(), value));
        let keys = Some(vec!["h".to_owned()]);
        let found =
            entries_of(&entries(Entries { keys: keys.clone(), values: values.clone().into() })).unwrap();
        assert_eq!((found.keys, found.values), (keys, values[..3].iter().cloned().collect()));
    }
}
