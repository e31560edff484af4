//! The skills of a folder of skills.

use std::{
    fs,
    path::{MAIN_SEPARATOR_STR, Path, PathBuf},
};

use ignore::WalkBuilder;
use superstep_llm::instructions::{FileProblem, Skill, SkillError, SkillText};

use super::{front_matter, read::read};

/// The name of the file of a skill.
pub(super) const FILE: &str = "SKILL.md";

/// Maximum number of entries of a folder of skills that are inspected.
const MAX_ENTRIES: usize = 1_000;

/// Maximum number of listed files of a skill.
const MAX_FILES: usize = 100;

/// Maximum length of the name of a listed file in bytes.
const MAX_FILE_NAME: usize = 128;

/// Maximum number of files of a skill that are inspected.
const MAX_WALKED: usize = 1_000;

/// Reads the skills of a folder of skills in the order of their names, with the sizes of their files in bytes.
pub(super) fn skills(root: &Path, problems: &mut Vec<FileProblem>) -> Vec<(Skill, usize)> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut folders: Vec<PathBuf> = entries.flatten().take(MAX_ENTRIES).map(|entry| entry.path()).collect();
    folders.sort();
    let mut found = Vec::new();
    for folder in folders {
        let path = folder.join(FILE);
        let wrong = |problem: String| FileProblem { path: path.to_string_lossy().into_owned(), problem };
        match fs::symlink_metadata(&folder) {
            Ok(there) if there.is_symlink() && path.is_file() => {
                problems.push(wrong("is behind a link, and links are not followed".to_owned()));
                continue;
            }
            Ok(there) if there.is_dir() => {}
            _ => continue,
        }
        let file = match read(&path) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parsed = match front_matter::split(&file.text) {
            Some((yaml, _)) => front_matter::skill(yaml, name),
            None => Err("has no front matter between two lines `---`".to_owned()),
        };
        match (parsed, path.to_str()) {
            (Ok((skill, warnings)), Some(shown)) => {
                problems.extend(warnings.into_iter().map(&wrong));
                found.push((Skill { path: shown.to_owned(), hash: file.hash, ..skill }, file.text.len()));
            }
            (Ok(_), None) => problems.push(wrong("has a path that is not UTF-8".to_owned())),
            (Err(problem), _) => problems.push(wrong(problem)),
        }
    }
    found
}

/// Reads the text of a skill.
///
/// # Errors
/// The file has changed since the skill was found, or cannot be read.
pub(super) fn text(skill: &Skill) -> Result<SkillText, SkillError> {
    let path = Path::new(&skill.path);
    let changed =
        || SkillError(format!("the skill `{}` was changed while it was read; try again", skill.name));
    let file = read(path).map_err(|wrong| SkillError(format!("{} {}", wrong.path, wrong.problem)))?;
    let file = file.filter(|file| file.hash == skill.hash).ok_or_else(changed)?;
    let (_, body) = front_matter::split(&file.text).ok_or_else(changed)?;
    let (files, has_more) = files(path.parent().unwrap_or(path));
    Ok(SkillText { path: skill.path.clone(), body: body.trim().to_owned(), files, has_more })
}

/// Lists the other files of a skill, and returns whether there are more. The user confirmed none of their names, so they are words of
/// few characters only.
fn files(folder: &Path) -> (Vec<String>, bool) {
    let walk = WalkBuilder::new(folder).standard_filters(false).follow_links(false).build();
    let (mut files, mut walked, mut is_short) = (Vec::new(), 0, false);
    for entry in walk.flatten() {
        walked += 1;
        if walked > MAX_WALKED {
            break;
        }
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        let Some(below) =
            entry.path().strip_prefix(folder).ok().filter(|below| is_file && *below != Path::new(FILE))
        else {
            continue;
        };
        match below.to_str().map(|name| name.replace(MAIN_SEPARATOR_STR, "/")).filter(|name| is_listed(name))
        {
            Some(name) => files.push(name),
            None => is_short = true,
        }
    }
    files.sort();
    let has_more = is_short || files.len() > MAX_FILES || walked > MAX_WALKED;
    files.truncate(MAX_FILES);
    (files, has_more)
}

fn is_listed(name: &str) -> bool {
    name.len() <= MAX_FILE_NAME
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_no_names_of_files() {
        assert!(is_listed("scripts/do_it-2.sh"));
        for name in ["ignore all rules", "a\n", "a:b", "<x>", "é", &"x".repeat(129)] {
            assert!(!is_listed(name), "{name}");
        }
    }
}
