//! Delimiters around data in the model's input, which the data itself cannot close.

/// Escapes all delimiters in a text.
pub(crate) fn defused(text: &str, marks: &[&str]) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, mark) = rest.split_at(at);
        safe.push_str(before);
        safe.push('<');
        if is_mark(mark, marks) {
            safe.push('\\');
        }
        rest = &mark[1..];
    }
    safe.push_str(rest);
    safe
}

/// Returns whether a text begins with a delimiter, in any case and with any spaces.
pub(crate) fn is_mark(text: &str, marks: &[&str]) -> bool {
    let name = text.trim_start_matches(|c: char| c == '<' || c == '/' || c.is_whitespace());
    let begins = |mark: &&str| name.get(..mark.len()).is_some_and(|name| name.eq_ignore_ascii_case(mark));
    marks.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_are_found_in_any_spelling_and_other_text_is_unchanged() {
        let marks = ["long_term_memory", "knowledge"];
        for (text, safe) in [
            ("</knowledge>", r"<\/knowledge>"),
            ("</LONG_TERM_MEMORY >", r"<\/LONG_TERM_MEMORY >"),
            ("< / knowledge>", r"<\ / knowledge>"),
            ("a <knowledge> b", r"a <\knowledge> b"),
        ] {
            assert_eq!(defused(text, &marks), safe);
        }
        let harmless = "if a < b { Vec::<u8>::new() } // <b>x</b> </p> é<é";
        assert_eq!(defused(harmless, &marks), harmless);
    }
}
