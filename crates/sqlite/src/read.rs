//! Loads, histories, threads.

use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row};
use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Commit, HeadState, History, Loaded, LoadedHead,
    TaskRecord, ThreadId,
    internal::{Heads, leftovers},
};

use crate::{
    checksum::{CHECKPOINT, CONTENT, TASK, TASK_SHARE},
    database::{Database, ThreadKey, ThreadRow, id_of},
    error::{self, Failed},
    location::Location,
    stored::{
        ChildReader, ChildRow, ContentRow, Depth, HistoryEnd, HistoryReader, MetaRow, PathReader,
        StoredThread, TaskReader, TaskRow,
    },
};

/// Returns the columns of a [`CheckpointMeta`], in the order in which [`meta`] reads them. The first parameter is the thread's least
/// key.
pub(crate) fn metas() -> String {
    format!(
        "SELECT key, parent, source, created_ms, control, metadata, parent_pruned, checksum IS {CHECKPOINT},
             parent IS NOT NULL AND ((?1 | parent) NOT IN (SELECT key FROM checkpoints))
         FROM checkpoints"
    )
}

fn history() -> String {
    format!("{} WHERE key BETWEEN ?2 AND ?3 ORDER BY key DESC", metas())
}

/// The root threads, by name.
const ROOTS: &str = "
SELECT key, name, head, checkpoints, branched, checksum FROM threads WHERE instr(name, char(31)) = 0 ORDER BY name";

/// The threads of subgraphs whose root has no checkpoints, by name.
const ORPHANS: &str = "
SELECT name FROM threads WHERE instr(name, char(31)) > 0
AND substr(name, 1, instr(name, char(31)) - 1) NOT IN (SELECT name FROM threads) ORDER BY name";

/// Returns the content of the checkpoint with a key and of those before it.
fn contents() -> String {
    format!(
        "SELECT key, parent, applied, snapshot, checksum IS {CHECKPOINT} AND content_checksum IS {CONTENT}
         FROM checkpoints WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC"
    )
}

/// Returns the checkpoints that follow another on a branch, and the one with the next id, newest first.
fn children() -> String {
    let columns = format!(
        "SELECT key, parent, source, applied, checksum IS {CHECKPOINT}, content_checksum IS {CONTENT} FROM checkpoints"
    );
    format!(
        "{columns} WHERE thread = ?1 AND parent = ?2 AND parent <> id - 1
         UNION ALL {columns} WHERE key = ((?1 << 32) | (?2 + 1)) ORDER BY key DESC"
    )
}

/// The SQL that counts the checkpoints in the index of branches whose rows have the same parent.
const BRANCHED: &str = "SELECT count(DISTINCT own.key)
     FROM checkpoints AS branch INDEXED BY branches JOIN checkpoints AS own ON own.key = branch.key
     WHERE branch.thread = ?1 AND branch.parent <> branch.id - 1 AND +own.parent = branch.parent";

fn records() -> String {
    format!(
        "SELECT slot, record, checksum IS {TASK}, {TASK_SHARE} FROM tasks WHERE checkpoint = ?1 ORDER BY slot"
    )
}

fn record() -> String {
    format!(
        "SELECT slot, record, checksum IS {TASK}, {TASK_SHARE} FROM tasks WHERE checkpoint = ?1 AND slot = ?2"
    )
}

const TASK_SUM: &str = "SELECT sum FROM task_sums WHERE checkpoint = ?1";

impl Database {
    pub(crate) fn load(
        &mut self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> Result<Option<Loaded>, CheckpointError> {
        self.read(thread, |reader| reader.load(at, Depth::Path)).map(Option::flatten)
    }

    /// Reads a checkpoint as it was committed.
    pub(crate) fn read_commit(
        &mut self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> Result<Option<Commit>, CheckpointError> {
        self.read(thread, |reader| reader.commit(at)).map(Option::flatten)
    }

    pub(crate) fn history(
        &mut self,
        thread: &ThreadId,
        range: &History,
    ) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        self.read(thread, |reader| reader.history(range)).map(Option::unwrap_or_default)
    }

    fn read<T>(
        &mut self,
        thread: &ThreadId,
        read: impl FnOnce(&Reader<'_>) -> Result<T, Failed>,
    ) -> Result<Option<T>, CheckpointError> {
        let read = self.try_read(thread, read);
        read.map_err(|failed| failed.into_error(&self.place, &format!("load thread `{thread}`")))
    }

    /// Reads a thread, if it exists, in one transaction, so that it cannot be deleted meanwhile.
    fn try_read<T>(
        &mut self,
        thread: &ThreadId,
        read: impl FnOnce(&Reader<'_>) -> Result<T, Failed>,
    ) -> Result<Option<T>, Failed> {
        let transaction = self.connection.transaction()?;
        let row = ThreadRow::find(&transaction, &self.place, &self.names, thread)?;
        row.map(|row| read(&Reader { connection: &transaction, place: &self.place, thread, row })).transpose()
    }

    /// Returns whether there is no such thread; `None` if that cannot be read.
    pub(crate) fn is_fresh(&mut self, thread: &ThreadId) -> Option<bool> {
        let row = ThreadRow::find(&self.connection, &self.place, &self.names, thread).ok()?;
        Some(row.is_none())
    }

    /// Loads the head, without the path to its state if that is remembered.
    pub(crate) fn load_head(
        &mut self,
        thread: &ThreadId,
        heads: &Mutex<Heads<CheckpointId>>,
    ) -> Result<Option<LoadedHead>, CheckpointError> {
        let loaded = self.head(thread, heads, |reader, state| {
            let depth = if state.is_some() { Depth::Tip } else { Depth::Path };
            Ok(reader.load(None, depth)?.map(|loaded| LoadedHead { loaded, state }))
        })?;
        Ok(loaded.flatten())
    }

    /// Loads the head if that takes microseconds: if its state is remembered, or there is no such thread. Returns `None`
    /// otherwise.
    pub(crate) fn load_short_head(
        &mut self,
        thread: &ThreadId,
        heads: &Mutex<Heads<CheckpointId>>,
    ) -> Option<Result<Option<LoadedHead>, CheckpointError>> {
        let loaded = self.head(thread, heads, |reader, state| match state {
            Some(state) => {
                let loaded = reader.load(None, Depth::Tip)?;
                Ok(loaded.map(|loaded| LoadedHead { loaded, state: Some(state) }))
            }
            None => Ok(None),
        });
        match loaded {
            Ok(None) => Some(Ok(None)),
            Ok(Some(found)) => found.map(|found| Ok(Some(found))),
            Err(error) if error::is_busy(&error) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Reads the head of a thread, if it exists, in a transaction. `read` receives the remembered state.
    fn head<T>(
        &mut self,
        thread: &ThreadId,
        heads: &Mutex<Heads<CheckpointId>>,
        read: impl FnOnce(&Reader<'_>, Option<HeadState>) -> Result<T, Failed>,
    ) -> Result<Option<T>, CheckpointError> {
        let read = self.try_head(thread, heads, read);
        read.map_err(|failed| failed.into_error(&self.place, &format!("load thread `{thread}`")))
    }

    fn try_head<T>(
        &mut self,
        thread: &ThreadId,
        heads: &Mutex<Heads<CheckpointId>>,
        read: impl FnOnce(&Reader<'_>, Option<HeadState>) -> Result<T, Failed>,
    ) -> Result<Option<T>, Failed> {
        let transaction = self.connection.transaction()?;
        let row = ThreadRow::find(&transaction, &self.place, &self.names, thread)?;
        // Read after the first row, which begins the transaction.
        let version = transaction.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        let mut heads = heads.lock().unwrap_or_else(PoisonError::into_inner);
        heads.invalidate_if_changed(version);
        let Some(row) = row else { return Ok(None) };
        let state = heads.get(thread, &row.head);
        drop(heads);
        read(&Reader { connection: &transaction, place: &self.place, thread, row }, state).map(Some)
    }

    /// Returns the number of a thread's checkpoints, from its row.
    pub(crate) fn count(&self, thread: &ThreadId) -> Result<usize, CheckpointError> {
        let row = ThreadRow::find(&self.connection, &self.place, &self.names, thread)?;
        Ok(row.map_or(0, |row| usize::try_from(row.checkpoints).unwrap_or(usize::MAX)))
    }

    /// Returns the heads of the threads, newest first.
    pub(crate) fn threads(&mut self) -> Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError> {
        self.try_threads().map_err(|failed| failed.into_error(&self.place, "list the threads"))
    }

    fn try_threads(&mut self) -> Result<Vec<(ThreadId, CheckpointMeta)>, Failed> {
        let transaction = self.connection.transaction()?;
        let mut found = Vec::new();
        for (thread, row) in roots_of(&transaction, &self.place)? {
            let reader = Reader { connection: &transaction, place: &self.place, thread: &thread, row };
            let head = reader.meta(row.head)?;
            let head = head.ok_or_else(|| reader.stored().missing(row.head, "its row"))?;
            found.push((thread, head));
        }
        found.sort_by(|(a, one), (b, other)| other.created_ms.cmp(&one.created_ms).then_with(|| a.cmp(b)));
        Ok(found)
    }

    /// Returns the names alone, so that damaged heads do not matter.
    pub(crate) fn names(&mut self) -> Result<Vec<ThreadId>, CheckpointError> {
        let roots = roots_of(&self.connection, &self.place);
        let roots = roots.map_err(|failed| failed.into_error(&self.place, "list the threads"))?;
        Ok(roots.into_iter().map(|(thread, _)| thread).collect())
    }

    /// Returns the roots that only the names of other threads have.
    pub(crate) fn orphans(&mut self) -> Result<Vec<ThreadId>, CheckpointError> {
        let refused = |cause| error::database(&self.place, "list the threads without checkpoints", cause);
        let children = self.connection.prepare_cached(ORPHANS).and_then(|mut orphans| {
            orphans.query_map([], |row| row.get::<_, String>(0).map(Into::into))?.collect()
        });
        let children: Vec<ThreadId> = children.map_err(refused)?;
        let mut roots: Vec<_> = leftovers(children).iter().map(ThreadId::root).collect();
        roots.dedup();
        Ok(roots)
    }

    pub(crate) fn children(&mut self, thread: &ThreadId) -> Result<Vec<ThreadId>, CheckpointError> {
        let found = ThreadKey::checked_under(&self.connection, &self.place, thread)?;
        Ok(found.into_iter().map(|(_, child)| child).collect())
    }
}

fn roots_of(connection: &Connection, place: &Location) -> Result<Vec<(ThreadId, ThreadRow)>, Failed> {
    ThreadRow::check_all(connection, place)?;
    let mut roots = connection.prepare_cached(ROOTS)?;
    let mut rows = roots.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = row.get(0)?;
        let read = ThreadRow::read(row).map_err(|cause| error::damaged_thread_row(place, key, cause))?;
        found.push((row.get::<_, String>(1)?.into(), read));
    }
    Ok(found)
}

/// Reads one thread.
pub(crate) struct Reader<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) place: &'a Location,
    pub(crate) thread: &'a ThreadId,
    pub(crate) row: ThreadRow,
}

impl Reader<'_> {
    fn stored(&self) -> StoredThread<'_> {
        error::stored(self.place, self.thread)
    }

    /// Loads a checkpoint; `None` if it does not exist.
    fn load(&self, at: Option<CheckpointId>, depth: Depth) -> Result<Option<Loaded>, Failed> {
        let id = at.unwrap_or(self.row.head);
        let Some(path) = self.path(id, depth)? else { return Ok(None) };
        Ok(Some(path.into_loaded(self.row.head, self.tasks(id)?)?))
    }

    /// Reads a checkpoint as it was committed.
    fn commit(&self, id: CheckpointId) -> Result<Option<Commit>, Failed> {
        let Some(path) = self.path(id, Depth::Commit)? else { return Ok(None) };
        Ok(Some(path.into_commit(self.own_tasks(id)?)?))
    }

    /// Reads the path to the state of a checkpoint; `None` if the thread never had the checkpoint, or it was pruned.
    fn path(&self, from: CheckpointId, depth: Depth) -> Result<Option<PathReader<'_>>, Failed> {
        if !self.row.counts().had(from) {
            return Ok(None);
        }
        let Some(meta) = self.meta(from)? else {
            return if self.was_pruned(from)? {
                Ok(None)
            } else {
                Err(self.stored().missing(from, "its row").into())
            };
        };
        let mut path = PathReader::new(self.stored(), meta, depth);
        let mut contents = self.prepare(&contents())?;
        // One query for each section of the path with consecutive ids: a single one without branches.
        while let Some(start) = path.next() {
            let mut rows = contents.query([self.row.key.first(), self.key(start)])?;
            while let Some(row) = rows.next()? {
                let row = content(row)?;
                if path.next() != Some(row.id) {
                    break;
                }
                path.push(&row)?;
            }
            if path.next() == Some(start) {
                break;
            }
        }
        path.fill(|parent, slot| self.recorded(parent, slot))?;
        Ok(Some(path))
    }

    /// Returns the record of a task that a later checkpoint applied.
    fn recorded(&self, id: CheckpointId, slot: u32) -> Result<Option<TaskRecord>, Failed> {
        let mut record = self.prepare(&record())?;
        let mut rows = record.query((self.key(id), slot))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let row = task(row)?;
        Ok(Some(self.stored().record(id, row.slot, row.record, row.is_intact)?))
    }

    /// Returns whether a checkpoint whose row was not found was pruned: if the number of missing ones is correct, and it is
    /// one of them. All rows are read, because the search for one may miss it.
    fn was_pruned(&self, id: CheckpointId) -> Result<bool, Failed> {
        Ok(self.row.counts().may_lack(id)
            && !self.history(&History::default())?.iter().any(|meta| meta.id == id))
    }

    /// Returns the metadata of one checkpoint; `None` if it does not exist.
    fn meta(&self, id: CheckpointId) -> Result<Option<CheckpointMeta>, Failed> {
        let key = self.key(id);
        let mut history = self.prepare(&history())?;
        let mut rows = history.query([self.row.key.first(), key, key])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(self.stored().meta(&meta(row)?)?))
    }

    pub(crate) fn history(&self, range: &History) -> Result<Vec<CheckpointMeta>, Failed> {
        let mut reader = HistoryReader::new(self.stored(), self.row.counts(), range);
        let newest = reader.newest().map_or(self.row.key.last(), |id| self.key(id));
        let mut history = self.prepare(&history())?;
        let first = self.row.key.first();
        let mut rows = history.query([first, first, newest])?;
        let mut is_all = false;
        while !reader.is_full() && !is_all {
            match rows.next()? {
                Some(row) => reader.push(&meta(row)?)?,
                None => is_all = true,
            }
        }
        match reader.end(is_all)? {
            HistoryEnd::Complete(found) => Ok(found),
            HistoryEnd::Partial(part) => {
                Ok(part.checked(self.stored(), &self.history(&History::default())?)?)
            }
        }
    }

    /// Rejects a thread with a damaged row, before its rows are rewritten.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        self.history(&History::default())?;
        let range = [self.row.key.first(), self.row.key.last()];
        let find = |sql: &str| {
            let mut find = self.connection.prepare(sql)?;
            let mut rows = find.query(range)?;
            rows.next()?.map(|row| row.get::<_, i64>(0)).transpose()
        };
        let content = format!(
            "SELECT key FROM checkpoints WHERE key BETWEEN ?1 AND ?2 AND content_checksum IS NOT {CONTENT} LIMIT 1"
        );
        if let Some(key) = find(&content)? {
            return Err(self.stored().changed(id_of(key), "its row").into());
        }
        let sums = format!(
            "SELECT checkpoint, sum({TASK_SHARE}) FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2 GROUP BY 1"
        );
        let tasks = [
            format!(
                "SELECT checkpoint FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2 AND checksum IS NOT {TASK} LIMIT 1"
            ),
            format!("SELECT * FROM task_sums WHERE checkpoint BETWEEN ?1 AND ?2 EXCEPT {sums}"),
            format!("{sums} EXCEPT SELECT * FROM task_sums WHERE checkpoint BETWEEN ?1 AND ?2"),
        ];
        for sql in tasks {
            if let Some(key) = find(&sql)? {
                return Err(self.stored().changed(id_of(key), "the rows of its tasks").into());
            }
        }
        Ok(())
    }

    /// Returns the records of the checkpoint's own tasks, with those that a superstep folded.
    pub(crate) fn tasks(&self, id: CheckpointId) -> Result<Vec<(u32, TaskRecord)>, Failed> {
        let tasks = self.own_tasks(id)?;
        if id == self.row.head {
            return Ok(tasks);
        }
        let thread = self.row.key.number();
        let branched: u32 = self.prepare(BRANCHED)?.query_row([thread], |row| row.get(0))?;
        let mut reader = ChildReader::new(self.stored(), &self.row.counts(), branched.into(), id, tasks)?;
        let mut children = self.prepare(&children())?;
        let parent = id.0.cast_signed();
        let mut rows = children.query([thread, parent])?;
        while let Some(row) = rows.next()? {
            reader.push(&child(row)?)?;
        }
        match reader.missing_next() {
            Some(next) if !self.was_pruned(next)? => Err(self.stored().lost_checkpoints().into()),
            _ => Ok(reader.finish()),
        }
    }

    /// Returns the records of the checkpoint's own tasks.
    fn own_tasks(&self, id: CheckpointId) -> Result<Vec<(u32, TaskRecord)>, Failed> {
        let key = self.key(id);
        let mut reader = TaskReader::new(self.stored(), id);
        let mut records = self.prepare(&records())?;
        let mut rows = records.query([key])?;
        while let Some(row) = rows.next()? {
            reader.push(&task(row)?)?;
        }
        let sum = self.prepare(TASK_SUM)?.query_row([key], |row| row.get(0)).optional();
        Ok(reader.finish(sum?.unwrap_or(0))?)
    }

    /// Returns the key of a checkpoint that the thread may have.
    fn key(&self, id: CheckpointId) -> i64 {
        self.row.key.checkpoint(id).unwrap_or(self.row.key.last())
    }

    fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, Failed> {
        Ok(self.connection.prepare_cached(sql)?)
    }
}

/// Reads a row of [`metas`].
pub(crate) fn meta<'row>(row: &'row Row<'_>) -> rusqlite::Result<MetaRow<'row>> {
    let id = id_of(row.get(0)?);
    if !is_intact(row, 7) {
        return Ok(MetaRow::damaged(id));
    }
    Ok(MetaRow {
        id,
        parent: parent(row)?,
        source: text(row, 2)?,
        created_ms: row.get(3)?,
        control: text(row, 4)?,
        metadata: row.get_ref(5)?.as_bytes_or_null()?,
        parent_pruned: row.get(6)?,
        is_intact: true,
        parent_is_lost: row.get(8)?,
    })
}

/// Reads a row of [`contents`].
fn content<'row>(row: &'row Row<'_>) -> rusqlite::Result<ContentRow<'row>> {
    let id = id_of(row.get(0)?);
    if !is_intact(row, 4) {
        return Ok(ContentRow::damaged(id));
    }
    let (applied, snapshot) = (text(row, 2)?, row.get_ref(3)?.as_bytes_or_null()?);
    Ok(ContentRow { id, parent: parent(row)?, applied, snapshot, is_intact: true })
}

/// Reads a row of [`children`].
fn child<'row>(row: &'row Row<'_>) -> rusqlite::Result<ChildRow<'row>> {
    Ok(ChildRow {
        id: id_of(row.get(0)?),
        parent: parent(row).unwrap_or_default(),
        source: text(row, 2).unwrap_or_default(),
        applied: text(row, 3).unwrap_or_default(),
        is_intact: is_intact(row, 4),
        has_intact_content: is_intact(row, 5),
    })
}

/// Reads a row of [`records`] or [`record`].
fn task<'row>(row: &'row Row<'_>) -> rusqlite::Result<TaskRow<'row>> {
    let (slot, is_intact) = (row.get(0)?, is_intact(row, 2));
    let record = if is_intact { text(row, 1)? } else { &[] };
    Ok(TaskRow { slot, record, is_intact, share: row.get(3)? })
}

fn parent(row: &Row<'_>) -> rusqlite::Result<Option<CheckpointId>> {
    let parent: Option<i64> = row.get(1)?;
    Ok(parent.map(|parent| CheckpointId(parent.unsigned_abs())))
}

/// Returns whether a row is intact, by a column that compares its checksum.
fn is_intact(row: &Row<'_>, column: usize) -> bool {
    row.get::<_, Option<bool>>(column).is_ok_and(|intact| intact == Some(true))
}

/// Returns a column with text.
fn text<'row>(row: &'row Row<'_>, column: usize) -> rusqlite::Result<&'row [u8]> {
    Ok(row.get_ref(column)?.as_bytes()?)
}
