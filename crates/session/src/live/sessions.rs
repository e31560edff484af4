//! The sessions of a process.
//!
//! Start at [`Sessions`].

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use superstep::{
    CheckpointId, Checkpointer, RunOptions, ThreadId,
    agent::AgentState,
    clock::{Clock as _, SystemClock},
    llm::Role,
    mcp::McpConfig,
    memory::Dreams,
};

use crate::{
    config::{
        location::Location,
        names::DbName,
        settings::{Given, StoredSettings},
        trust::{Created, Decided},
    },
    error::{ErrorKind, SessionError},
    live::{event::SessionEvent, mode::Mode, session::Session},
    text::brief,
    turn::{dream_thread, randomness::fresh_thread, stored_graph::graph, threads},
};

/// Maximum number of characters of a title.
const MAX_TITLE: usize = 80;

/// The sessions of a process. A clone is another handle of the same ones.
#[derive(Clone)]
pub struct Sessions(Arc<Shared>);

struct Shared {
    program: String,
    db: Option<DbName>,
    given: Given,
    live: Mutex<HashMap<ThreadId, Session>>,
}

/// The settings that a shell gives a session.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    /// The mode.
    pub mode: Mode,
    /// MCP servers besides those of the configuration. A turn runs without those that fail.
    pub servers: BTreeMap<String, McpConfig>,
    /// Accepts a thread that was set back since the user's last run.
    pub trust: bool,
    /// Emits no hints, which a later shell then shows.
    pub is_quiet: bool,
    /// Emits the events of the agent as they are, in place of messages, calls, files and notices.
    pub raw_events: bool,
}

/// A session as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The thread.
    pub thread: ThreadId,
    /// The folder of its tools.
    pub folder: PathBuf,
    /// The first line of the first message; `None` before it.
    pub title: Option<String>,
    /// The time of its newest checkpoint, or of its creation, in UTC milliseconds.
    pub updated_ms: i64,
    /// A call waits for a decision.
    pub is_waiting: bool,
}

/// A session without its title and its question, and the database of its thread, if that has a turn.
struct Found {
    info: SessionInfo,
    store: Option<Arc<dyn Checkpointer>>,
}

impl Sessions {
    /// Creates the sessions of a program, which suggested commands name. `db` is the database [default: that of each folder], and
    /// `given` are the settings of new turns.
    pub fn new(program: impl Into<String>, db: Option<DbName>, given: Given) -> Self {
        Self(Arc::new(Shared { program: program.into(), db, given, live: Mutex::default() }))
    }

    /// The name of the program.
    pub fn program(&self) -> &str {
        &self.0.program
    }

    /// Returns the location of a folder's sessions.
    ///
    /// # Errors
    /// The folder is missing, or the database has no valid name.
    pub fn location(&self, folder: &Path) -> Result<Location, SessionError> {
        Location::new(&self.0.program, self.0.db.clone(), Some(folder.to_owned()))
    }

    /// Creates a session with a new thread, which the state folder of the user records.
    ///
    /// # Errors
    /// The folder or its database cannot be used.
    pub async fn create(&self, folder: &Path, new: NewSession) -> Result<Session, SessionError> {
        let location = Arc::new(self.location(folder)?);
        let store = location.open()?;
        let thread = fresh_thread(&*store).await?;
        let created = Created { at_ms: SystemClock.now_ms(), cwd: location.cwd().to_owned() };
        location.decided(&thread)?.record_session(created)?;
        Ok(self.start(location, store, thread, new))
    }

    /// Opens the session of a thread, which may be one without a turn. A live one is the same session, with these settings.
    ///
    /// # Errors
    /// There is no such thread, it is that of a dream or of another folder, or its database cannot be used.
    pub async fn open(
        &self,
        folder: &Path,
        thread: &ThreadId,
        new: NewSession,
    ) -> Result<Session, SessionError> {
        Ok(self.load(folder, thread, new).await?.0)
    }

    /// Opens the session of a thread like [`open`](Self::open), and returns its stored [conversation](Session::transcript).
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub async fn load(
        &self,
        folder: &Path,
        thread: &ThreadId,
        new: NewSession,
    ) -> Result<(Session, Vec<SessionEvent>), SessionError> {
        let location = Arc::new(self.location(folder)?);
        dream_thread::refuse(&location, thread)?;
        if let Some(live) = self.live(thread).filter(|live| live.location().cwd() == location.cwd()) {
            live.configure(new);
            let events = live.transcript().await?;
            return Ok((live, events));
        }
        let decided = location.decided(thread)?;
        let stored = location.find()?;
        let is_stored = match &stored {
            Some(store) => store.is_stored(thread).await?,
            None => false,
        };
        if !is_stored && decided.session().is_none() {
            return Err(location.unknown(thread.as_str()));
        }
        let store = location.open()?;
        let of = match is_stored {
            true => {
                let (remembered, _) = location.remembered(&*store, thread, None).await?;
                remembered.cwd.filter(|_| !remembered.is_foreign).map(PathBuf::from)
            }
            false => decided.session().map(|created| created.cwd),
        };
        // A folder's own database moves with the folder.
        if let Some(of) = of.filter(|of| location.has_own_db() && *of != location.cwd()) {
            let (of, folder) = (of.display(), location.cwd().display());
            let problem = format!("thread `{thread}` is of the folder `{of}`, not of `{folder}`");
            return Err(SessionError::usage(problem));
        }
        let session = self.start(location, store, thread.clone(), new);
        let events = session.transcript().await?;
        Ok((session, events))
    }

    /// Returns the mode that the user chose last for the session of a thread.
    ///
    /// # Errors
    /// The folder cannot be used, or the user's record is damaged.
    pub fn mode_of(&self, folder: &Path, thread: &ThreadId) -> Result<Option<Mode>, SessionError> {
        let mode = self.location(folder)?.decided(thread)?.mode();
        // A mode of a later version asks.
        Ok(mode.map(|mode| mode.parse().unwrap_or_default()))
    }

    /// Opens or creates the session of a thread that the user named.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), except that the thread is unknown.
    pub async fn open_or_create(
        &self,
        folder: &Path,
        thread: &ThreadId,
        new: NewSession,
    ) -> Result<Session, SessionError> {
        let location = self.location(folder)?;
        let decided = location.decided(thread)?;
        let is_known = decided.session().is_some()
            || match location.find()? {
                Some(store) => store.is_stored(thread).await?,
                None => false,
            };
        if !is_known {
            // A record belongs to a database that exists.
            drop(location.open()?);
            let created = Created { at_ms: SystemClock.now_ms(), cwd: location.cwd().to_owned() };
            location.decided(thread)?.record_session(created)?;
        }
        self.open(folder, thread, new).await
    }

    fn start(
        &self,
        location: Arc<Location>,
        store: Arc<dyn Checkpointer>,
        thread: ThreadId,
        new: NewSession,
    ) -> Session {
        let session = Session::new(location, store, thread.clone(), self.0.given.clone(), new);
        self.all().insert(thread, session.clone());
        session
    }

    /// Returns the live session of a thread.
    pub fn live(&self, thread: &ThreadId) -> Option<Session> {
        self.all().get(thread).cloned()
    }

    /// Lists sessions, the newest first: threads of the agent, and sessions without a turn, of a folder, or of all folders that the
    /// user used on this machine. Returns up to `limit` of them after the first `skip`, and whether there are more. Threads that
    /// cannot be read are left out.
    ///
    /// # Errors
    /// The folder or its database cannot be used.
    pub async fn list(
        &self,
        folder: Option<&Path>,
        skip: usize,
        limit: usize,
    ) -> Result<(Vec<SessionInfo>, bool), SessionError> {
        let mut found = self.find(folder).await?;
        let has_more = found.len() > skip.saturating_add(limit);
        let mut page = Vec::new();
        for Found { mut info, store } in found.drain(..).skip(skip).take(limit) {
            if let Some(store) = store
                && let Ok(state) = graph()?.with_checkpointer(store).thread(&info.thread).state().await
            {
                info.title = title(&state.values);
                info.is_waiting = state.tasks.iter().any(|task| !task.interrupts.is_empty());
            }
            page.push(info);
        }
        Ok((page, has_more))
    }

    /// Finds sessions, the newest first, without their titles and questions.
    async fn find(&self, folder: Option<&Path>) -> Result<Vec<Found>, SessionError> {
        let mut found = match folder {
            Some(folder) => self.find_in(folder).await?,
            None => {
                let mut all = Vec::new();
                for folder in Decided::folders_of_all() {
                    // A folder that is gone, or whose database cannot be read, does not hide the others.
                    match self.find_in(&folder).await {
                        Ok(sessions) => all.extend(sessions),
                        Err(error) => {
                            tracing::warn!(folder = %folder.display(), error = error.message, "not listed");
                        }
                    }
                }
                all
            }
        };
        found.sort_by(|Found { info: one, .. }, Found { info: other, .. }| {
            (other.updated_ms, &other.thread).cmp(&(one.updated_ms, &one.thread))
        });
        Ok(found)
    }

    /// Returns the newest thread of a folder that has a turn.
    ///
    /// # Errors
    /// There is none, or those of [`list`](Self::list).
    pub async fn newest(&self, folder: &Path) -> Result<ThreadId, SessionError> {
        let newest = self.find(Some(folder)).await?.into_iter().find(|found| found.store.is_some());
        newest.map(|found| found.info.thread).ok_or_else(|| {
            let what = format!("`{}` has no thread to continue", folder.display());
            SessionError::new(ErrorKind::Unknown, what)
        })
    }

    async fn find_in(&self, folder: &Path) -> Result<Vec<Found>, SessionError> {
        let location = self.location(folder)?;
        let (mut found, agent) = (Vec::new(), graph()?);
        if let Some(store) = location.find()? {
            for (thread, head) in threads::heads(&*store).await? {
                let Ok(head) = head else { continue };
                let is_other = head.graph().is_some_and(|owner| owner.name != agent.name());
                if is_other || Dreams::is_thread(&thread) {
                    continue;
                }
                let folder = match location.has_own_db() {
                    false => location.cwd().to_owned(),
                    true => match location.remembered(&*store, &thread, None).await {
                        Ok((StoredSettings { cwd: Some(cwd), .. }, _)) => cwd.into(),
                        _ => continue,
                    },
                };
                let updated_ms = head.created_ms;
                let info = SessionInfo { thread, folder, title: None, updated_ms, is_waiting: false };
                found.push(Found { info, store: Some(store.clone()) });
            }
        }
        for (thread, created) in Decided::sessions(location.db())? {
            if !found.iter().any(|Found { info, .. }| info.thread == thread) {
                let (folder, updated_ms) = (created.cwd, created.at_ms);
                let info = SessionInfo { thread, folder, title: None, updated_ms, is_waiting: false };
                found.push(Found { info, store: None });
            }
        }
        if location.has_own_db() {
            found.retain(|Found { info, .. }| info.folder == location.cwd());
        }
        Ok(found)
    }

    /// Deletes the thread of a folder that the user used on this machine, like [`delete`](Self::delete). An unknown one is no error.
    ///
    /// # Errors
    /// Several folders have such a thread.
    pub async fn delete_anywhere(&self, thread: &ThreadId) -> Result<(), SessionError> {
        let found = self.find(None).await?.into_iter().map(|found| found.info);
        match &found.filter(|info| info.thread == *thread).collect::<Vec<_>>()[..] {
            [] => Ok(()),
            [info] => self.delete(&info.folder, thread).await.map(drop),
            _ => Err(SessionError::usage(format!(
                "thread `{thread}` is in several folders; open the one to delete first"
            ))),
        }
    }

    /// Copies the thread of a session, with the decisions about it and its stored files, and opens the copy at a checkpoint of it.
    ///
    /// # Errors
    /// The thread has no turn, is under way, or has no such checkpoint.
    pub async fn fork(
        &self,
        session: &Session,
        at: Option<CheckpointId>,
        new: NewSession,
    ) -> Result<Session, SessionError> {
        let location = session.location();
        let store = location.open()?;
        let copy = fresh_thread(&*store).await?;
        threads::copy(location, store.clone(), session.thread(), &copy).await?;
        if let Some(at) = at {
            // The fork has the settings of the user's turns, like them.
            let (stored, _) = location.remembered(&*store, session.thread(), None).await?;
            let options = stored.stored_by(RunOptions::new()).thread(copy.as_str());
            let forked = graph()?.with_checkpointer(store.clone()).configured(options).fork(at).await;
            if let Err(error) = forked {
                threads::delete(location, &store, &[copy]).await?;
                return Err(error.into());
            }
        }
        self.open(location.cwd(), &copy, new).await
    }

    /// Closes a session and deletes its thread, its decisions and its stored files. Returns whether there was something.
    ///
    /// # Errors
    /// Another process runs the thread, or something cannot be deleted.
    pub async fn delete(&self, folder: &Path, thread: &ThreadId) -> Result<bool, SessionError> {
        self.close(thread).await;
        let location = self.location(folder)?;
        let was_created = location.decided(thread)?.session().is_some();
        let stored = match location.find()? {
            Some(store) => store.is_stored(thread).await?,
            None => false,
        };
        if stored {
            threads::delete(&location, &location.open()?, slice::from_ref(thread)).await?;
        } else if was_created {
            location.decided(thread)?.forget()?;
        }
        Ok(stored || was_created)
    }

    /// Closes the live session of a thread.
    pub async fn close(&self, thread: &ThreadId) {
        let session = self.all().remove(thread);
        if let Some(session) = session {
            session.close().await;
        }
    }

    /// Closes all sessions at the same time.
    pub async fn close_all(&self) {
        let sessions: Vec<_> = self.all().drain().map(|(_, session)| session).collect();
        futures::future::join_all(sessions.iter().map(Session::close)).await;
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ThreadId, Session>> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the title of a thread: the first line of its first message of the user.
pub fn title(state: &AgentState) -> Option<String> {
    let first = state.messages.iter().find(|message| message.role == Role::User && !message.synthetic)?;
    Some(brief(first.content.trim(), MAX_TITLE))
}
