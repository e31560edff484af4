//! The instructions and skills of a folder and of the user: `AGENTS.md` and `SKILL.md`.
//!
//! Those of the folder count once the user has confirmed them, like its `superstep.toml`.
//!
//! Start at [`reader`].

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use superstep::tools::{FolderInstructions, FoundFile, FoundFiles, FoundKind, UserFolders};

use crate::{
    config::{
        configuration::Configuration,
        confirmed::{Confirmed, Stamp},
        model_table::own_file,
        notes::Note,
    },
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

/// Returns the reason why an agent with this configuration reads no instructions and no skills; `None` if it reads them.
pub fn reason_off(configuration: &Configuration) -> Option<String> {
    let reason = match &configuration.preset {
        _ if is_on(configuration) => return None,
        Some(preset) if configuration.instructions.is_none() => {
            format!("the preset `{preset}` reads none; to have them, set `instructions = true`")
        }
        _ => "`instructions` is false".to_owned(),
    };
    Some(format!("no instructions and no skills are read: {reason}"))
}

/// The files of a folder that count although the user has not confirmed them: those that it has when the program begins, with their
/// content then. What is written or changed later does not count.
#[derive(Clone, Debug, Default)]
pub struct TrustedFiles(Arc<BTreeSet<(PathBuf, String)>>);

impl TrustedFiles {
    /// Reads the files of a folder, by default of the current one.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn of(folder: Option<&Path>) -> Result<Self, SessionError> {
        let folder = folder.unwrap_or(Path::new("."));
        let reader = FolderInstructions::new(folder, |_, _| false);
        let reader = reader.map_err(|cause| SessionError::unusable_folder(folder, &cause))?;
        let files = reader.found_with_nested().files.into_iter().map(|file| (file.path, file.hash));
        Ok(Self(Arc::new(files.collect())))
    }

    fn has(&self, path: &Path, hash: &str) -> bool {
        self.0.contains(&(path.to_owned(), hash.to_owned()))
    }
}

/// Returns the reader of a folder, which uses the folder's files that the user has confirmed, and the trusted ones.
///
/// # Errors
/// The folder cannot be used, or the confirmations cannot be read.
pub fn reader(folder: &Path, trusted: &TrustedFiles) -> Result<FolderInstructions, SessionError> {
    let confirmed = Mutex::new((Stamp::now(), Confirmed::read()?));
    let trusted = trusted.clone();
    let trusts = move |path: &Path, hash: &str| {
        let mut known = confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        // The user may confirm a file while a session is open.
        let stamp = Stamp::now();
        if known.0 != stamp {
            *known = (stamp, Confirmed::read().unwrap_or_default());
        }
        trusted.has(path, hash) || known.1.has(path, hash)
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

/// Records that the user confirms these files with their content.
///
/// # Errors
/// They cannot be stored.
pub fn confirm(found: &FoundFiles) -> Result<(), SessionError> {
    let new: Vec<_> = unconfirmed(found).map(|file| (file.path.clone(), file.hash.clone())).collect();
    if new.is_empty() { Ok(()) } else { Confirmed::read()?.add(new) }
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
    let (are, them) = if files.len() == 1 { ("is", "it") } else { ("are", "them") };
    let (folder, parts) = (folder.display().to_string(), parts.collect::<Vec<_>>().join(" and "));
    let text = format!(
        "{parts} of `{folder}` {are} not read, because you have not confirmed {them} on this machine: see `superstep config`, \
         then `superstep config --trust`"
    );
    let hashes: String = files.iter().map(|file| file.hash.as_str()).collect();
    Some(Note::new(&["instructions", &folder, &hashes], text))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
            let configuration = parse(text).unwrap();
            assert_eq!(is_on(&configuration), wanted, "{text}");
            let reason = reason_off(&configuration);
            assert_eq!(reason.is_none(), wanted, "{text}");
            assert!(reason.is_none_or(|reason| reason.contains("opencode") == text.contains("opencode")));
        }
    }

    #[test]
    fn files_that_are_written_later_are_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("AGENTS.md", "mine");
        write("below/AGENTS.md", "below");
        write(".agents/skills/a/SKILL.md", "---\nname: a\ndescription: b\n---\n");
        let trusted = TrustedFiles::of(Some(dir.path())).unwrap();
        let used = || {
            let found = reader(dir.path(), &trusted).unwrap().found();
            let of_folder = found.files.into_iter().filter(|file| !file.is_of_user && file.is_confirmed);
            of_folder.count()
        };
        assert_eq!(used(), 2);
        assert!(trusted.0.iter().any(|(path, _)| path.ends_with("below/AGENTS.md")));
        write("AGENTS.override.md", "of the agent");
        write(".agents/skills/c/SKILL.md", "---\nname: c\ndescription: b\n---\n");
        assert_eq!(used(), 2);
        write("AGENTS.md", "of the agent");
        assert_eq!(used(), 1);
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
        let one = FoundFiles { files: found.files[..1].to_vec(), problems: Vec::new() };
        let text = note(Path::new("/f"), &one).unwrap().text;
        assert!(
            text.starts_with(
                "1 file of instructions of `/f` is not read, because you have not confirmed it "
            ),
            "{text}"
        );
        assert!(note(Path::new("/f"), &FoundFiles::default()).is_none());
    }
}
