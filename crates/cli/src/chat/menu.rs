//! Completions of commands and of paths.
//!
//! Start at [`Menu::of`].

use std::{fs, path::Path};

use superstep_session::text::printable_line;

use crate::chat::command::COMMANDS;

/// Maximum number of choices.
const MAX_CHOICES: usize = 6;

/// Maximum number of entries of a folder that are read.
const MAX_ENTRIES: usize = 2_000;

/// The choices for the word before the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Menu {
    pub(super) choices: Vec<Choice>,
    pub(super) selected: usize,
    /// The number of characters before the cursor that a choice replaces.
    pub(super) typed: usize,
}

/// A completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The word.
    pub(super) word: String,
    /// More about it, for the user.
    pub(super) about: String,
}

impl Menu {
    /// Returns the choices for the text before the cursor: commands at the begin, and paths of a folder after `@`.
    pub(super) fn of(before: &str, folder: &Path) -> Self {
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let choices = if before.starts_with('/') && before == word {
            let fits = COMMANDS.iter().filter(|(name, ..)| name.starts_with(word));
            let choice = |(name, args, about): &(&str, &str, &str)| Choice {
                word: (*name).to_owned(),
                about: format!("{args} {about}").trim().to_owned(),
            };
            fits.map(choice).collect()
        } else if let Some(path) = word.strip_prefix('@') {
            paths(path, folder)
        } else {
            Vec::new()
        };
        Self {
            choices: choices.into_iter().take(MAX_CHOICES).collect(),
            selected: 0,
            typed: word.chars().count(),
        }
    }

    /// Selects the next or the previous choice.
    pub(super) fn step(&mut self, down: bool) {
        let count = self.choices.len();
        if count > 0 {
            self.selected = (self.selected + if down { 1 } else { count - 1 }) % count;
        }
    }

    pub(super) fn choice(&self) -> Option<&Choice> {
        self.choices.get(self.selected)
    }
}

/// Lists the entries of a folder that begin like the path.
fn paths(path: &str, folder: &Path) -> Vec<Choice> {
    let (parent, name) = path.rsplit_once('/').map_or(("", path), |(parent, name)| (parent, name));
    if parent.starts_with('/') || parent.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(folder.join(parent)) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .take(MAX_ENTRIES)
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let is_hidden = file.starts_with('.') && !name.starts_with('.');
            // A name that cannot be shown cannot be typed either.
            if !file.starts_with(name) || is_hidden || printable_line(&file) != file || file.contains(' ') {
                return None;
            }
            let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
            let parent = if parent.is_empty() { String::new() } else { format!("{parent}/") };
            Some(Choice { word: format!("@{parent}{file}{slash}"), about: String::new() })
        })
        .collect();
    found.sort_by(|one, other| one.word.cmp(&other.word));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_paths_are_completed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["src/a.rs", "src/b.rs", "safe", ".hidden"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let words = |before: &str| -> Vec<String> {
            Menu::of(before, folder.path()).choices.into_iter().map(|choice| choice.word).collect()
        };
        assert_eq!(words("/h"), ["/help", "/history"]);
        assert_eq!(words("see @s"), ["@safe", "@src/"]);
        assert_eq!(words("see @src/b"), ["@src/b.rs"]);
        assert_eq!(words("@.h"), ["@.hidden"]);
        for none in ["see /h", "/fork 4", "a@s", "@../", "@/etc/", "", "x"] {
            assert_eq!(words(none), Vec::<String>::new(), "{none}");
        }
        let mut menu = Menu::of("/h", folder.path());
        menu.step(false);
        assert_eq!((menu.choice().map(|choice| &*choice.word), menu.typed), (Some("/history"), 2));
    }
}
