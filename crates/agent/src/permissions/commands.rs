//! Matching of shell command lines against a pattern.
//!
//! The strict reading, for allowing rules, rejects everything that it does not understand. The coarse reading,
//! for denying rules, [also matches](may_run) what the shell or another program may compute.

mod may_run;

use super::{Fit, glob::Glob};

/// Maximum length of a parsed command line in bytes.
const MAX_LENGTH: usize = 4 << 10;

/// Words that a shell does not interpret as a program name.
const RESERVED: [&str; 19] = [
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in",
    "function", "select", "time", "!", "[[", "coproc",
];

/// Matches a pattern against a command line.
///
/// In the pattern `*` matches characters of one word without `/`; as a separate word it matches words, at the
/// end also none.
pub(super) fn fit(pattern: &str, command: &str) -> Fit {
    let (pattern, command) = (pattern.trim(), command.trim());
    if command.len() > MAX_LENGTH {
        return Fit::Maybe;
    }
    Fit::of(pattern == command || allows(pattern, command), || may_run::may_run(pattern, command))
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
    /// The word is the number before a redirection.
    is_descriptor: bool,
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
                Token::Word(word) => lines.last_mut().expect("the list begins with a line").push(word),
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
                word.is_descriptor = "<>".contains(c) && word.text.bytes().all(|byte| byte.is_ascii_digit());
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

#[cfg(test)]
mod tests;
