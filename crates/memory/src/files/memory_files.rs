//! A memory in files that users can read and edit.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use superstep_graph::{convert::IntoShared, error::chain, store::Embed};
use superstep_llm::Message;
use superstep_tools::internal::{
    PATIENCE, ThreadFolders, hash_of, keep_names, lock, open_stored, patiently, private,
};

use dashmap::DashMap;
use superstep_agent::deps::{LongTermMemory, MemoryEntry, MemoryError, MemoryFuture};
use tokio::sync::Mutex;

use super::{
    bullets::{Bullet, Bullets, plain},
    ranking::{CachedEmbed, Ranking},
};
use crate::entry_texts::entry_texts;

/// Names of the file, of the lock beside it, and of the temporary file that replaces it.
const FILE: &str = "MEMORY.md";
const LOCK: &str = "MEMORY.md.lock";
const NEXT: &str = ".MEMORY.md.next";

/// Maximum size of a file in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// Stores memories in files: one `MEMORY.md` per user, each in its own folder.
///
/// ```text
/// # Memory
///
/// - remember that I like tea
/// - my cat is called Ada
/// ```
///
/// Each message is a bullet, verbatim except for empty lines. An existing text is not added again, so adding
/// twice stores one entry. Other content of the file is unchanged: users may edit it, and their paragraphs
/// are entries as well. An entry's id is derived from its text. A file is limited to 1 MiB; when it is full,
/// nothing is added until an entry is deleted.
///
/// A file is replaced atomically and by one program at a time, using a lock file beside it. A change made
/// without the lock is not overwritten, unless it happens at the moment of the replacement.
/// # Limits
/// No part of the path may be a symbolic link. This is checked before the file is opened; a
/// program that swaps a folder for a link at this moment can redirect the access to another `MEMORY.md`.
#[derive(Clone, Debug)]
pub struct MemoryFiles {
    folders: ThreadFolders,
    /// The users whose files this process is about to change.
    writers: Arc<DashMap<String, Arc<Mutex<()>>>>,
    ranking: Ranking,
}

impl MemoryFiles {
    /// Stores the files in `folder`, relative to `root`. The folder is created on the first write.
    ///
    /// # Errors
    /// `root` is missing, or `folder` is not a plain path below it.
    pub fn new(root: &Path, folder: impl AsRef<Path>) -> io::Result<Self> {
        let folders = ThreadFolders::new(root, folder.as_ref())?;
        Ok(Self { folders, writers: Arc::default(), ranking: Ranking::default() })
    }

    /// Finds entries by meaning as well as by words: see [`Query::Hybrid`](superstep_graph::store::Query::Hybrid).
    ///
    /// Vectors are not stored in the files: each text is embedded once in the life of this value and its clones, all
    /// entries of a user with the first search.
    #[must_use]
    pub fn with_embed(mut self, embed: impl IntoShared<dyn Embed>) -> Self {
        self.ranking.embed = Some(Arc::new(CachedEmbed::new(embed.into_shared())));
        self
    }

    /// Sets the minimum cosine, from -1 to 1, of an entry that has none of the words of a query;
    /// [`MIN_COSINE`](crate::MIN_COSINE) by default.
    #[must_use]
    pub fn min_cosine(mut self, at_least: f64) -> Self {
        self.ranking.at_least = at_least;
        self
    }

    /// Returns the path of a user's `MEMORY.md`, and creates its folder.
    ///
    /// # Errors
    /// An error of the file system; or there is a link in the path, or the name is too long.
    pub fn file_of(&self, user_id: &str) -> io::Result<PathBuf> {
        Ok(self.folders.make(&self.folders.of_user(user_id)?)?.join(FILE))
    }

    /// Returns the path of the lock for a user's file, in an existing folder.
    #[cfg(feature = "dream")]
    pub(crate) fn lock_of(&self, user_id: &str) -> io::Result<PathBuf> {
        Ok(self.file_of(user_id)?.with_file_name(LOCK))
    }

    /// Creates a user's file if it is missing or empty; `None` if another program holds it.
    #[cfg(feature = "dream")]
    pub(crate) fn begin(&self, user_id: &str) -> io::Result<Option<()>> {
        self.change(user_id, |before| {
            (before.trim().is_empty().then(|| super::bullets::EMPTY.to_owned()), ())
        })
    }

    /// Returns the folders of the users.
    #[cfg(feature = "dream")]
    pub(crate) fn folders(&self) -> &ThreadFolders {
        &self.folders
    }

    /// Reads a user's file; empty if there is none.
    fn read(&self, user_id: &str) -> io::Result<String> {
        match self.folders.check(&self.folders.of_user(user_id)?) {
            Ok(folder) => read(&folder.join(FILE)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// Replaces a user's file if `change` returns new content; `None` if another program holds it.
    fn change<T>(
        &self,
        user_id: &str,
        change: impl FnOnce(&str) -> (Option<String>, T),
    ) -> io::Result<Option<T>> {
        let path = self.file_of(user_id)?;
        let Some(_lock) = lock(&path.with_file_name(LOCK))? else { return Ok(None) };
        let before = read(&path)?;
        let (after, done) = change(&before);
        let Some(after) = after else { return Ok(Some(done)) };
        if after.len() as u64 > MAX_FILE_BYTES && after.len() > before.len() {
            return Err(io::Error::other(format!(
                "the memory is full: `{FILE}` would have more than {} MiB; delete some memories first",
                MAX_FILE_BYTES >> 20
            )));
        }
        let next = path.with_file_name(NEXT);
        write(&next, &after, &path)?;
        // Editors ignore the lock.
        if read(&path)? != before {
            return Ok(None);
        }
        fs::rename(&next, &path)?;
        keep_names(path.parent().unwrap_or(&path))?;
        Ok(Some(done))
    }

    fn add(&self, user_id: &str, texts: &[String]) -> io::Result<Option<Vec<MemoryEntry>>> {
        let add = |before: &str| {
            let mut file = before.to_owned();
            for text in texts {
                let bullets = Bullets::of(&file);
                if !bullets.entries().iter().any(|entry| entry.text == *text) {
                    file = bullets.with(text);
                }
            }
            (Some(file).filter(|file| file != before), ())
        };
        let done = if texts.is_empty() { Some(()) } else { self.change(user_id, add)? };
        Ok(done.map(|()| texts.iter().map(|text| entry(text.clone(), None)).collect()))
    }

    fn forget(&self, user_id: &str, id: &str) -> io::Result<Option<bool>> {
        if self.read(user_id)?.is_empty() {
            return Ok(Some(false));
        }
        self.change(user_id, |before| {
            let bullets = Bullets::of(before);
            // Users and models may have written it more than once.
            let mut found = bullets.entries();
            found.retain(|entry| hash_of(&entry.text) == id);
            let after = (!found.is_empty()).then(|| bullets.without(&found));
            (after, !found.is_empty())
        })
    }

    /// Changes a user's file when this process has finished its earlier changes. The wait for them has no limit, unlike the
    /// wait for another program.
    fn write<'a, T: Send + 'static>(
        &self,
        user_id: &str,
        work: impl Fn(&Self, &str) -> io::Result<Option<T>> + Clone + Send + 'static,
    ) -> MemoryFuture<'a, T> {
        let (files, user_id) = (self.clone(), user_id.to_owned());
        Box::pin(async move {
            let writer = files.writers.entry(user_id.clone()).or_default().clone();
            let done = {
                let _turn = writer.lock().await;
                files.work(&user_id, work).await
            };
            drop(writer);
            files.writers.remove_if(&user_id, |_, writer| Arc::strong_count(writer) == 1);
            done
        })
    }

    /// Runs an operation on a user's file on a blocking thread, as soon as no other program holds it.
    fn work<'a, T: Send + 'static>(
        &self,
        user_id: &str,
        work: impl Fn(&Self, &str) -> io::Result<Option<T>> + Clone + Send + 'static,
    ) -> MemoryFuture<'a, T> {
        let (files, user_id) = (self.clone(), user_id.to_owned());
        Box::pin(async move {
            let done = patiently(PATIENCE, move || work(&files, &user_id)).await;
            done.map_err(|error| MemoryError(format!("the memory cannot be read or written: {error}")))
        })
    }
}

impl LongTermMemory for MemoryFiles {
    fn add<'a>(
        &'a self,
        messages: Vec<Message>,
        user_id: &'a str,
        _: &'a str,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        match entry_texts(&messages) {
            Ok(texts) => {
                let texts: Vec<_> =
                    texts.iter().map(|text| plain(text)).filter(|text| !text.is_empty()).collect();
                self.write(user_id, move |files, user| files.add(user, &texts))
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        user_id: &'a str,
        limit: usize,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        let read = self.work(user_id, |files, user| files.read(user).map(|file| Some(entries(&file))));
        Box::pin(async move {
            let texts = read.await?.into_iter().map(|found| found.text).collect();
            let best = self.ranking.best(texts, query, limit).await;
            let best = best.map_err(|error| MemoryError(chain(&error)))?;
            Ok(best.into_iter().map(|(text, score)| entry(text, Some(score))).collect())
        })
    }

    fn list<'a>(&'a self, user_id: &'a str, limit: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        self.work(user_id, move |files, user| {
            let entries = entries(&files.read(user)?);
            Ok(Some(entries.into_iter().take(limit).map(|found| entry(found.text, None)).collect()))
        })
    }

    fn forget<'a>(&'a self, id: &'a str, user_id: &'a str) -> MemoryFuture<'a, bool> {
        let id = id.to_owned();
        self.write(user_id, move |files, user| files.forget(user, &id))
    }
}

/// Returns the entries of a file, each text once.
fn entries(file: &str) -> Vec<Bullet> {
    let mut seen = std::collections::BTreeSet::new();
    let mut entries = Bullets::of(file).entries();
    entries.retain(|entry| seen.insert(entry.text.clone()));
    entries
}

fn entry(text: String, score: Option<f64>) -> MemoryEntry {
    MemoryEntry { id: hash_of(&text), text, score }
}

/// Reads a file; empty if there is none.
fn read(path: &Path) -> io::Result<String> {
    let file = match open_stored(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!(
            "`{FILE}` has more than {} MiB; make it shorter",
            MAX_FILE_BYTES >> 20
        )));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other(format!("`{FILE}` is not valid UTF-8")))
}

/// Writes a complete new file with the permissions of the file that it will replace.
fn write(next: &Path, text: &str, of: &Path) -> io::Result<()> {
    // Left by a killed program.
    match fs::remove_file(next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private().write(true).create_new(true).open(next)?;
    if let Ok(there) = fs::symlink_metadata(of) {
        file.set_permissions(there.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, MemoryFiles) {
        let dir = tempfile::tempdir().unwrap();
        let files = MemoryFiles::new(dir.path(), "memory").unwrap();
        (dir, files)
    }

    fn add(files: &MemoryFiles, user: &str, text: &str) -> io::Result<Vec<MemoryEntry>> {
        Ok(files.add(user, &[plain(text)])?.expect("nobody else has the file"))
    }

    #[test]
    fn a_file_has_plain_readable_form() {
        let (dir, files) = files();
        add(&files, "ada", "I like tea").unwrap();
        add(&files, "ada", "two\n\n lines").unwrap();
        add(&files, "ada", "I like tea").unwrap();
        let path = dir.path().canonicalize().unwrap().join("memory/ada/MEMORY.md");
        assert_eq!(fs::read_to_string(&path).unwrap(), "# Memory\n\n- I like tea\n- two\n  lines\n");
        assert_eq!(files.file_of("ada").unwrap(), path);
        fs::write(&path, "# Mine\n\nTea, green if there is any.\n\n- cats\n").unwrap();
        add(&files, "ada", "dogs").unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "# Mine\n\nTea, green if there is any.\n\n- cats\n- dogs\n"
        );
        assert_eq!(entries(&files.read("ada").unwrap())[0].text, "Tea, green if there is any.");
    }

    #[test]
    fn names_of_users_cannot_leave_the_folder_and_do_not_meet() {
        let (dir, files) = files();
        let names =
            ["..", "../x", "/etc", "", ".", "a/b", "A", "a", "a.", "a b", "a\0b", "é", "%", "%61", "con"];
        let mut paths = std::collections::BTreeSet::new();
        let root = dir.path().canonicalize().unwrap().join("memory");
        for name in names {
            add(&files, name, "text").unwrap();
            let path = files.file_of(name).unwrap();
            assert_eq!(path.parent().unwrap().parent().unwrap(), root, "{name}");
            assert!(paths.insert(path.to_str().unwrap().to_lowercase()), "{name}");
        }
        let error = add(&files, &"é".repeat(201), "text").unwrap_err();
        assert_eq!(error.to_string(), "the name of the user is too long for a folder: 402 bytes");
        for folder in ["../x", "/x", "a/../.."] {
            assert!(MemoryFiles::new(dir.path(), folder).is_err(), "{folder}");
        }
    }

    #[test]
    fn forgotten_entries_are_removed_everywhere() {
        let (_dir, files) = files();
        let path = files.file_of("u").unwrap();
        fs::write(&path, "# Memory\n\n- tea\n- cats\n\n## More\n\n* tea\n- dogs\n\ntea\n").unwrap();
        assert_eq!(files.forget("u", &hash_of("tea")).unwrap(), Some(true));
        assert_eq!(fs::read_to_string(&path).unwrap(), "# Memory\n\n- cats\n\n## More\n\n- dogs\n\n");
        assert_eq!(files.forget("u", &hash_of("tea")).unwrap(), Some(false));
    }

    #[test]
    fn long_names_of_users_have_folders_of_their_own() {
        let (dir, files) = files();
        let long = "x".repeat(240);
        let names = [&long, &format!("{long}y"), &format!("{long}%%y"), &"茶".repeat(27), &"é".repeat(200)];
        for name in names {
            add(&files, name, name).unwrap();
        }
        for name in names {
            assert_eq!(entries(&files.read(name).unwrap()).len(), 1, "{name}");
            assert!(files.folders.of_user(name).unwrap().iter().all(|part| part.len() < 255), "{name}");
        }
        assert!(dir.path().join("memory").join(format!("{long}%%")).join("y").join(FILE).exists());
    }

    #[test]
    fn too_much_memory_is_rejected_and_can_be_reduced() {
        let (_dir, files) = files();
        let path = files.file_of("u").unwrap();
        let most = usize::try_from(MAX_FILE_BYTES).unwrap();
        fs::write(&path, format!("- tea\n- {}\n", "x".repeat(most - 20))).unwrap();
        let error = add(&files, "u", "much more than that").unwrap_err().to_string();
        assert!(error.starts_with("the memory is full: `MEMORY.md` would have more than 1 MiB"), "{error}");
        assert_eq!(files.forget("u", &hash_of("tea")).unwrap(), Some(true));
        assert_eq!(files.forget("u", &hash_of("tea")).unwrap(), Some(false));
        fs::write(&path, "x".repeat(most + 1)).unwrap();
        let error = files.read("u").unwrap_err().to_string();
        assert_eq!(error, "`MEMORY.md` has more than 1 MiB; make it shorter");
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(add(&files, "u", "x").unwrap_err().to_string(), "`MEMORY.md` is not valid UTF-8");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_programs_lose_nothing() {
        let (dir, files) = files();
        let programs = (0..8).map(|nth| {
            // Each has its own lock, like another program.
            let files = MemoryFiles::new(dir.path(), "memory").unwrap();
            tokio::spawn(async move {
                for at in 0..10 {
                    let messages = vec![Message::user(format!("{nth} {at}"))];
                    LongTermMemory::add(&files, messages, "u", "").await.unwrap();
                }
            })
        });
        for program in programs.collect::<Vec<_>>() {
            program.await.unwrap();
        }
        assert_eq!(entries(&files.read("u").unwrap()).len(), 80);
        let folder = files.file_of("u").unwrap();
        let left = fs::read_dir(folder.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        // Of two processes that create folders at the same time, each may hide its own.
        let left: std::collections::BTreeSet<_> = left.filter(|name| name != ".gitignore").collect();
        assert_eq!(left, [FILE, LOCK].map(Into::into).into());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_locked_by_another_program_is_an_error_after_a_timeout() {
        let (_dir, files) = files();
        let path = files.file_of("u").unwrap();
        let held = lock(&path.with_file_name(LOCK)).unwrap();
        let error = LongTermMemory::add(&files, vec![Message::user("tea")], "u", "").await.unwrap_err();
        let wanted = "the memory cannot be read or written: another process has had it for 5000 ms";
        assert_eq!(error.to_string(), wanted);
        drop(held);
        add(&files, "u", "tea").unwrap();
    }

    #[test]
    fn leftovers_of_a_killed_program_are_ignored() {
        let (_dir, files) = files();
        let path = files.file_of("u").unwrap();
        fs::write(path.with_file_name(NEXT), "half a fi").unwrap();
        fs::write(path.with_file_name(LOCK), "").unwrap();
        add(&files, "u", "tea").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "# Memory\n\n- tea\n");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let (dir, files) = files();
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("secret");
        fs::write(&target, "- secret\n").unwrap();
        for (user, name) in [("a", FILE), ("b", LOCK)] {
            let path = files.file_of(user).unwrap();
            symlink(&target, path.with_file_name(name)).unwrap();
            assert!(
                add(&files, user, "x").unwrap_err().to_string().ends_with("is not a regular file; remove it")
            );
        }
        assert!(files.read("a").is_err());
        symlink(elsewhere.path(), dir.path().join("memory/c")).unwrap();
        let error = add(&files, "c", "x").unwrap_err().to_string();
        assert_eq!(error, "there is a link in `memory/c`; remove it");
        assert_eq!(fs::read_to_string(&target).unwrap(), "- secret\n");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);

        add(&files, "d", "x").unwrap();
        let path = files.file_of("d").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        add(&files, "d", "y").unwrap();
        assert_eq!(mode(&path), 0o640);
    }
}
