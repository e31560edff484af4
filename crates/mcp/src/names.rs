//! The names of a server's tools for models.

/// The maximum length of a name that providers accept.
const MAX_LENGTH: usize = 64;

/// The length of the hash in an altered name.
const DIGITS: usize = 10;

/// Returns the name `server_tool` of a tool, with the characters and the length that providers accept.
///
/// An altered name ends with a hash of the original ones, so that it stays the name of the same tool when the list changes: an
/// approval or a rule must not apply to another one. The same applies to a name that looks like an altered one.
pub(crate) fn name(server: &str, tool: &str) -> String {
    let whole = format!("{server}_{tool}");
    let plain: String = whole.chars().map(plain).collect();
    if plain == whole && plain.len() <= MAX_LENGTH && !is_altered(&plain) {
        return plain;
    }
    let mut hash = blake3::Hasher::new();
    hash.update(server.as_bytes()).update(&[0]).update(tool.as_bytes());
    let hash = &hash.finalize().to_hex()[..DIGITS];
    format!("{}_{hash}", &plain[..plain.len().min(MAX_LENGTH - DIGITS - 1)])
}

fn plain(char: char) -> char {
    if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' }
}

/// Returns whether a name ends like an altered one.
fn is_altered(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    name.rsplit_once('_').is_some_and(|(_, end)| end.len() == DIGITS && end.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_those_of_the_server_and_the_tool() {
        assert_eq!(name("fs", "read"), "fs_read");
        assert_eq!(name("my_fs", "read-all_2"), "my_fs_read-all_2");
        assert_eq!(name("fs", "a.b/c"), "fs_a_b_c_afd34cbac3");
    }

    #[test]
    fn different_tools_have_different_names_whatever_else_is_listed() {
        let hashed = name("fs", "a.b");
        let alike = [
            "a.b",
            "a_b",
            "a/b",
            "a b",
            "a_b_2",
            hashed.strip_prefix("fs_").unwrap(),
            "a\nb",
            "\u{e9}",
            "\u{e8}",
            "",
        ];
        let names: BTreeSet<_> = alike.iter().map(|tool| name("fs", tool)).collect();
        assert_eq!(names.len(), alike.len(), "{names:?}");
        assert_eq!(name("fs", "a_b"), "fs_a_b");
        assert_ne!(name("a.b", "c"), name("a/b", "c"));
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let (one, other) = ("é".repeat(100), "é".repeat(101));
        let cut = name("x", &one);
        assert_eq!(
            (cut.len(), cut.starts_with(&format!("x_{}_", "_".repeat(51)))),
            (MAX_LENGTH, true),
            "{cut}"
        );
        assert_ne!(cut, name("x", &other));
        let (fits, long) = ("a".repeat(62), "a".repeat(63));
        assert_eq!(name("x", &fits), format!("x_{fits}"));
        assert_eq!(name("x", &long).len(), MAX_LENGTH);
    }
}
