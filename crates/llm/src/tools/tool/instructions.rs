//! Instructions and skills that an agent reads from files.

use std::{future::Future, io, path::Path, pin::Pin, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::shared::into_shared;

/// Reads the instructions of a user and of a folder, such as `AGENTS.md`, and skills.
///
/// An agent reads them when a turn begins, and a folder's further files when a tool first touches a path below that folder. They are
/// texts for the model: they change no rule, no tool, no model and no budget of the agent. An implementation returns only texts that
/// its user vouches for.
pub trait Instructions: Send + Sync {
    /// Returns the same for another folder, used in a turn that works there; `None` if it has no folder.
    ///
    /// # Errors
    /// The folder is not usable; then the turn begins without instructions.
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Instructions>>> {
        let _ = folder;
        Ok(None)
    }

    /// Reads the files that apply to the whole folder, the weakest first, and the skills.
    fn load(&self) -> InstructionsFuture<'_, Loaded>;

    /// Reads the files of the folders on the way from the folder to these absolute paths, the weakest first.
    fn nested<'a>(&'a self, paths: &'a [String]) -> InstructionsFuture<'a, Loaded>;

    /// Reads a skill by its name.
    fn skill<'a>(&'a self, name: &'a str) -> InstructionsFuture<'a, Result<SkillText, SkillError>>;
}

into_shared!(Instructions);

/// The future of a method of [`Instructions`].
pub type InstructionsFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The texts that [`Instructions`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The files, the weakest first.
    pub files: Vec<InstructionFile>,
    /// The skills, the strongest first, with different names.
    pub skills: Vec<Skill>,
    /// The files that cannot be used, with the problem, and those that are used with a warning.
    pub problems: Vec<FileProblem>,
    /// The paths of the files that exist and that the user has not confirmed.
    pub unconfirmed: Vec<String>,
}

/// A file with instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionFile {
    /// The absolute path.
    pub path: String,
    /// The text; shorter than the file if the limit of all files is reached.
    pub text: String,
    /// The hash of the whole file.
    pub hash: String,
}

/// A skill: the front matter of a `SKILL.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// The name, from 1 to 64 characters.
    pub name: String,
    /// The purpose of the skill and when to use it.
    pub description: String,
    /// The absolute path of its `SKILL.md`.
    pub path: String,
    /// The hash of that file.
    pub hash: String,
    /// The license.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub license: String,
    /// The environment that the skill needs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compatibility: String,
    /// The tools that the skill names. They are shown and permit nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
}

/// The text of a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillText {
    /// The absolute path of its `SKILL.md`.
    pub path: String,
    /// The text behind the front matter.
    pub body: String,
    /// The other files of its folder, by their paths relative to it, at most 100.
    pub files: Vec<String>,
    /// `true` if there are more files.
    pub has_more: bool,
}

/// A file that cannot be used, or only with a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileProblem {
    /// The absolute path.
    pub path: String,
    /// The problem, as the end of a sentence that begins with the path.
    pub problem: String,
}

/// A skill that cannot be read: the model reads the text.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SkillError(pub String);

crate::debug_by_chain!(SkillError);
