//! Matching of shell command lines against a pattern.
//!
//! The strict reading, for allowing rules, rejects everything that it does not understand. The loose reading,
//! for denying rules, searches for the pattern in every part, and matches everything that it does not understand.

mod line;
mod pattern;
mod possible;
mod programs;

use self::possible::Wanted;
use super::{
    Fit,
    glob::{Glob, fits_text},
};

/// The signs between the commands of a line.
const SIGNS: [char; 11] = [';', '&', '|', '<', '>', '(', ')', '`', '{', '}', '\n'];

/// The signs that are not syntax of patterns, and the `$` of a substitution.
const OF_PATTERNS: [char; 9] = [';', '&', '|', '<', '>', '(', ')', '`', '$'];

/// Maximum length of a parsed command line in bytes.
const MAX_LENGTH: usize = 4 << 10;

/// Words that a shell does not interpret as a program name.
const RESERVED: [&str; 19] = [
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in",
    "function", "select", "time", "!", "[[", "coproc",
];

/// The words before a command. Behind the other reserved ones is data, and behind `time` its options.
const LEADING: [&str; 11] = ["if", "then", "else", "elif", "do", "while", "until", "!", "coproc", "{", "}"];

/// Matches a pattern against a command line.
///
/// In the pattern `*` matches characters of one word without `/`; as a separate word it matches words, at the
/// end also none.
pub(super) fn fit(pattern: &str, command: &str) -> Fit {
    let (pattern, command) = (pattern.trim(), command.trim());
    if command.len() > MAX_LENGTH {
        return Fit::Maybe;
    }
    Fit::of(pattern == command || allows(pattern, command), || mentions(pattern, command))
}

/// A token of a command line.
#[derive(Debug, PartialEq)]
enum Token {
    Word(Word),
    /// An operator between words.
    Sign(String),
}

#[derive(Debug, Default, PartialEq)]
struct Word {
    text: String,
    /// The shell expands something in it, such as a variable or file names.
    is_filled: bool,
    is_begun: bool,
}

fn allows(pattern: &str, command: &str) -> bool {
    let (Some(pattern), Some(command)) = (read(pattern, true), read(command, false)) else { return false };
    let signs = |tokens: &[Token]| -> Vec<String> {
        tokens
            .iter()
            .filter_map(|token| match token {
                Token::Sign(sign) => Some(sign.clone()),
                Token::Word(_) => None,
            })
            .collect()
    };
    if signs(&pattern) != signs(&command) {
        return false;
    }
    let lines = |tokens: Vec<Token>| -> Vec<Vec<Word>> {
        let mut lines = vec![Vec::new()];
        for token in tokens {
            match token {
                Token::Word(word) => lines.last_mut().expect("there is one from the start").push(word),
                Token::Sign(_) => lines.push(Vec::new()),
            }
        }
        lines
    };
    lines(pattern).iter().zip(lines(command)).all(|(pattern, line)| words_fit(pattern, &line))
}

/// Returns whether the words of one simple command match a pattern.
fn words_fit(pattern: &[Word], words: &[Word]) -> bool {
    let assigned = words.iter().take_while(|word| is_assignment(&word.text)).count();
    let is_special = |at: usize, word: &Word| {
        at < assigned
            || has_subscript(&word.text)
            || at == assigned
                && (RESERVED.contains(&&*word.text) || word.is_filled || word.text.contains(['{', '}']))
    };
    let fits = |at: usize, pattern: &Word, glob: &Glob| {
        let word = &words[at];
        if pattern.text == word.text {
            return true;
        }
        let leads_up = word.text.split(['/', '=', ':']).any(|name| name.ends_with(".."));
        !is_special(at, word) && !word.is_filled && !leads_up && glob.fits(&word.text)
    };
    let is_any = |pattern: &Word| matches!(&*pattern.text, "*" | "**");
    // The numbers of words that the pattern so far can match.
    let mut reached = vec![false; words.len() + 1];
    reached[0] = true;
    for (part, wanted) in pattern.iter().enumerate() {
        let Ok(glob) = Glob::names(&wanted.text) else { return false };
        let mut next = vec![false; words.len() + 1];
        for at in 0..=words.len() {
            if !reached[at] {
                continue;
            }
            if is_any(wanted) {
                next[at] |= part > 0 && part + 1 == pattern.len();
                for end in at..words.len() {
                    if is_special(end, &words[end]) {
                        break;
                    }
                    next[end + 1] = true;
                }
            } else if at < words.len() && fits(at, wanted, &glob) {
                next[at + 1] = true;
            }
        }
        reached = next;
    }
    reached[words.len()]
}

/// Returns whether `bash` may execute a substitution in a word although it is quoted: in the subscript of a
/// variable, as `test -v`, `printf -v` and `[[` evaluate it.
fn has_subscript(word: &str) -> bool {
    let inner = word.split_once('[').map_or("", |(_, inner)| inner);
    ["$(", "${", "`"].iter().any(|sign| inner.contains(sign))
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name.strip_suffix('+').unwrap_or(name));
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_[]".contains(c))
    })
}

/// Splits a command line into tokens; `None` if the shell may interpret it differently. Wildcards of a
/// pattern also apply within quotes.
fn read(text: &str, is_pattern: bool) -> Option<Vec<Token>> {
    let (mut tokens, mut word) = (Vec::new(), Word::default());
    let mut chars = text.chars().peekable();
    let end = |word: &mut Word, tokens: &mut Vec<Token>| {
        if word.is_begun {
            tokens.push(Token::Word(std::mem::take(word)));
        }
    };
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (_, '\0') => return None,
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.is_begun = true;
            }
            (Some('\''), c) => word.text.push(c),
            (_, '`') => return None,
            (_, '$') => variable(&mut chars, &mut word)?,
            (quote, '\\') => {
                let next = chars.next().filter(|next| *next != '\n')?;
                let stands = quote.is_none() || matches!(next, '"' | '\\' | '$' | '`');
                if is_pattern || !stands {
                    word.text.push('\\');
                }
                word.text.push(next);
                word.is_begun = true;
            }
            (Some(_), c) => word.text.push(c),
            (None, ' ' | '\t') => end(&mut word, &mut tokens),
            (None, '#') if !word.is_begun => return None,
            (None, '\n') => {
                end(&mut word, &mut tokens);
                tokens.push(Token::Sign("\n".to_owned()));
            }
            (None, ';' | '&' | '|' | '<' | '>' | '(' | ')') => {
                end(&mut word, &mut tokens);
                let mut sign = c.to_string();
                while let Some(more) = chars.next_if(|next| ";&|<>()".contains(*next)) {
                    sign.push(more);
                }
                tokens.push(Token::Sign(sign));
            }
            (None, c) if c.is_whitespace() || c.is_control() => return None,
            (None, c) => {
                word.is_filled |= "*?[]{}~".contains(c);
                word.text.push(c);
                word.is_begun = true;
            }
        }
    }
    end(&mut word, &mut tokens);
    quote.is_none().then_some(tokens)
}

/// Parses the text after a `$`: a plain variable, or `None`.
fn variable(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, word: &mut Word) -> Option<()> {
    let in_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    word.text.push('$');
    (word.is_begun, word.is_filled) = (true, true);
    let braced = chars.next_if_eq(&'{').is_some();
    let mut length = 0;
    if braced {
        word.text.push('{');
    }
    while let Some(c) = chars.next_if(in_name) {
        word.text.push(c);
        length += 1;
    }
    if braced {
        word.text.push(chars.next_if_eq(&'}')?);
    } else if length == 0 {
        word.text.push(chars.next_if(|c| "@*#?$!-".contains(*c))?);
        length = 1;
    }
    (length > 0).then_some(())
}

/// Returns whether any part of a command line may run something that the pattern matches, also in quotes and
/// behind other words.
fn mentions(pattern: &str, command: &str) -> bool {
    // Braces and backslashes of a pattern are pattern syntax.
    let wanted = pattern.replace(['"', '\''], "").split_whitespace().collect::<Vec<_>>().join(" ");
    if fits_text(&wanted, command) {
        return true;
    }
    let text = command.replace("\\\n", "").replace(['"', '\'', '\\'], "");
    if !wanted.contains(OF_PATTERNS) {
        return part_may_run(&wanted, command, &text);
    }
    let spaced = |text: &str, signs: &[char]| {
        let text: String =
            text.chars().map(|c| if signs.contains(&c) { format!(" {c} ") } else { c.to_string() }).collect();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    if fits_text(&format!("*{}*", spaced(&wanted, &OF_PATTERNS)), &spaced(&text, &SIGNS)) {
        return true;
    }
    // Each part of the pattern may be any part of the command.
    let mut parts = wanted.split(OF_PATTERNS).map(str::trim).filter(|part| !part.is_empty()).peekable();
    parts.peek().is_some()
        && parts.all(|part| part_may_run(part, command, &text) || Wanted::new(part).may_redirect(command))
}

/// Matches a pattern without signs against every part of a command line; `text` is the command line without quotes.
fn part_may_run(wanted: &str, command: &str, text: &str) -> bool {
    let Ok(glob) = Glob::text(wanted) else { return true };
    text.split(SIGNS).any(|part| part_mentions(&glob, part)) || Wanted::new(wanted).may_run(command)
}

fn part_mentions(wanted: &Glob, part: &str) -> bool {
    let words: Vec<&str> = part.split_whitespace().skip_while(|word| is_assignment(word)).collect();
    (0..words.len()).any(|start| {
        let line = words[start..].join(" ");
        let rest = &line[words[start].len()..];
        let by_name = format!("{}{rest}", base(words[start]));
        [&*line, &*by_name].iter().any(|line| wanted.fits(line) || wanted.fits(&format!("{line} ")))
    })
}

/// Returns the lower-case name of a program without its folder.
fn base(word: &str) -> String {
    word.rsplit('/').next().unwrap_or(word).to_lowercase()
}

#[cfg(test)]
mod tests;
