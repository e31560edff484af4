//! The instructions and skills of a folder and of its user.

use std::{
    fmt, fs, io,
    panic::resume_unwind,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use ignore::WalkBuilder;
use superstep_llm::instructions::{
    FileProblem, InstructionFile, Instructions, InstructionsFuture, Loaded, Skill, SkillError, SkillText,
};
use tokio::task::{JoinError, spawn_blocking};

use super::{
    read::{is_plain_folder, read},
    skills,
};

/// The names of files with instructions; the first one that can be used counts.
const NAMES: [&str; 2] = ["AGENTS.override.md", "AGENTS.md"];

/// The folders of skills below the agent's folder, and those below the user's.
const SKILLS_OF_FOLDER: [&str; 2] = [".superstep/skills", ".agents/skills"];
const SKILLS_OF_CONFIG: &str = "skills";
const SKILLS_OF_HOME: &str = ".agents/skills";

/// Maximum number of skills that count, and of those that do not.
const MAX_SKILLS: usize = 200;

/// Maximum number of paths and folders of one call of [`Instructions::nested`].
const MAX_PATHS: usize = 256;

/// Maximum size in bytes of the files of one call of [`Instructions::nested`].
const MAX_NESTED_BYTES: usize = 1 << 20;

/// Maximum number of folders below the agent's folder that are searched for further files.
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
    /// Instructions with their text, which is empty unless they are used.
    Instructions(String),
    /// Instructions of a folder below, which are read once a tool touches a path there.
    Nested,
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
            self.add_instructions(&folder, is_of_user, &mut found);
        }
        self.add_skills(&mut found);
        found
    }

    /// Returns the files of [`found`](Self::found), and the instructions of folders below.
    pub fn found_with_nested(&self) -> FoundFiles {
        let mut found = self.found();
        let mut walk = WalkBuilder::new(&self.folder);
        walk.standard_filters(false).follow_links(false).sort_by_file_name(Ord::cmp);
        let walk = walk.filter_entry(|entry| {
            entry.file_name() != ".git" && entry.file_type().is_some_and(|kind| kind.is_dir())
        });
        let folders = walk.build().flatten().filter(|entry| entry.depth() > 0);
        for (nth, folder) in folders.enumerate() {
            if nth == MAX_WALKED {
                let problem =
                    format!("has more than {MAX_WALKED} folders, and this and later ones are not searched");
                let path = folder.path().to_string_lossy().into_owned();
                found.problems.push(FileProblem { path, problem });
                break;
            }
            let first = found.files.len();
            self.add_instructions(folder.path(), false, &mut found);
            found.files[first..].iter_mut().for_each(|file| file.kind = FoundKind::Nested);
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

    /// Adds the instructions of one folder. A file that cannot be used does not hide the next one.
    fn add_instructions(&self, folder: &Path, is_of_user: bool, found: &mut FoundFiles) {
        for name in NAMES {
            let path = folder.join(name);
            match read(&path) {
                Ok(None) => continue,
                Ok(Some(file)) if file.text.trim().is_empty() => continue,
                Ok(Some(file)) if path.to_str().is_some() => {
                    let is_confirmed = is_of_user || (self.trusts)(&path, &file.hash);
                    let (bytes, hash) = (file.text.len(), file.hash);
                    let kind = FoundKind::Instructions(if is_confirmed { file.text } else { String::new() });
                    found.files.push(FoundFile { path, hash, bytes, kind, is_of_user, is_confirmed });
                    if is_confirmed {
                        return;
                    }
                }
                Ok(Some(_)) => found.problems.push(FileProblem {
                    path: path.to_string_lossy().into_owned(),
                    problem: "has a path that is not UTF-8".to_owned(),
                }),
                Err(problem) => found.problems.push(problem),
            }
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
        // Those that the user has not confirmed take no room from the others.
        let mut counts = [0; 2];
        for (root, is_of_user) in roots {
            for (skill, bytes) in skills::skills(&root, &mut found.problems) {
                let path = skill.path.clone();
                let wrong = |problem| FileProblem { path: path.clone(), problem };
                let is_confirmed = is_of_user || (self.trusts)(Path::new(&path), &skill.hash);
                let count = &mut counts[usize::from(is_confirmed)];
                *count += 1;
                if *count > MAX_SKILLS {
                    if *count == MAX_SKILLS + 1 {
                        let problem = format!("is not used: there are more than {MAX_SKILLS} skills");
                        found.problems.push(wrong(problem));
                    }
                    continue;
                }
                if is_confirmed {
                    if let Some((name, other)) = used.iter().find(|(name, _)| *name == skill.name) {
                        let problem = format!("is not used: `{name}` is also the name of {other}");
                        found.problems.push(wrong(problem));
                        continue;
                    }
                    used.push((skill.name.clone(), path.clone()));
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
                let is_place = match fs::symlink_metadata(&folder) {
                    Ok(there) => there.is_dir(),
                    // The file is reported as one that cannot be read.
                    Err(cause) => cause.kind() == io::ErrorKind::PermissionDenied,
                };
                if part == ".git" || !is_place {
                    break;
                }
                if folders.len() < MAX_PATHS && !folders.contains(&folder) {
                    folders.push(folder.clone());
                }
            }
        }
        folders.sort();
        let mut found = FoundFiles::default();
        let mut bytes = 0;
        for folder in folders {
            if bytes < MAX_NESTED_BYTES {
                let first = found.files.len();
                self.add_instructions(&folder, false, &mut found);
                let used = found.files[first..].iter().filter(|file| file.is_confirmed);
                bytes += used.map(|file| file.bytes).sum::<usize>();
                continue;
            }
            let there = NAMES.map(|name| folder.join(name)).into_iter().filter(|path| path.exists());
            found.problems.extend(there.map(|path| FileProblem {
                path: path.to_string_lossy().into_owned(),
                problem: "is not read: the files of the folders below have more than 1 MiB".to_owned(),
            }));
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
    /// Takes the files that the user has confirmed, without [`FoundKind::Nested`].
    fn from(found: FoundFiles) -> Self {
        let mut loaded = Self { problems: found.problems, ..Self::default() };
        for FoundFile { path, hash, kind, is_confirmed, .. } in found.files {
            let path = path.to_string_lossy().into_owned();
            match kind {
                _ if !is_confirmed => loaded.unconfirmed.push(path),
                FoundKind::Instructions(text) => loaded.files.push(InstructionFile { path, text, hash }),
                FoundKind::Nested => {}
                FoundKind::Skill(skill) => loaded.skills.push(skill),
            }
        }
        loaded
    }
}

/// Returns what a task has read. Its panic goes on here.
fn finished<T>(task: Result<T, JoinError>) -> T {
    task.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

impl Instructions for FolderInstructions {
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Instructions>>> {
        Ok(Some(Arc::new(Self { folder: folder.canonicalize()?, ..self.clone() })))
    }

    fn load(&self) -> InstructionsFuture<'_, Loaded> {
        let files = self.clone();
        Box::pin(async move { finished(spawn_blocking(move || files.found().into()).await) })
    }

    fn nested<'a>(&'a self, paths: &'a [String]) -> InstructionsFuture<'a, Loaded> {
        let (files, paths) = (self.clone(), paths.to_vec());
        let read = spawn_blocking(move || files.found_on_way(&paths).into());
        Box::pin(async move { finished(read.await) })
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

    #[test]
    fn all_files_below_are_listed_without_their_texts() {
        let place = Place::new();
        place.write("repo/here/.gitignore", "out/");
        place.write("repo/here/.ignore", "*");
        for folder in ["below", ".github", "out/deep", ".git"] {
            place.write(&format!("repo/here/{folder}/AGENTS.md"), "below");
        }
        let found = place.reader().found_with_nested();
        let nested = found.files.iter().filter(|file| matches!(file.kind, FoundKind::Nested));
        let paths: Vec<_> =
            nested.map(|file| file.path.strip_prefix(place.at("repo/here")).unwrap()).collect();
        let wanted = [".github/AGENTS.md", "below/AGENTS.md", "out/deep/AGENTS.md"];
        assert_eq!(paths, wanted.map(Path::new));
        assert!(found.problems.is_empty(), "{:?}", found.problems);
    }

    #[tokio::test]
    async fn files_below_have_a_bound_together() {
        let place = Place::new();
        place.confirm("repo");
        for nth in 0..6 {
            place.write(&format!("repo/here/b{nth}/AGENTS.md"), &"x".repeat(256 << 10));
        }
        let paths: Vec<_> = (0..6)
            .map(|nth| place.at(&format!("repo/here/b{nth}/f")).to_string_lossy().into_owned())
            .collect();
        let loaded = place.reader().nested(&paths).await;
        assert_eq!((loaded.files.len(), loaded.problems.len()), (4, 2));
        assert!(loaded.problems[0].path.ends_with("b4/AGENTS.md"), "{:?}", loaded.problems);
    }

    #[test]
    fn a_file_that_cannot_be_used_hides_no_other_one() {
        let place = Place::new();
        place.write("repo/here/AGENTS.md", "mine");
        place.confirm("repo/here/AGENTS.md");
        place.write("repo/here/AGENTS.override.md", "theirs");
        let loaded = place.loaded();
        assert_eq!((texts(&loaded), loaded.unconfirmed.len()), (vec!["mine"], 1));
        fs::write(place.at("repo/here/AGENTS.override.md"), b"\xff").unwrap();
        let loaded = place.loaded();
        assert_eq!((texts(&loaded), loaded.problems.len()), (vec!["mine"], 1));
    }

    #[test]
    fn skills_that_do_not_count_take_no_room() {
        let place = Place::new();
        for nth in 0..=MAX_SKILLS {
            place.skill("repo/here/.agents/skills", &format!("s-{nth}"), "theirs");
        }
        place.skill("home/.agents/skills", "mine", "mine");
        let loaded = place.loaded();
        assert_eq!((loaded.skills.len(), loaded.unconfirmed.len()), (1, MAX_SKILLS));
        assert_eq!(loaded.problems[0].problem, "is not used: there are more than 200 skills");
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
        place.write("repo/here/.agents/skills/a/a: read me first", "");
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
