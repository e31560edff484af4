//! The coarse reading of command lines, for rules that deny.

use super::{Token, Word, is_assignment, read};
use crate::permissions::glob::{Glob, fits_text};

/// The signs between the commands of a line.
const SIGNS: [char; 11] = [';', '&', '|', '<', '>', '(', ')', '`', '{', '}', '\n'];

/// The signs that are not syntax of patterns, and the `$` of a substitution.
const OF_PATTERNS: [char; 9] = [';', '&', '|', '<', '>', '(', ')', '`', '$'];

/// The words before a command that do not change its meaning.
const LEADING: &str = "! do elif else if then time until while";

/// Programs that execute text or their input, or may start a shell, also with a version in their name.
const SHELLS: &str = "sh bash rbash dash ash hush zsh ksh rksh mksh fish tcsh csh yash xonsh elvish nu pwsh posh oksh \
    lksh capsh chroot crontab fakeroot newgrp nsenter runuser setarch sg su unshare xargs";

/// Programs of that kind whose names are also ordinary words, and builtins of a shell that execute text or change the meaning of names.
const WORDS: &str =
    "alias at batch enable eval hash i386 linux32 linux64 login parallel script source uname26 x86_64";

/// Programs that execute neither their arguments nor their input.
const PLAIN: &str = "basename cat cd cmp cut date df dirname du echo egrep false fgrep grep head hexdump id jq ls md5sum \
    mkdir nl od ps pwd readlink realpath seq sha1sum sha256sum sleep stat strings tac tail tee touch tr true uname \
    uniq wc";

/// The maximum number of short options in one word.
const MAX_CLUSTER: usize = 64;

/// Returns whether a command line may run something that the pattern matches: it names that or a shell in any word, it
/// cannot be read, or the shell or a program may compute a part of it.
pub(super) fn may_run(pattern: &str, command: &str) -> bool {
    // Braces and backslashes of a pattern are pattern syntax.
    let wanted = pattern.replace(['"', '\''], "").split_whitespace().collect::<Vec<_>>().join(" ");
    if fits_text(&wanted, command) {
        return true;
    }
    let Some(commands) = read(command, false).and_then(commands) else { return true };
    let parts = wanted.split(OF_PATTERNS).map(str::trim).filter(|part| !part.is_empty());
    let Some(parts) = parts.map(Part::new).collect::<Option<Vec<_>>>() else { return true };
    let mut is_read_by_plain = false;
    for command in commands.iter().rev() {
        let is_plain = command.is_plain()
            && (is_read_by_plain || !command.is_piped)
            && !parts.iter().any(|part| part.is_program(command.program()));
        if !is_plain && (command.is_computed() || command.names_shell() || command.names_option(&parts)) {
            return true;
        }
        is_read_by_plain = is_plain;
    }
    let is_named = |part: &Part| commands.iter().any(|command| command.names(part));
    if wanted.contains(OF_PATTERNS) {
        let text = command.replace(['"', '\'', '\\'], "");
        return fits_text(&format!("*{}*", spaced(&wanted, &OF_PATTERNS)), &spaced(&text, &SIGNS))
            || !parts.is_empty() && parts.iter().all(is_named);
    }
    parts.iter().any(is_named)
}

/// Returns the text with a space around each sign.
fn spaced(text: &str, signs: &[char]) -> String {
    let text: String =
        text.chars().map(|c| if signs.contains(&c) { format!(" {c} ") } else { c.to_string() }).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A pattern, or what is between two signs of it.
struct Part {
    /// Matches a text that begins with the pattern's match, and one that has it behind a sign or a space.
    globs: [Glob; 2],
    /// The program of the command, unless that may be any.
    program: Option<Glob>,
}

impl Part {
    /// Returns `None` if the pattern is not valid.
    fn new(wanted: &str) -> Option<Self> {
        let first = wanted.split(' ').next().unwrap_or_default();
        let program = match first.split_once('*') {
            Some((begin, _)) => format!("{begin}*"),
            None => first.to_owned(),
        };
        let behind = format!("*[!a-zA-Z0-9_.-]{wanted}");
        let globs = [Glob::any_case(wanted).ok()?, Glob::any_case(&behind).ok()?];
        Some(Self { globs, program: Glob::any_case(&program).ok().filter(|_| program != "*") })
    }

    fn is_in(&self, text: &str) -> bool {
        self.globs.iter().any(|glob| glob.fits(text) || glob.fits(&format!("{text} ")))
    }

    fn is_program(&self, name: &str) -> bool {
        self.program.as_ref().is_none_or(|program| program.fits(name) || program.fits(base(name)))
    }
}

/// A simple command, also a part of a compound one.
#[derive(Default)]
struct Command {
    /// Reserved words and assignments.
    before: Vec<Word>,
    /// The program and its arguments.
    words: Vec<Word>,
    /// The files and descriptors of its redirections.
    targets: Vec<Word>,
    is_piped: bool,
}

/// Returns the commands; `None` for what only a shell can read, such as functions and here-documents.
fn commands(tokens: Vec<Token>) -> Option<Vec<Command>> {
    let (mut commands, mut command, mut is_target) = (Vec::new(), Command::default(), false);
    for token in tokens {
        match token {
            Token::Word(word) if is_target || word.is_descriptor => {
                is_target = false;
                command.targets.push(word);
            }
            Token::Word(word) if command.words.is_empty() && is_before(&word.text) => {
                command.before.push(word);
            }
            Token::Word(word) => command.words.push(word),
            Token::Sign(_) if is_target => return None,
            Token::Sign(sign) => match &*sign {
                ">" | ">>" | "<" | ">&" => is_target = true,
                ";" | "&" | "|" | "&&" | "||" | "\n" => {
                    command.is_piped = sign == "|";
                    commands.push(std::mem::take(&mut command));
                }
                _ => return None,
            },
        }
    }
    commands.push(command);
    commands.retain(|command| !(command.before.is_empty() && command.words.is_empty()));
    (!is_target).then_some(commands)
}

fn is_before(word: &str) -> bool {
    is_assignment(word) || has(LEADING, word)
}

impl Command {
    /// Returns the text of the program, which may be none.
    fn program(&self) -> &str {
        self.words.first().map_or("", |program| &program.text)
    }

    /// Returns whether nothing that the shell computes in its arguments is executed.
    fn is_plain(&self) -> bool {
        let Some((program, arguments)) = self.words.split_first() else { return false };
        let name = program.text.strip_prefix("/usr").unwrap_or(&program.text);
        let is_option = |word: &Word, options: &[&str]| {
            word.is_filled || options.iter().any(|option| word.text.starts_with(option))
        };
        let is_plain = match name.strip_prefix("/bin/").unwrap_or(&program.text) {
            "find" => !arguments.iter().any(|word| is_option(word, &["-exec", "-ok"])),
            "printf" => !arguments.iter().any(|word| is_option(word, &["-"])),
            name => has(PLAIN, name),
        };
        is_plain && !program.is_filled && !self.before.iter().any(is_computed)
    }

    fn all(&self) -> impl Iterator<Item = &Word> {
        self.before.iter().chain(&self.words).chain(&self.targets)
    }

    fn is_computed(&self) -> bool {
        self.all().any(is_computed)
    }

    fn names_shell(&self) -> bool {
        let mut words = self.before.iter().chain(&self.words);
        let program = base(self.program());
        let takes_file = matches!(program, "." | "command" | "builtin" | "exec");
        let is_option = |word: &Word| word.text.starts_with('-') && word.text.contains(['s', 'i']);
        takes_file && self.words.iter().any(|word| word.text == ".")
            || matches!(program, "sudo" | "doas") && self.words.iter().any(is_option)
            || words
                .any(|word| names(&word.text).any(is_shell) || has(WORDS, &base(&word.text).to_lowercase()))
    }

    /// Returns whether the program of a pattern is the value of a short option, as in `-Srm`.
    fn names_option(&self, parts: &[Part]) -> bool {
        let may_be = |name: &str| parts.iter().any(|part| part.program.is_some() && part.is_program(name));
        self.words.iter().any(|word| in_options(&word.text).any(may_be))
    }

    /// Returns whether a part of a pattern is in a word or in several, each time to the end of a command.
    fn names(&self, part: &Part) -> bool {
        let line: Vec<_> = self.before.iter().chain(&self.words).map(|word| &*word.text).collect();
        let texts = self.all().map(|word| word.text.clone()).chain([line.join(" ")]);
        texts.into_iter().any(|text| {
            text.split(SIGNS).any(|text| {
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                !text.is_empty() && part.is_in(&text)
            })
        })
    }
}

/// Returns whether the shell computes a part of a word, or a program may that takes it for a command line: variables,
/// wildcards, braces, escapes, and quotes within the quoted text.
fn is_computed(word: &Word) -> bool {
    let text = &*word.text;
    !matches!(text, "[" | "]")
        && (text.contains(['$', '`', '*', '?', '[', ']', '{', '}', '\\'])
            || text.starts_with('~')
            || text.contains("=~")
            || text.contains(":~")
            || ['"', '\''].iter().any(|quote| text.matches(*quote).count() > 1)
            || cluster(text).len() > MAX_CLUSTER)
}

/// Returns the names in a word: between signs, and behind short options as in `-Ssh`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_sign = |c: char| !c.is_alphanumeric() && !"_.-".contains(c);
    text.split(is_sign).chain(in_options(text))
}

fn in_options(text: &str) -> impl Iterator<Item = &str> {
    let cluster = cluster(text);
    cluster.char_indices().skip(1).take(MAX_CLUSTER).map(|(at, _)| &cluster[at..])
}

/// Returns the letters behind the `-` of short options.
fn cluster(text: &str) -> &str {
    let options = text.strip_prefix('-').unwrap_or_default();
    options.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

fn is_shell(name: &str) -> bool {
    let name = name.to_lowercase();
    has(SHELLS, &name)
        || has(SHELLS, name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '.'))
}

fn has(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|listed| listed == name)
}

/// Returns the name of a program without its folder.
fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}
