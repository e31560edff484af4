//! Properties of programs: the use of their arguments, their input and the variables of a shell.

use super::{
    LEADING,
    line::{Line, Simple, Word},
    pattern::Item,
};

/// Programs that execute text of unknown origin, and those of a shell that change the meaning of names.
const SHELLS: &str = "sh bash rbash dash ash hush zsh ksh rksh mksh fish tcsh csh yash xonsh elvish nu pwsh posh oksh \
    lksh eval source .";

/// Programs that may start a shell, which executes their input.
const START_SHELL: &str = "at batch capsh chroot crontab fakeroot i386 linux32 linux64 login newgrp nsenter runuser script \
    setarch sg su uname26 unshare x86_64";

/// Programs that execute their arguments as a command.
const RUNNERS: &str = "builtin busybox chrt command doas env exec flock ionice nice nohup numactl prlimit setpriv setsid \
    stdbuf strace sudo taskset time timeout toybox";

/// Interpreters of other languages, whose scripts are not read.
const LANGUAGES: &str = "awk gawk mawk sed perl python python3 ruby node deno php lua Rscript";

/// Words and programs that never execute their arguments.
const PLAIN: &str = "! : [ [[ basename break case cat cd chgrp chmod chown cksum cmp comm continue cp curl cut date \
    declare df diff dirname done du echo egrep esac exit expand export expr false fgrep fi file fmt fold \
    for getopts grep groups gunzip gzip head hexdump hostname iconv id in join jq kill let link ln \
    local ls md5sum mkdir mkfifo mktemp mv nl nproc od paste pgrep pkill popd printf ps pushd pwd read \
    readlink readonly realpath return rev rm rmdir select seq set sha1sum sha256sum shift sleep stat \
    strings sync tac tail tee test touch tr tree true truncate type typeset umask uname uniq unlink \
    unset wait wc";

/// The commands of `git` that never execute their arguments.
const PLAIN_OF_GIT: &str = "add blame branch check-ignore checkout commit describe diff init log ls-files ls-tree merge-base mv \
    reset restore rev-parse rm show stash status tag";

/// The words with which a compound command begins.
const COMPOUND: [&str; 7] = ["{", "if", "while", "until", "for", "select", "[["];

/// The options of `sudo` with a value.
const VALUES_OF_SUDO: &str = "ughpCDRTUrta";

/// Programs of a shell whose arguments are names of variables.
const NAMES: &str = "declare export getopts local mapfile read readarray readonly typeset unset";

/// Variables whose values `bash` executes.
const CODE: [&str; 5] = ["PS4", "BASH_ENV", "BASH_ALIASES", "BASH_CMDS", "PROMPT_COMMAND"];

/// Returns the words from the program on: without assignments and the reserved words before a command.
pub(super) fn from_program(words: &[Word]) -> &[Word] {
    let mut words = words;
    while let Some(word) = words.first() {
        let text = word.text();
        let is_option = |word: &&Word| word.items.first() == Some(&Item::Char('-'));
        let is_portable = |word: &Word| word.is_one_of(&["-p", "--"]);
        let skipped = match text.as_deref() {
            _ if word.is_assignment || word.is_of_arrays => 1,
            // With other options it is a program.
            Some("time") if !words[1..].iter().take_while(is_option).all(is_portable) => break,
            Some("time") => 1 + words[1..].iter().take_while(is_option).count(),
            Some("function") => 2.min(words.len()),
            // Without `in` the commands follow.
            Some("for" | "select") if words.len() > 2 && words[2].is_one_of(&["do", "{"]) => 2,
            Some("coproc") if words.len() > 2 && words[2].is_one_of(&COMPOUND) => 2,
            Some(text) if LEADING.contains(&text) => 1,
            _ => break,
        };
        words = &words[skipped..];
    }
    words
}

/// The use that a program makes of its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// The arguments are a command.
    Runner,
    /// The arguments may be a script of another language.
    Language,
    /// The program may execute some arguments.
    Other,
}

impl Kind {
    /// Returns the kind of a program.
    pub(super) fn of(name: &str) -> Self {
        match name {
            name if has(RUNNERS, name) => Self::Runner,
            name if has(LANGUAGES, name) => Self::Language,
            _ => Self::Other,
        }
    }
}

/// Returns whether a program never executes its arguments.
pub(super) fn is_plain(program: &Word, rest: &[Word]) -> bool {
    let Some(text) = program.text() else { return false };
    let name = text.strip_prefix("/usr").unwrap_or(&text);
    let name = name.strip_prefix("/bin/").unwrap_or(&text);
    let command = || rest.first().and_then(Word::text);
    has(PLAIN, name) || name == "git" && command().is_some_and(|command| has(PLAIN_OF_GIT, &command))
}

/// Returns whether a program is a shell, also one with a version in its name.
pub(super) fn is_shell(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
    has(SHELLS, name) || has(SHELLS, plain)
}

/// Returns whether a program may start a shell with these arguments, or execute a file as one does.
pub(super) fn starts_shell(name: &str, arguments: &[Word]) -> bool {
    match name {
        "sudo" | "doas" => sudo_starts_shell(arguments),
        "command" | "builtin" => {
            let first = arguments.iter().find(|word| word.items.first() != Some(&Item::Char('-')));
            first.is_some_and(|word| word.is_one_of(&["."]))
        }
        name => has(START_SHELL, name),
    }
}

fn sudo_starts_shell(arguments: &[Word]) -> bool {
    let mut texts = arguments.iter().filter_map(Word::text);
    while let Some(text) = texts.next().filter(|text| text.starts_with('-') || text.contains('=')) {
        let is_short = text.starts_with('-') && !text.starts_with("--");
        if matches!(&*text, "--shell" | "--login") || is_short && text.contains(['s', 'i']) {
            return true;
        }
        if is_short && text.len() == 2 && text.ends_with(|c| VALUES_OF_SUDO.contains(c)) {
            texts.next();
        }
    }
    false
}

/// Returns whether a program of a shell uses a variable whose name is not known: it may be one that holds code, or have a
/// subscript with a substitution.
pub(super) fn names_computed(program: &str, arguments: &[Word]) -> bool {
    let is_unknown = |word: &Word| {
        let name = word.items.split(|item| *item == Item::Char('=')).next().unwrap_or_default();
        name.contains(&Item::Any)
    };
    match program {
        "test" | "[" | "[[" | "printf" => {
            arguments.windows(2).any(|pair| pair[0].is_one_of(&["-v"]) && is_unknown(&pair[1]))
        }
        program => has(NAMES, program) && arguments.iter().any(is_unknown),
    }
}

/// Returns whether `bash` may execute a substitution in quoted text: in the subscript of a variable, or in the
/// value of one, such as `PS4`.
pub(super) fn is_evaluated_later(word: &Word) -> bool {
    let text: String = word.items.iter().map(|item| item.char().unwrap_or('\0')).collect();
    let is_assigned = || word.is_assignment || text.contains('=') || word.is_computed;
    let is_substitution = text.contains('`') || text.contains("$(") || text.contains("${");
    CODE.iter().any(|name| text.contains(name))
        || is_substitution && (text.contains(['[', ']']) || is_assigned())
}

/// Returns whether `bash` may calculate with the value of a variable that has a subscript, in which it executes substitutions.
pub(super) fn evaluates_values(line: &Line) -> bool {
    let words = || line.commands.iter().flat_map(|command| &command.words);
    let has_subscript =
        |word: &Word| word.value_items().is_some_and(|value| value.contains(&Item::Char('[')));
    words().any(has_subscript) && (line.evaluates || line.commands.iter().any(calculates))
}

fn calculates(command: &Simple) -> bool {
    let words = from_program(&command.words);
    let rest = words.get(1..).unwrap_or_default();
    let is_integer =
        |word: &Word| word.text().is_some_and(|text| text.starts_with('-') && text.contains('i'));
    command.words.iter().any(|word| word.is_of_arrays)
        || match &*words.first().and_then(Word::text).unwrap_or_default() {
            "let" => true,
            "[[" => rest.iter().any(|word| word.is_one_of(&["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])),
            "declare" | "local" | "typeset" => rest.iter().any(is_integer),
            _ => false,
        }
}

/// Returns whether a list contains a word.
fn has(list: &str, wanted: &str) -> bool {
    list.split_whitespace().any(|known| known == wanted)
}
