//! Locations: the folder of the tools, and the database.

pub mod own_database;
mod set_back;

use std::{
    env, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use superstep::{
    CheckpointId, Checkpointer, Store, ThreadId,
    checkpoint::CheckpointError,
    sqlite::{SqliteCheckpointer, SqliteOptions, SqliteStore, Synchronous},
    tools::make_private_folder,
};

use crate::{
    config::{
        encryption::{self, SealOptions},
        names::{DbName, VARIABLE},
        place::Db,
        private,
        settings::StoredSettings,
        trust::Decided,
    },
    error::{ErrorKind, SessionError},
    text::quoted,
};

/// The path of the database under the folder of the tools.
const DATABASE: &str = ".superstep/threads.db";

/// The folder and the database of one command.
pub struct Location {
    /// The name of the program, for suggested commands.
    program: String,
    /// Canonical.
    pub cwd: PathBuf,
    db: Db,
    sealing: SealOptions,
    /// The user named the database.
    has_own_db: bool,
    /// The folder that the user named, for suggested commands.
    given_cwd: Option<PathBuf>,
    /// The cluster whose workers do the runs, for suggested commands.
    service: Option<DbName>,
}

impl Location {
    /// Resolves the folder and the database of a program.
    ///
    /// # Errors
    /// The folder is missing or not a folder, or the URL of the database or a key is not valid.
    pub fn new(program: &str, mut db: Option<DbName>, cwd: Option<PathBuf>) -> Result<Self, SessionError> {
        if db.as_ref().is_some_and(|db| db.0.is_empty()) {
            // An empty variable counts as unset. An empty flag is a mistake, such as `--db "$DB"` without `DB`.
            if env::var_os(VARIABLE).is_none_or(|value| !value.is_empty()) {
                return Err(SessionError::usage(
                    "`--db` is empty; name a file, or the URL of a PostgreSQL database",
                ));
            }
            db = None;
        }
        let (has_own_db, given_cwd) = (db.is_some(), cwd);
        let cwd = folder(given_cwd.as_deref().unwrap_or(Path::new(".")))?;
        let db = match &db {
            Some(given) => match Db::parse(given)? {
                Db::File(file) if file.is_symlink() => {
                    private::check_folder_of(&file)?;
                    Db::File(private::followed(file))
                }
                db => db,
            },
            None => Db::File(cwd.join(DATABASE)),
        };
        let sealing = encryption::options()?;
        Ok(Self { program: program.to_owned(), cwd, db, sealing, has_own_db, given_cwd, service: None })
    }

    /// Resolves the folder and the cluster of a program whose runs are those of workers.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    #[cfg(feature = "restate")]
    pub fn of_service(program: &str, cluster: DbName, cwd: Option<PathBuf>) -> Result<Self, SessionError> {
        Ok(Self { service: Some(cluster.clone()), ..Self::new(program, Some(cluster), cwd)? })
    }

    /// Returns the place of the database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Returns the options of the server; `None` for a database in a file.
    #[cfg(feature = "postgres")]
    pub(crate) fn server_options(&self) -> Option<&superstep::postgres::PostgresOptions> {
        match &self.db {
            Db::File(_) | Db::Cluster(_) => None,
            Db::Server(server) => Some(&server.options),
        }
    }

    /// Returns the encryption of threads and items.
    pub fn sealing(&self) -> &SealOptions {
        &self.sealing
    }

    /// Puts the encryption in front of a checkpointer. Without a key it refuses encrypted threads.
    fn sealed(&self, store: Arc<dyn Checkpointer>) -> Arc<dyn Checkpointer> {
        encryption::seal_threads(store, &self.sealing)
    }

    /// Returns whether the user named the tools' folder.
    pub(crate) fn has_own_cwd(&self) -> bool {
        self.given_cwd.is_some()
    }

    /// Returns whether the database is not the folder's own, so that its threads may belong to other folders.
    pub fn has_own_db(&self) -> bool {
        self.has_own_db
    }

    /// Returns the folder of the command.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Returns the folder of a thread's tools.
    pub(crate) fn cwd_of(&self, remembered: &StoredSettings) -> Result<PathBuf, SessionError> {
        // A separate database may contain threads of many folders; a folder's own database moves with the
        // folder.
        match &remembered.cwd {
            Some(cwd) if self.has_own_db() && !self.has_own_cwd() => {
                if remembered.is_foreign && Path::new(cwd) != self.cwd {
                    return Err(self.unnamed_folder(cwd));
                }
                folder(cwd.as_ref())
            }
            _ => Ok(self.cwd.clone()),
        }
    }

    /// Returns whether a folder has a database of its own that is not this one.
    fn is_of_other(&self, folder: &Path) -> bool {
        let own = folder.join(DATABASE);
        own.exists() && own.canonicalize().ok() != self.db.file().and_then(|file| file.canonicalize().ok())
    }

    /// Returns all folders in which the user ran a thread and that still exist, beginning with that of its
    /// tools, and whether there are others: missing ones, and those that only the database names.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn folders_of(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
    ) -> Result<(Vec<PathBuf>, bool), SessionError> {
        let (remembered, decided) = self.remembered(store, thread, None).await?;
        let (mut folders, mut others) = match self.cwd_of(&remembered) {
            Ok(cwd) => (vec![cwd], false),
            Err(_) => (Vec::new(), true),
        };
        if !self.has_own_db() {
            return Ok((folders, others));
        }
        let mut named: Vec<(String, bool)> = decided.folders().into_iter().map(|cwd| (cwd, true)).collect();
        // Earlier versions stored the folders only in the database.
        named.extend(
            StoredSettings::all(store, thread)
                .await?
                .into_iter()
                .filter_map(|settings| Some((settings.cwd.clone()?, decided.knows(&settings)))),
        );
        for (cwd, is_known) in named {
            match folder(cwd.as_ref()) {
                Ok(real) if folders.contains(&real) => {}
                _ => match self.own_folder(&cwd).filter(|_| is_known) {
                    Some(real) => folders.push(real),
                    None => others = true,
                },
            }
        }
        Ok((folders, others))
    }

    /// Returns the folders of a thread that cannot be read: the named one or that of the database, and those that still exist
    /// in which the user ran it on this machine.
    pub(crate) fn folders_of_damaged(&self, decided: &Decided) -> Vec<PathBuf> {
        if !self.has_own_db() {
            return vec![self.cwd.clone()];
        }
        let named = self.has_own_cwd().then(|| self.cwd.clone());
        named.into_iter().chain(decided.folders().iter().filter_map(|cwd| self.own_folder(cwd))).collect()
    }

    /// Returns a folder that is remembered, if it exists and its files belong to the threads of this database.
    fn own_folder(&self, cwd: &str) -> Option<PathBuf> {
        // A link in its path would lead to another folder.
        // The files of a folder with a database of its own may be those of that database's threads.
        folder(cwd.as_ref()).ok().filter(|real| real.as_os_str() == cwd && !self.is_of_other(real))
    }

    /// Returns the error for a folder that only the database names.
    pub(crate) fn unnamed_folder(&self, folder: &str) -> SessionError {
        SessionError::usage(format!(
            "the thread remembers the folder `{folder}`, in which nothing is done unless you name it: repeat `--cwd {}`",
            quoted(folder)
        ))
    }

    /// Loads a thread's settings, and the user's decisions about it on this machine. If the head is damaged,
    /// the settings at `from`.
    pub(crate) async fn remembered(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
        from: Option<CheckpointId>,
    ) -> Result<(StoredSettings, Arc<Decided>), SessionError> {
        let (mut remembered, decided) =
            (StoredSettings::load(store, thread, from).await?, self.decided(thread)?);
        remembered.is_foreign = remembered.is_foreign && !decided.knows(&remembered);
        Ok((remembered, decided))
    }

    /// Loads the settings that one checkpoint of a thread stores, and the user's decisions about it on this machine.
    pub(crate) async fn remembered_at(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> Result<(StoredSettings, Arc<Decided>), SessionError> {
        let (mut remembered, decided) = (StoredSettings::at(store, thread, at).await?, self.decided(thread)?);
        remembered.is_foreign = !decided.knows(&remembered);
        Ok((remembered, decided))
    }

    /// Returns the user's decisions about a thread on this machine.
    pub fn decided(&self, thread: &ThreadId) -> Result<Arc<Decided>, SessionError> {
        Decided::about(&self.db, thread.as_str())
    }

    /// Rejects a database that another user may have created or changed.
    fn check(&self, file: &Path) -> Result<(), SessionError> {
        match file.parent() {
            Some(folder) if !self.has_own_db() => private::check(folder, private::OTHER_DATABASE)?,
            _ => private::check_folder_of(file)?,
        }
        private::check_database(file)
    }

    /// Opens the database, and creates it if absent.
    pub fn open(&self) -> Result<Arc<dyn Checkpointer>, SessionError> {
        Ok(self.open_or_create()?.0)
    }

    /// Opens the database, and creates it if absent, which is the second part of the result.
    pub(crate) fn open_or_create(&self) -> Result<(Arc<dyn Checkpointer>, bool), SessionError> {
        let (store, is_new) = self.open_unsealed()?;
        Ok((self.sealed(store), is_new))
    }

    /// Opens the database like [`open_or_create`](Self::open_or_create), without the encryption.
    pub fn open_unsealed(&self) -> Result<(Arc<dyn Checkpointer>, bool), SessionError> {
        match &self.db {
            Db::File(file) => {
                let is_new = !file.exists();
                Ok((Arc::new(SqliteCheckpointer::open(self.made(file)?)?), is_new))
            }
            Db::Server(server) => Ok(server.open_or_create()?),
            Db::Cluster(cluster) => Ok((cluster.open()?, false)),
        }
    }

    /// Opens the rows of a server beside the threads: what its clients see of them, and its queue. They are in another file, or in the
    /// same schema. They are created if absent.
    ///
    /// # Errors
    /// The threads are those of a cluster, whose workers run them, or the database cannot be used.
    pub fn open_rows(&self) -> Result<Arc<dyn Store>, SessionError> {
        let store: Arc<dyn Store> = match &self.db {
            Db::File(file) => {
                let store = SqliteStore::open(self.made(&file.with_extension("server.db"))?);
                Arc::new(store.map_err(|error| SessionError::caused(ErrorKind::Database, &error))?)
            }
            Db::Server(server) => server.items()?,
            Db::Cluster(_) => {
                return Err(SessionError::usage(
                    "the threads of a Restate cluster are run by its workers; a server needs `--db` with a file or the URL of a PostgreSQL database",
                ));
            }
        };
        encryption::seal_items(store, None)
    }

    /// Reopens the database if a configuration changes its settings.
    pub(crate) fn reopen(
        &self,
        store: Arc<dyn Checkpointer>,
        options: SqliteOptions,
    ) -> Result<Arc<dyn Checkpointer>, SessionError> {
        match &self.db {
            Db::File(file) if options.synchronous != Synchronous::default() => {
                Ok(self.sealed(Arc::new(SqliteCheckpointer::open_with(self.made(file)?, options)?)))
            }
            _ => Ok(store),
        }
    }

    /// Creates the folder of a database in a file if absent, and returns the file.
    fn made<'f>(&self, file: &'f Path) -> Result<&'f Path, SessionError> {
        if !self.has_own_db()
            && let Some(folder) = file.parent()
        {
            make_private_folder(folder).map_err(|cause| {
                let folder = folder.display();
                let message = format!(
                    "cannot make the folder `{folder}` for the database: {cause}; choose another file with `--db`"
                );
                SessionError::new(ErrorKind::Database, message)
            })?;
        }
        self.check(file)?;
        Ok(file)
    }

    /// Opens the database for reading; `None` if the folder has none yet.
    pub fn find(&self) -> Result<Option<Arc<dyn Checkpointer>>, SessionError> {
        match &self.db {
            // A folder that cannot be read is an error, not an absent database.
            Db::File(file) if !self.has_own_db() && !file.try_exists().unwrap_or(true) => Ok(None),
            Db::File(file) => {
                self.check(file)?;
                Ok(Some(self.sealed(Arc::new(SqliteCheckpointer::open_read_only(file)?))))
            }
            Db::Server(server) => Ok(server.find()?.map(|store| self.sealed(store))),
            Db::Cluster(cluster) => Ok(Some(self.sealed(cluster.open()?))),
        }
    }

    /// Opens the database for reading.
    ///
    /// # Errors
    /// The folder has none yet, so that this thread does not exist.
    pub fn existing(&self, thread: &str) -> Result<Arc<dyn Checkpointer>, SessionError> {
        self.find()?.ok_or_else(|| self.unknown(thread))
    }

    /// Opens a database for reading, which must exist.
    pub fn existing_database(&self) -> Result<Arc<dyn Checkpointer>, SessionError> {
        self.find()?.ok_or_else(|| self.absent())
    }

    /// Returns the error for a database that does not exist.
    pub fn absent(&self) -> SessionError {
        let db = &self.db;
        SessionError::new(
            ErrorKind::Database,
            format!("the database `{db}` does not exist; check the path, or name another one with `--db`"),
        )
    }

    /// Opens the database to change threads of it, of which something must be stored.
    ///
    /// # Errors
    /// A thread is unknown. Nothing is created then, not even a database.
    pub async fn change(&self, threads: &[&str]) -> Result<Arc<dyn Checkpointer>, SessionError> {
        for thread in threads {
            let Some(store) = self.find()? else { return Err(self.unknown(thread)) };
            match store.is_stored(&ThreadId::from(*thread)).await {
                Ok(false) => return Err(self.unknown(thread)),
                Ok(true) => {}
                // It exists, and can be deleted.
                Err(error) if is_unreadable(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.open()
    }

    pub fn unknown(&self, thread: &str) -> SessionError {
        let db = &self.db;
        let message =
            format!("thread `{thread}` does not exist in `{db}`; see `{}`", self.command("threads", &[]));
        SessionError::new(ErrorKind::Unknown, message)
    }

    /// Formats another command for the same location, to be pasted into a shell.
    pub fn command(&self, command: &str, words: &[&str]) -> String {
        let mut text = format!("{} {command}", quoted(&self.program));
        let mut add = |word: &str| {
            text.push(' ');
            text.push_str(&quoted(word));
        };
        words.iter().for_each(|word| add(word));
        // The URL of a server is a secret.
        let db = self.db.file().filter(|_| self.has_own_db()).map(|file| file.to_string_lossy().into_owned());
        let cwd = self.given_cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned());
        for (flag, path) in [("--db", db), ("--cwd", cwd)] {
            if let Some(path) = path {
                add(flag);
                // A path that looks like a flag would be parsed as one.
                add(&if path.starts_with('-') { format!("./{path}") } else { path });
            }
        }
        if let Some(service) =
            self.service.as_ref().filter(|_| ["run", "resume", "answer"].contains(&command))
        {
            add("--restate");
            add(&service.0.to_string_lossy());
        }
        text + &self.db.remark().unwrap_or_default()
    }
}

/// Returns whether an error is about one thread, which is damaged or whose key is missing, so that others can be read.
pub fn is_unreadable(error: &CheckpointError) -> bool {
    use CheckpointError::{Corrupt, Key, Unencrypted};
    matches!(error, Corrupt { .. } | Key { .. } | Unencrypted { .. })
}

/// Resolves a folder for tools.
pub fn folder(path: &Path) -> Result<PathBuf, SessionError> {
    let wrong = |what: &str| {
        let path = path.display();
        SessionError::usage(format!("cannot work in `{path}`: {what}; choose another folder with `--cwd`"))
    };
    let real = path.canonicalize().map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => wrong("it does not exist"),
        _ => wrong(&cause.to_string()),
    })?;
    if real.is_dir() { Ok(real) } else { Err(wrong("it is not a folder")) }
}
