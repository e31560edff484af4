//! Patterns that are matched with words of which a part is unknown.

/// The maximum number of the alternatives in braces; with more of them a pattern matches everything.
const MAX_ALTERNATIVES: usize = 64;

/// A part of a pattern or of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item {
    Char(char),
    /// Any character.
    One,
    /// Any text, also none.
    Any,
}

impl Item {
    pub(super) fn char(self) -> Option<char> {
        match self {
            Self::Char(c) => Some(c),
            Self::One | Self::Any => None,
        }
    }

    fn takes(self, c: char) -> bool {
        match self {
            Self::Char(own) => own == c || own.to_lowercase().eq(c.to_lowercase()),
            Self::One | Self::Any => true,
        }
    }
}

/// Returns the alternatives of a pattern, without braces.
pub(super) fn alternatives(pattern: &str) -> Vec<Vec<Item>> {
    let (mut waiting, mut done) = (vec![pattern.chars().collect::<Vec<_>>()], Vec::new());
    while let Some(chars) = waiting.pop() {
        match braces(&chars) {
            None => done.push(items(&chars)),
            Some((begin, parts, end)) => waiting.extend(
                parts.iter().map(|part| [&chars[..begin], &chars[part.clone()], &chars[end..]].concat()),
            ),
        }
        if waiting.len() + done.len() > MAX_ALTERNATIVES {
            return vec![vec![Item::Any]];
        }
    }
    done
}

/// Returns the place of the first braces, of their alternatives and of the text behind them.
fn braces(chars: &[char]) -> Option<(usize, Vec<std::ops::Range<usize>>, usize)> {
    let (mut depth, mut begin, mut from, mut parts) = (0_usize, 0, 0, Vec::new());
    let mut at = 0;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 1,
            '[' => at = class_end(chars, at).unwrap_or(at),
            '{' => {
                if depth == 0 {
                    (begin, from) = (at, at + 1);
                }
                depth += 1;
            }
            c @ (',' | '}') if depth > 0 => {
                depth -= usize::from(c == '}');
                if depth == usize::from(c == ',') {
                    parts.push(from..at);
                    from = at + 1;
                }
                if depth == 0 {
                    return Some((begin, parts, at + 1));
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn items(chars: &[char]) -> Vec<Item> {
    let (mut items, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        items.push(match chars[at] {
            '\\' if at + 1 < chars.len() => {
                at += 1;
                Item::Char(chars[at])
            }
            '*' => Item::Any,
            '?' => Item::One,
            '[' => match class_end(chars, at) {
                Some(end) => {
                    at = end;
                    Item::One
                }
                None => Item::Char('['),
            },
            c => Item::Char(c),
        });
        at += 1;
    }
    items
}

/// Returns the place of the `]` of a class; a `]` at its beginning belongs to it.
fn class_end(chars: &[char], begin: usize) -> Option<usize> {
    let first = begin + 1 + usize::from(matches!(chars.get(begin + 1), Some('!' | '^')));
    (first + 1..chars.len()).find(|at| chars[*at] == ']')
}

/// Returns whether a pattern can match a text from one of the places `begins` to its end.
pub(super) fn meets(pattern: &[Item], text: &[Item], begins: &[usize]) -> bool {
    // The numbers of the parts that match the text so far.
    let mut reached = vec![false; pattern.len() + 1];
    let mut begins = begins.iter().peekable();
    for (at, item) in text.iter().enumerate() {
        reached[0] |= begins.next_if_eq(&&at).is_some();
        skip_any(pattern, &mut reached);
        let mut next = vec![false; pattern.len() + 1];
        match item {
            Item::Char(c) => {
                for (part, wanted) in pattern.iter().enumerate().filter(|(part, _)| reached[*part]) {
                    match wanted {
                        Item::Any => next[part] = true,
                        wanted => next[part + 1] |= wanted.takes(*c),
                    }
                }
            }
            // Unknown text can be what any further parts match.
            Item::One | Item::Any => {
                let first = reached.iter().position(|is_reached| *is_reached).unwrap_or(reached.len());
                next[first..].fill(true);
            }
        }
        reached = next;
    }
    skip_any(pattern, &mut reached);
    reached[pattern.len()]
}

fn skip_any(pattern: &[Item], reached: &mut [bool]) {
    for (part, wanted) in pattern.iter().enumerate() {
        reached[part + 1] |= reached[part] && *wanted == Item::Any;
    }
}
