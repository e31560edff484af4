//! Characters that a terminal shows as they are.

use icu_properties::{
    CodePointMapData, CodePointSetData,
    props::{DefaultIgnorableCodePoint, GeneralCategory},
};

/// Returns whether a terminal shows this character as itself, in reading order.
///
/// Not printable are control characters, format characters such as those that turn the writing direction, separators of lines
/// and paragraphs, and what Unicode lets a font ignore: zero-width characters, fillers, tags and most variation selectors.
/// Line feeds and tabs are printable, and so are the two selectors that choose between text and emoji.
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
