//! The language of doc comments, errors and guides: plain standard technical English.
//!
//! A doc comment begins with a verb in the third person (a function: "Returns…") or a noun phrase (a type or field:
//! "The node's retry policy."). Doc comments, also those that macros generate, errors, the reasons of lints and guides use
//! the terms of the field.

use std::{collections::BTreeMap, fs};

use super::{root, sources};

/// The doc comments with a banned opening, and the banned words in doc comments and texts of errors: ceilings per crate.
///
/// The numbers may only fall. To lower one, set it to 0, rewrite comments that the failing test lists, and enter the
/// remaining count. A crate without a row has none of both. The rest are descriptions of arguments, which models read and
/// stored threads compare.
const CEILINGS: &[(&str, usize, usize)] = &[("agent", 1, 0), ("memory", 2, 0), ("tools", 5, 0)];

/// First words that turn a description into a question, a riddle or a fragment.
const OPENINGS: [&str; 19] = [
    "After", "Before", "How", "If", "Such", "That", "Those", "What", "Whatever", "When", "Whenever", "Where",
    "Wherever", "Whether", "Which", "Who", "Whoever", "Whose", "With",
];

/// First words that do not name their subject: "It failed." of a task. Rewrite "The task failed."
const VAGUE: [&str; 7] = ["It", "Its", "No", "Nothing", "Of", "They", "This"];

/// The doc comments of the crates that begin with one of [`VAGUE`]. The number may only fall.
const MAX_VAGUE: usize = 15;

/// Words and phrases for which the field has a standard term.
const BANNED: [&str; 24] = [
    "asked",
    "came to",
    "come of",
    "comes of",
    "comes to",
    "dreamt",
    "for good",
    "for real",
    "goes on with",
    "heard",
    "keeper",
    "kept",
    "look at",
    "looks at",
    "nobody",
    "put back",
    "puts back",
    "somebody",
    "tell",
    "tells",
    "that is none",
    "told",
    "whatever",
    "whoever",
];

#[derive(Default)]
struct Counts {
    openings: Vec<String>,
    words: Vec<String>,
}

#[test]
fn doc_comments_and_errors_use_plain_technical_english() {
    let mut crates = BTreeMap::new();
    for folder in ["crates", "tests"] {
        for (path, text) in sources(folder) {
            let inside = path.strip_prefix(root()).unwrap().to_owned();
            let mut names = inside.iter().map(|name| name.to_str().unwrap());
            let name = if folder == "tests" { names.next() } else { names.nth(1) }.unwrap();
            let counts: &mut Counts = crates.entry(name.to_owned()).or_default();
            for (line, comment) in doc_comments(&text).into_iter().chain(generated_docs(&text)) {
                let place = format!("{}:{line}", inside.display());
                if let Some(opening) = first_of(&OPENINGS, &comment) {
                    counts.openings.push(format!("{place}: {opening}…"));
                }
                counts.words.extend(banned(&comment).map(|word| format!("{place}: `{word}`")));
            }
            for (line, text) in error_texts(&text).chain(reasons(&text)) {
                let place = format!("{}:{line}", inside.display());
                counts.words.extend(banned(&text).map(|word| format!("{place}: `{word}`")));
            }
        }
    }
    let mut problems = Vec::new();
    for (name, counts) in crates {
        let row = CEILINGS.iter().find(|(row, ..)| *row == name);
        let (openings, words) = row.map_or((0, 0), |(_, openings, words)| (*openings, *words));
        for (what, found, most) in
            [("banned openings", counts.openings, openings), ("banned words", counts.words, words)]
        {
            if found.len() > most {
                problems.push(format!("`{name}` has {} {what}, {most} allowed:", found.len()));
                problems.extend(found);
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn few_doc_comments_begin_without_their_subject() {
    let mut found = Vec::new();
    for (path, text) in sources("crates") {
        for (line, comment) in doc_comments(&text) {
            if let Some(opening) = first_of(&VAGUE, &comment) {
                found.push(format!("{}:{line}: {opening}…", path.display()));
            }
        }
    }
    let (count, list) = (found.len(), found.join("\n"));
    assert!(
        count <= MAX_VAGUE,
        "{count} doc comments begin without their subject, {MAX_VAGUE} allowed:\n{list}"
    );
}

/// Returns the doc comments of a file, each with its first line's number and its text without code blocks.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut before, mut in_code) = (None, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let sign =
            ["///", "//!"].into_iter().find(|sign| line.starts_with(sign) && !line.starts_with("////"));
        let Some(sign) = sign else {
            before = None;
            continue;
        };
        if before != Some(sign) {
            found.push((at + 1, String::new()));
            in_code = false;
        }
        before = Some(sign);
        let words = line[sign.len()..].trim();
        if words.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let comment = &mut found.last_mut().expect("a comment has begun").1;
            comment.push_str(words);
            comment.push(' ');
        }
    }
    found
}

/// Returns the texts of `#[error("…")]` attributes, each with its line.
fn error_texts(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.match_indices("#[error(").map(|(at, begin)| {
        let attribute = &text[at + begin.len()..];
        let attribute = &attribute[..attribute.find(")]").unwrap_or(attribute.len())];
        let words: Vec<_> = attribute.split('"').skip(1).step_by(2).collect();
        (text[..at].matches('\n').count() + 1, words.join(" "))
    })
}

/// Returns the doc comments that a macro makes with `format!`, each with its line.
fn generated_docs(text: &str) -> impl Iterator<Item = (usize, String)> {
    literals_after(text, "doc =", "format!(")
}

/// Returns the reasons of allowed lints, each with its line.
fn reasons(text: &str) -> impl Iterator<Item = (usize, String)> {
    literals_after(text, "reason =", "")
}

/// Returns the string literals that follow `name` and `call`, each with its line.
fn literals_after(text: &str, name: &str, call: &str) -> impl Iterator<Item = (usize, String)> {
    text.match_indices(name).filter_map(move |(at, name)| {
        let value = text[at + name.len()..].trim_start().strip_prefix(call)?;
        let literal = value.trim_start().strip_prefix('"')?;
        let (end, _) = literal.match_indices('"').find(|(end, _)| !literal[..*end].ends_with('\\'))?;
        Some((text[..at].matches('\n').count() + 1, literal[..end].to_owned()))
    })
}

#[test]
fn guides_and_error_pages_use_plain_technical_english() {
    let pages = super::book::pages();
    assert!(pages.len() > 100, "the pages are found: {pages:?}");
    let mut problems = Vec::new();
    for page in pages {
        let (text, mut in_code) = (fs::read_to_string(&page).unwrap(), false);
        for (at, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            } else if line == "<!-- test" {
                break; // The test of an error page.
            } else if !in_code && !line.starts_with("    ") {
                let place = format!("{}:{}", page.display(), at + 1);
                problems.extend(banned(line).map(|word| format!("{place}: `{word}`")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn first_of(openings: &[&'static str], comment: &str) -> Option<&'static str> {
    let first = comment.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()?;
    openings.iter().copied().find(|opening| *opening == first)
}

/// Returns the banned words outside of code, once for each occurrence.
fn banned(comment: &str) -> impl Iterator<Item = &'static str> {
    let prose = comment.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let words =
        prose.split(|sign: char| !sign.is_alphanumeric() && sign != '_').filter(|word| !word.is_empty());
    let prose = format!(" {} ", words.collect::<Vec<_>>().join(" ").to_lowercase());
    BANNED.into_iter().flat_map(move |word| {
        let count = prose.matches(&format!(" {word} ")).count();
        std::iter::repeat_n(word, count)
    })
}

#[test]
fn openings_and_banned_words_are_found_outside_of_code() {
    let text = "//! Whether it is told `kept`.\nfn f() {}\n/// Returns\n/// what it was told.\n/// ```\n/// kept\n/// ```\n";
    let comments = doc_comments(text);
    assert_eq!(comments.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(first_of(&OPENINGS, &comments[0].1), Some("Whether"));
    assert_eq!(first_of(&OPENINGS, &comments[1].1), None);
    assert_eq!(banned(&comments[0].1).collect::<Vec<_>>(), ["told"]);
    assert_eq!(banned(&comments[1].1).collect::<Vec<_>>(), ["told"]);
}

#[test]
fn the_texts_of_errors_are_found() {
    let text = ["/// An error.\n#[err", "or(\"it was told {0}\", self.0)]\nstruct Told;\n"].concat();
    let texts: Vec<_> = error_texts(&text).collect();
    assert_eq!(texts, [(2, "it was told {0}".to_owned())]);
    assert_eq!(banned(&texts[0].1).collect::<Vec<_>>(), ["told"]);
}

#[test]
fn generated_docs_and_reasons_are_found() {
    let begin = "let doc =\n    for";
    let text = [
        begin,
        "mat!(\n    \"Whether \\\"it\\\" was told.\"\n);\n#[expect(x, rea",
        "son = \"it was kept\")]\n",
    ]
    .concat();
    let docs: Vec<_> = generated_docs(&text).collect();
    assert_eq!(docs, [(1, "Whether \\\"it\\\" was told.".to_owned())]);
    assert_eq!(first_of(&OPENINGS, &docs[0].1), Some("Whether"));
    let reasons: Vec<_> = reasons(&text).collect();
    assert_eq!(reasons, [(5, "it was kept".to_owned())]);
}
