//! Names and hashes in stored records; their form never changes.

pub(crate) use superstep_llm::internal::hash_of;

/// The maximum length of a name in bytes; longer names are cut and end with their hash.
const MAX_NAME_LENGTH: usize = 100;

/// Returns a name of letters, digits and a few signs, different for different names. Every other character becomes `%` and its bytes.
pub(crate) fn plain(name: &str) -> String {
    let mut plain = String::new();
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => plain.push(char::from(byte)),
            b'.' if at > 0 => plain.push('.'),
            byte => plain.push_str(&format!("%{byte:02x}")),
        }
    }
    if plain.is_empty() {
        return "%".to_owned();
    }
    if plain.len() > MAX_NAME_LENGTH {
        plain.truncate(MAX_NAME_LENGTH);
        plain.push_str(&format!("%{}", hash_of(name)));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_name_is_stable() {
        assert_eq!(hash_of("remember that I like tea"), "9ddc6d5550086a19");
        assert_eq!(plain("Thread/1 ü.x"), "Thread%2f1%20%c3%bc.x");
        assert_eq!(plain(""), "%");
        let long = plain(&"x/".repeat(60));
        assert_eq!(long, format!("{}%6390ca3c6833a275", &"x%2f".repeat(25)));
    }
}
