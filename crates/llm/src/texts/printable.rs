//! Characters that a terminal shows unchanged.

use icu_properties::{
    CodePointMapData, CodePointSetData,
    props::{DefaultIgnorableCodePoint, GeneralCategory},
};

/// Returns whether a terminal shows this character as itself, in reading order.
///
/// Not printable are control characters, format characters such as those that change the writing direction,
/// separators of lines and paragraphs, and ignorable characters of Unicode: zero-width characters, fillers,
/// tags and most variation selectors. Line feeds and tabs are printable, and so are the two selectors that
/// choose between text and emoji.
pub fn is_printable(c: char) -> bool {
    match c {
        '\n' | '\t' | ' '..='~' => true,
        '\u{fe0e}' | '\u{fe0f}' => true,
        _ => {
            use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator};
            let category = CodePointMapData::<GeneralCategory>::new().get(c);
            !matches!(category, Control | Format | LineSeparator | ParagraphSeparator)
                && !CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
        }
    }
}

/// Escapes every character that is not [printable](is_printable), as in `\u{202e}`.
///
/// # Example
/// ```
/// # use superstep_llm::text::printable;
/// assert_eq!(printable("rm \u{202e}x\u{1b}[2J\n"), "rm \\u{202e}x\\u{1b}[2J\n");
/// ```
pub fn printable(text: &str) -> String {
    escaped(text, is_printable)
}

/// Escapes like [`printable`], and line feeds and tabs as well: a name in a list or a table stays on its
/// line.
pub fn printable_line(text: &str) -> String {
    escaped(text, |c| !matches!(c, '\n' | '\t') && is_printable(c))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if stays(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_move_or_hide_text_are_escaped() {
        for c in [
            '\0',
            '\u{7}',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{115f}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{202e}',
            '\u{2028}',
            '\u{2029}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{3164}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e0100}',
        ] {
            assert_eq!(printable(&format!("a{c}b")), format!("a\\u{{{:x}}}b", u32::from(c)));
        }
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        let text = "añ😀\u{fe0f} 记住 \t`x`\nשלום नमस्ते";
        assert_eq!(printable(text), text);
        assert_eq!(printable_line("a\n\tb"), "a\\n\\tb");
    }
}
