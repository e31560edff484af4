//! Loads, histories, threads.

use std::collections::BTreeMap;

use superstep_checkpoint::{
    AppliedTask, CheckpointError, CheckpointId, CheckpointMeta, Commit, HeadState, History, Loaded,
    TaskRecord, ThreadId, internal::leftovers,
};
use superstep_engine::{Control, NodeName};
use superstep_state::{RawJson, Snapshot, StoredUpdate};
use tokio_postgres::{Row, types::Type};

use crate::{
    database::{Database, repeated},
    error,
    error::Failed,
    query::Query,
    rows::{CHECKPOINT, META, SHARE, StoredRow, THREAD, ThreadRow, column_of, id_of, name_of, task_sum},
    session::{BEGIN_READING, Session},
    stored::{self, Applied, EffectSlots},
    write::{self, thread_of, under},
};

/// The number of rows that are read at once.
const PAGE: i64 = 256;

pub(crate) async fn load(
    database: &Database,
    thread: &ThreadId,
    at: Option<CheckpointId>,
) -> Result<Option<Loaded>, CheckpointError> {
    let action = || format!("load thread `{thread}`");
    repeated!(database, action(), |_nth| async {
        let mut session = database.session().await?;
        let loaded = Reader::load(database, &mut session, thread, at).await?;
        session.commit().await?;
        Ok(loaded)
    })
}

/// Loads the head, without the path to its state if `state` has it for the thread's row.
pub(crate) async fn load_head(
    database: &Database,
    thread: &ThreadId,
    state: impl Fn(&ThreadRow) -> Option<HeadState>,
) -> Result<Option<(Loaded, Option<HeadState>)>, CheckpointError> {
    let action = || format!("load thread `{thread}`");
    repeated!(database, action(), |_nth| async {
        let mut session = database.session().await?;
        // The path is requested at once, unless a state may be known.
        let is_known = database.known(thread).is_some_and(|row| state(&row).is_some());
        let depth = if is_known { Depth::Tip } else { Depth::Path };
        let Some((reader, answers)) = Reader::begin(database, &mut session, thread, None, depth).await?
        else {
            session.commit().await?;
            return Ok(None);
        };
        database.learn(thread, Some(reader.row));
        let loaded = match state(&reader.row) {
            Some(state) => Some((reader.read(answers, None).await?, Some(state))),
            None if depth == Depth::Path => Some((reader.read(answers, None).await?, None)),
            None => {
                session.roll_back().await?;
                Some((Reader::load(database, &mut session, thread, None).await?, None))
            }
        };
        session.commit().await?;
        Ok(loaded.and_then(|(loaded, state)| Some((loaded?, state))))
    })
}

/// Reads a checkpoint as it was committed.
pub(crate) async fn read_commit(
    database: &Database,
    thread: &ThreadId,
    at: CheckpointId,
) -> Result<Option<Commit>, CheckpointError> {
    let action = || format!("read thread `{thread}`");
    repeated!(database, action(), |_nth| async {
        let mut session = database.session().await?;
        let begun = Reader::begin(database, &mut session, thread, Some(at), Depth::Tip).await?;
        let commit = match begun {
            Some((reader, answers)) => reader.commit(at, answers).await?,
            None => None,
        };
        session.commit().await?;
        Ok(commit)
    })
}

pub(crate) async fn history(
    database: &Database,
    thread: &ThreadId,
    range: &History,
) -> Result<Vec<CheckpointMeta>, CheckpointError> {
    let action = || format!("read the history of thread `{thread}`");
    repeated!(database, action(), |_nth| async {
        let mut session = database.session().await?;
        session.begin_reading().await?;
        let found = match write::find(database, &session, thread).await? {
            Some(row) => Reader { database, session: &session, thread, row }.history(range).await?,
            None => Vec::new(),
        };
        session.commit().await?;
        Ok(found)
    })
}

/// Returns the number of a thread's checkpoints, from its row.
pub(crate) async fn count(database: &Database, thread: &ThreadId) -> Result<usize, CheckpointError> {
    repeated!(database, format!("count the checkpoints of thread `{thread}`"), |_nth| async {
        let session = database.session().await?;
        let row = write::find(database, &session, thread).await?;
        Ok(row.map_or(0, |row| usize::try_from(row.checkpoints).unwrap_or(0)))
    })
}

/// Returns the heads of the threads, newest first.
pub(crate) async fn threads(database: &Database) -> Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError> {
    repeated!(database, "list the threads", |_nth| async {
        let session = database.session().await?;
        let columns = THREAD.split(", ").map(|column| format!("t.{column}")).collect::<Vec<_>>().join(", ");
        let mut query = Query::new();
        query.sql("SELECT ").sql(META).sql(", ").sql(LOST_PARENT).sql(", ").sql(&columns);
        query.sql(" FROM threads t LEFT JOIN checkpoints c ON c.thread = t.key AND c.id = t.head WHERE t.root IS NULL");
        let mut found = Vec::new();
        for row in query.rows(session.client()).await? {
            let (thread, own) = thread_of(database, &row, 13)?;
            if row.try_get::<_, Option<i64>>(1)?.is_none() {
                return Err(error::missing(&database.place, &thread, own.head(), "its row").into());
            }
            found.push((thread.clone(), meta_of(database, &thread, &row)?));
        }
        found.sort_by(|(a, one), (b, other)| other.created_ms.cmp(&one.created_ms).then_with(|| a.cmp(b)));
        Ok(found)
    })
}

/// Returns the names alone, so that damaged heads do not matter.
pub(crate) async fn names(database: &Database) -> Result<Vec<ThreadId>, CheckpointError> {
    repeated!(database, "list the threads", |_nth| async {
        let session = database.session().await?;
        let mut query = Query::new();
        query.sql("SELECT ").sql(THREAD).sql(" FROM threads WHERE root IS NULL ORDER BY name");
        let rows = query.rows(session.client()).await?;
        rows.iter().map(|row| Ok(thread_of(database, row, 0)?.0)).collect::<Result<Vec<_>, Failed>>()
    })
}

/// Returns the roots that only the names of other threads have.
pub(crate) async fn orphans(database: &Database) -> Result<Vec<ThreadId>, CheckpointError> {
    repeated!(database, "list the threads without checkpoints", |_nth| async {
        let session = database.session().await?;
        let mut query = Query::new();
        query.sql("SELECT ").sql(THREAD).sql(" FROM threads c WHERE root IS NOT NULL AND NOT EXISTS ");
        query.sql("(SELECT FROM threads r WHERE sha256(r.name) = sha256(c.root)) ORDER BY name");
        let rows = query.rows(session.client()).await?;
        let children = rows.iter().map(|row| Ok(thread_of(database, row, 0)?.0));
        let children = leftovers(children.collect::<Result<_, Failed>>()?);
        let mut roots: Vec<_> = children.iter().map(ThreadId::root).collect();
        roots.dedup();
        Ok(roots)
    })
}

pub(crate) async fn children(
    database: &Database,
    thread: &ThreadId,
) -> Result<Vec<ThreadId>, CheckpointError> {
    let action = || format!("list the subgraphs of thread `{thread}`");
    repeated!(database, action(), |_nth| async {
        let session = database.session().await?;
        let found = under(database, &session, thread).await?;
        Ok(found.into_iter().map(|(child, _)| child).collect())
    })
}

/// The condition that the parent of a row `c` is missing.
pub(crate) const LOST_PARENT: &str = "c.parent IS NOT NULL AND NOT EXISTS (
    SELECT FROM checkpoints p WHERE p.thread = c.thread AND p.id = c.parent)";

/// Reads one thread in a transaction.
pub(crate) struct Reader<'a> {
    pub(crate) database: &'a Database,
    pub(crate) session: &'a Session,
    pub(crate) thread: &'a ThreadId,
    pub(crate) row: ThreadRow,
}

/// The part of the path to a checkpoint's state that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// The checkpoint alone.
    Tip,
    /// The checkpoint with those before it until a snapshot.
    Path,
}

/// The server's answers about a checkpoint.
struct Answers {
    depth: Depth,
    path: Vec<Row>,
    tasks: Vec<Row>,
    sum: i64,
}

impl<'a> Reader<'a> {
    async fn load(
        database: &'a Database,
        session: &'a mut Session,
        thread: &'a ThreadId,
        at: Option<CheckpointId>,
    ) -> Result<Option<Loaded>, Failed> {
        match Reader::begin(database, session, thread, at, Depth::Path).await? {
            Some((reader, answers)) => reader.read(answers, at).await,
            None => Ok(None),
        }
    }

    /// Begins a transaction, and requests all about a checkpoint that needs no earlier answer. Returns `None` if the thread does not
    /// exist.
    async fn begin(
        database: &'a Database,
        session: &'a mut Session,
        thread: &'a ThreadId,
        at: Option<CheckpointId>,
        depth: Depth,
    ) -> Result<Option<(Self, Answers)>, Failed> {
        let name = name_of(thread);
        // No checkpoint has the id 0.
        let id = at.map(|id| column_of(id).unwrap_or(0));
        let [mut own, mut path, mut tasks, mut sum] = [(); 4].map(|()| Query::new());
        own.sql("SELECT ")
            .sql(THREAD)
            .sql(" FROM threads WHERE sha256(name) = sha256(")
            .bytes(&name)
            .sql(")");
        path.sql("WITH RECURSIVE way AS (SELECT c.* FROM threads t JOIN checkpoints c ON c.thread = t.key AND c.id = coalesce(");
        path.value(&id, Type::INT8).sql(", t.head) WHERE sha256(t.name) = sha256(").bytes(&name);
        path.sql(") UNION ALL SELECT p.* FROM way JOIN checkpoints p ON p.thread = way.thread AND p.id = way.parent AND p.id < way.id");
        path.sql(match depth {
            Depth::Path => " WHERE way.snapshot IS NULL",
            Depth::Tip => " WHERE false",
        });
        path.sql(") SELECT ").sql(CHECKPOINT).sql(", ").sql(LOST_PARENT).sql(" FROM way c ORDER BY id DESC");
        for (query, table, columns) in [(&mut tasks, "tasks", TASK), (&mut sum, "task_sums", "c.sum")] {
            query
                .sql("SELECT ")
                .sql(columns)
                .sql(" FROM threads t JOIN ")
                .sql(table)
                .sql(" c ON c.thread = t.key");
            query
                .sql(" AND c.checkpoint = coalesce(")
                .value(&id, Type::INT8)
                .sql(", t.head) WHERE sha256(t.name) = sha256(");
            query.bytes(&name).sql(")");
        }
        tasks.sql(" ORDER BY slot");
        let mut prepared = Vec::with_capacity(4);
        for query in [&own, &path, &tasks, &sum] {
            prepared.push(query.prepare(session.client()).await?);
        }
        session.enter();
        let session = &*session;
        let client = session.client();
        let (begun, found, path, tasks, sum) = futures::join!(
            client.batch_execute(BEGIN_READING),
            own.run(client, &prepared[0]),
            path.run(client, &prepared[1]),
            tasks.run(client, &prepared[2]),
            sum.run(client, &prepared[3]),
        );
        begun?;
        // The first error is the cause of the others.
        let (found, path, tasks, sum) = (found?, path?, tasks?, sum?);
        let sum = sum.first().map_or(Ok(0), |row| row.try_get(0))?;
        match found.first() {
            None => Ok(None),
            Some(row) => {
                let row = write::read(database, thread, row)?;
                Ok(Some((Self { database, session, thread, row }, Answers { depth, path, tasks, sum })))
            }
        }
    }

    /// Reads a checkpoint; `None` if it does not exist.
    async fn read(&self, answers: Answers, at: Option<CheckpointId>) -> Result<Option<Loaded>, Failed> {
        let head = self.row.head();
        let id = at.unwrap_or(head);
        let Some(first) = self.first(&answers, id).await? else { return Ok(None) };
        let meta = meta_of(self.database, self.thread, first)?;
        let (applied, snapshot, commits) = match answers.depth {
            Depth::Tip => (self.named(first)?, None, Vec::new()),
            Depth::Path => self.path(id, &answers.path).await?,
        };
        let tasks = self.tasks(id, &answers.tasks, answers.sum).await?;
        Ok(Some(Loaded { meta, head, applied, snapshot, commits, tasks, fingerprints: None }))
    }

    /// Reads a checkpoint as it was committed.
    async fn commit(&self, id: CheckpointId, answers: Answers) -> Result<Option<Commit>, Failed> {
        let Some(first) = self.first(&answers, id).await? else { return Ok(None) };
        let meta = meta_of(self.database, self.thread, first)?;
        let step = self.intact(first)?;
        let tasks = self.applied(id, step.row.applied)?;
        let mut recorded = match meta.parent_pruned {
            // Their records were pruned with the parent.
            true => Recorded::default(),
            false => self.recorded(&answers.path).await?,
        };
        let mut applied = Vec::with_capacity(tasks.len());
        for task in tasks {
            let is_recorded = task.update.is_none();
            let update = match task.update {
                Some(update) => update.into(),
                None if meta.parent_pruned => StoredUpdate::empty(),
                None => self.take(id, step.row.parent, task.slot, &mut recorded)?,
            };
            let node = task.node.as_ref().into();
            applied.push(AppliedTask { slot: task.slot, recorded: is_recorded, node, update });
        }
        let snapshot = self.snapshot(id, step.row.snapshot)?;
        let records = self.own_tasks(id, &answers.tasks, answers.sum)?;
        let CheckpointMeta { parent, source, control, created_ms, metadata, .. } = meta;
        let (metadata, fingerprints) = (metadata.into(), None);
        let commit = Commit {
            parent,
            source,
            control,
            created_ms,
            metadata,
            applied,
            snapshot,
            records,
            fingerprints,
        };
        Ok(Some(commit))
    }

    /// Returns the row of the checkpoint; `None` if the thread never had it, or it was pruned.
    async fn first<'r>(&self, answers: &'r Answers, id: CheckpointId) -> Result<Option<&'r Row>, Failed> {
        let head = self.row.head();
        if id > head || id.0 == 0 {
            return Ok(None);
        }
        if let Some(first) = answers.path.first() {
            return Ok(Some(first));
        }
        match self.was_pruned(id).await? {
            true => Ok(None),
            false => Err(error::missing(&self.database.place, self.thread, id, "its row").into()),
        }
    }

    /// Returns whether a checkpoint whose row was not found was pruned: if the number of missing ones is correct, and it is
    /// one of them.
    async fn was_pruned(&self, id: CheckpointId) -> Result<bool, Failed> {
        Ok(!self.row.is_whole()
            && id < self.row.head()
            && !Box::pin(self.history(&History::default())).await?.iter().any(|meta| meta.id == id))
    }

    /// Reads the path to a state: the tasks that the checkpoint applied, the nearest snapshot, and the updates since.
    async fn path(&self, from: CheckpointId, path: &[Row]) -> Result<Path, Failed> {
        let mut recorded = self.recorded(path).await?;
        let mut commits = Vec::with_capacity(path.len());
        let mut next = None;
        for row in path {
            let step = self.intact(row)?;
            let id = id_of(step.row.id);
            let tasks = self.applied(id, step.row.applied)?;
            if step.row.parent.is_some_and(|parent| parent >= step.row.id) {
                return Err(self.damaged(id, "parent", "it is not older").into());
            }
            if let Some(snapshot) = self.snapshot(id, step.row.snapshot)? {
                commits.reverse();
                return Ok((self.named(&path[0])?, Some(snapshot), commits));
            }
            commits.push(self.updates(id, step.row.parent, tasks, &mut recorded)?);
            next = step.row.parent;
        }
        if let Some(lost) = next {
            return Err(error::missing(
                &self.database.place,
                self.thread,
                from,
                &format!("its ancestor {lost}"),
            )
            .into());
        }
        commits.reverse();
        Ok((self.named(&path[0])?, None, commits))
    }

    /// Returns the slots and nodes of the tasks that a checkpoint applied.
    fn named(&self, row: &Row) -> Result<Vec<(u32, NodeName)>, Failed> {
        let step = self.intact(row)?;
        let tasks = self.applied(id_of(step.row.id), step.row.applied)?;
        Ok(tasks.iter().map(|task| (task.slot, task.node.as_ref().into())).collect())
    }

    /// Reads a row with its content.
    fn intact<'r>(&self, row: &'r Row) -> Result<StoredRow<'r>, Failed> {
        let step = StoredRow::read(row)?;
        if step.has_intact_meta() && step.has_intact_content() {
            return Ok(step);
        }
        Err(error::changed(&self.database.place, self.thread, id_of(step.row.id), "its row").into())
    }

    fn applied<'r>(&self, id: CheckpointId, json: &'r str) -> Result<Vec<Applied<'r>>, CheckpointError> {
        stored::applied(json.as_bytes()).map_err(|cause| self.damaged(id, "list of applied tasks", cause))
    }

    fn snapshot(&self, id: CheckpointId, json: Option<&str>) -> Result<Option<Snapshot>, CheckpointError> {
        let channels = json.map(|json| stored::snapshot(json.as_bytes())).transpose();
        Ok(channels.map_err(|cause| self.damaged(id, "snapshot", cause))?.map(Snapshot::from))
    }

    /// Returns the updates that the checkpoint `id` folded.
    fn updates(
        &self,
        id: CheckpointId,
        parent: Option<i64>,
        applied: Vec<Applied<'_>>,
        recorded: &mut Recorded,
    ) -> Result<Vec<StoredUpdate>, CheckpointError> {
        let mut updates = Vec::with_capacity(applied.len());
        for task in applied {
            updates.push(match task.update {
                Some(update) => update.into(),
                None => self.take(id, parent, task.slot, recorded)?,
            });
        }
        Ok(updates)
    }

    fn take(
        &self,
        id: CheckpointId,
        parent: Option<i64>,
        slot: u32,
        recorded: &mut Recorded,
    ) -> Result<StoredUpdate, CheckpointError> {
        let found = parent.and_then(|parent| recorded.get(&(parent, slot.into())).cloned());
        found.ok_or_else(|| {
            let part = format!("the record of task {slot} it applied");
            error::missing(&self.database.place, self.thread, id, &part)
        })
    }

    /// Requests the updates that the checkpoints of a path applied and that are in the records of their parents.
    async fn recorded(&self, path: &[Row]) -> Result<Recorded, Failed> {
        let (mut checkpoints, mut slots) = (Vec::new(), Vec::new());
        for row in path {
            let step = StoredRow::read(row)?.row;
            let Some(parent) = step.parent else { continue };
            // Damage is reported when the row is read.
            for task in stored::applied(step.applied.as_bytes()).unwrap_or_default() {
                if task.update.is_none() {
                    checkpoints.push(parent);
                    slots.push(i64::from(task.slot));
                }
            }
        }
        let mut recorded = Recorded::default();
        if slots.is_empty() {
            return Ok(recorded);
        }
        let mut query = Query::new();
        query.sql("SELECT c.slot, c.record, c.checksum, c.checkpoint FROM tasks c, unnest(");
        query.ints(&checkpoints).sql(", ").ints(&slots);
        query.sql(") AS w (checkpoint, slot) WHERE c.thread = ").int(&self.row.key);
        query.sql(" AND c.checkpoint = w.checkpoint AND c.slot = w.slot");
        for row in query.rows(self.session.client()).await? {
            let checkpoint: i64 = row.try_get(3)?;
            if let (slot, TaskRecord::Finished { update, .. }, _) = self.task(id_of(checkpoint), &row)? {
                recorded.insert((checkpoint, slot), update);
            }
        }
        Ok(recorded)
    }

    /// Reads a row of a task: its slot, its record, and its share in the sum of the checkpoint.
    fn task(&self, id: CheckpointId, row: &Row) -> Result<(i64, TaskRecord, i64), Failed> {
        let (slot, json, sum): (i64, &str, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let checkpoint = column_of(id).unwrap_or_default();
        if sum != task_sum(self.row.key, checkpoint, slot, json) {
            let part = format!("the row of its task {slot}");
            return Err(error::changed(&self.database.place, self.thread, id, &part).into());
        }
        let record = stored::record(json.as_bytes());
        let record = record.map_err(|cause| self.damaged(id, "record of a task", cause))?;
        Ok((slot, record, sum & SHARE))
    }

    /// Returns the records of the checkpoint's own tasks, with those that a superstep folded.
    async fn tasks(
        &self,
        id: CheckpointId,
        rows: &[Row],
        sum: i64,
    ) -> Result<Vec<(u32, TaskRecord)>, Failed> {
        let mut tasks = self.own_tasks(id, rows, sum)?;
        if id < self.row.head() {
            self.add_applied(id, &mut tasks).await?;
        }
        Ok(tasks)
    }

    /// Returns the records of the checkpoint's own tasks.
    fn own_tasks(
        &self,
        id: CheckpointId,
        rows: &[Row],
        stored: i64,
    ) -> Result<Vec<(u32, TaskRecord)>, Failed> {
        let (mut tasks, mut sum) = (Vec::new(), 0_i64);
        let mut effects: BTreeMap<u32, BTreeMap<String, RawJson>> = BTreeMap::new();
        for row in rows {
            let (slot, mut record, share) = self.task(id, row)?;
            sum = sum.wrapping_add(share);
            if let Some(task) = EffectSlots::task_of(slot) {
                effects.entry(task).or_default().extend(record.into_once());
                continue;
            }
            let slot = u32::try_from(slot).map_err(|cause| self.damaged(id, "slot of a task", cause))?;
            // They come before their task.
            if let (Some(more), Some(once)) = (effects.remove(&slot), record.once_mut()) {
                once.extend(more);
            }
            tasks.push((slot, record));
        }
        if sum != stored || !effects.is_empty() {
            return Err(error::missing(&self.database.place, self.thread, id, "the record of a task").into());
        }
        Ok(tasks)
    }

    /// Requests the records of a checkpoint's tasks.
    pub(crate) async fn requested_tasks(&self, id: CheckpointId) -> Result<Vec<(u32, TaskRecord)>, Failed> {
        let checkpoint = column_of(id).unwrap_or_default();
        let mut tasks = Query::new();
        tasks.sql("SELECT ").sql(TASK).sql(" FROM tasks c WHERE thread = ").int(&self.row.key);
        tasks.sql(" AND checkpoint = ").int(&checkpoint).sql(" ORDER BY slot");
        let rows = tasks.rows(self.session.client()).await?;
        let mut sum = Query::new();
        sum.sql("SELECT sum FROM task_sums WHERE thread = ")
            .int(&self.row.key)
            .sql(" AND checkpoint = ")
            .int(&checkpoint);
        let sum = sum.row(self.session.client()).await?.map_or(Ok(0), |row| row.try_get(0))?;
        self.tasks(id, &rows, sum).await
    }

    /// Adds tasks without records that a superstep folded: the newest one that follows the checkpoint.
    async fn add_applied(
        &self,
        parent: CheckpointId,
        tasks: &mut Vec<(u32, TaskRecord)>,
    ) -> Result<(), Failed> {
        let lost = || Failed::from(error::lost_rows(&self.database.place, self.thread));
        let (key, column) = (self.row.key, column_of(parent).unwrap_or_default());
        let behind = column + 1;
        let mut branched = Query::new();
        branched
            .sql("SELECT count(*) FROM checkpoints WHERE thread = ")
            .int(&key)
            .sql(" AND parent <> id - 1");
        let mut children = Query::new();
        children.sql("SELECT ").sql(CHECKPOINT).sql(" FROM checkpoints c WHERE thread = ").int(&key);
        children
            .sql(" AND parent = ")
            .int(&column)
            .sql(" AND parent <> id - 1 UNION ALL SELECT ")
            .sql(CHECKPOINT);
        children
            .sql(" FROM checkpoints c WHERE thread = ")
            .int(&key)
            .sql(" AND id = ")
            .int(&behind)
            .sql(" ORDER BY id DESC");
        let branched =
            branched.row(self.session.client()).await?.map_or(Ok(0), |row| row.try_get::<_, i64>(0))?;
        let children = children.rows(self.session.client()).await?;
        if branched != self.row.branched {
            return Err(lost());
        }
        let mut is_behind = false;
        for row in &children {
            let child = StoredRow::read(row)?;
            is_behind |= child.row.id == behind;
            let follows = child.row.parent == Some(column);
            let is_known = stored::source(child.row.source).is_ok();
            // A damaged checkpoint does not affect the one before it, as long as what is read here is plausible.
            let is_plausible = child.has_intact_meta() || (child.row.id == behind && follows && is_known);
            if !is_plausible || !child.has_intact_content() {
                return Err(error::changed(
                    &self.database.place,
                    self.thread,
                    id_of(child.row.id),
                    "its row",
                )
                .into());
            }
        }
        if !is_behind && !self.was_pruned(id_of(behind)).await? {
            return Err(lost());
        }
        let newest = children.iter().find_map(|row| {
            let child = StoredRow::read(row).ok()?.row;
            (child.parent == Some(column) && child.source == "loop").then_some(child)
        });
        let Some(child) = newest else { return Ok(()) };
        stored::add_applied(tasks, self.applied(id_of(child.id), child.applied)?);
        Ok(())
    }

    /// Reads the history. A thread that was never pruned must have every checkpoint; others must have the recorded number, and
    /// those that a part of the history lacks must be missing in the whole.
    pub(crate) async fn history(&self, range: &History) -> Result<Vec<CheckpointMeta>, Failed> {
        let lost = || Failed::from(error::lost_rows(&self.database.place, self.thread));
        let head = self.row.head().0;
        let from_head = range.before.is_none_or(|before| before.0 > head);
        let start = range.before.map_or(head, |before| before.0.saturating_sub(1).min(head));
        // Includes checkpoints after the head, so that they are detected.
        let mut newest =
            if from_head { i64::MAX } else { column_of(CheckpointId(start)).unwrap_or_default() };
        let limit = range.limit.unwrap_or(usize::MAX);
        let (mut found, mut seen, mut next) = (Vec::new(), 0, start);
        let (mut has_gaps, mut has_ended) = (false, false);
        while found.len() < limit && !has_ended {
            // Few rows if few are wanted, unless they are searched.
            let page = i64::try_from(limit).unwrap_or(PAGE).clamp(if seen == 0 { 1 } else { PAGE }, PAGE);
            let mut query = Query::new();
            query
                .sql("SELECT ")
                .sql(META)
                .sql(", ")
                .sql(LOST_PARENT)
                .sql(" FROM checkpoints c WHERE thread = ");
            query
                .int(&self.row.key)
                .sql(" AND id <= ")
                .int(&newest)
                .sql(" ORDER BY id DESC LIMIT ")
                .int(&page);
            let rows = query.rows(self.session.client()).await?;
            for row in &rows {
                let id = row.try_get::<_, i64>(1)?.unsigned_abs();
                let must_be_next = self.row.is_whole() || (from_head && seen == 0);
                if id == 0 || id > next || (must_be_next && id != next) {
                    return Err(lost());
                }
                has_gaps |= id != next;
                (next, seen) = (id - 1, seen + 1);
                if found.len() < limit {
                    found.extend(
                        Some(meta_of(self.database, self.thread, row)?).filter(|meta| range.has(meta)),
                    );
                }
            }
            newest = column_of(CheckpointId(next)).unwrap_or_default();
            has_ended = (rows.len() as i64) < page;
        }
        let is_complete = if self.row.is_whole() {
            next == 0 || found.len() == limit
        } else if has_ended && from_head {
            seen == self.row.checkpoints
        } else if has_gaps || (has_ended && next > 0) {
            let here = if has_ended { 1..=start } else { next + 1..=start };
            let whole = Box::pin(self.history(&History::default())).await?;
            whole.iter().filter(|meta| here.contains(&meta.id.0)).count() as i64 == seen
        } else {
            true
        };
        if is_complete { Ok(found) } else { Err(lost()) }
    }

    fn damaged(
        &self,
        id: CheckpointId,
        part: &str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> CheckpointError {
        error::damaged(&self.database.place, self.thread, id, part, cause)
    }
}

/// The columns of a row `c` of a task.
const TASK: &str = "c.slot, c.record, c.checksum";

/// The applied tasks of a checkpoint, the nearest snapshot, and the updates since.
type Path = (Vec<(u32, NodeName)>, Option<Snapshot>, Vec<Vec<StoredUpdate>>);

/// The updates in records, by checkpoint and slot.
type Recorded = BTreeMap<(i64, i64), StoredUpdate>;

/// Reads a row with the columns of [`META`] or [`CHECKPOINT`], and of [`LOST_PARENT`].
pub(crate) fn meta_of(database: &Database, thread: &ThreadId, row: &Row) -> Result<CheckpointMeta, Failed> {
    let place = &database.place;
    let stored = StoredRow::read(row)?;
    let id = id_of(stored.row.id);
    if !stored.has_intact_meta() {
        return Err(error::changed(place, thread, id, "its row").into());
    }
    let row_lost: bool = row.try_get(12)?;
    let row = stored.row;
    let source =
        stored::source(row.source).map_err(|cause| error::damaged(place, thread, id, "source", cause))?;
    let control: Control = serde_json::from_str(row.control)
        .map_err(|cause| error::damaged(place, thread, id, "control", cause))?;
    let metadata = row.metadata.map_or_else(|| Ok(Default::default()), serde_json::from_str);
    let metadata = metadata.map_err(|cause| error::damaged(place, thread, id, "metadata", cause))?;
    if row.parent_pruned != row_lost {
        return Err(error::missing(place, thread, id, "its parent").into());
    }
    Ok(CheckpointMeta {
        id,
        parent: row.parent.map(id_of),
        parent_pruned: row_lost,
        source,
        control,
        created_ms: row.created_ms,
        metadata,
    })
}
