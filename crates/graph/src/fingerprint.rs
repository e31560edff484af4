//! Telling values apart without keeping them.
//!
//! Start at [`fingerprint`].

use std::{
    cell::RefCell,
    io::{self, Write},
};

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

/// A short text that is the same for equal values, and another one for any other value, as far as anybody will see.
///
/// It is that of the value's JSON form, in which the order of an object's entries does not count. It is stable: it may be stored
/// and compared by a later program. It protects from nobody who looks for two values with the same one.
///
/// # Errors
/// If the value has no JSON form.
///
/// # Source
/// FNV-1a, of which the entries of an object are added up.
pub fn fingerprint(value: &(impl Serialize + ?Sized)) -> Result<String, serde_json::Error> {
    bounded(usize::MAX, |serializer| value.serialize(serializer)).map(|(text, _)| text)
}

/// The serializer that a value is to be given to.
pub(crate) type Hashing<'a, 's> = &'a mut Serializer<Ink<'s>, Order<'s>>;

/// The fingerprint of what `serialize` writes, and how long that was as JSON.
///
/// # Errors
/// Those of `serialize`, and if that would be longer than `most` bytes: then no more is written.
pub(crate) fn bounded(
    most: usize,
    serialize: impl FnOnce(Hashing<'_, '_>) -> Result<(), serde_json::Error>,
) -> Result<(String, usize), serde_json::Error> {
    let sum = RefCell::new(Sum { levels: Vec::new(), hash: SEED, written: 0, most });
    serialize(&mut Serializer::with_formatter(Ink(&sum), Order(&sum)))?;
    let Sum { hash, written, .. } = sum.into_inner();
    Ok((format!("{hash:016x}"), written))
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// What is known of a text as far as it is written.
struct Sum {
    /// Of the objects that are open: the hash of what was written before each, and the sum of its entries.
    levels: Vec<(u64, u64)>,
    hash: u64,
    written: usize,
    most: usize,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.hash = bytes
            .iter()
            .fold(self.hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    }

    fn open(&mut self) {
        self.levels.push((self.hash, 0));
    }

    fn begin_entry(&mut self) {
        self.hash = SEED;
    }

    fn end_entry(&mut self) {
        if let Some((_, entries)) = self.levels.last_mut() {
            *entries = entries.wrapping_add(self.hash);
        }
    }

    fn close(&mut self) {
        if let Some((before, entries)) = self.levels.pop() {
            self.hash = before;
            self.add(&entries.to_le_bytes());
        }
    }
}

pub(crate) struct Ink<'s>(&'s RefCell<Sum>);

impl Write for Ink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sum = self.0.borrow_mut();
        sum.written = sum.written.saturating_add(bytes.len());
        if sum.written > sum.most {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        sum.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compact JSON, of which the sum is told where entries of objects begin and end.
pub(crate) struct Order<'s>(&'s RefCell<Sum>);

impl Formatter for Order<'_> {
    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"{")?;
        self.0.borrow_mut().open();
        Ok(())
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            // Counted, and no part of an entry.
            writer.write_all(b",")?;
        }
        self.0.borrow_mut().begin_entry();
        Ok(())
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.0.borrow_mut().end_entry();
        Ok(())
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.borrow_mut().close();
        writer.write_all(b"}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: &serde_json::Value) -> String {
        fingerprint(value).expect("it is JSON")
    }

    #[test]
    fn the_order_of_entries_does_not_count_and_everything_else_does() {
        use std::collections::BTreeMap;

        struct Backwards<'a>(&'a BTreeMap<&'a str, serde_json::Value>);
        impl Serialize for Backwards<'_> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().rev())
            }
        }
        let map = BTreeMap::from([("a", json!([1, 2])), ("b", json!({"c": null, "d": "x"}))]);
        assert_eq!(fingerprint(&Backwards(&map)).unwrap(), fingerprint(&map).unwrap());

        let values = [
            json!([1, 2]),
            json!([2, 1]),
            json!([12]),
            json!({"a": 1, "b": 2}),
            json!({"a": 2, "b": 1}),
            json!({"a": {"b": 1}}),
            json!({"a": {}, "b": 1}),
            json!([{"a": 1}, {"b": 2}]),
            json!([{"a": 1, "b": 2}]),
            json!("1"),
            json!(1),
        ];
        let all: std::collections::BTreeSet<String> = values.iter().map(of).collect();
        assert_eq!(all.len(), values.len());
    }

    #[test]
    fn it_stays_what_it_was() {
        assert_eq!(of(&json!({"b": [true, null], "a": "é"})), "acc7637097b66265");
    }

    #[test]
    fn no_more_is_written_than_allowed() {
        let long = "x".repeat(100);
        assert!(bounded(50, |serializer| long.serialize(serializer)).is_err());
        assert_eq!(bounded(102, |serializer| long.serialize(serializer)).unwrap().1, 102);
    }
}
