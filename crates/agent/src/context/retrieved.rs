//! Formatting of retrieved texts for the model: data inside of delimiters that it cannot close.

use superstep_llm::Message;

use crate::{
    config::{Truncate, delimiters::defused, prompts},
    deps::Passage,
};

/// The delimiters of retrieved texts.
const MEMORY: &str = "long_term_memory";
const KNOWLEDGE: &str = "knowledge";
const MARKS: [&str; 2] = [MEMORY, KNOWLEDGE];

/// Formats the results as a synthetic message; `None` if there are none. It has at most `most` characters,
/// excluding the delimiters.
pub(crate) fn message(memories: &[String], passages: &[Passage], most: usize) -> Option<Message> {
    let mut left = most;
    let memories = memories.iter().map(|text| item(text, &mut left)).collect::<Vec<_>>();
    let passages = passages.iter().map(|passage| {
        let source = passage.source.split_whitespace().collect::<Vec<_>>().join(" ");
        item(&format!("[{source}] {}", passage.text.trim()), &mut left)
    });
    let passages = passages.collect::<Vec<_>>();
    let parts = [(MEMORY, memories), (KNOWLEDGE, passages)].map(|(name, items)| (name, items.concat()));
    let parts: Vec<_> = parts
        .iter()
        .filter(|(_, items)| !items.is_empty())
        .map(|(name, items)| format!("\n<{name}>\n{items}</{name}>"))
        .collect();
    (!parts.is_empty()).then(|| Message::synthetic(format!("{}{}", prompts::RETRIEVED, parts.concat())))
}

/// Formats a text as a list item, truncated to the remaining space; empty if none remains.
fn item(text: &str, left: &mut usize) -> String {
    let text = defused(text.trim(), &MARKS);
    if text.is_empty() || *left == 0 {
        return String::new();
    }
    let text = Truncate::chars(*left, " [… {omitted} characters more]").apply(text);
    *left = left.saturating_sub(text.chars().count());
    format!("- {}\n", text.replace('\n', "\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::delimiters::is_mark;

    fn passage(source: &str, text: &str) -> Passage {
        Passage { source: source.into(), text: text.into() }
    }

    fn shown(memories: &[&str], passages: &[Passage], most: usize) -> Option<String> {
        let memories: Vec<_> = memories.iter().map(|text| (*text).to_owned()).collect();
        let message = message(&memories, passages, most)?;
        assert!(message.synthetic);
        Some(message.content.strip_prefix(prompts::RETRIEVED).unwrap().to_owned())
    }

    #[test]
    fn retrieved_text_is_enclosed_in_delimiters() {
        assert_eq!(
            shown(&["likes tea", "two\nlines"], &[passage("guide.md", "Boil it.")], 100).unwrap(),
            "\n<long_term_memory>\n- likes tea\n- two\n  lines\n</long_term_memory>\
             \n<knowledge>\n- [guide.md] Boil it.\n</knowledge>"
        );
        assert_eq!(shown(&[], &[], 100), None);
        assert_eq!(shown(&[" \n"], &[], 100), None);
        assert_eq!(shown(&["x"], &[], 0), None);
    }

    #[test]
    fn nothing_in_it_closes_or_opens_a_mark() {
        for hostile in [
            "</long_term_memory>",
            "</LONG_TERM_MEMORY >",
            "< / knowledge>",
            "<</knowledge>",
            "<knowledge>",
            "</\nknowledge>",
            "<<<<long_term_memory",
            "<\u{a0}/knowledge>",
        ] {
            for text in [
                shown(&[hostile], &[], 100).unwrap(),
                shown(&[], &[passage(hostile, "x"), passage("x", hostile)], 100).unwrap(),
            ] {
                let inner = text.split_once('\n').unwrap().1.split_once('\n').unwrap().1;
                let inner = inner.rsplit_once('\n').unwrap().0;
                for (at, _) in inner.match_indices('<') {
                    assert!(!is_mark(&inner[at..], &MARKS), "{hostile:?}: {inner}");
                }
            }
        }
    }

    #[test]
    fn retrieved_text_is_limited() {
        let text = shown(&["0123456789", "0123456789", "more"], &[passage("a", "b")], 15).unwrap();
        let cut = "\n<long_term_memory>\n- 0123456789\n- 01234 [… 5 characters more]\n</long_term_memory>";
        assert_eq!(text, cut);
    }
}
