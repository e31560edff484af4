//! Load, history, threads.

use rusqlite::{Connection, Row, params};
use superstep_graph::{
    ChannelValue, CheckpointError, CheckpointId, CheckpointMeta, Control, History, Loaded, NodeName, Source,
    TaskRecord, ThreadId,
};

use crate::{
    database::{Database, Place, ThreadKey, id_of},
    error, stored,
};

/// The columns of a [`CheckpointMeta`], in the order in which [`Reader::meta`] reads them.
const HISTORY: &str = "
SELECT key, parent, source, created_ms, control, metadata,
    parent IS NOT NULL AND ((?1 | parent) NOT IN (SELECT key FROM checkpoints))
FROM checkpoints WHERE key BETWEEN ?2 AND ?3 AND (?4 IS NULL OR source = ?4)
ORDER BY key DESC";

const HEADS: &str = "
SELECT c.key, c.parent, c.source, c.created_ms, c.control, c.metadata,
    c.parent IS NOT NULL AND (((threads.key << 32) | c.parent) NOT IN (SELECT key FROM checkpoints)),
    threads.name
FROM threads JOIN checkpoints AS c ON c.key = (
    SELECT key FROM checkpoints WHERE key BETWEEN (threads.key << 32) AND ((threads.key << 32) | 0xffffffff)
    ORDER BY key DESC LIMIT 1
)
WHERE instr(threads.name, char(31)) = 0 -- Subgraphs are their roots'.
ORDER BY c.created_ms DESC, threads.name";

/// Without their heads, so that none of these can be damaged.
const NAMES: &str = "
SELECT name FROM threads
WHERE instr(name, char(31)) = 0 AND EXISTS (
    SELECT 1 FROM checkpoints WHERE key BETWEEN (threads.key << 32) AND ((threads.key << 32) | 0xffffffff)
)
ORDER BY name";

const HEAD: &str = "SELECT key FROM checkpoints WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1";

const WAY_BACK: &str = "
SELECT key, parent, applied, snapshot FROM checkpoints WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC";

/// The newest superstep that follows a checkpoint: on a branch of its own, or right behind it.
const APPLIED_BY: &str = "
SELECT key, applied FROM (
    SELECT key, applied, source FROM checkpoints WHERE thread = ?1 AND parent = ?2 AND parent <> id - 1
    UNION ALL
    SELECT key, applied, source FROM checkpoints WHERE key = ((?1 << 32) | (?2 + 1)) AND parent = ?2
) WHERE source = 'loop' ORDER BY key DESC LIMIT 1";

const RECORDS: &str = "SELECT slot, record FROM tasks WHERE checkpoint = ?1 ORDER BY slot";

const RECORD: &str = "SELECT record FROM tasks WHERE checkpoint = ?1 AND slot = ?2";

impl Database {
    pub(crate) fn load(
        &mut self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> Result<Option<Loaded>, CheckpointError> {
        let place = self.place.clone();
        // One transaction, so that nobody deletes the thread while it is read.
        let transaction = self
            .connection
            .transaction()
            .map_err(|cause| error::database(&place, &format!("load thread `{thread}`"), cause))?;
        let Some(key) = ThreadKey::find(&transaction, &place, thread)? else {
            return Ok(None);
        };
        Reader { connection: &transaction, place: &place, thread, key }.load(at)
    }

    pub(crate) fn history(
        &mut self,
        thread: &ThreadId,
        range: History,
    ) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let connection = &self.connection;
        let Some(key) = ThreadKey::find(connection, &self.place, thread)? else {
            return Ok(Vec::new());
        };
        Reader { connection, place: &self.place, thread, key }.history(range)
    }

    pub(crate) fn threads(&mut self) -> Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError> {
        let refused = |cause| error::database(&self.place, "list the threads", cause);
        let mut heads = self.connection.prepare_cached(HEADS).map_err(refused)?;
        let mut rows = heads.query([]).map_err(refused)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(refused)? {
            let thread = ThreadId::from(row.get::<_, String>(7).map_err(refused)?);
            let head = meta(&self.place, &thread, row)?;
            found.push((thread, head));
        }
        Ok(found)
    }

    pub(crate) fn names(&mut self) -> Result<Vec<ThreadId>, CheckpointError> {
        let refused = |cause| error::database(&self.place, "list the names of the threads", cause);
        let mut names = self.connection.prepare_cached(NAMES).map_err(refused)?;
        let names = names.query_map([], |row| row.get::<_, String>(0)).map_err(refused)?;
        names.map(|name| name.map(ThreadId::from).map_err(refused)).collect()
    }

    pub(crate) fn children(&mut self, thread: &ThreadId) -> Result<Vec<ThreadId>, CheckpointError> {
        let found = ThreadKey::under(&self.connection, thread).map_err(|cause| {
            error::database(&self.place, &format!("list the subgraphs of thread `{thread}`"), cause)
        })?;
        Ok(found.into_iter().map(|(_, child)| child).collect())
    }
}

/// Reads one thread.
pub(crate) struct Reader<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) place: &'a Place,
    pub(crate) thread: &'a ThreadId,
    pub(crate) key: ThreadKey,
}

/// What a checkpoint is loaded from: see [`Loaded`].
#[derive(Default)]
struct Way {
    applied: Vec<(u32, NodeName)>,
    snapshot: Option<Vec<ChannelValue>>,
    commits: Vec<Vec<Vec<u8>>>,
}

impl Reader<'_> {
    fn load(&self, at: Option<CheckpointId>) -> Result<Option<Loaded>, CheckpointError> {
        let Some(head) = self.head()? else { return Ok(None) };
        let id = at.unwrap_or(head);
        if id > head {
            return Ok(None);
        }
        let Some(key) = self.key.checkpoint(id) else {
            return Ok(None);
        };
        let Some(meta) = self.metas(key, key, &History::default())?.pop() else {
            return Ok(None);
        };
        let Way { applied, snapshot, commits } = self.way_back(id)?;
        let tasks = self.tasks(id, key, head)?;
        Ok(Some(Loaded { meta, head, applied, snapshot, commits, tasks }))
    }

    fn history(&self, range: History) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let newest = match range.before {
            Some(CheckpointId(0)) => return Ok(Vec::new()),
            Some(CheckpointId(before)) => self.key.checkpoint(CheckpointId(before - 1)),
            None => None,
        };
        self.metas(self.key.first(), newest.unwrap_or(self.key.last()), &range)
    }

    fn metas(
        &self,
        oldest: i64,
        newest: i64,
        range: &History,
    ) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let limit = range.limit.unwrap_or(usize::MAX);
        let mut history = self.prepare(HISTORY)?;
        let mut rows = history
            .query(params![self.key.first(), oldest, newest, range.source.map(Source::as_str)])
            .map_err(|cause| self.refused(cause))?;
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(row) = rows.next().map_err(|cause| self.refused(cause))?
        {
            found.extend(Some(meta(self.place, self.thread, row)?).filter(|meta| range.has(meta)));
        }
        Ok(found)
    }

    pub(crate) fn head(&self) -> Result<Option<CheckpointId>, CheckpointError> {
        let mut head = self.prepare(HEAD)?;
        let mut rows =
            head.query([self.key.first(), self.key.last()]).map_err(|cause| self.refused(cause))?;
        let row = rows.next().map_err(|cause| self.refused(cause))?;
        row.map(|row| row.get(0).map(id_of)).transpose().map_err(|cause| self.refused(cause))
    }

    /// The nearest snapshot, and the updates since, oldest first.
    fn way_back(&self, from: CheckpointId) -> Result<Way, CheckpointError> {
        let mut statement = self.prepare(WAY_BACK)?;
        let mut way = Way::default();
        let mut next = Some(from);
        // One round for each piece of the way on which ids are consecutive: one, if there are no branches.
        while let Some(start) = next {
            let newest = self.key.checkpoint(start).unwrap_or(self.key.last());
            let mut rows =
                statement.query([self.key.first(), newest]).map_err(|cause| self.refused(cause))?;
            while let Some(row) = rows.next().map_err(|cause| self.refused(cause))? {
                let id = row.get(0).map(id_of).map_err(|cause| self.refused(cause))?;
                if next != Some(id) {
                    break;
                }
                let parent = row.get::<_, Option<i64>>(1).map_err(|cause| self.refused(cause))?;
                let parent = parent.map(|parent| CheckpointId(parent.unsigned_abs()));
                if parent.is_some_and(|parent| parent >= id) {
                    return Err(self.damaged(id, "parent", "it is not older"));
                }
                let applied =
                    text(row, 2).map_err(|cause| self.damaged(id, "list of applied tasks", cause))?;
                let applied = stored::applied(applied)
                    .map_err(|cause| self.damaged(id, "list of applied tasks", cause))?;
                if id == from {
                    way.applied = applied.iter().map(|task| (task.slot, task.node.as_ref().into())).collect();
                }
                let stored = row.get_ref(3).map_err(|cause| self.refused(cause))?;
                if let Some(stored) =
                    stored.as_bytes_or_null().map_err(|cause| self.damaged(id, "snapshot", cause))?
                {
                    way.snapshot =
                        Some(stored::snapshot(stored).map_err(|cause| self.damaged(id, "snapshot", cause))?);
                    next = None;
                    break;
                }
                way.commits.push(self.updates(id, parent, applied)?);
                next = parent;
                if next.is_none() {
                    break;
                }
            }
            if next == Some(start) {
                return Err(error::missing(self.place, self.thread, from, &format!("its ancestor {start}")));
            }
        }
        way.commits.reverse();
        Ok(way)
    }

    /// The updates that the checkpoint `id` folded in.
    fn updates(
        &self,
        id: CheckpointId,
        parent: Option<CheckpointId>,
        applied: Vec<stored::Applied<'_>>,
    ) -> Result<Vec<Vec<u8>>, CheckpointError> {
        let mut updates = Vec::with_capacity(applied.len());
        for task in applied {
            updates.push(match task.update {
                Some(update) => update.get().as_bytes().to_vec(),
                None => self.recorded(id, parent, task.slot)?.into_bytes(),
            });
        }
        Ok(updates)
    }

    fn recorded(
        &self,
        id: CheckpointId,
        parent: Option<CheckpointId>,
        slot: u32,
    ) -> Result<String, CheckpointError> {
        let mut find = self.prepare(RECORD)?;
        let key = parent.and_then(|parent| self.key.checkpoint(parent));
        let mut rows = find.query(params![key, slot]).map_err(|cause| self.refused(cause))?;
        let missing =
            || error::missing(self.place, self.thread, id, &format!("the record of task {slot} it applied"));
        let row = rows.next().map_err(|cause| self.refused(cause))?.ok_or_else(missing)?;
        match self.task(parent.unwrap_or(id), row, 0)? {
            TaskRecord::Finished { update, .. } => Ok(update),
            _ => Err(missing()),
        }
    }

    /// What is known of the checkpoint's own tasks.
    pub(crate) fn tasks(
        &self,
        id: CheckpointId,
        key: i64,
        head: CheckpointId,
    ) -> Result<Vec<(u32, TaskRecord)>, CheckpointError> {
        let mut tasks = Vec::new();
        {
            let mut records = self.prepare(RECORDS)?;
            let mut rows = records.query([key]).map_err(|cause| self.refused(cause))?;
            while let Some(row) = rows.next().map_err(|cause| self.refused(cause))? {
                let slot = row.get(0).map_err(|cause| self.damaged(id, "slot of a task", cause))?;
                tasks.push((slot, self.task(id, row, 1)?));
            }
        }
        if id < head {
            self.add_applied(id, &mut tasks)?;
        }
        Ok(tasks)
    }

    /// Adds the tasks that a superstep folded in without their having been recorded.
    fn add_applied(
        &self,
        parent: CheckpointId,
        tasks: &mut Vec<(u32, TaskRecord)>,
    ) -> Result<(), CheckpointError> {
        let mut child = self.prepare(APPLIED_BY)?;
        let parent = i64::try_from(parent.0).expect("a checkpoint that was found has a small id");
        let mut rows = child.query([self.key.number(), parent]).map_err(|cause| self.refused(cause))?;
        let Some(row) = rows.next().map_err(|cause| self.refused(cause))? else {
            return Ok(());
        };
        let id = row.get(0).map(id_of).map_err(|cause| self.refused(cause))?;
        let applied = text(row, 1)
            .map_err(|cause| cause.to_string())
            .and_then(|json| stored::applied(json).map_err(|cause| cause.to_string()))
            .map_err(|cause| self.damaged(id, "list of applied tasks", cause))?;
        for task in applied {
            // Those without an update are among the records.
            let Some(update) = task.update else { continue };
            let finished =
                TaskRecord::Finished { update: update.get().to_owned(), targets: Vec::new(), failure: None };
            match tasks.binary_search_by_key(&task.slot, |(slot, _)| *slot) {
                Ok(at) if matches!(tasks[at].1, TaskRecord::Finished { .. }) => {}
                Ok(at) => tasks[at].1 = finished,
                Err(at) => tasks.insert(at, (task.slot, finished)),
            }
        }
        Ok(())
    }

    fn task(&self, id: CheckpointId, row: &Row<'_>, column: usize) -> Result<TaskRecord, CheckpointError> {
        let json = text(row, column).map_err(|cause| self.damaged(id, "record of a task", cause))?;
        stored::record(json).map_err(|cause| self.damaged(id, "record of a task", cause))
    }

    fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, CheckpointError> {
        self.connection.prepare_cached(sql).map_err(|cause| self.refused(cause))
    }

    fn refused(&self, cause: rusqlite::Error) -> CheckpointError {
        error::database(self.place, &format!("load thread `{}`", self.thread), cause)
    }

    fn damaged(
        &self,
        id: CheckpointId,
        part: &str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> CheckpointError {
        error::damaged(self.place, self.thread, id, part, cause)
    }
}

/// Reads a row of [`HISTORY`].
fn meta(place: &Place, thread: &ThreadId, row: &Row<'_>) -> Result<CheckpointMeta, CheckpointError> {
    let refused = |cause| error::database(place, &format!("read the history of thread `{thread}`"), cause);
    let id = row.get(0).map(id_of).map_err(refused)?;
    let damaged = |part: &str, cause: serde_json::Error| error::damaged(place, thread, id, part, cause);
    let parent: Option<i64> = row.get(1).map_err(refused)?;
    let source = text(row, 2).map_err(|cause| error::damaged(place, thread, id, "source", cause))?;
    let source = stored::source(&String::from_utf8_lossy(source))
        .map_err(|cause| error::damaged(place, thread, id, "source", cause))?;
    let control = text(row, 4).map_err(|cause| error::damaged(place, thread, id, "control", cause))?;
    let control: Control = serde_json::from_slice(control).map_err(|cause| damaged("control", cause))?;
    let metadata = row.get_ref(5).map_err(refused)?.as_bytes_or_null();
    let metadata = metadata.map_err(|cause| error::damaged(place, thread, id, "metadata", cause))?;
    Ok(CheckpointMeta {
        id,
        parent: parent.map(|parent| CheckpointId(parent.unsigned_abs())),
        parent_pruned: row.get(6).map_err(refused)?,
        source,
        control,
        created_ms: row.get(3).map_err(refused)?,
        metadata: metadata
            .map_or_else(|| Ok(Default::default()), serde_json::from_slice)
            .map_err(|cause| damaged("metadata", cause))?,
    })
}

/// A column with text.
fn text<'row>(row: &'row Row<'_>, column: usize) -> rusqlite::Result<&'row [u8]> {
    Ok(row.get_ref(column)?.as_bytes()?)
}
