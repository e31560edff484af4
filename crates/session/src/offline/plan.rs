//! The rules of the demonstration: arithmetic is calculated, a named file is read, and anything else is searched for.

use serde_json::{Value, json};

/// The end of every reply.
const SIGNATURE: &str = "(This is superstep's offline demonstration, no language model: it quotes what its tools found and \
    understands nothing. For answers, set OPENAI_API_KEY or start a local model server.)";

/// Words that are not searched for.
const COMMON: &str = " about and are called can defined does explain file files find for from have how into list read say says show \
    that the them then there this use used uses was what when where which who why will with work works you your ";

/// Maximum number of calls of one kind, and of words.
const MAX_CALLS: usize = 3;
/// Number of lines that are read around a hit.
const AROUND: u64 = 5;
/// Maximum number of lines that are quoted of one file.
const MAX_QUOTED: usize = 10;

/// A call of this turn, with its result.
pub(crate) struct FinishedCall<'a> {
    pub tool: &'a str,
    pub args: Value,
    pub result: &'a str,
}

impl FinishedCall<'_> {
    fn failed(&self) -> bool {
        self.result.starts_with("Error")
    }

    /// Returns the numbers and texts of the lines that were read.
    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.result.lines().filter_map(|line| line.split_once('\t'));
        lines.filter(|(number, text)| number.parse::<u64>().is_ok() && !text.trim().is_empty())
    }

    /// Returns whether it is a file that was read from its beginning and shows none of the words.
    fn is_without(&self, words: &[&str]) -> bool {
        let is_whole = self.tool == "read_file" && self.args.get("offset").is_none() && !self.failed();
        is_whole && !words.is_empty() && self.lines().all(|(_, text)| hits(text, words) == 0)
    }
}

/// The next move of a turn.
#[derive(Debug, PartialEq)]
pub(crate) enum Move {
    /// Calls these tools with these arguments.
    Call(Vec<(&'static str, Value)>),
    /// Ends the turn.
    Say(String),
}

/// Plans the next move of a turn from its prompt and its calls so far.
pub(crate) fn next_move(prompt: &str, done: &[FinishedCall<'_>], may_call: bool) -> Move {
    let words = words(prompt);
    let calls = match done {
        _ if !may_call => Vec::new(),
        [] => first_calls(prompt, &words),
        [.., search] if search.tool == "search_files" => best_places(prompt, search.result, &words),
        [read] if read.is_without(&words) => vec![search(&words, Some(read.args["path"].clone()))],
        _ => Vec::new(),
    };
    if calls.is_empty() { Move::Say(summary(done, &words)) } else { Move::Call(calls) }
}

fn first_calls(prompt: &str, words: &[&str]) -> Vec<(&'static str, Value)> {
    let sums = sums(prompt).into_iter().map(|sum| ("calculate", json!({"expression": sum})));
    let files = files(prompt).into_iter().map(|path| ("read_file", json!({"path": path})));
    let calls: Vec<_> = sums.chain(files).collect();
    if !calls.is_empty() || words.is_empty() {
        return calls;
    }
    vec![search(words, None)]
}

fn search(words: &[&str], path: Option<Value>) -> (&'static str, Value) {
    // Words have letters, digits, `_` and `-` only, so they need no escaping.
    let mut args = json!({"pattern": format!("(?i){}", words.join("|"))});
    if let Some(path) = path {
        args["path"] = path;
    }
    ("search_files", args)
}

/// Returns the arithmetic of a prompt: runs of words that are numbers and operators.
fn sums(prompt: &str) -> Vec<String> {
    let mut runs = vec![String::new()];
    for word in prompt.split_whitespace().map(|word| word.trim_matches(|c| "?!,;:.`\"'".contains(c))) {
        let is_arithmetic = word.chars().all(|c| c.is_ascii_digit() || ".+-*/^%()".contains(c));
        match runs.last_mut() {
            Some(run) if is_arithmetic && run.is_empty() => run.push_str(word),
            Some(run) if is_arithmetic => run.push_str(&format!(" {word}")),
            _ => runs.push(String::new()),
        }
    }
    // `3-4` may be pages, and `2026-11-21` is a date.
    runs.retain(|run| run.contains(['+', '*', '/', '^']) || run.contains(" - "));
    runs.truncate(MAX_CALLS);
    runs
}

/// Returns the files that a prompt names, such as `src/main.rs`.
fn files(prompt: &str) -> Vec<&str> {
    let words = prompt.split_whitespace().map(|word| {
        word.trim_matches(|c: char| !c.is_alphanumeric() && !"./_-".contains(c)).trim_end_matches('.')
    });
    let is_file = |word: &&str| {
        let extension = word.rsplit_once('.').map_or("", |(_, extension)| extension);
        let has_extension = extension.starts_with(char::is_alphabetic) && extension.len() <= 5;
        // `e.g` is shorter.
        has_extension && word.len() > 3 && !word.contains(':') && extension.chars().all(char::is_alphanumeric)
    };
    words.filter(is_file).take(MAX_CALLS).collect()
}

/// Returns the words of a prompt that are searched for, the longest first; none of the files that it names.
fn words(prompt: &str) -> Vec<&str> {
    let files = files(prompt);
    let words = prompt.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    let mut words: Vec<_> = words
        .map(|word| word.trim_matches('-'))
        .filter(|word| word.chars().count() >= 3 && word.contains(char::is_alphabetic))
        .filter(|word| !files.iter().any(|file| file.contains(word)))
        .filter(|word| !COMMON.contains(&format!(" {} ", word.to_lowercase())))
        .collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    words.truncate(MAX_CALLS);
    words
}

/// Returns how many of the words a line has.
fn hits(line: &str, words: &[&str]) -> usize {
    let line = line.to_lowercase();
    words.iter().filter(|word| line.contains(&word.to_lowercase())).count()
}

/// Splits a line `path:line: text` of a search.
fn place(line: &str) -> Option<(&str, u64, &str)> {
    let (path, rest) = line.split_once(':')?;
    let (number, text) = rest.split_once(": ")?;
    Some((path, number.parse().ok()?, text))
}

/// Reads around the lines with most of the words, except those that repeat the prompt.
fn best_places(prompt: &str, found: &str, words: &[&str]) -> Vec<(&'static str, Value)> {
    let lines = found.lines().filter_map(place);
    let mut lines: Vec<_> = lines.filter(|(.., text)| !text.contains(prompt)).collect();
    lines.sort_by_key(|(.., text)| std::cmp::Reverse(hits(text, words)));
    let mut places: Vec<(&str, u64)> = Vec::new();
    for (path, line, _) in lines {
        let is_near = |(other, near): &(&str, u64)| *other == path && near.abs_diff(line) < AROUND;
        if places.len() < MAX_CALLS && !places.iter().any(is_near) {
            places.push((path, line));
        }
    }
    let read = |(path, line): (&str, u64)| {
        let offset = line.saturating_sub(AROUND / 2).max(1);
        ("read_file", json!({"path": path, "offset": offset, "limit": AROUND}))
    };
    places.into_iter().map(read).collect()
}

/// Summarizes the results of the turn.
fn summary(done: &[FinishedCall<'_>], words: &[&str]) -> String {
    let mut searches = done.iter().filter(|done| done.tool == "search_files");
    let has_found = searches.any(|search| search.result.lines().any(|line| place(line).is_some()));
    let is_more = done.len() > 1;
    let part = |done: &FinishedCall<'_>| {
        let arg = |name: &str| done.args[name].as_str().unwrap_or_default().to_owned();
        match done.tool {
            "calculate" if done.failed() => format!("`{}`: {}", arg("expression"), done.result),
            "calculate" => format!("{} = {}", arg("expression"), done.result),
            "read_file" if has_found && done.is_without(words) => String::new(),
            "read_file" if done.failed() => format!("`{}`: {}", arg("path"), done.result),
            "read_file" => quote(done, &arg("path"), words),
            _ if !has_found && is_more => String::new(),
            _ => counts(done.result, words),
        }
    };
    let mut parts: Vec<_> = done.iter().map(part).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        parts.push("There is nothing in this prompt to calculate, read or search for.".to_owned());
    }
    parts.push(SIGNATURE.to_owned());
    parts.join("\n\n")
}

/// Counts the lines with each word.
fn counts(found: &str, words: &[&str]) -> String {
    let lines: Vec<_> = found.lines().filter_map(place).collect();
    if lines.is_empty() {
        let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
        return format!("No file here has {}.", words.join(" or "));
    }
    let count = |word: &&str| match lines.iter().filter(|(.., text)| hits(text, &[*word]) > 0).count() {
        1 => format!("`{word}` is in 1 line"),
        count => format!("`{word}` is in {count} lines"),
    };
    format!("{}. Closest to the question:", words.iter().map(count).collect::<Vec<_>>().join(", "))
}

/// Quotes the lines of a file around a hit, or else those with a word of the prompt, as `path:line: text`.
fn quote(read: &FinishedCall<'_>, path: &str, words: &[&str]) -> String {
    let is_all = read.args.get("offset").is_some() || read.lines().all(|(_, text)| hits(text, words) == 0);
    let quoted = read.lines().filter(|(_, text)| is_all || hits(text, words) > 0).take(MAX_QUOTED);
    let quoted: Vec<_> = quoted.map(|(number, text)| format!("{path}:{number}: {text}")).collect();
    if quoted.is_empty() { format!("`{path}`: {}", read.result) } else { quoted.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done<'a>(tool: &'a str, args: Value, result: &'a str) -> FinishedCall<'a> {
        FinishedCall { tool, args, result }
    }

    fn called(prompt: &str, done: &[FinishedCall<'_>]) -> Vec<(&'static str, Value)> {
        match next_move(prompt, done, true) {
            Move::Call(calls) => calls,
            Move::Say(text) => panic!("{text}"),
        }
    }

    fn reply(prompt: &str, done: &[FinishedCall<'_>]) -> String {
        match next_move(prompt, done, true) {
            Move::Say(text) => text.strip_suffix(SIGNATURE).unwrap().trim_end().to_owned(),
            Move::Call(calls) => panic!("{calls:?}"),
        }
    }

    #[test]
    fn arithmetic_is_calculated_and_its_result_quoted() {
        for (prompt, sum) in
            [("What is 2 + 3?", "2 + 3"), ("37*91+5", "37*91+5"), ("(1 + 2) * 4 = ?", "(1 + 2) * 4")]
        {
            let args = json!({"expression": sum});
            assert_eq!(called(prompt, &[]), [("calculate", args.clone())]);
            assert_eq!(reply(prompt, &[done("calculate", args, "5")]), format!("{sum} = 5"));
        }
        for prompt in ["What happened on 2026-11-21?", "see pages 3-4", "what is 404", "x2+3y", ""] {
            assert_eq!(sums(prompt), Vec::<String>::new(), "{prompt}");
        }
    }

    #[test]
    fn a_named_file_is_read_and_its_telling_lines_are_quoted() {
        let prompt = "Which license does `docs/Cargo.toml` have?";
        let args = json!({"path": "docs/Cargo.toml"});
        assert_eq!(called(prompt, &[]), [("read_file", args.clone())]);
        let read = done("read_file", args, "1\t[package]\n2\tlicense = \"MIT\"\n3\tname = \"x\"");
        assert_eq!(reply(prompt, &[read]), "docs/Cargo.toml:2: license = \"MIT\"");
        let long = || done("read_file", json!({"path": "docs/Cargo.toml"}), "1\t[package]");
        let search = json!({"pattern": "(?i)license", "path": "docs/Cargo.toml"});
        assert_eq!(called(prompt, &[long()]), [("search_files", search.clone())]);
        let found = [long(), done("search_files", search, "docs/Cargo.toml:900: license = \"MIT\"")];
        assert_eq!(called(prompt, &found)[0].1["offset"], 898);
        assert_eq!(files("and/or, e.g. 3.14, https://example.com/x.html and 1.5"), Vec::<&str>::new());
    }

    #[test]
    fn words_are_searched_and_the_lines_with_most_of_them_are_read() {
        let prompt = "Where is the retry backoff?";
        let args = json!({"pattern": "(?i)backoff|retry"});
        assert_eq!(called(prompt, &[]), [("search_files", args.clone())]);
        let search =
            || done("search_files", args.clone(), "a.rs:1: Retry\nb.rs:9: retry_backoff()\nb.rs:11: backoff");
        let place =
            |path: &str, offset: u64| ("read_file", json!({"path": path, "offset": offset, "limit": 5}));
        assert_eq!(called(prompt, &[search()]), [place("b.rs", 7), place("a.rs", 1)]);
        let read = done("read_file", place("b.rs", 7).1, "8\t\n9\tretry_backoff()\n10\t}");
        let quoted = "`backoff` is in 2 lines, `retry` is in 2 lines. Closest to the question:\n\n\
                      b.rs:9: retry_backoff()\nb.rs:10: }";
        assert_eq!(reply(prompt, &[search(), read]), quoted);
        let nowhere = [done("search_files", args.clone(), "[no match in 3 text files of '.']")];
        assert_eq!(reply(prompt, &nowhere), "No file here has `backoff` or `retry`.");
        assert!(reply("?", &[]).starts_with("There is nothing in this prompt"));
    }
}
