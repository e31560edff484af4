//! The commands of the programs, as their help lists them.
//!
//! A test that tries many commands of a program compares its list with these, so that a new command is added to it, or named as an
//! exception.
//!
//! Start at [`commands`].

use std::collections::BTreeSet;

use tokio::process::Command;

use crate::support::{Place, ended};

/// A command that needs no further one.
pub(crate) struct Listed {
    /// Its words, such as `db check`.
    pub(crate) name: String,
    pub(crate) help: String,
}

impl Listed {
    /// Returns whether it opens a database of threads.
    pub(crate) fn has_database(&self) -> bool {
        self.help.contains("--db <")
    }

    /// Returns its flags.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &str> {
        let options = self.help.lines().filter(|line| line.trim_start().starts_with('-'));
        options.filter_map(|line| line.split([' ', ',', '=', '[']).find(|word| word.starts_with("--")))
    }
}

/// Returns the commands of the agent's program.
pub(crate) async fn commands(place: &Place) -> Vec<Listed> {
    listed(|words| place.command(words)).await
}

/// Returns the commands of a program with graphs of its own.
pub(crate) async fn own_commands(place: &Place) -> Vec<Listed> {
    listed(|words| place.own_command(words)).await
}

async fn listed(command: impl Fn(&[&str]) -> Command) -> Vec<Listed> {
    let (mut found, mut pending) = (Vec::new(), vec![Vec::<String>::new()]);
    while let Some(words) = pending.pop() {
        let with_help: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let help = ended(&mut command(&with_help)).await.ok().stdout;
        let below = names(&help);
        // A command may do something without one of the commands below it.
        let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap();
        if !usage.contains("<COMMAND>") {
            found.push(Listed { name: words.join(" "), help });
        }
        pending.extend(below.into_iter().map(|name| [&words[..], &[name]].concat()));
    }
    assert!(found.len() > 15, "the help lists its commands in another form");
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Returns the names of the commands that a help lists.
fn names(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

/// Asserts that each of these commands is tried or an exception. An exception may be the name of several, such as `jobs`; one that
/// is not needed is an error as well.
#[track_caller]
pub(crate) fn assert_all_tried<'a>(
    commands: impl IntoIterator<Item = &'a Listed>,
    tried: impl IntoIterator<Item = impl AsRef<[&'a str]>>,
    except: &[&str],
) {
    let tried: Vec<String> = tried.into_iter().map(|words| words.as_ref().join(" ")).collect();
    let mut unused: BTreeSet<&str> = except.iter().copied().collect();
    let is_of = |name: &str, group: &str| format!("{name} ").starts_with(&format!("{group} "));
    for Listed { name, .. } in commands {
        let is_tried = tried.iter().any(|words| is_of(words, name));
        let exception = except.iter().find(|group| is_of(name, group));
        assert!(
            is_tried || exception.is_some(),
            "`{name}` is neither tried by this test nor named as an exception"
        );
        if let (false, Some(group)) = (is_tried, exception) {
            unused.remove(group);
        }
    }
    assert!(unused.is_empty(), "exceptions of no command, or of tried ones: {unused:?}");
}

/// Asserts that the first column of a table names exactly these commands. Several in one cell may omit the words that they share,
/// as in `` `db check`, `stats` ``.
#[track_caller]
pub(crate) fn assert_table(table: &str, program: &str, commands: &[Listed]) {
    let known: BTreeSet<&str> = commands.iter().map(|command| command.name.as_str()).collect();
    let mut found = BTreeSet::new();
    for cell in table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()) {
        let mut shared = String::new();
        for span in cell.split('`').skip(1).step_by(2) {
            let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
            let words = span.strip_prefix(program).unwrap_or(span).split_whitespace();
            let words = words.take_while(is_name).collect::<Vec<_>>().join(" ");
            let with_shared = format!("{shared}{words}");
            let name = if known.contains(with_shared.as_str()) { with_shared } else { words };
            shared = name.rsplit_once(' ').map_or_else(String::new, |(before, _)| format!("{before} "));
            found.insert(name);
        }
    }
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, known, "the commands of the page, and those of the program");
}
