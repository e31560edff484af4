//! The text of an approval question for a change of files.

use superstep_llm::text::printable;

use crate::call::cut;

/// Number of lines shown of each side.
const SIDE_LINES: usize = 20;
const LINE_BYTES: usize = 160;

/// Returns the removed and the added lines, and the number of lines not shown.
pub(crate) fn changes(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let before = old.iter().zip(&new).take_while(same).count();
    let after = old[before..].iter().rev().zip(new[before..].iter().rev()).take_while(same).count();
    let mut text = Vec::new();
    for (sign, side) in [("-", &old), ("+", &new)] {
        let changed = &side[before..side.len() - after];
        // An empty file is one empty line, which would appear as an added line.
        if changed == [""] && side.len() == 1 {
            continue;
        }
        text.extend(changed.iter().take(SIDE_LINES).map(|line| format!("{sign}{}", shown_line(line))));
        if changed.len() > SIDE_LINES {
            text.push(format!("{sign}… [{} more lines]", changed.len() - SIDE_LINES));
        }
    }
    text
}

/// Escapes a line and truncates a long one.
fn shown_line(line: &str) -> String {
    let start = cut(line, LINE_BYTES);
    let mut text = printable(start);
    if start.len() < line.len() {
        text.push_str(&format!("… [{} more bytes]", line.len() - start.len()));
    }
    text
}
