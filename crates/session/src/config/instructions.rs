//! The instructions and skills of a folder and of the user: `AGENTS.md` and `SKILL.md`.
//!
//! Those of the folder count once the user has confirmed them, like its `superstep.toml`.
//!
//! Start at [`reader`].

use std::{
    env,
    path::Path,
    sync::{Mutex, PoisonError},
};

use superstep::tools::{FolderInstructions, FoundFile, FoundFiles, FoundKind, UserFolders};

use crate::{
    config::{configuration::Configuration, confirmed::Confirmed, model_table::own_file, notes::Note},
    error::SessionError,
    text::count,
};

/// The preset whose agents read instructions unless they are switched off. The other presets are designs of other programs.
const DEFAULT: &str = "default";

/// Returns whether an agent with this configuration reads instructions and skills.
pub fn is_on(configuration: &Configuration) -> bool {
    let is_default = configuration.preset.as_deref().is_none_or(|preset| preset == DEFAULT);
    configuration.instructions.unwrap_or(is_default)
}

/// Returns the reader of a folder, which uses the folder's files that the user has confirmed, or all of them.
///
/// # Errors
/// The folder cannot be used, or the confirmations cannot be read.
pub fn reader(folder: &Path, trusts_folder: bool) -> Result<FolderInstructions, SessionError> {
    let confirmed = Mutex::new(Confirmed::read()?);
    let trusts = move |path: &Path, hash: &str| {
        let mut confirmed = confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        trusts_folder || confirmed.has(path, hash) || {
            // The user may confirm a file while a session is open.
            *confirmed = Confirmed::read().unwrap_or_default();
            confirmed.has(path, hash)
        }
    };
    let config = own_file().and_then(|models| Some(models.parent()?.to_owned()));
    let home = env::home_dir().filter(|home| home.is_absolute());
    let reader = FolderInstructions::new(folder, trusts);
    let reader = reader.map_err(|cause| SessionError::unusable_folder(folder, &cause))?;
    Ok(reader.with_user(UserFolders { config, home }))
}

/// Returns the files that the user has not confirmed.
pub fn unconfirmed(found: &FoundFiles) -> impl Iterator<Item = &FoundFile> {
    found.files.iter().filter(|file| !file.is_confirmed)
}

/// Records that the user confirms these files with their content. Returns how many were not confirmed.
///
/// # Errors
/// They cannot be stored.
pub fn confirm(found: &FoundFiles) -> Result<usize, SessionError> {
    let new: Vec<_> = unconfirmed(found).map(|file| (file.path.clone(), file.hash.clone())).collect();
    let number = new.len();
    if number > 0 {
        Confirmed::read()?.add(new)?;
    }
    Ok(number)
}

/// Returns the note about files of a folder that are not read.
pub fn note(folder: &Path, found: &FoundFiles) -> Option<Note> {
    let files: Vec<_> = unconfirmed(found).collect();
    if files.is_empty() {
        return None;
    }
    let skills = files.iter().filter(|file| matches!(file.kind, FoundKind::Skill(_))).count();
    let parts = [(files.len() - skills, "file of instructions"), (skills, "skill")];
    let parts =
        parts.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| match (number, what) {
            (2.., "file of instructions") => format!("{number} files of instructions"),
            (number, what) => count(number, what),
        });
    let (folder, parts) = (folder.display().to_string(), parts.collect::<Vec<_>>().join(" and "));
    let text = format!(
        "{parts} of `{folder}` are not read, because you have not confirmed them on this machine: see `superstep config`, then \
         `superstep config --trust`"
    );
    let hashes: String = files.iter().map(|file| file.hash.as_str()).collect();
    Some(Note::new(&["instructions", &folder, &hashes], text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::parse;

    #[test]
    fn the_presets_of_other_designs_read_none_unless_switched_on() {
        for (text, wanted) in [
            ("", true),
            ("preset = \"default\"", true),
            ("preset = \"opencode\"", false),
            ("preset = \"opencode\"\ninstructions = true", true),
            ("instructions = false", false),
        ] {
            assert_eq!(is_on(&parse(text).unwrap()), wanted, "{text}");
        }
    }

    #[test]
    fn the_note_counts_what_is_not_confirmed() {
        let file = |kind| FoundFile {
            path: "/f/AGENTS.md".into(),
            hash: "h".into(),
            bytes: 1,
            kind,
            is_of_user: false,
            is_confirmed: false,
        };
        let [one, two] = [(); 2].map(|()| file(FoundKind::Instructions(String::new())));
        let skill = file(FoundKind::Skill(superstep::llm::instructions::Skill::default()));
        let found = FoundFiles { files: vec![one, two, skill], problems: Vec::new() };
        let text = note(Path::new("/f"), &found).unwrap().text;
        assert!(
            text.starts_with("2 files of instructions and 1 skill of `/f` are not read, because you "),
            "{text}"
        );
        assert!(note(Path::new("/f"), &FoundFiles::default()).is_none());
    }
}
