//! Values of flags: databases, checkpoints and ages.

use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use superstep_session::config::names::{DbName, thread_name};

/// Reads the name of a database.
pub(super) fn database() -> impl TypedValueParser<Value = DbName> {
    OsStringValueParser::new().map(DbName)
}

/// Parses the number of a checkpoint.
pub(super) fn checkpoint(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a checkpoint is a number, which `history` shows".to_owned())
}

/// Marks that stdin is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stdin;

pub(super) fn stdin(word: &str) -> Result<Stdin, &'static str> {
    if word == "-" { Ok(Stdin) } else { Err("a prompt is one word of the command line: put it in quotes") }
}

/// A thread at its newest checkpoint, or at a named one: `THREAD` or `THREAD@CHECKPOINT`. Without a name, `@CHECKPOINT`, it
/// is the thread that was named before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadAt {
    pub(crate) name: Option<String>,
    pub(crate) at: Option<u64>,
}

/// Parses a thread with a checkpoint. A thread whose own name ends like that is named with its checkpoint.
pub(super) fn thread_at(text: &str) -> Result<ThreadAt, String> {
    let (name, at) = match text.rsplit_once('@').map(|(name, at)| (name, at.parse())) {
        Some((name, Ok(at))) => (name, Some(at)),
        _ => (text, None),
    };
    let name = match name {
        "" if at.is_some() => None,
        name => Some(thread_name(name)?),
    };
    Ok(ThreadAt { name, at })
}

/// Parses a number and its unit: `90s`, `15m`, `12h`, `30d`, `2w`.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("invalid duration `{text}`; write a number and one of s, m, h, d, w, such as `30d`");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        'w' => 7 * 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).unwrap_or_default();
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_follows_the_last_sign() {
        let of = |name: Option<&str>, at| Ok(ThreadAt { name: name.map(str::to_owned), at });
        assert_eq!(thread_at("t"), of(Some("t"), None));
        assert_eq!(thread_at("a@b@3"), of(Some("a@b"), Some(3)));
        assert_eq!(thread_at("me@home"), of(Some("me@home"), None));
        assert_eq!(thread_at("@3"), of(None, Some(3)));
        assert_eq!(thread_at("@"), of(Some("@"), None));
        assert!(thread_at("").is_err());
    }

    #[test]
    fn a_checkpoint_is_a_number() {
        assert_eq!(checkpoint("7"), Ok(7));
        for wrong in ["", "x", "-1", "1.5", "18446744073709551616"] {
            assert_eq!(checkpoint(wrong), Err("a checkpoint is a number, which `history` shows".to_owned()));
        }
    }

    #[test]
    fn ages_have_a_unit() {
        let hours = |hours: u64| Ok(Duration::from_secs(hours * 3_600));
        assert_eq!(
            (age("0s"), age("90m"), age("2d"), age("1w")),
            (hours(0), age("5400s"), hours(48), hours(168))
        );
        for wrong in ["", "d", "30", "-1d", "1dd", "1.5h", "3 d", "1y", "9999999999d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
