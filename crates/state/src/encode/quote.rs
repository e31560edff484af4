//! Texts as JSON strings.

use std::fmt::Write as _;

/// The number of bytes that are compared at once.
const CHUNK: usize = 32;

/// Replaces the content of `quoted` by a text in quotes, with the escapes of `serde_json`.
pub fn quote(text: &str, quoted: &mut String) {
    quoted.clear();
    quoted.reserve(text.len() + 2);
    quoted.push('"');
    let (chunks, end) = text.as_bytes().as_chunks();
    let mut last = [b' '; CHUNK];
    last[..end.len()].copy_from_slice(end);
    let mut copied = 0;
    for (begin, chunk) in (0..).step_by(CHUNK).zip(chunks.iter().chain([&last])) {
        // Most chunks have none. Without branches, so that the compiler uses the instructions for many bytes.
        if !chunk.iter().fold(false, |any, byte| any | is_escaped(*byte)) {
            continue;
        }
        // Only ASCII characters are escaped.
        for (at, byte) in (begin..).zip(chunk).filter(|(_, byte)| is_escaped(**byte)) {
            quoted.push_str(&text[copied..at]);
            escape(*byte, quoted);
            copied = at + 1;
        }
    }
    quoted.push_str(&text[copied..]);
    quoted.push('"');
}

/// Returns whether a byte must be escaped: control characters, quotes and backslashes.
fn is_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn escape(byte: u8, quoted: &mut String) {
    let escape = match byte {
        b'"' | b'\\' => char::from(byte),
        b'\n' => 'n',
        b'\r' => 'r',
        b'\t' => 't',
        0x08 => 'b',
        0x0c => 'f',
        control => {
            return write!(quoted, "\\u{control:04x}").expect("a string accepts any text");
        }
    };
    quoted.push('\\');
    quoted.push(escape);
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_text_is_quoted_like_serde_json_does() {
        let mut quoted = String::new();
        let mut is_same = |text: &str| {
            quote(text, &mut quoted);
            assert_eq!(quoted, serde_json::to_string(text).expect("a text becomes JSON"));
        };
        is_same("");
        // Each character on both sides of the end of a chunk, alone and beside another one.
        for character in (0..=0xff).map(char::from).chain(['ż', '漢', '\u{2028}', '🦀']) {
            for before in [0, 1, 7, 8, 30, 31, 32, 33] {
                for after in [0, 1, 15, 16] {
                    let (before, after) = ("x".repeat(before), "ö".repeat(after));
                    is_same(&format!("{before}{character}{after}"));
                    is_same(&format!("{before}\"{after}{character}"));
                }
            }
        }
    }
}
