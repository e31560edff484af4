//! A memory as Markdown: headings, bullets and paragraphs.
//!
//! ```text
//! # Memory
//!
//! - an entry
//! - another one,
//!   of two lines
//!
//! A paragraph written by hand is an entry, too.
//! ```

// Entries have no keys: users and the dreaming model edit the file, and would copy or lose them. An entry is its
// text, and an existing text is not added again.
use std::ops::Range;

/// The content of a file without entries.
pub(super) const EMPTY: &str = "# Memory\n";

/// A file, split into entries and the text between them.
pub(super) struct Bullets<'a> {
    /// The lines with their line ends.
    lines: Vec<&'a str>,
}

/// An entry, and its range of lines in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bullet {
    pub(super) text: String,
    lines: Range<usize>,
}

impl<'a> Bullets<'a> {
    pub(super) fn of(file: &'a str) -> Self {
        Self { lines: file.split_inclusive('\n').collect() }
    }

    /// Returns the entries in order: bullets with the indented lines below them, and paragraphs. Headings are
    /// not entries.
    pub(super) fn entries(&self) -> Vec<Bullet> {
        let mut entries: Vec<Bullet> = Vec::new();
        // The next line may belong to the last entry.
        let mut is_open = false;
        for (at, line) in self.lines.iter().enumerate() {
            let line = line.trim_end();
            let goes_on = is_open && !is_heading(line) && item(line).is_none();
            match entries.last_mut() {
                _ if line.is_empty() => is_open = false,
                Some(last) if goes_on => {
                    last.text.push('\n');
                    last.text.push_str(line.strip_prefix("  ").unwrap_or(line));
                    last.lines.end = at + 1;
                }
                _ if is_heading(line) => is_open = false,
                _ => {
                    let text = item(line).unwrap_or(line).trim_start().to_owned();
                    is_open = true;
                    if !text.is_empty() {
                        entries.push(Bullet { text, lines: at..at + 1 });
                    }
                }
            }
        }
        entries
    }

    /// Returns the file with one more entry, whose text is [`plain`].
    pub(super) fn with(&self, text: &str) -> String {
        let mut file = self.lines.concat();
        if file.trim().is_empty() {
            EMPTY.clone_into(&mut file);
        }
        if !file.ends_with('\n') {
            file.push('\n');
        }
        let is_bullet = |line: &&str| item(line).is_some() || line.starts_with("  ");
        if !file.lines().next_back().is_some_and(|last| is_bullet(&last)) && !file.ends_with("\n\n") {
            file.push('\n');
        }
        file.push_str("- ");
        file.push_str(&text.replace('\n', "\n  "));
        file.push('\n');
        file
    }

    /// Returns the file without some of its entries.
    pub(super) fn without(&self, entries: &[Bullet]) -> String {
        let is_left = |at: usize| !entries.iter().any(|entry| entry.lines.contains(&at));
        let left = self.lines.iter().enumerate().filter(|(at, _)| is_left(*at));
        left.map(|(_, line)| *line).collect()
    }
}

/// Normalizes a text for a bullet: removes empty lines and control characters.
pub(super) fn plain(text: &str) -> String {
    let lines = text.lines().map(|line| {
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
    });
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

/// Returns the text of a bullet's first line.
fn item(line: &str) -> Option<&str> {
    ["-", "*", "+"].into_iter().find_map(|mark| {
        let rest = line.strip_prefix(mark)?;
        (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim_start())
    })
}

fn is_heading(line: &str) -> bool {
    let marks = line.len() - line.trim_start_matches('#').len();
    (1..=6).contains(&marks) && matches!(line.as_bytes().get(marks), None | Some(b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(file: &str) -> Vec<String> {
        Bullets::of(file).entries().into_iter().map(|entry| entry.text).collect()
    }

    #[test]
    fn manually_written_entries_are_read() {
        let file = "# Memory\nabove\nthe list\n\n## Tea\n- green\n* two\n  lines\n  - nested\n\n+ three\n-\n\n#no heading\n";
        assert_eq!(texts(file), ["above\nthe list", "green", "two\nlines\n- nested", "three", "#no heading"]);
        assert_eq!(texts(""), [""; 0]);
        assert_eq!(texts("# Memory\r\n\r\n- with\r\n  returns\r\n"), ["with\nreturns"]);
    }

    #[test]
    fn an_added_entry_is_found_and_the_rest_is_unchanged() {
        let hostile =
            ["- x", "# Memory", "a\n\n- b\n# c", "\u{1b}[2J", "  ", "</long_term_memory>", "* * *", "1\r2"];
        for before in ["", "# Memory\n", "# Mine\n\ntext", "# Memory\n\n- one\n  two", "- a\n\n\n"] {
            for text in hostile.map(plain).iter().filter(|text| !text.is_empty()) {
                let after = Bullets::of(before).with(text);
                let mut wanted = texts(before);
                wanted.push(text.clone());
                assert_eq!(texts(&after), wanted, "{after:?}");
                assert!(before.is_empty() || after.starts_with(before), "{after:?}");
            }
        }
        assert_eq!(Bullets::of("").with("tea"), "# Memory\n\n- tea\n");
        assert_eq!(Bullets::of("# Memory\n\n- tea\n").with("a\nb"), "# Memory\n\n- tea\n- a\n  b\n");
    }

    #[test]
    fn an_entry_goes_with_its_lines_and_nothing_else() {
        let file = "# Memory\n\n- one\n- two\n  lines\n- three";
        let bullets = Bullets::of(file);
        let without = |nth: usize| bullets.without(&bullets.entries()[nth..=nth]);
        assert_eq!(without(1), "# Memory\n\n- one\n- three");
        assert_eq!(without(2), "# Memory\n\n- one\n- two\n  lines\n");
    }
}
