//! Parsing of prompts by rules.

/// Functions that may occur in an expression.
const FUNCTIONS: [&str; 10] = ["sqrt", "cbrt", "sin", "cos", "tan", "ln", "log", "exp", "abs", "pi"];

/// Beginnings of a sentence with arithmetic.
const CUES: [&str; 6] = ["calculate", "compute", "how much is", "what is", "what's", "evaluate"];

/// Phrases that ask for the time.
const TIME: [&str; 11] = [
    "what time is",
    "what's the time",
    "the time now",
    "current time",
    "time is it",
    "current date",
    "today's date",
    "what date",
    "which day",
    "what day",
    "date today",
];

/// Phrases that ask for a list of files.
const LIST: [&str; 6] =
    ["list files", "list the files", "list all files", "which files", "what files", "show files"];

/// Words without meaning for a search.
const COMMON: &str = " a about above after all also am an and any are around as ask at be because been before being \
    below between but by can code could define defined defines definition describe did directory do does doing done \
    each every explain file files find first folder for from function get give go had has have help here how i if \
    implement implementation implemented in into is it its just know like line lines list local locate look make many \
    may me mean means mention mentioned mentions might more most much must my name need no not now of on one only or \
    other our out over own part place please print program project quote read repo repository same say says search see \
    set shall should show so some something such summarize summary tell text than that the their them then there these \
    they thing this those through to two type under up us use used uses using value very want was way we well were what \
    whats when where whether which while who whole why will with within without word words work works workspace would \
    write you your ";

/// Maximum number of expressions, paths and words taken from one prompt.
const MOST: usize = 5;

/// A file that the prompt names, and the line, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: String,
    pub(super) line: Option<u64>,
}

/// Returns the arithmetic in a prompt: sequences of numbers and operators, or the text after "calculate" and
/// the like.
pub(super) fn sums(prompt: &str) -> Vec<String> {
    let plain = prompt.replace(['×', '·'], "*").replace('÷', "/").replace('−', "-");
    if let Some(sum) = after_cue(&plain) {
        return vec![sum];
    }
    let mut sums = Vec::new();
    for span in spans(&plain) {
        if is_sum(&span, &plain) && !sums.contains(&span) && sums.len() < MOST {
            sums.push(span);
        }
    }
    sums
}

/// Returns whether it asks for the time.
pub(super) fn asks_time(prompt: &str) -> bool {
    let prompt = prompt.to_lowercase();
    TIME.iter().any(|phrase| prompt.contains(phrase))
}

/// Returns whether it asks for a list of files.
pub(super) fn asks_list(prompt: &str) -> bool {
    let prompt = prompt.to_lowercase();
    LIST.iter().any(|phrase| prompt.contains(phrase))
}

/// Returns the files that it names: `src/main.rs`, `Cargo.toml:12`.
pub(super) fn paths(prompt: &str) -> Vec<Named> {
    let mut named = Vec::new();
    for word in prompt.split_whitespace() {
        let word = word.trim_matches(|c: char| "\"'`()[]{}<>,;:!?*“”‘’".contains(c)).trim_end_matches('.');
        let (path, line) = match word.split_once(':') {
            Some((path, line)) => match line.split(':').next().unwrap_or_default().parse() {
                Ok(line) => (path, Some(line)),
                Err(_) => continue,
            },
            None => (word, None),
        };
        let name = Named { path: path.to_owned(), line };
        if is_path(path) && !named.contains(&name) && named.len() < MOST {
            named.push(name);
        }
    }
    named
}

/// Returns at most five words for a search: identifiers first, then longer ones.
pub(super) fn words(prompt: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in prompt.split(|c: char| !c.is_alphanumeric() && c != '_') {
        let lower = word.to_lowercase();
        let long_enough = word.chars().count() >= 3 && word.chars().any(char::is_alphabetic);
        if !long_enough || COMMON.contains(&format!(" {lower} ")) {
            continue;
        }
        let stem = stem(word);
        if !words.iter().any(|known| known.eq_ignore_ascii_case(stem)) {
            words.push(stem.to_owned());
        }
    }
    let is_name = |word: &str| word.contains('_') || word.chars().skip(1).any(char::is_uppercase);
    words.sort_by_key(|word| (!is_name(word), std::cmp::Reverse(word.chars().count())));
    words.truncate(MOST);
    words
}

/// Removes a plural ending; words are searched by prefix, so a plural finds its singular too.
fn stem(word: &str) -> &str {
    match word.strip_suffix('s') {
        Some(stem) if stem.len() >= 4 && !stem.ends_with(['s', 'u', 'i']) => stem,
        _ => word,
    }
}

/// Returns the text after "calculate", "what is" and the like, if it looks like arithmetic.
fn after_cue(prompt: &str) -> Option<String> {
    let lower = prompt.to_ascii_lowercase();
    let rest = CUES.iter().find_map(|cue| {
        let at = lower.find(cue)?;
        prompt.get(at + cue.len()..)
    })?;
    let end = rest.find(['?', '!', '\n', ';', '=']).unwrap_or(rest.len());
    let sum = rest[..end].trim().trim_end_matches('.').trim_start_matches("the ").trim();
    let sum = sum.split(". ").next().unwrap_or(sum);
    let begins = sum.starts_with(|c: char| c.is_ascii_digit() || "(-.".contains(c))
        || FUNCTIONS.iter().any(|name| sum.starts_with(&format!("{name}(")));
    let operates =
        sum.contains(['+', '-', '*', '/', '^', '%', '(']) || sum.contains(" of ") || sum.contains(" to ");
    let is_short = sum.len() <= 200 && sum.contains(|c: char| c.is_ascii_digit());
    (begins && operates && is_short && !is_date(sum)).then(|| sum.to_owned())
}

/// Returns the longest sequences of expression characters between words.
fn spans(prompt: &str) -> Vec<String> {
    let mut spans = vec![String::new()];
    let mut rest = prompt;
    let mut in_word = false;
    while let Some(c) = rest.chars().next() {
        let function = FUNCTIONS.iter().find(|name| !in_word && is_call(rest, name));
        let taken = function.map_or(&rest[..c.len_utf8()], |name| &rest[..name.len()]);
        let fits = function.is_some() || c.is_ascii_digit() || " .,+-*/^%()".contains(c);
        let current = spans.last_mut().expect("there is always one");
        if fits && (!in_word || c == ' ') {
            current.push_str(taken);
            in_word = false;
        } else {
            if !fits && (c.is_alphanumeric() || c == '_') {
                // `v1.2-3`, `2*x` and `a/1` are not arithmetic: they adjoin a word.
                let begin = current.rfind(' ').map_or(0, |at| at + 1);
                current.truncate(begin);
                in_word = true;
            }
            if !current.is_empty() {
                spans.push(String::new());
            }
        }
        rest = &rest[taken.len()..];
    }
    let tidy = |span: String| span.trim().trim_end_matches([',', '.', '-', '+', '*', '/', ' ']).to_owned();
    spans.into_iter().map(tidy).filter(|span| !span.is_empty()).collect()
}

fn is_call(rest: &str, name: &str) -> bool {
    rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('('))
}

/// Returns whether a sequence has two numbers with an operator between them, or a function of one.
fn is_sum(span: &str, prompt: &str) -> bool {
    let calls = FUNCTIONS.iter().any(|name| span.contains(&format!("{name}(")));
    let numbers = span
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter(|part| part.chars().any(|c| c.is_ascii_digit()));
    let operator = span.contains(['+', '-', '*', '/', '^', '%']);
    if !(calls || (operator && numbers.count() >= 2)) || is_date(span) {
        return false;
    }
    // `pages 3-4` and `1/2` are common in texts; alone they are arithmetic.
    let ambiguous = !span.contains(['+', '*', '^', '(', ' ']);
    !ambiguous || prompt.trim().trim_end_matches(['?', '=', ' ', '.']) == span
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split(['-', '/']).collect();
    parts.len() == 3
        && parts.iter().all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
        && parts.iter().any(|part| part.len() == 4)
}

fn is_path(word: &str) -> bool {
    if word.contains("://")
        || word.contains("..") && !word.contains('/')
        || !word.contains(char::is_alphabetic)
    {
        return false;
    }
    let last = word.rsplit('/').next().unwrap_or(word);
    let (stem, extension) = last.rsplit_once('.').unwrap_or((last, ""));
    let has_extension = (1..=10).contains(&extension.len())
        && extension.chars().all(|c| c.is_ascii_alphanumeric())
        && extension.chars().any(char::is_alphabetic)
        && !["i.e", "e.g", "a.m", "p.m"].contains(&word.to_lowercase().as_str());
    let is_rooted = ["/", "./", "../", "~/"].iter().any(|root| word.starts_with(root));
    let is_dotfile = stem.is_empty() && extension.len() > 2;
    if word.contains('/') {
        is_rooted || has_extension || word.ends_with('/') || word.matches('/').count() >= 2
    } else {
        is_dotfile
            || (has_extension
                && !stem.is_empty()
                && stem.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_found_in_sentences() {
        for (prompt, sum) in [
            ("What is 2 + 3?", "2 + 3"),
            ("37*91+5", "37*91+5"),
            ("Tell me 37*91+5, please", "37*91+5"),
            ("calculate 20% of 50", "20% of 50"),
            ("How much is 5 km to miles?", "5 km to miles"),
            ("what is sqrt(2) * 3", "sqrt(2) * 3"),
            ("give me (1 + 2) × 4 now", "(1 + 2) * 4"),
            ("10/4?", "10/4"),
            ("what's 10-4?", "10-4"),
        ] {
            assert_eq!(sums(prompt), [sum], "{prompt}");
        }
        assert_eq!(sums("first 1+1 and then 2*3"), ["1+1", "2*3"]);
    }

    #[test]
    fn numbers_that_are_no_arithmetic_are_left_alone() {
        for prompt in [
            "What happened on 2026-11-21?",
            "see pages 3-4",
            "upgrade to v1.2-3",
            "what is 404",
            "What is the retry policy?",
            "src/1/2.rs",
            "rust 1.95, edition 2024",
            "x2+3y",
            "",
        ] {
            assert_eq!(sums(prompt), Vec::<String>::new(), "{prompt}");
        }
    }

    #[test]
    fn files_are_found_by_their_shape() {
        let named =
            |prompt| paths(prompt).into_iter().map(|named| (named.path, named.line)).collect::<Vec<_>>();
        assert_eq!(named("What does `src/main.rs` do?"), [("src/main.rs".into(), None)]);
        assert_eq!(named("Explain Cargo.toml:12, line by line."), [("Cargo.toml".into(), Some(12))]);
        assert_eq!(
            named("cat ../secret and .gitignore"),
            [("../secret".into(), None), (".gitignore".into(), None)]
        );
        assert_eq!(named("and/or, e.g. 3.14, https://example.com/x.html, i.e. nothing."), []);
    }

    #[test]
    fn words_that_say_something_are_kept_names_first() {
        assert_eq!(
            words("Where is the retry policy of RunConfig defined?"),
            ["RunConfig", "policy", "retry"]
        );
        assert_eq!(words("What are checkpoints, and how does a checkpoint work?"), ["checkpoint"]);
        assert_eq!(words("What does this do?"), Vec::<String>::new());
        assert_eq!(words("Straße status"), ["Straße", "status"]);
    }

    #[test]
    fn the_time_and_the_files_are_asked_for_in_known_phrases() {
        assert!(
            asks_time("What time is it?") && asks_time("current date") && !asks_time("What timeout is used?")
        );
        assert!(asks_list("Which files are there?") && !asks_list("What is in the files?"));
    }
}
