//! The plan of a turn's next move, by rules: arithmetic is calculated, a named file is read, anything else is
//! searched for.
//!
//! ```text
//! sums, times, lists, paths ──▶ call ──▶ say
//! words ──▶ search each ──▶ read around the best hits ──▶ say
//! ```

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::read;

/// Maximum number of places that are read.
const MOST_PLACES: usize = 3;
/// Keywords before a name at its definition, in common languages.
const DEFINERS: [&str; 12] = [
    "struct",
    "enum",
    "trait",
    "fn",
    "type",
    "const",
    "class",
    "def",
    "func",
    "function",
    "interface",
    "CREATE",
];
/// Number of lines that are read around a hit, including it.
const AROUND: u64 = 5;
/// Number of lines that are read around a line that the prompt names.
const AROUND_NAMED: u64 = 11;
/// Maximum number of lines quoted from one file.
const MOST_QUOTED: usize = 10;

const SIGNATURE: &str = "(This is superstep's offline planner, no language model: it quotes what its tools found and \
    understands nothing. For answers, set OPENAI_API_KEY or start a local model server.)";

/// A call of this turn, with its result.
pub(super) struct Done<'a> {
    pub(super) tool: &'a str,
    pub(super) args: Value,
    pub(super) result: &'a str,
}

impl Done<'_> {
    fn failed(&self) -> bool {
        self.result.starts_with("Error")
    }

    fn denied(&self) -> bool {
        self.result.starts_with("Error: Permission denied")
    }

    fn arg(&self, name: &str) -> &str {
        self.args[name].as_str().unwrap_or_default()
    }
}

/// The planner's next move.
#[derive(Debug, PartialEq)]
pub(super) enum Move {
    /// Calls these tools with these arguments.
    Call(Vec<(&'static str, Value)>),
    /// Ends the turn.
    Say(String),
}

/// Plans the next move of a turn from its prompt and its calls so far.
///
/// # Determinism    Depends on its arguments only.
pub(super) fn next_move(prompt: &str, done: &[Done<'_>], may_call: bool) -> Move {
    let calls = if may_call { next_calls(prompt, done) } else { Vec::new() };
    if calls.is_empty() { Move::Say(summary(prompt, done)) } else { Move::Call(calls) }
}

fn next_calls(prompt: &str, done: &[Done<'_>]) -> Vec<(&'static str, Value)> {
    let searched = done.iter().rposition(|done| done.tool == "search_files");
    match searched {
        None if done.is_empty() => {
            let calls = first_calls(prompt);
            if !calls.is_empty() {
                return calls;
            }
            match searches(prompt) {
                // Nothing to search for, so only the folder itself remains.
                none if none.is_empty() => vec![("list_files", json!({}))],
                searches => searches,
            }
        }
        // All first calls failed, and not because they are denied.
        None if done.iter().all(|done| done.failed() && !done.denied()) => searches(prompt),
        None => readme(prompt, done),
        Some(last) if last + 1 == done.len() => {
            let places = best_places(&hits(prompt, done));
            let read = |(path, line): (String, u64)| {
                let offset = line.saturating_sub(AROUND / 2).max(1);
                ("read_file", json!({"path": path, "offset": offset, "limit": AROUND}))
            };
            places.into_iter().map(read).collect()
        }
        Some(_) => Vec::new(),
    }
}

/// Returns the calls that the prompt requests explicitly.
fn first_calls(prompt: &str) -> Vec<(&'static str, Value)> {
    let mut calls = Vec::new();
    calls.extend(read::sums(prompt).into_iter().map(|sum| ("calculate", json!({"expression": sum}))));
    if read::asks_time(prompt) {
        calls.push(("current_time", json!({})));
    }
    if read::asks_list(prompt) {
        calls.push(("list_files", json!({})));
    }
    calls.extend(read::paths(prompt).into_iter().map(|named| {
        let args = match named.line {
            Some(line) => {
                let offset = line.saturating_sub(AROUND_NAMED / 2).max(1);
                json!({"path": named.path, "offset": offset, "limit": AROUND_NAMED})
            }
            None => json!({"path": named.path}),
        };
        ("read_file", args)
    }));
    calls
}

fn searches(prompt: &str) -> Vec<(&'static str, Value)> {
    let search = |word: String| ("search_files", json!({"pattern": pattern(&word)}));
    read::words(prompt).into_iter().map(search).collect()
}

/// Returns the pattern of a word: at the beginning of a word or, if it is long enough to be distinctive,
/// anywhere, so that `retry` matches `MaxRetry`. Words are letters, digits and `_`, so they need no escaping.
fn pattern(word: &str) -> String {
    if word.chars().count() < 5 { format!("(?i)\\b{word}") } else { format!("(?i){word}") }
}

/// Returns the readme of a folder that was listed for lack of a better idea.
fn readme(prompt: &str, done: &[Done<'_>]) -> Vec<(&'static str, Value)> {
    let [listed] = done else { return Vec::new() };
    if listed.tool != "list_files" || !first_calls(prompt).is_empty() {
        return Vec::new();
    }
    let file = listed.result.lines().find(|path| path.to_lowercase().starts_with("readme"));
    file.map(|path| ("read_file", json!({"path": path, "limit": 40}))).into_iter().collect()
}

/// A matching line.
struct Hit {
    path: String,
    line: u64,
    /// The combined rarity of its words.
    weight: f64,
}

/// Returns all matching lines, the most relevant first: rare words count more, and definitions count most.
fn hits(prompt: &str, done: &[Done<'_>]) -> Vec<Hit> {
    let words = read::words(prompt);
    let mut weights: BTreeMap<(&str, u64), f64> = BTreeMap::new();
    for search in done.iter().filter(|done| done.tool == "search_files" && !done.failed()) {
        let found: Vec<_> = search.result.lines().filter_map(place).collect();
        let rarity = 1.0 / found.len().max(1) as f64;
        for (path, line, text) in found {
            *weights.entry((path, line)).or_default() += rarity * share(prompt, &words, path, text);
        }
    }
    let hit = |((path, line), weight): ((&str, u64), f64)| Hit { path: path.to_owned(), line, weight };
    let mut hits: Vec<Hit> = weights.into_iter().map(hit).collect();
    // A stable sort: equal ones stay in the order of paths and lines.
    hits.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    hits
}

/// Returns the relevance of a line.
fn share(prompt: &str, words: &[String], path: &str, text: &str) -> f64 {
    let is_lock_file = path.ends_with(".lock") || path.ends_with("-lock.json");
    if is_lock_file || text.contains(prompt.trim()) {
        // Lock files have every word, and the question itself is not an answer.
        return 0.01;
    }
    let definition = if defines(words, text) { 4.0 } else { 1.0 };
    let test = if path.contains("test") { 0.5 } else { 1.0 };
    definition * test
}

/// Returns whether a line defines something with one of the words: `struct ParseError`, `# Parse errors`.
fn defines(words: &[String], text: &str) -> bool {
    let named = |name: &str| words.iter().any(|word| name.to_lowercase().contains(&word.to_lowercase()));
    if text.starts_with('#') && !text.starts_with("#[") {
        return named(text);
    }
    if text.trim_start().starts_with("//") {
        return false;
    }
    let mut tokens = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|token| !token.is_empty());
    tokens.find(|token| DEFINERS.contains(token)).is_some() && tokens.next().is_some_and(named)
}

/// Returns the first hits that are not near each other.
fn best_places(hits: &[Hit]) -> Vec<(String, u64)> {
    let mut places: Vec<(String, u64)> = Vec::new();
    for hit in hits {
        let near = |(path, line): &(String, u64)| *path == hit.path && line.abs_diff(hit.line) < AROUND;
        if places.len() < MOST_PLACES && !places.iter().any(near) {
            places.push((hit.path.clone(), hit.line));
        }
    }
    places
}

/// Parses a line `path:line: text`.
fn place(line: &str) -> Option<(&str, u64, &str)> {
    if line.starts_with('[') {
        return None;
    }
    line.match_indices(':').find_map(|(at, _)| {
        let (number, text) = line[at + 1..].split_once(": ")?;
        Some((&line[..at], number.parse().ok()?, text))
    })
}

/// Summarizes the results of the turn.
fn summary(prompt: &str, done: &[Done<'_>]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let words = read::words(prompt);
    let searched: Vec<_> = done.iter().filter(|done| done.tool == "search_files").collect();
    let mut said_search = false;
    for done in done {
        let part = match done.tool {
            "calculate" if done.failed() => format!("`{}`: {}", done.arg("expression"), done.result),
            "calculate" => format!("{} = {}", done.arg("expression"), done.result),
            "current_time" | "list_files" => done.result.to_owned(),
            "read_file" if done.failed() => format!("`{}`: {}", done.arg("path"), done.result),
            "read_file" => quote(done, &words),
            "search_files" if !said_search => {
                said_search = true;
                counts(&searched, &words)
            }
            _ => continue,
        };
        if !part.is_empty() {
            parts.push(part);
        }
    }
    if parts.is_empty() {
        parts.push("There is nothing in this prompt to calculate, read or search for.".to_owned());
    }
    parts.push(SIGNATURE.to_owned());
    parts.join("\n\n")
}

/// Formats the number of lines with each word.
fn counts(searches: &[&Done<'_>], words: &[String]) -> String {
    let counts: Vec<(String, usize)> = searches
        .iter()
        .map(|search| {
            let word = words.iter().find(|word| pattern(word) == search.arg("pattern"));
            let found = search.result.lines().filter_map(place).count();
            (word.cloned().unwrap_or_else(|| search.arg("pattern").to_owned()), found)
        })
        .collect();
    if counts.iter().all(|(_, found)| *found == 0) {
        let words: Vec<_> = counts.iter().map(|(word, _)| format!("`{word}`")).collect();
        return format!("No file here has {}.", words.join(" or "));
    }
    let counts = counts.iter().map(|(word, found)| match found {
        1 => format!("`{word}` is in 1 line"),
        found => format!("`{word}` is in {found} lines"),
    });
    format!("{}. Closest to the question:", counts.collect::<Vec<_>>().join(", "))
}

/// Returns the lines of a file that contain a word of the prompt, or its first ones, as `path:line: text`.
fn quote(read: &Done<'_>, words: &[String]) -> String {
    let path = read.arg("path");
    let lines: Vec<(&str, &str)> = read
        .result
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter(|(number, text)| number.parse::<u64>().is_ok() && !text.trim().is_empty())
        .collect();
    let in_path = |word: &&String| path.to_lowercase().contains(&word.to_lowercase());
    let wanted: Vec<String> =
        words.iter().filter(|word| !in_path(word)).map(|word| word.to_lowercase()).collect();
    let has_word = |text: &str| wanted.iter().any(|word| text.to_lowercase().contains(word.as_str()));
    let is_place = read.args.get("offset").is_some();
    let some_match = lines.iter().any(|(_, text)| has_word(text));
    let chosen = lines.iter().filter(|(_, text)| is_place || !some_match || has_word(text));
    let quoted: Vec<_> =
        chosen.take(MOST_QUOTED).map(|(number, text)| format!("{path}:{number}: {text}")).collect();
    if quoted.is_empty() { format!("`{path}`: {}", read.result) } else { quoted.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done<'a>(tool: &'a str, args: Value, result: &'a str) -> Done<'a> {
        Done { tool, args, result }
    }

    fn said(next: Move) -> String {
        match next {
            Move::Say(text) => text.strip_suffix(SIGNATURE).unwrap().trim_end().to_owned(),
            Move::Call(calls) => panic!("{calls:?}"),
        }
    }

    #[test]
    fn arithmetic_is_calculated_and_the_result_said() {
        let prompt = "What is 2 + 3?";
        let args = json!({"expression": "2 + 3"});
        assert_eq!(next_move(prompt, &[], true), Move::Call(vec![("calculate", args.clone())]));
        assert_eq!(said(next_move(prompt, &[done("calculate", args, "5")], true)), "2 + 3 = 5");
    }

    #[test]
    fn a_named_file_is_read_and_its_telling_lines_are_quoted() {
        let prompt = "Which license does Cargo.toml have?";
        let args = json!({"path": "Cargo.toml"});
        assert_eq!(next_move(prompt, &[], true), Move::Call(vec![("read_file", args.clone())]));
        let read = done("read_file", args.clone(), "1\t[package]\n2\tlicense = \"MIT\"\n3\tname = \"x\"");
        assert_eq!(said(next_move(prompt, &[read], true)), "Cargo.toml:2: license = \"MIT\"");
        let other = done("read_file", args, "1\t[package]\n2\t\n3\tname = \"x\"");
        assert_eq!(
            said(next_move(prompt, &[other], true)),
            "Cargo.toml:1: [package]\nCargo.toml:3: name = \"x\""
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_searched_for_by_the_words_of_the_prompt() {
        let prompt = "Which license does nowhere.toml have?";
        let read =
            done("read_file", json!({"path": "nowhere.toml"}), "Error executing 'read_file': not found");
        let Move::Call(calls) = next_move(prompt, &[read], true) else { panic!() };
        assert_eq!(calls[0], ("search_files", json!({"pattern": "(?i)license"})));
    }

    #[test]
    fn words_are_searched_and_the_places_with_the_rarest_ones_are_read() {
        let prompt = "Where is the retry backoff?";
        let (retry, backoff) = (json!({"pattern": "(?i)retry"}), json!({"pattern": "(?i)backoff"}));
        assert_eq!(
            next_move(prompt, &[], true),
            Move::Call(vec![("search_files", backoff.clone()), ("search_files", retry.clone())])
        );
        let searches = || {
            vec![
                done("search_files", backoff.clone(), "src/b.rs:9: fn backoff()\nx.lock:1: backoff"),
                done(
                    "search_files",
                    retry.clone(),
                    "src/a.rs:1: retry\nsrc/b.rs:2: retry\nsrc/b.rs:9: retry",
                ),
            ]
        };
        let place =
            |path: &str, offset: u64| ("read_file", json!({"path": path, "offset": offset, "limit": 5}));
        assert_eq!(
            next_move(prompt, &searches(), true),
            Move::Call(vec![place("src/b.rs", 7), place("src/a.rs", 1), place("src/b.rs", 1)])
        );
        let mut all = searches();
        all.push(done("read_file", place("src/b.rs", 7).1, "8\t\n9\tfn backoff() {\n10\t}"));
        assert_eq!(
            said(next_move(prompt, &all, true)),
            "`backoff` is in 2 lines, `retry` is in 3 lines. Closest to the question:\n\n\
             src/b.rs:9: fn backoff() {\nsrc/b.rs:10: }"
        );
    }

    #[test]
    fn a_line_that_names_something_counts_more_than_one_that_mentions_it_and_the_question_itself_least() {
        let prompt = "Where is the parse error defined?";
        let words = read::words(prompt);
        let share = |path, text| share(prompt, &words, path, text);
        assert_eq!(share("a.rs", "pub struct ParseError {"), 4.0);
        assert_eq!(share("a.md", "## Parse errors"), 4.0);
        assert_eq!(share("a.rs", "// struct ParseError"), 1.0);
        assert_eq!(share("a.rs", "let error = ParseError::new();"), 1.0);
        assert_eq!(share("tests/a.rs", "error.parse()"), 0.5);
        assert_eq!(share("tests/a.rs", "fn parse_error()"), 2.0);
        assert_eq!(share("a.md", "ask \"Where is the parse error defined?\""), 0.01);
        assert_eq!(share("Cargo.lock", "name = \"parse-error\""), 0.01);
    }

    #[test]
    fn what_is_nowhere_is_said_to_be_nowhere() {
        let searches =
            [done("search_files", json!({"pattern": "(?i)unicorn"}), "[no match in 3 text files of '.']")];
        assert_eq!(said(next_move("Where is the unicorn?", &searches, true)), "No file here has `unicorn`.");
    }

    #[test]
    fn a_prompt_without_any_word_lists_the_folder_and_reads_its_readme() {
        let prompt = "What does this do?";
        assert_eq!(next_move(prompt, &[], true), Move::Call(vec![("list_files", json!({}))]));
        let listed = done("list_files", json!({}), "Cargo.toml\nREADME.md\nsrc/main.rs");
        assert_eq!(
            next_move(prompt, &[listed], true),
            Move::Call(vec![("read_file", json!({"path": "README.md", "limit": 40}))])
        );
    }

    #[test]
    fn places_are_read_from_lines_whatever_the_path() {
        assert_eq!(place("src/a.rs:12: let x: u8 = 1;"), Some(("src/a.rs", 12, "let x: u8 = 1;")));
        assert_eq!(place("odd:name:3: text"), Some(("odd:name", 3, "text")));
        assert_eq!(place("[no match in 2 text files of '.']"), None);
        assert_eq!(place("no place"), None);
    }
}
