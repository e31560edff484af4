//! The user's decisions on this machine, stored outside of the databases that they apply to.
//!
//! A database may come from another person, for example in a repository, and could claim that everything was
//! permitted. Therefore a database alone is not trusted. A thread's settings, its granted rules and the
//! answers to its questions are compared with a file in the user's state folder, one for each thread of each
//! database.
//!
//! ```text
//! $SUPERSTEP_STATE_DIR, or $XDG_STATE_HOME/superstep, or ~/.local/state/superstep
//! └── threads/HASH.json       HASH: of the database's path, or of the identity in a server's schema, and the thread's name
//! ```
//!
//! The decisions about a thread on a server belong to its database under one name of the server: another server may have a copy of the
//! database. That a thread is from a file is known under every name.
//!
//! Start at [`Decided`].

pub(crate) mod replayed;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep::{
    ThreadId,
    agent::{
        Approval,
        approval::{ApprovalRequest, StoredDecision, Trust},
        config::PermissionRule,
    },
    checkpoint::text,
};

use crate::{
    config::{
        anchor::Anchor,
        notes::Note,
        place::Db,
        private,
        settings::StoredSettings,
        state_folder::{self, OTHER_FOLDER},
    },
    error::{ErrorKind, SessionError},
    text::printable_line,
};

const MAX_FILE_BYTES: u64 = 1 << 20;

/// Maximum number of settings, grants and answers stored per thread, the newest ones.
const MAX_ENTRIES: usize = 256;

/// Stands for the interrupt of an answer in a live replay, whose own has another id.
const REPLAYED: &str = "";

/// The beginning of the name of a database on a server, before its identity.
const SERVER: &str = "postgres:";

/// The stored decisions about one thread. A promise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    database: String,
    /// The identity of the database file, because a copy has the same content, and another file may get its
    /// name; or the name of the server.
    file: String,
    thread: String,
    /// Hashes of the settings with which the user ran it.
    #[serde(default)]
    settings: Vec<String>,
    /// The folders in which the user ran it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    folders: Vec<String>,
    #[serde(default)]
    grants: Vec<PermissionRule>,
    /// Hashes of the user's answers to questions, with the questions as they were shown.
    #[serde(default)]
    answers: Vec<String>,
    /// The hashes of the tasks that used an answer, by that of the answer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    used: BTreeMap<String, String>,
    /// The starts of calls that answers permitted, each with the hash of its question's interrupt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    begun: Vec<String>,
    /// `true` if the thread is from a file, and the user has not trusted it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    imported: bool,
    /// The newest checkpoint after the user's last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anchor: Option<Anchor>,
    /// The session that a shell created, which may have no turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<Created>,
    /// The mode that the user chose last for the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// `true` if the anchor is of another file that had this name.
    #[serde(skip)]
    is_of_other_file: bool,
}

/// The creation of a session. A promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Created {
    /// UTC milliseconds.
    pub at_ms: i64,
    /// The folder of the tools.
    pub cwd: PathBuf,
}

impl Record {
    /// Changes it, and drops what is too old.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        if std::mem::take(&mut self.is_of_other_file) {
            self.anchor = None;
        }
        change(self);
        shorten(&mut self.settings);
        shorten(&mut self.folders);
        shorten(&mut self.grants);
        shorten(&mut self.answers);
        shorten(&mut self.begun);
        self.used.retain(|answer, _| self.answers.contains(answer));
    }
}

/// A change of a record, which has the same result if it is applied twice.
type Change = Box<dyn Fn(&mut Record) + Send>;

/// The user's decisions about one thread of one database.
///
/// Those of the command that runs the thread are stored once its run has [begun](Self::begins_run): a refused run changes nothing.
pub struct Decided {
    /// The file that stores them; `None` if there is no state folder, or the database is in memory.
    place: Option<PathBuf>,
    record: Mutex<Record>,
    /// The changes of `record` that are not in the file yet.
    staged: Mutex<Vec<Change>>,
    has_begun: AtomicBool,
    /// The file could not be read or written, so that the decisions since then are only here.
    is_apart: AtomicBool,
    ignored: Mutex<BTreeSet<String>>,
    /// The reasons why decisions are not in the file.
    unstored: Mutex<Vec<String>>,
}

impl Decided {
    /// Reads the decisions about a thread of a database.
    ///
    /// # Errors
    /// The file is damaged, or writable by others.
    pub fn about(database: &Db, thread: &str) -> Result<Arc<Self>, SessionError> {
        // A killed import leaves a thread that nothing was recorded about.
        let imported = text::is_unfinished(&ThreadId::from(thread));
        let Some((real, file)) = place_of(database)? else {
            let record = Record { thread: thread.to_owned(), imported, ..Record::default() };
            return Ok(Arc::new(Self::new(None, record)));
        };
        let place = state_folder::folder()
            .map(|folder| folder.join("threads").join(format!("{}.json", name(&real, thread))));
        let empty = Record {
            database: real.to_string_lossy().into_owned(),
            file,
            thread: thread.to_owned(),
            imported,
            ..Record::default()
        };
        let record = match &place {
            Some(place) => stored(place, &empty)?,
            None => empty,
        };
        Ok(Arc::new(Self::new(place, record)))
    }

    fn new(place: Option<PathBuf>, record: Record) -> Self {
        let [has_begun, is_apart] = [const { AtomicBool::new(false) }; 2];
        let (record, staged, ignored) = (Mutex::new(record), Mutex::default(), Mutex::default());
        let unstored = Mutex::default();
        Self { place, record, staged, has_begun, is_apart, ignored, unstored }
    }

    /// Stores the decisions of this command, whose run has begun.
    ///
    /// # Errors
    /// The file is damaged, or writable by others.
    pub fn begins_run(&self) -> Result<(), SessionError> {
        self.has_begun.store(true, Ordering::Relaxed);
        let is_stored = self.staged().is_empty();
        if is_stored { Ok(()) } else { self.change(|_| {}) }
    }

    fn staged(&self) -> MutexGuard<'_, Vec<Change>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the record here, and in the file with the next change there.
    fn stage(&self, change: impl Fn(&mut Record) + Send + 'static) {
        self.record().change(&change);
        self.staged().push(Box::new(change));
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the user ran the thread with these settings.
    pub fn knows(&self, settings: &StoredSettings) -> bool {
        self.record().settings.contains(&hash_of_settings(settings))
    }

    /// Records that the user runs the thread with these settings.
    pub(crate) fn runs_with(&self, settings: &StoredSettings) {
        let (hash, cwd) = (hash_of_settings(settings), settings.cwd.clone());
        let is_there = move |record: &Record| cwd.as_ref().is_none_or(|cwd| record.folders.contains(cwd));
        let is_known = |record: &Record| record.settings.last() == Some(&hash) && is_there(record);
        if is_known(&self.record()) {
            return;
        }
        let cwd = settings.cwd.clone();
        self.stage(move |record| {
            record.settings.retain(|known| *known != hash);
            record.settings.push(hash.clone());
            if !is_there(record) {
                record.folders.extend(cwd.clone());
            }
        });
    }

    /// Returns the folders in which the user ran the thread.
    pub fn folders(&self) -> Vec<String> {
        self.record().folders.clone()
    }

    /// Records the user's answers to the thread's waiting questions: the ids of the interrupts, with the questions as they were shown.
    /// A rule that an answer grants counts once a call [uses](Trust::is_decided) it.
    pub fn answered<'a>(
        &self,
        decisions: impl IntoIterator<Item = (&'a str, &'a ApprovalRequest, Approval)>,
    ) {
        let thread = self.record().thread.clone();
        let decisions: Vec<_> =
            decisions.into_iter().filter(|(.., decision)| decision.needs_trust()).collect();
        let replayed: Vec<String> = decisions
            .iter()
            .map(|(_, request, decision)| hash_of_answer(&thread, REPLAYED, request, decision))
            .collect();
        let (answers, interrupts): (Vec<String>, Vec<String>) = decisions
            .into_iter()
            .map(|(interrupt, request, decision)| {
                (hash_of_answer(&thread, interrupt, request, &decision), short_hash(interrupt))
            })
            .unzip();
        if answers.is_empty() {
            return;
        }
        self.stage(move |record| {
            record.answers.retain(|answer| !answers.contains(answer));
            record.used.retain(|answer, _| !answers.contains(answer));
            record.begun.retain(|start| !interrupts.iter().any(|interrupt| start.starts_with(&**interrupt)));
            record.answers.retain(|answer| !replayed.contains(answer));
            record.answers.extend(answers.iter().chain(&replayed).cloned());
        });
    }

    /// Uses an answer for the task at `position`, which may be the only one. Returns whether it is.
    fn uses(&self, answer: &str, position: &str, stored: &StoredDecision<'_>) -> bool {
        let mut is_first = false;
        let used = self.change(|record| {
            let first = record.used.entry(answer.to_owned()).or_insert_with(|| position.to_owned());
            is_first = first == position;
            let rule = stored.decision.rule(&stored.request.tool).filter(|_| is_first);
            let new = rule.filter(|rule| !record.grants.contains(rule));
            record.grants.extend(new);
        });
        used.is_ok() && is_first
    }

    /// Deletes the answers to calls that are about to be discarded, and returns the grants so far.
    pub fn discard(&self) -> Vec<PermissionRule> {
        let Record { grants, answers, .. } = self.record().clone();
        if !answers.is_empty() {
            self.stage(move |record| record.answers.retain(|answer| !answers.contains(answer)));
        }
        grants
    }

    /// Deletes grants made with a call that never ran, so that the thread does not have them, if the run has begun.
    pub(crate) fn keep_granted(
        &self,
        granted: &[PermissionRule],
        on_thread: &[PermissionRule],
    ) -> Result<(), SessionError> {
        let is_gone = |rule: &PermissionRule| granted.contains(rule) && !on_thread.contains(rule);
        if !self.has_begun.load(Ordering::Relaxed) || !granted.iter().any(is_gone) {
            return Ok(());
        }
        self.change(|record| record.grants.retain(|rule| !is_gone(rule)))
    }

    /// Deletes all decisions, because the thread was deleted.
    pub fn forget(&self) -> Result<(), SessionError> {
        let Some(place) = &self.place else { return Ok(()) };
        match fs::remove_file(place) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                let message =
                    format!("cannot remove `{}`, which stores your decisions: {cause}", place.display());
                Err(SessionError::new(ErrorKind::Database, message))
            }
            _ => Ok(()),
        }
    }

    /// Records that the user created a session with this thread.
    ///
    /// # Errors
    /// It cannot be stored.
    pub(crate) fn record_session(&self, created: Created) -> Result<(), SessionError> {
        self.store(|record| record.created = Some(created))
    }

    /// Returns the creation of the session with this thread, if a shell created it.
    pub(crate) fn session(&self) -> Option<Created> {
        self.record().created.clone()
    }

    /// Records the mode that the user chose for the session.
    ///
    /// # Errors
    /// It cannot be stored.
    pub(crate) fn record_mode(&self, mode: &str) -> Result<(), SessionError> {
        self.store(|record| record.mode = Some(mode.to_owned()))
    }

    /// Returns the mode that the user chose last for the session.
    pub(crate) fn mode(&self) -> Option<String> {
        self.record().mode.clone()
    }

    /// Returns whether the thread is from a file, and the user has not trusted it since.
    pub(crate) fn is_imported(&self) -> bool {
        self.record().imported
    }

    /// Replaces all decisions by the fact that the thread is from a file.
    ///
    /// # Errors
    /// It cannot be stored.
    pub fn imported(&self) -> Result<(), SessionError> {
        self.forget()?;
        self.store(|record| {
            let Record { database, file, thread, .. } = std::mem::take(record);
            *record = Record { database, file, thread, imported: true, ..Record::default() };
        })
    }

    /// Records that the user trusts the thread although it is from a file.
    pub fn trust(&self) {
        if self.is_imported() {
            self.stage(|record| record.imported = false);
        }
    }

    /// Records the same decisions for the user's copy of the thread.
    pub fn copy_to(&self, copy: &Self) -> Result<(), SessionError> {
        let Record { settings, folders, grants, .. } = self.record().clone();
        copy.change(|record| {
            (record.settings, record.grants) = (settings.clone(), grants.clone());
            record.folders.clone_from(&folders);
            record.answers.clear();
            record.used.clear();
            record.begun.clear();
            record.anchor = None;
        })
    }

    /// Returns the newest checkpoint after the user's last run, and whether the database is still the same file.
    pub(crate) fn anchor(&self) -> Option<(Anchor, bool)> {
        let record = self.record();
        record.anchor.clone().map(|anchor| (anchor, !record.is_of_other_file))
    }

    /// Records the newest checkpoint after a run.
    pub(crate) fn set_anchor(&self, anchor: Option<Anchor>) -> Result<(), SessionError> {
        self.store(|record| record.anchor = anchor)
    }

    /// Returns the threads of a database with such a checkpoint, by name.
    pub(super) fn anchored(database: &Db) -> Result<Vec<ThreadId>, SessionError> {
        Self::recorded(database, |record| record.anchor.map(|_| ThreadId::from(record.thread)))
    }

    /// Returns the sessions of a database that shells created, by thread.
    pub(crate) fn sessions(database: &Db) -> Result<Vec<(ThreadId, Created)>, SessionError> {
        Self::recorded(database, |record| Some((record.thread.into(), record.created?)))
    }

    /// Returns what the records about a database have, in order.
    fn recorded<T: Ord>(database: &Db, found: impl Fn(Record) -> Option<T>) -> Result<Vec<T>, SessionError> {
        let Some((database, _)) = place_of(database)? else { return Ok(Vec::new()) };
        let database = database.to_string_lossy().into_owned();
        let mut all: Vec<_> =
            records().filter(|record| record.database == database).filter_map(found).collect();
        all.sort_unstable();
        Ok(all)
    }

    /// Returns the folders in which the user ran or created threads, in order.
    pub(crate) fn folders_of_all() -> BTreeSet<PathBuf> {
        let folders = records().flat_map(|record| {
            let created = record.created.map(|created| created.cwd);
            created.into_iter().chain(record.folders.into_iter().map(PathBuf::from))
        });
        folders.filter(|folder| folder.is_dir()).collect()
    }

    /// Takes the notes since the last call: database settings that were ignored, and decisions that could not be stored.
    pub(crate) fn take_notes(&self) -> Vec<Note> {
        let Record { database, thread, .. } = self.record().clone();
        let ignored = std::mem::take(&mut *self.ignored.lock().unwrap_or_else(PoisonError::into_inner));
        let unstored = std::mem::take(&mut *self.unstored.lock().unwrap_or_else(PoisonError::into_inner));
        let ignored =
            ignored.into_iter().map(|text| Note::new(&["rule", &database, &thread, &text], text.clone()));
        ignored.chain(unstored.into_iter().map(Note::always)).collect()
    }

    /// Changes the record here and, if possible, in the file.
    fn change(&self, change: impl FnOnce(&mut Record)) -> Result<(), SessionError> {
        match self.store(change) {
            // The run continues, and new decisions apply to it.
            Err(SessionError { kind: ErrorKind::Failed, message }) => {
                self.unstored.lock().unwrap_or_else(PoisonError::into_inner).push(message);
                Ok(())
            }
            stored => stored,
        }
    }

    /// Changes the record in the file, which another process may have changed since, and takes it from there. Once the file cannot
    /// be read or written, the record here is changed only.
    fn store(&self, change: impl FnOnce(&mut Record)) -> Result<(), SessionError> {
        let mut record = self.record();
        let there = self.place.as_deref().map(|place| Ok((place, self.locked(place, &record)?))).transpose();
        if let Ok(Some((_, (_, there)))) = &there {
            record.clone_from(there);
        }
        for staged in self.staged().drain(..) {
            record.change(staged);
        }
        record.change(change);
        let stored = there.and_then(|there| match there {
            Some((place, (_lock, _))) => write(place, &record).map_err(|cause| unstored(place, &cause)),
            None => Ok(()),
        });
        self.is_apart.fetch_or(stored.is_err(), Ordering::Relaxed);
        stored
    }

    /// Locks the file, and reads it.
    fn locked(&self, place: &Path, known: &Record) -> Result<(File, Record), SessionError> {
        if self.is_apart.load(Ordering::Relaxed) {
            return Err(unstored(place, &io::Error::other("an earlier decision could not be stored")));
        }
        let Record { database, file, thread, .. } = known.clone();
        let empty = Record { database, file, thread, ..Record::default() };
        let folder = private_folder(place)?;
        let lock = File::options().create(true).truncate(false).write(true).open(folder.join("lock"));
        let lock =
            lock.and_then(|lock| lock.lock().map(|()| lock)).map_err(|cause| unstored(place, &cause))?;
        Ok((lock, stored(place, &empty)?))
    }
}

impl Trust for Decided {
    fn is_granted(&self, _: Option<&ThreadId>, rule: &PermissionRule) -> bool {
        let is_known = self.record().grants.contains(rule);
        if !is_known {
            let rule = format!(
                "a rule in the database that allows `{}` is not known to be yours, and is ignored; grant it \
                 again with `--always` when a call waits for approval",
                printable_line(&rule.tool)
            );
            self.ignored.lock().unwrap_or_else(PoisonError::into_inner).insert(rule);
        }
        is_known
    }

    fn is_decided(&self, stored: &StoredDecision<'_>) -> bool {
        let Some(answer) = answer_of(stored) else { return false };
        let position = short_hash(stored.position);
        let user = {
            let record = self.record();
            if !record.answers.contains(&answer) {
                return false;
            }
            record.used.get(&answer).cloned()
        };
        match user {
            Some(user) => user == position,
            None => stored.is_current && self.uses(&answer, &position, stored),
        }
    }

    fn begins(&self, _thread: Option<&ThreadId>, interrupt: &str, start: &str) -> bool {
        let start = format!("{} {start}", short_hash(interrupt));
        let mut is_new = false;
        let stored = self.change(|record| {
            is_new = !record.begun.contains(&start);
            record.begun.retain(|known| *known != start);
            record.begun.push(start);
        });
        stored.is_ok() && is_new
    }
}

/// Returns all records. A file that cannot be read is an error of its own thread.
fn records() -> impl Iterator<Item = Record> {
    let files = state_folder::folder().and_then(|folder| fs::read_dir(folder.join("threads")).ok());
    let places = files.into_iter().flatten().flatten().map(|file| file.path());
    let places = places.filter(|place| place.extension() == Some("json".as_ref()));
    places.filter_map(|place| serde_json::from_slice(&fs::read(place).ok()?).ok())
}

/// Returns the path of a database in a file, or the identity of one on a server, and the identity of the file or the name of the
/// server; `None` for a database in memory.
fn place_of(database: &Db) -> Result<Option<(PathBuf, String)>, SessionError> {
    Ok(match database {
        Db::File(file) => {
            let real = file.canonicalize().ok();
            let identity = real.as_ref().and_then(|real| identity(&fs::metadata(real).ok()?));
            real.zip(identity)
        }
        Db::Server(server) => server
            .identity()?
            .map(|identity| (format!("{SERVER}{identity}").into(), server.name().to_owned())),
        Db::Cluster(cluster) => {
            let name = cluster.name().to_owned();
            Some((name.clone().into(), name))
        }
    })
}

/// Returns the identity of a file: its inode and creation time, which a copy does not share.
#[cfg(unix)]
fn identity(file: &fs::Metadata) -> Option<String> {
    use std::{os::unix::fs::MetadataExt, time::UNIX_EPOCH};
    if !file.is_file() {
        return None;
    }
    // Not every file system records the creation time.
    let made = file.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    Some(format!("{}:{}", file.ino(), made.map_or(0, |made| made.as_nanos())))
}

/// Returns the identity of a file: its creation time.
#[cfg(not(unix))]
fn identity(file: &fs::Metadata) -> Option<String> {
    use std::time::UNIX_EPOCH;
    let made = file.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    file.is_file().then(|| made.as_nanos().to_string())
}

/// Returns the name of the file about a thread.
fn name(database: &Path, thread: &str) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(database.as_os_str().as_encoded_bytes()).update(&[0]).update(thread.as_bytes());
    hash.finalize().to_hex()[..32].to_owned()
}

fn hash_of_settings(settings: &StoredSettings) -> String {
    blake3::hash(settings.to_compare().to_string().as_bytes()).to_hex().to_string()
}

/// Returns the hash of a stored decision; `None` for one that answers no interrupt.
fn answer_of(stored: &StoredDecision<'_>) -> Option<String> {
    let StoredDecision { thread, interrupt, request, decision, .. } = *stored;
    // A database may name any interrupt, and the one of a live replay is no answer to a call that waits.
    let interrupt = interrupt.filter(|id| *id != REPLAYED)?;
    Some(hash_of_answer(thread.map_or("", ThreadId::as_str), interrupt, request, decision))
}

/// Returns the hash of a decision together with the question and everything shown of it.
fn hash_of_answer(thread: &str, interrupt: &str, request: &ApprovalRequest, decision: &Approval) -> String {
    let all = json!([thread, interrupt, request, Value::from(decision.clone())]);
    blake3::hash(all.to_string().as_bytes()).to_hex().to_string()
}

fn short_hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

fn shorten<T>(list: &mut Vec<T>) {
    list.drain(..list.len().saturating_sub(MAX_ENTRIES));
}

/// Reads the stored decisions; `empty` if there are none, or they belong to another file that had this name.
fn stored(place: &Path, empty: &Record) -> Result<Record, SessionError> {
    let wrong = |what: &dyn std::fmt::Display| {
        let message = format!(
            "cannot read `{}`, which stores your decisions on thread `{}`: {what}; remove it to decide again",
            place.display(),
            empty.thread
        );
        SessionError::new(ErrorKind::Database, message)
    };
    // Opening a pipe waits for its writer.
    for path in [place.parent().and_then(Path::parent), place.parent(), Some(place)].into_iter().flatten() {
        private::check(path, OTHER_FOLDER)?;
    }
    let mut file = match File::open(place) {
        Ok(file) => file,
        // Without a folder nothing can be stored; writing reports that.
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(empty.clone());
        }
        Err(cause) => return Err(wrong(&cause)),
    };
    let mut text = String::new();
    (&mut file).take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|cause| wrong(&cause))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(&"it is longer than 1 MiB"));
    }
    let record: Record = serde_json::from_str(&text).map_err(|cause| wrong(&cause))?;
    let is_same = [&record.database, &record.thread] == [&empty.database, &empty.thread];
    Ok(if !is_same {
        empty.clone()
    } else if record.file == empty.file {
        record
    } else if record.database.starts_with(SERVER) {
        // The same database under another name of its server, or a copy of it.
        Record { imported: record.imported || empty.imported, ..empty.clone() }
    } else {
        // A copy of an earlier state may have been put into its place.
        Record { anchor: record.anchor, is_of_other_file: true, ..empty.clone() }
    })
}

/// Creates the folder of a file, accessible by its owner only.
fn private_folder(place: &Path) -> Result<&Path, SessionError> {
    let folder = place.parent().unwrap_or(Path::new("."));
    state_folder::make_private(folder).map_err(|cause| unstored(place, &cause))?;
    for path in [folder.parent(), Some(folder)].into_iter().flatten() {
        private::check(path, OTHER_FOLDER)?;
    }
    Ok(folder)
}

/// Writes a file atomically, readable by its owner only.
fn write(place: &Path, record: &Record) -> io::Result<()> {
    let text = serde_json::to_string_pretty(record)?;
    let mut file = tempfile::NamedTempFile::new_in(place.parent().unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.persist(place)?;
    Ok(())
}

fn unstored(place: &Path, cause: &io::Error) -> SessionError {
    let message = format!(
        "your decisions apply to this run only: `{}` cannot be written: {cause}; {OTHER_FOLDER}",
        place.display()
    );
    SessionError::new(ErrorKind::Failed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_used_by_one_task_and_for_the_question_that_was_shown() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("threads").join("t.json");
        let open = || {
            let empty = Record { thread: "t".to_owned(), ..Record::default() };
            Decided::new(Some(place.clone()), stored(&place, &empty).unwrap())
        };
        let request = |question: &str| ApprovalRequest {
            call_id: "c1".to_owned(),
            tool: "shell".to_owned(),
            args: json!({ "command": "ls" }),
            question: question.to_owned(),
            form: None,
            problem: None,
        };
        let (thread, shown, decision) = (ThreadId::from("t"), request("run: ls"), Approval::Always);
        let stored = |interrupt, position, is_current| {
            let (thread, request, decision) = (Some(&thread), &shown, &decision);
            StoredDecision { thread, interrupt, position, request, is_current, decision }
        };
        let (here, first) = (Some("tools:3.0:c1~0"), "t/5/3.0");
        let rule = decision.rule("shell").unwrap();
        let user = open();
        user.answered([("tools:3.0:c1~0", &shown, decision.clone())]);
        user.begins_run().unwrap();
        assert!(!user.is_decided(&stored(Some("tools:3.1:c1~1"), first, true)), "another question");
        assert!(!user.is_decided(&stored(None, first, true)), "an approver's");
        assert!(!user.is_decided(&stored(Some(REPLAYED), first, true)), "that of a live replay");
        let other = request("run: rm");
        assert!(!user.is_decided(&StoredDecision { request: &other, ..stored(here, first, true) }));
        let other = Approval::Approve;
        assert!(!user.is_decided(&StoredDecision { decision: &other, ..stored(here, first, true) }));
        assert!(!user.is_decided(&stored(here, first, false)), "its text is not the tool's");
        assert!(!user.is_granted(Some(&thread), &rule), "nothing has used it");
        let before = [open(), open(), open()];
        assert!(user.is_decided(&stored(here, first, true)));
        let [late, other_process, later] = before;
        for _ in 0..2 {
            assert!(!late.is_decided(&stored(here, "t/5/3.1", true)), "the file knows the first task");
        }
        // After a crash its text may have changed, by the call itself.
        for user in [&user, &open(), &other_process] {
            let is_unused = user.record().used.is_empty();
            assert!(user.is_decided(&stored(here, first, is_unused)));
            assert!(!user.is_decided(&stored(here, "t/5/3.1", true)), "another task");
            assert!(user.is_granted(Some(&thread), &rule));
        }
        // A call begins once with an answer, and again with another one to the same question.
        assert!(user.begins(Some(&thread), "tools:3.0:c1~0", "begun.0"));
        for other in [&user, &open(), &other_process] {
            assert!(!other.begins(Some(&thread), "tools:3.0:c1~0", "begun.0"));
        }
        assert!(user.begins(Some(&thread), "tools:3.0:c1~0", "begun.0.1"), "behind a question of its tool");
        user.answered([("tools:3.0:c1~0", &shown, decision.clone())]);
        user.begins_run().unwrap();
        assert!(open().begins(Some(&thread), "tools:3.0:c1~0", "begun.0"));
        assert!(user.is_decided(&stored(here, first, true)));
        // A refused use grants nothing.
        user.keep_granted(std::slice::from_ref(&rule), &[]).unwrap();
        assert!(!later.is_decided(&stored(here, "t/5/3.1", true)), "the file knows the first task");
        assert!(!later.is_granted(Some(&thread), &rule) && !open().is_granted(Some(&thread), &rule));
        // A copy has no answers, and what is discarded is gone.
        user.discard();
        assert!(!user.is_decided(&stored(here, first, true)) && user.record().used.is_empty());
    }

    #[test]
    fn the_decisions_of_a_refused_run_are_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("threads").join("t.json");
        let empty = Record { thread: "t".to_owned(), imported: true, ..Record::default() };
        let open = || Decided::new(Some(place.clone()), stored(&place, &empty).unwrap());
        let settings = StoredSettings::default();
        let refused = open();
        refused.runs_with(&settings);
        refused.trust();
        assert!(refused.knows(&settings) && !refused.is_imported(), "they apply to the run");
        assert!(!open().knows(&settings) && open().is_imported());
        refused.begins_run().unwrap();
        assert!(open().knows(&settings) && !open().is_imported());
    }

    #[test]
    fn a_change_is_applied_once_to_what_another_process_has_stored() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("threads").join("t.json");
        let empty = Record { thread: "t".to_owned(), ..Record::default() };
        let open = || Decided::new(Some(place.clone()), stored(&place, &empty).unwrap());
        let (one, other) = (open(), open());
        one.store(|record| record.folders.push("one".to_owned())).unwrap();
        other.store(|record| record.folders.push("other".to_owned())).unwrap();
        assert_eq!(
            (other.folders(), open().folders()),
            (vec!["one".to_owned(), "other".to_owned()], other.folders())
        );
        // What cannot be stored applies here, and so do later changes.
        let text = fs::read_to_string(&place).unwrap();
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        assert!(one.store(|record| record.folders.push("two".to_owned())).is_err());
        fs::remove_dir(&place).unwrap();
        fs::write(&place, text).unwrap();
        assert!(one.store(|record| record.folders.push("three".to_owned())).is_err());
        assert_eq!(one.folders(), ["one", "two", "three"]);
        assert_eq!(open().folders(), ["one", "other"]);
    }
}
