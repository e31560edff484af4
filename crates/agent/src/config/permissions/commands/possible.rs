//! The commands that a command line may run, for denying rules.
//!
//! Start at [`Wanted::may_run`].

use std::cell::Cell;

use super::{
    line::{self, Word},
    pattern::{Item, alternatives, meets},
    programs::{
        Kind, evaluates_values, from_program, is_evaluated_later, is_plain, is_shell, names_computed,
        starts_shell,
    },
};

/// The options of `find` that execute a program.
const EXECUTES: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

/// The maximum effort for one command line, in compared pairs of characters.
const MAX_WORK: usize = 20_000_000;

/// The maximum depth of command lines in arguments of others.
const MAX_DEPTH: usize = 6;

/// A pattern of one simple command.
pub(super) struct Wanted {
    alternatives: Vec<Vec<Item>>,
    /// The program's part of each alternative, without its folder.
    programs: Vec<Vec<Item>>,
    work: Cell<usize>,
}

impl Wanted {
    pub(super) fn new(pattern: &str) -> Self {
        let alternatives = alternatives(pattern);
        let program = |items: &Vec<Item>| {
            let end = items.iter().position(|item| *item == Item::Char(' ')).unwrap_or(items.len());
            base(&items[..end]).to_vec()
        };
        Self { programs: alternatives.iter().map(program).collect(), alternatives, work: Cell::new(0) }
    }

    /// Returns whether a command line may run a command that the pattern matches.
    pub(super) fn may_run(&self, line: &str) -> bool {
        self.line_may_run(line, 0)
    }

    /// Returns whether the shell writes to, or reads from, a file that the pattern matches.
    pub(super) fn may_redirect(&self, line: &str) -> bool {
        let Some(parsed) = line::parse(line) else { return true };
        let meets_any = |word: &Word| self.alternatives.iter().any(|wanted| meets(wanted, &word.items, &[0]));
        parsed.commands.iter().flat_map(|command| &command.targets).any(meets_any)
    }

    fn line_may_run(&self, line: &str, depth: usize) -> bool {
        let Some(parsed) = line::parse(line).filter(|_| depth < MAX_DEPTH) else { return true };
        parsed.commands.iter().any(|command| {
            command.words.iter().chain(&command.targets).any(is_evaluated_later)
                || self.command_may_run(&command.words, depth)
        }) || evaluates_values(&parsed)
    }

    /// Spends effort; returns whether none is left.
    fn is_exhausted(&self, by: usize) -> bool {
        self.work.set(self.work.get().saturating_add(by));
        self.work.get() > MAX_WORK
    }

    /// Returns whether a simple command matches the pattern, at any of its words, or its program may run one that does.
    fn command_may_run(&self, words: &[Word], depth: usize) -> bool {
        let from_program = from_program(words);
        let before = &words[..words.len() - from_program.len()];
        let runs_no_arguments =
            from_program.first().is_none_or(|program| is_plain(program, &from_program[1..]));
        // Shells without arrays take it for a program.
        before.iter().any(|word| word.is_of_arrays && (word.is_computed || self.may_be_named(word)))
            || self.is_mentioned(words, runs_no_arguments)
            || words.iter().any(|word| self.value_may_run(word, depth + 1))
            || self.program_may_run(from_program, depth)
    }

    /// Returns whether a command in the value of a variable may be one that the pattern matches: programs run those of `EDITOR`,
    /// `GIT_SSH_COMMAND` and others.
    fn value_may_run(&self, word: &Word, depth: usize) -> bool {
        let value = word.value_items().unwrap_or_default();
        let text: Option<String> = value.iter().map(|item| item.char()).collect();
        let is_json =
            |text: &String| ["{\"", "[{", "[\""].iter().any(|begin| text.trim_start().starts_with(begin));
        let Some(text) = text.filter(|text| text.contains(is_sign) && !is_json(text)) else { return false };
        if self.is_exhausted(text.len()) || depth > MAX_DEPTH {
            return true;
        }
        // A text that no shell can parse is no command.
        let parsed = line::parse(&text);
        parsed.is_some_and(|parsed| {
            parsed.commands.iter().any(|command| self.command_may_run(&command.words, depth))
        })
    }

    /// Matches the pattern at the beginning of each word; in the arguments of a program that may run them, also where
    /// one may begin within a word.
    fn is_mentioned(&self, words: &[Word], runs_no_arguments: bool) -> bool {
        let (mut text, mut begins) = (Vec::new(), Vec::new());
        for word in words {
            // Unknown words may be none, without a space.
            if !text.is_empty() && word.items != [Item::Any] {
                text.push(Item::Char(' '));
            }
            let items = &word.items;
            let is_cluster = !runs_no_arguments && items.first() == Some(&Item::Char('-')) && !is_find(words);
            let is_short = is_cluster && items.get(1) != Some(&Item::Char('-'));
            for (at, item) in items.iter().enumerate().filter(|(_, item)| item.char().is_some()) {
                let before = at.checked_sub(1).and_then(|before| items[before].char());
                let may_begin = match before {
                    None => at == 0,
                    Some('/' | '=') => true,
                    Some(c) if !runs_no_arguments && (c.is_whitespace() || "!:,;&|({'\"".contains(c)) => true,
                    Some(_) => is_short && at > 1,
                };
                if may_begin && item.char().is_some() {
                    begins.push(text.len() + at);
                }
            }
            text.extend(items);
        }
        let mut spaced = text.clone();
        spaced.push(Item::Char(' '));
        self.alternatives.iter().any(|wanted| {
            self.is_exhausted(2 * wanted.len() * text.len())
                || meets(wanted, &text, &begins)
                || meets(wanted, &spaced, &begins)
        })
    }

    /// Returns whether the word may be the name of the pattern's program.
    fn may_be_named(&self, word: &Word) -> bool {
        let name = base(&word.items);
        self.programs
            .iter()
            .any(|wanted| self.is_exhausted(wanted.len() * name.len()) || meets(wanted, name, &[0]))
    }

    /// Returns whether a program may run a command that its words do not show. `words` begin with the program.
    fn program_may_run(&self, words: &[Word], depth: usize) -> bool {
        let Some((program, rest)) = words.split_first() else { return false };
        if self.is_exhausted(words.len()) || depth > MAX_DEPTH {
            return true;
        }
        if program.is_computed || program.is_globbed && self.may_be_named(program) {
            return true;
        }
        match &*name(program).unwrap_or_default() {
            named if is_shell(named) || starts_shell(named, rest) || names_computed(named, rest) => true,
            "alias" => !rest.is_empty(),
            "find" => self.find_may_run(rest, depth + 1),
            "xargs" => self.xargs_may_run(rest, depth + 1),
            "parallel" => self.parallel_may_run(rest, depth + 1),
            _ if is_plain(program, rest) => false,
            language => {
                let kind = Kind::of(language);
                (0..rest.len()).any(|at| self.argument_may_run(&rest[at..], kind, depth + 1))
            }
        }
    }

    /// Returns whether the first word of `words`, the arguments of a program that may run them, may be such a command.
    fn argument_may_run(&self, words: &[Word], kind: Kind, depth: usize) -> bool {
        let word = &words[0];
        if word.is_computed || word.is_globbed && self.may_be_named(word) {
            return true;
        }
        let Some(text) = word.text() else {
            return word.items.iter().any(|item| item.char().is_some_and(is_sign));
        };
        let name = name(word).unwrap_or_default();
        let is_command = match &*name {
            "." => false,
            "find" | "xargs" | "parallel" | "alias" => self.program_may_run(words, depth),
            name => is_shell(name) || kind == Kind::Runner && starts_shell(name, &words[1..]),
        };
        is_command
            || text.contains("{}")
            || kind != Kind::Language
                && text.contains(is_sign)
                && (text.contains('\\') || self.line_may_run(&text, depth))
    }

    fn find_may_run(&self, words: &[Word], depth: usize) -> bool {
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            // It may be an option.
            if word.is_computed || word.items.first() == Some(&Item::Any) {
                return true;
            }
            if !word.text().is_some_and(|text| EXECUTES.contains(&&*text)) {
                continue;
            }
            let mut command = Vec::<Word>::new();
            for word in words.by_ref() {
                let text = word.text();
                let follows_files = command.last().is_some_and(|last| last.is_computed);
                if text.as_deref() == Some(";") || text.as_deref() == Some("+") && follows_files {
                    break;
                }
                command.push(filled(word, "{}"));
            }
            if self.command_may_run(&command, depth) {
                return true;
            }
        }
        false
    }

    /// Returns whether `xargs` may run a command that the pattern matches with anything as its input.
    fn xargs_may_run(&self, words: &[Word], depth: usize) -> bool {
        let Some((replaced, command)) = without_options(words) else { return true };
        if command.is_empty() {
            return false;
        }
        let command: Vec<_> = match replaced {
            Some(replaced) => command.iter().map(|word| filled(word, &replaced)).collect(),
            None => command.iter().cloned().chain([Word::unknown()]).collect(),
        };
        self.command_may_run(&command, depth)
    }

    /// Does the same for `parallel`, whose command is text for a shell. Without one it runs its input.
    fn parallel_may_run(&self, words: &[Word], depth: usize) -> bool {
        let mut words = words;
        loop {
            match words.first().and_then(Word::text).as_deref() {
                Some("-j" | "--jobs") => words = words.get(2..).unwrap_or_default(),
                Some("-k" | "-0" | "--keep-order" | "--null") => words = &words[1..],
                Some(text) if !text.starts_with(['-', ':']) => break,
                _ => return true,
            }
        }
        let inputs = |word: &&Word| word.text().is_some_and(|text| text.starts_with(":::"));
        let texts = words.iter().take_while(|word| !inputs(word)).map(|word| filled(word, "{").text());
        let line: Vec<_> = texts.map(|text| text.unwrap_or_else(|| "$x".to_owned())).collect();
        self.line_may_run(&format!("{} $x", line.join(" ")), depth)
    }
}

/// Skips the options of `xargs`. Returns the text that its input replaces, and its command; `None` if an option is not known.
fn without_options(words: &[Word]) -> Option<(Option<String>, &[Word])> {
    let (mut replaced, mut at) = (None, 0);
    while let Some(word) = words.get(at) {
        let text = word.text()?;
        if !text.starts_with('-') {
            break;
        }
        at += 1;
        if text == "--" {
            break;
        }
        let long = text
            .strip_prefix("--")
            .map(|long| long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value))));
        match long {
            Some(("replace", value)) => replaced = Some(value.unwrap_or("{}").to_owned()),
            Some((
                "arg-file" | "delimiter" | "max-args" | "max-procs" | "max-chars" | "process-slot-var",
                value,
            )) => {
                at += usize::from(value.is_none());
            }
            Some((
                "null" | "no-run-if-empty" | "verbose" | "open-tty" | "interactive" | "exit" | "eof"
                | "max-lines",
                _,
            )) => {}
            Some(_) => return None,
            None => {
                let end = text[1..].find(|c| !"0prtxo".contains(c)).map(|end| end + 1);
                let Some(end) = end else { continue };
                let option = text[end..].chars().next()?;
                let attached = &text[end + option.len_utf8()..];
                let mut value = || -> Option<String> {
                    if !attached.is_empty() {
                        return Some(attached.to_owned());
                    }
                    at += 1;
                    words.get(at - 1)?.text()
                };
                match option {
                    'I' | 'J' => replaced = Some(value()?),
                    'i' => replaced = Some(if attached.is_empty() { "{}" } else { attached }.to_owned()),
                    'e' | 'l' => {}
                    'E' | 'L' | 'P' | 'a' | 'd' | 'n' | 's' | 'R' | 'S' => drop(value()?),
                    _ => return None,
                }
            }
        }
    }
    let is_empty = replaced.as_deref() == Some("");
    (!is_empty).then_some((replaced, words.get(at..).unwrap_or_default()))
}

/// Returns the word, unknown if it contains a text that is replaced.
fn filled(word: &Word, replaced: &str) -> Word {
    let shown: String = word.items.iter().map(|item| item.char().unwrap_or('\0')).collect();
    if shown.contains(replaced) { Word::unknown() } else { word.clone() }
}

fn is_find(words: &[Word]) -> bool {
    from_program(words).first().and_then(name).as_deref() == Some("find")
}

/// Returns whether a character separates words or commands, or quotes them, where a program reads its argument as a command line.
fn is_sign(c: char) -> bool {
    c.is_whitespace() || "'\"$`;&|<>()\\".contains(c)
}

/// Returns the lower-case name of a program without its folder.
fn name(word: &Word) -> Option<String> {
    base(&word.items)
        .iter()
        .map(|item| item.char())
        .collect::<Option<String>>()
        .map(|name| name.to_lowercase())
}

fn base(items: &[Item]) -> &[Item] {
    let begin = items.iter().rposition(|item| *item == Item::Char('/')).map_or(0, |slash| slash + 1);
    &items[begin..]
}
