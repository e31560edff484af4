//! The instructions and skills of a folder and of its user.

use std::{
    fmt, fs, io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use ignore::WalkBuilder;
use superstep_llm::instructions::{
    FileProblem, InstructionFile, Instructions, InstructionsFuture, Loaded, Skill, SkillError, SkillText,
};
use tokio::task::spawn_blocking;

use super::{
    read::{is_plain_folder, read},
    skills,
};

/// The names of files with instructions; the first one that exists counts.
const NAMES: [&str; 2] = ["AGENTS.override.md", "AGENTS.md"];

/// The folders of skills below the agent's folder, and those below the user's.
const SKILLS_OF_FOLDER: [&str; 2] = [".superstep/skills", ".agents/skills"];
const SKILLS_OF_CONFIG: &str = "skills";
const SKILLS_OF_HOME: &str = ".agents/skills";

/// Maximum number of skills.
const MAX_SKILLS: usize = 200;

/// Maximum number of paths and folders of one call of [`Instructions::nested`].
const MAX_PATHS: usize = 256;

/// Maximum number of files and folders below the agent's folder that are searched for further files.
const MAX_WALKED: usize = 50_000;

/// The function that returns whether the user confirmed the file at a path with a hash.
type Trusts = dyn Fn(&Path, &str) -> bool + Send + Sync;

/// The folders of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFolders {
    /// The folder of the program's configuration, with `AGENTS.md` and `skills`.
    pub config: Option<PathBuf>,
    /// The home folder, with `.agents/skills`.
    pub home: Option<PathBuf>,
}

/// Reads `AGENTS.md` and skills of one folder and of its user.
///
/// Instructions are `AGENTS.md`, or before it `AGENTS.override.md`, of the user's configuration folder, and of each folder from the root
/// of the git repository down to this one; without a repository of this one only. Skills are `NAME/SKILL.md` in `.superstep/skills`
/// and `.agents/skills` of the folder, then in `skills` of the configuration folder and `.agents/skills` of the home folder. Of skills
/// with one name the first counts.
///
/// Files are regular ones of at most 256 KiB of UTF-8 text, and no link is followed. A file of the folder may come from another
/// person: it is returned only if `trusts` accepts its path and its hash. Nothing is run.
/// ```
/// use superstep_tools::FolderInstructions;
///
/// let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("AGENTS.md"), "Answer in French.")?;
/// let mine = FolderInstructions::new(dir.path(), |_, _| true)?;
/// assert_eq!(mine.found().files[0].bytes, 17);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct FolderInstructions {
    /// Canonical.
    folder: PathBuf,
    user: UserFolders,
    trusts: Arc<Trusts>,
}

/// The files of [`FolderInstructions`], also those that the user has not confirmed.
#[derive(Clone, Debug, Default)]
pub struct FoundFiles {
    /// The files: instructions, the weakest first, then skills, the strongest first.
    pub files: Vec<FoundFile>,
    /// The files that cannot be used, and warnings.
    pub problems: Vec<FileProblem>,
}

/// A file with instructions or a skill.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// The absolute path.
    pub path: PathBuf,
    /// The hash of the file.
    pub hash: String,
    /// The size in bytes.
    pub bytes: usize,
    /// The kind of the file.
    pub kind: FoundKind,
    /// `true` if it is in a folder of the user, whose files need no confirmation.
    pub is_of_user: bool,
    /// `true` if it is used.
    pub is_confirmed: bool,
}

/// The kind of a [`FoundFile`].
#[derive(Clone, Debug)]
pub enum FoundKind {
    /// Instructions for the whole folder, with their text.
    Instructions(String),
    /// Instructions of a folder below, which count once a tool touches a path there, with their text.
    Nested(String),
    /// A skill.
    Skill(Skill),
}

impl fmt::Debug for FolderInstructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, user, .. } = self;
        f.debug_struct("FolderInstructions")
            .field("folder", folder)
            .field("user", user)
            .finish_non_exhaustive()
    }
}

impl FolderInstructions {
    /// Creates a reader for a folder. `trusts` returns whether the user confirmed the file at an absolute path with this hash.
    ///
    /// # Errors
    /// The folder does not exist.
    pub fn new(
        folder: impl AsRef<Path>,
        trusts: impl Fn(&Path, &str) -> bool + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let folder = folder.as_ref().canonicalize()?;
        Ok(Self { folder, user: UserFolders::default(), trusts: Arc::new(trusts) })
    }

    /// Adds the files of a user, which need no confirmation.
    #[must_use]
    pub fn with_user(self, user: UserFolders) -> Self {
        Self { user, ..self }
    }

    /// Returns the files for the whole folder, and skills, without those of folders below. Reads them from the disk.
    pub fn found(&self) -> FoundFiles {
        let mut found = FoundFiles::default();
        let of_user = self.user.config.iter().map(|folder| (folder.clone(), true));
        for (folder, is_of_user) in of_user.chain(self.folders().into_iter().map(|folder| (folder, false))) {
            self.add_instructions(&folder, is_of_user, FoundKind::Instructions, &mut found);
        }
        self.add_skills(&mut found);
        found
    }

    /// Returns the files of [`found`](Self::found), and the instructions of folders below, except for those that git ignores.
    pub fn found_with_nested(&self) -> FoundFiles {
        let mut found = self.found();
        let walk = WalkBuilder::new(&self.folder).follow_links(false).require_git(false).build();
        let folders = walk
            .flatten()
            .take(MAX_WALKED)
            .filter(|entry| entry.depth() > 0 && entry.file_type().is_some_and(|kind| kind.is_dir()));
        let mut folders: Vec<_> = folders.map(|entry| entry.into_path()).collect();
        folders.sort();
        for folder in folders {
            self.add_instructions(&folder, false, FoundKind::Nested, &mut found);
        }
        found
    }

    /// Returns the folders whose instructions count for the whole folder, the outermost first.
    fn folders(&self) -> Vec<PathBuf> {
        let is_root = |folder: &&Path| fs::symlink_metadata(folder.join(".git")).is_ok();
        let Some(root) = self.folder.ancestors().find(is_root) else { return vec![self.folder.clone()] };
        let mut folders: Vec<_> =
            self.folder.ancestors().take_while(|folder| folder.starts_with(root)).collect();
        folders.reverse();
        folders.into_iter().map(Path::to_owned).collect()
    }

    fn add_instructions(
        &self,
        folder: &Path,
        is_of_user: bool,
        kind: fn(String) -> FoundKind,
        found: &mut FoundFiles,
    ) {
        for name in NAMES {
            let path = folder.join(name);
            match read(&path) {
                Ok(None) => continue,
                Ok(Some(file)) if file.text.trim().is_empty() => continue,
                Ok(Some(file)) if path.to_str().is_some() => {
                    let is_confirmed = is_of_user || (self.trusts)(&path, &file.hash);
                    let (bytes, hash) = (file.text.len(), file.hash);
                    let kind = kind(file.text);
                    found.files.push(FoundFile { path, hash, bytes, kind, is_of_user, is_confirmed });
                }
                Ok(Some(_)) => found.problems.push(FileProblem {
                    path: path.to_string_lossy().into_owned(),
                    problem: "has a path that is not UTF-8".to_owned(),
                }),
                Err(problem) => found.problems.push(problem),
            }
            return;
        }
    }

    fn add_skills(&self, found: &mut FoundFiles) {
        let of_user = [
            self.user.config.as_ref().map(|folder| folder.join(SKILLS_OF_CONFIG)),
            self.user.home.as_ref().map(|folder| folder.join(SKILLS_OF_HOME)),
        ];
        let of_user: Vec<_> =
            of_user.into_iter().flatten().filter_map(|root| root.canonicalize().ok()).collect();
        let of_folder =
            SKILLS_OF_FOLDER.iter().filter(|below| is_plain_folder(&self.folder, Path::new(below)));
        let of_folder = of_folder.map(|below| self.folder.join(below)).filter(|root| !of_user.contains(root));
        let roots: Vec<_> = of_folder
            .map(|root| (root, false))
            .chain(of_user.iter().cloned().map(|root| (root, true)))
            .collect();
        let mut used: Vec<(String, String)> = Vec::new();
        let mut count = 0;
        for (root, is_of_user) in roots {
            for (skill, bytes) in skills::skills(&root, &mut found.problems) {
                let path = skill.path.clone();
                let wrong = |problem| FileProblem { path: path.clone(), problem };
                count += 1;
                if count > MAX_SKILLS {
                    let problem = format!("is not used: there are more than {MAX_SKILLS} skills");
                    found.problems.push(wrong(problem));
                    return;
                }
                let mut is_confirmed = is_of_user || (self.trusts)(Path::new(&path), &skill.hash);
                if is_confirmed {
                    match used.iter().find(|(name, _)| *name == skill.name) {
                        Some((name, other)) => {
                            found
                                .problems
                                .push(wrong(format!("is not used: `{name}` is also the name of {other}")));
                            is_confirmed = false;
                        }
                        None => used.push((skill.name.clone(), path.clone())),
                    }
                    if !is_confirmed {
                        continue;
                    }
                }
                let (path, hash) = (PathBuf::from(&path), skill.hash.clone());
                let kind = FoundKind::Skill(skill);
                found.files.push(FoundFile { path, hash, bytes, kind, is_of_user, is_confirmed });
            }
        }
    }

    /// Returns the instructions of the folders on the way to these paths.
    fn found_on_way(&self, paths: &[String]) -> FoundFiles {
        let mut folders: Vec<PathBuf> = Vec::new();
        for path in paths.iter().take(MAX_PATHS) {
            let Ok(below) = Path::new(path).strip_prefix(&self.folder) else { continue };
            let mut folder = self.folder.clone();
            for part in below.components() {
                let Component::Normal(part) = part else { break };
                folder.push(part);
                // A link leads to another folder, and `.git` is not a place of work.
                if part == ".git" || !fs::symlink_metadata(&folder).is_ok_and(|there| there.is_dir()) {
                    break;
                }
                if folders.len() < MAX_PATHS && !folders.contains(&folder) {
                    folders.push(folder.clone());
                }
            }
        }
        folders.sort();
        let mut found = FoundFiles::default();
        for folder in folders {
            self.add_instructions(&folder, false, FoundKind::Nested, &mut found);
        }
        found
    }

    fn skill_of(&self, name: &str) -> Result<SkillText, SkillError> {
        let skill =
            self.found().files.into_iter().filter(|file| file.is_confirmed).find_map(|file| {
                match file.kind {
                    FoundKind::Skill(skill) if skill.name == name => Some(skill),
                    _ => None,
                }
            });
        skills::text(&skill.ok_or_else(|| {
            SkillError(format!("there is no skill `{name}`, or it was changed since its user confirmed it"))
        })?)
    }
}

impl From<FoundFiles> for Loaded {
    /// Takes the files that the user has confirmed.
    fn from(found: FoundFiles) -> Self {
        let mut loaded = Self { problems: found.problems, ..Self::default() };
        for FoundFile { path, hash, kind, is_confirmed, .. } in found.files {
            let path = path.to_string_lossy().into_owned();
            match kind {
                _ if !is_confirmed => loaded.unconfirmed.push(path),
                FoundKind::Instructions(text) | FoundKind::Nested(text) => {
                    loaded.files.push(InstructionFile { path, text, hash });
                }
                FoundKind::Skill(skill) => loaded.skills.push(skill),
            }
        }
        loaded
    }
}

impl Instructions for FolderInstructions {
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Instructions>>> {
        Ok(Some(Arc::new(Self { folder: folder.canonicalize()?, ..self.clone() })))
    }

    fn load(&self) -> InstructionsFuture<'_, Loaded> {
        let files = self.clone();
        Box::pin(async move { spawn_blocking(move || files.found().into()).await.unwrap_or_default() })
    }

    fn nested<'a>(&'a self, paths: &'a [String]) -> InstructionsFuture<'a, Loaded> {
        let (files, paths) = (self.clone(), paths.to_vec());
        let read = spawn_blocking(move || files.found_on_way(&paths).into());
        Box::pin(async move { read.await.unwrap_or_default() })
    }

    fn skill<'a>(&'a self, name: &'a str) -> InstructionsFuture<'a, Result<SkillText, SkillError>> {
        let (files, name) = (self.clone(), name.to_owned());
        Box::pin(async move {
            let read = spawn_blocking(move || files.skill_of(&name)).await;
            read.unwrap_or_else(|_| Err(SkillError("the skill cannot be read".to_owned())))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A folder `repo/here` in a repository, a user's folders beside it, and the confirmed files.
    struct Place {
        dir: tempfile::TempDir,
        confirmed: Arc<Mutex<Vec<PathBuf>>>,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let place = Self { dir, confirmed: Arc::default() };
            for folder in ["repo/.git", "repo/here/below/deep", "config", "home"] {
                fs::create_dir_all(place.at(folder)).unwrap();
            }
            place
        }

        fn at(&self, path: &str) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            fs::write(self.at(path), text).unwrap();
        }

        fn skill(&self, root: &str, name: &str, about: &str) {
            self.write(
                &format!("{root}/{name}/SKILL.md"),
                &format!("---\nname: {name}\ndescription: {about}\n---\nDo {about}."),
            );
        }

        fn confirm(&self, path: &str) {
            self.confirmed.lock().unwrap().push(self.at(path));
        }

        fn reader(&self) -> FolderInstructions {
            let confirmed = self.confirmed.clone();
            let reader = FolderInstructions::new(self.at("repo/here"), move |path, hash| {
                hash.len() == 64 && confirmed.lock().unwrap().iter().any(|known| path.starts_with(known))
            });
            let user = UserFolders { config: Some(self.at("config")), home: Some(self.at("home")) };
            reader.unwrap().with_user(user)
        }

        fn loaded(&self) -> Loaded {
            self.reader().found().into()
        }
    }

    fn texts(loaded: &Loaded) -> Vec<&str> {
        loaded.files.iter().map(|file| file.text.as_str()).collect()
    }

    #[test]
    fn instructions_are_those_of_the_user_and_from_the_root_of_the_repository_down() {
        let place = Place::new();
        place.write("AGENTS.md", "outside");
        for (path, text) in
            [("config", "user"), ("repo", "root"), ("repo/here", "here"), ("repo/here/below", "below")]
        {
            place.write(&format!("{path}/AGENTS.md"), text);
        }
        let unconfirmed = place.loaded();
        assert_eq!((texts(&unconfirmed), unconfirmed.unconfirmed.len()), (vec!["user"], 2));
        place.confirm("repo");
        assert_eq!(texts(&place.loaded()), ["user", "root", "here"]);
        place.write("repo/here/AGENTS.override.md", "mine");
        assert_eq!(texts(&place.loaded()), ["user", "root", "mine"]);
        let all = place.reader().found_with_nested();
        assert!(
            all.files.iter().any(|file| matches!(&file.kind, FoundKind::Nested(text) if text == "below"))
        );
        fs::remove_dir(place.at("repo/.git")).unwrap();
        assert_eq!(texts(&place.loaded()), ["user", "mine"], "without a repository of the folder only");
    }

    #[tokio::test]
    async fn nested_files_are_found_on_the_way_to_a_path() {
        let place = Place::new();
        place.confirm("repo");
        place.write("repo/here/AGENTS.md", "here");
        place.write("repo/here/below/AGENTS.md", "below");
        place.write("repo/here/below/deep/AGENTS.md", "deep");
        let reader = place.reader();
        let nested = async |path: &str| {
            let paths = [place.at(path).to_string_lossy().into_owned()];
            reader.nested(&paths).await.files.into_iter().map(|file| file.text).collect::<Vec<_>>()
        };
        assert_eq!(nested("repo/here/below/deep/new/file.rs").await, ["below", "deep"]);
        assert_eq!(nested("repo/here/below").await, ["below"]);
        for path in ["repo/here/file.rs", "repo/below", "/etc/passwd", "repo/here/below/../below/deep"] {
            let found = nested(path).await;
            assert!(found.is_empty() || path.contains(".."), "{path}: {found:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_long_files_and_other_bytes_are_problems() {
        use std::os::unix::fs::symlink;
        let place = Place::new();
        place.confirm("repo");
        let problem = |place: &Place| {
            let loaded = place.loaded();
            assert!(loaded.files.is_empty(), "{loaded:?}");
            loaded.problems.into_iter().map(|wrong| wrong.problem).collect::<Vec<_>>()
        };
        let file = place.at("repo/here/AGENTS.md");
        place.write("secret", "secret");
        symlink(place.at("secret"), &file).unwrap();
        assert_eq!(problem(&place), ["is a link, and links are not followed"]);
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        assert_eq!(problem(&place), ["is not a regular file"]);
        fs::remove_file(&file).unwrap();
        fs::write(&file, b"a\xff").unwrap();
        assert_eq!(problem(&place), ["is not UTF-8 text"]);
        fs::write(&file, "x".repeat((256 << 10) + 1)).unwrap();
        assert_eq!(problem(&place), ["is longer than 256 KiB"]);
        fs::remove_file(&file).unwrap();
        place.skill("elsewhere", "a", "a");
        symlink(place.at("elsewhere"), place.at("repo/here/.agents")).unwrap();
        fs::create_dir_all(place.at("repo/here/.superstep/skills")).unwrap();
        symlink(place.at("elsewhere/a"), place.at("repo/here/.superstep/skills/a")).unwrap();
        assert_eq!(problem(&place), ["is behind a link, and links are not followed"]);
        assert!(place.loaded().skills.is_empty());
    }

    #[test]
    fn the_folders_skills_come_first_once_they_are_confirmed() {
        let place = Place::new();
        place.skill("repo/here/.superstep/skills", "a", "first");
        place.skill("repo/here/.agents/skills", "a", "second");
        place.skill("config/skills", "a", "third");
        place.skill("home/.agents/skills", "b", "other");
        place.write("repo/here/.agents/skills/c/SKILL.md", "---\nname: &a c\n---\n");
        let about =
            |loaded: &Loaded| loaded.skills.iter().map(|skill| skill.description.clone()).collect::<Vec<_>>();
        let loaded = place.loaded();
        assert_eq!(
            (about(&loaded), loaded.unconfirmed.len()),
            (vec!["third".to_owned(), "other".to_owned()], 2)
        );
        place.confirm("repo");
        let loaded = place.loaded();
        assert_eq!(about(&loaded), ["first", "other"]);
        let problems: Vec<_> = loaded.problems.iter().map(|wrong| wrong.problem.as_str()).collect();
        assert_eq!(problems[0], "has an anchor in its front matter");
        assert!(
            problems[1].starts_with("is not used: `a` is also the name of ") && problems.len() == 3,
            "{problems:?}"
        );
    }

    #[tokio::test]
    async fn a_skill_is_read_with_the_names_of_its_files() {
        let place = Place::new();
        place.skill("repo/here/.agents/skills", "a", "it");
        for nth in 0..120 {
            place.write(&format!("repo/here/.agents/skills/a/scripts/{nth:03}.sh"), "");
        }
        let reader = place.reader();
        assert!(reader.skill("a").await.is_err(), "it is not confirmed");
        place.confirm("repo");
        let text = reader.skill("a").await.unwrap();
        assert_eq!((text.body.as_str(), text.files.len(), text.has_more), ("Do it.", 100, true));
        assert_eq!(text.files[0], "scripts/000.sh");
        let missing = reader.skill("../a").await.unwrap_err().to_string();
        assert!(missing.starts_with("there is no skill `../a`"), "{missing}");
    }
}
