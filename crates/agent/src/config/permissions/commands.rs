//! Matching of shell command lines against a pattern.
//!
//! The strict reading, for allowing rules, rejects everything that it does not understand. The loose reading,
//! for denying rules, searches for the pattern in every part.

use super::{
    Fit,
    glob::{Glob, fits_text},
};

/// Maximum length of a parsed command line in bytes.
const LONGEST: usize = 4 << 10;

/// Words that a shell does not interpret as a program name.
const RESERVED: [&str; 19] = [
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in",
    "function", "select", "time", "!", "[[", "coproc",
];

/// The reserved words before a command. Behind the others is data, and behind `time` its options.
const LEADING: [&str; 9] = ["if", "then", "else", "elif", "do", "while", "until", "!", "coproc"];

/// Programs that execute text of unknown origin.
const SHELLS: [&str; 10] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "eval", "source", "."];

/// Programs that execute their arguments.
const RUNNERS: [&str; 32] = [
    "builtin", "busybox", "chroot", "chrt", "command", "doas", "env", "exec", "fakeroot", "find", "flock",
    "ionice", "nice", "nohup", "parallel", "prlimit", "runuser", "script", "setarch", "setpriv", "setsid",
    "ssh", "stdbuf", "strace", "su", "sudo", "time", "timeout", "toybox", "trap", "watch", "xargs",
];

/// The options of `find` that execute a program.
const EXECUTES: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

/// Matches a pattern against a command line.
///
/// In the pattern `*` matches characters of one word without `/`; as a separate word it matches words, at the
/// end also none.
pub(super) fn fit(pattern: &str, command: &str) -> Fit {
    let (pattern, command) = (pattern.trim(), command.trim());
    if command.len() > LONGEST {
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
    let tokens = read(command, false);
    if has_braces(command, tokens.as_deref()) || runs_its_input(command, tokens.as_deref()) {
        return true;
    }
    let bare = |text: &str| text.replace("\\\n", "").replace(['"', '\'', '\\'], "");
    let is_sign = |c: char| ";&|<>()`{}\n".contains(c);
    let spaced = |text: &str| {
        let text: String =
            text.chars().map(|c| if is_sign(c) { format!(" {c} ") } else { c.to_string() }).collect();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // Braces and backslashes of a pattern are pattern syntax.
    let wanted = pattern.replace(['"', '\''], "").split_whitespace().collect::<Vec<_>>().join(" ");
    if fits_text(&wanted, command) {
        return true;
    }
    let readings = [bare(&substitutions(command)), bare(&substitutions(&joined(command)))];
    let command = bare(command);
    if wanted.contains([';', '&', '|', '<', '>', '(', '`', '$']) {
        let wanted: String = wanted
            .chars()
            .map(|c| if ";&|<>()`".contains(c) { format!(" {c} ") } else { c.to_string() })
            .collect();
        let wanted = wanted.split_whitespace().collect::<Vec<_>>().join(" ");
        return fits_text(&format!("*{wanted}*"), &spaced(&command));
    }
    let named = base(wanted.split(' ').next().unwrap_or_default());
    let named = named.trim_end_matches('*').to_owned();
    let Ok(wanted) = Glob::text(&wanted) else { return true };
    readings.iter().flat_map(|text| simple_commands(text)).any(|words| runs_unknown(&named, &words))
        || command.split(is_sign).any(|part| part_mentions(&wanted, part))
}

/// Joins the words that quotes make one, and drops the backticks that single quotes make plain text.
fn joined(command: &str) -> String {
    let mut quote = None;
    let mut text = String::with_capacity(command.len());
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None | Some('"'), '\\') => text.extend([c].into_iter().chain(chars.next())),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) if c.is_whitespace() => text.push('_'),
            (Some('\''), '`') => {}
            _ => text.push(c),
        }
    }
    text
}

/// Writes a substitution in backticks like one in `$(`.
fn substitutions(command: &str) -> String {
    let signs = ["", "$`", "`"];
    let mut text = String::with_capacity(command.len());
    for (at, part) in command.split('`').enumerate() {
        text.push_str(signs[if at == 0 { 0 } else { 2 - at % 2 }]);
        text.push_str(part);
    }
    text
}

/// Splits a command line without quotes into the words of its simple commands, each from its program on: without
/// redirections, assignments and reserved words.
fn simple_commands(command: &str) -> Vec<Vec<String>> {
    // These contain the signs that end a command.
    let command =
        [">&", "&>", ">|"].iter().fold(command.replace("<&", "<"), |text, sign| text.replace(sign, ">"));
    let parts = command.split(|c| ";&|()`{}\n".contains(c));
    let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<Vec<_>>();
    parts.map(|part| owned(without_redirections(part))).filter(|words| !words.is_empty()).collect()
}

fn without_redirections(part: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = part;
    while let Some(at) = rest.find(['<', '>']) {
        let before = &rest[..at];
        let fd = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let is_fd = !fd.is_empty() && fd.bytes().all(|byte| byte.is_ascii_digit());
        words.extend(before[..before.len() - if is_fd { fd.len() } else { 0 }].split_whitespace());
        // The target of the redirection; without one it ends the part, as in `2>&1`.
        let behind = rest[at..].trim_start_matches(['<', '>']).trim_start();
        rest = behind.find(|c: char| c.is_whitespace() || "<>".contains(c)).map_or("", |end| &behind[end..]);
    }
    words.extend(rest.split_whitespace());
    let is_before = |word: &&str| is_assignment(word) || LEADING.contains(word);
    words.into_iter().skip_while(is_before).collect()
}

/// Returns whether a simple command runs a program that its text does not name, or that may be this one.
fn runs_unknown(named: &str, words: &[String]) -> bool {
    let is_filled = |word: &str| word.contains(['$', '*', '?', '[', '~']);
    let is_shell = |word: &str| word != "." && SHELLS.contains(&&*base(word));
    // File names that a shell finds may be those of a program.
    let finds = |word: &str| {
        let name = base(word);
        name.chars().any(char::is_alphanumeric) && is_filled(&name) && fits_text(&name, named)
    };
    let program = base(&words[0]);
    // The other words with wildcards of `find` are patterns of files, not programs.
    let begin = match &*program {
        "find" => words.iter().position(|word| EXECUTES.contains(&&**word)).unwrap_or(words.len()),
        _ => 1,
    };
    SHELLS.contains(&&*program)
        || is_filled(&words[0]) && !matches!(&*words[0], "[" | "[[")
        || RUNNERS.contains(&&*program)
            && (words[1..].iter().any(|word| word.contains('$') || is_shell(word))
                || words[begin..].iter().any(|word| finds(word)))
}

/// Returns whether a command line may run a program that `xargs` or `parallel` reads from its input. `tokens` are those of
/// [`read`].
fn runs_its_input(command: &str, tokens: Option<&[Token]>) -> bool {
    let Some(tokens) = tokens else {
        let replaces = ["-I", "-i", "--replace"].iter().any(|option| command.contains(option));
        return command.contains("parallel") || command.contains("xargs") && replaces;
    };
    let lines = tokens.split(|token| matches!(token, Token::Sign(_)));
    let text = |token: &Token| match token {
        Token::Word(word) => word.text.clone(),
        Token::Sign(sign) => sign.clone(),
    };
    let lines = lines.map(|line| line.iter().map(text).collect::<Vec<_>>());
    lines.into_iter().any(|words| {
        words.iter().enumerate().any(|(at, word)| match &*base(word) {
            "xargs" => input_is_program(&words[at + 1..], None),
            "parallel" => input_is_program(&words[at + 1..], Some("{}")),
            _ => false,
        })
    })
}

/// Returns whether the program behind the options of `xargs` or `parallel` contains the text that the input replaces,
/// `replaced` if no option names another one. Without a program `parallel` runs its input.
fn input_is_program(words: &[String], replaced: Option<&str>) -> bool {
    /// The options whose value is the next word.
    const VALUED: [&str; 14] = [
        "-I",
        "-J",
        "-E",
        "-L",
        "-P",
        "-S",
        "-a",
        "-d",
        "-j",
        "-n",
        "-s",
        "--jobs",
        "--arg-file",
        "--delimiter",
    ];
    let is_parallel = replaced.is_some();
    let mut replaced = replaced.map(str::to_owned);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            let inputs = is_parallel && word.starts_with(":::");
            return inputs || replaced.is_some_and(|replaced| word.contains(&replaced));
        }
        let value = VALUED.contains(&&**word).then(|| words.next()).flatten();
        let attached = ["-I", "-J", "-i", "--replace="].iter().find_map(|option| word.strip_prefix(option));
        match (&**word, value, attached) {
            ("-I" | "-J", value, _) => replaced = value.cloned(),
            ("-i" | "--replace", ..) => replaced = Some("{}".to_owned()),
            (_, _, Some(text)) => replaced = Some(text.to_owned()),
            _ => {}
        }
    }
    is_parallel
}

/// Returns whether a shell may expand one word to several, as `bash` does with `{rm,-rf,x}`. `tokens` are those
/// of [`read`].
fn has_braces(command: &str, tokens: Option<&[Token]>) -> bool {
    let makes = |text: &str| text.contains('{') && (text.contains(',') || text.contains(".."));
    match tokens {
        Some(tokens) => tokens
            .iter()
            .any(|token| matches!(token, Token::Word(word) if word.is_filled && makes(&word.text))),
        None => makes(command),
    }
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
