//! Loads, histories, threads.

use std::collections::BTreeMap;

use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Commit, HeadState, History, Loaded, TaskRecord, ThreadId,
    internal::leftovers,
};
use tokio_postgres::Row;

use crate::{
    database::{Database, repeated},
    error::Failed,
    query::Query,
    rows::{
        CHECKPOINT, LOST_PARENT, META, StoredRow, TASK, THREAD, ThreadRow, column_of, id_of, name_of, task,
    },
    session::{BEGIN_READING, Session},
    stored::{ChildReader, Depth, HistoryEnd, HistoryReader, PathReader, StoredThread, TaskReader},
    write::{self, thread_of, under},
};

/// The number of rows that are read at once.
const PAGE: usize = 256;

pub(crate) async fn load(
    database: &Database,
    thread: &ThreadId,
    at: Option<CheckpointId>,
) -> Result<Option<Loaded>, CheckpointError> {
    let action = || format!("load thread `{thread}`");
    repeated!(database, action(), |_nth| async {
        let mut session = database.session().await?;
        let begun = Reader::begin(database, &mut session, thread, at, Depth::Path).await?;
        let loaded = match begun {
            Some((reader, answers)) => reader.load(&answers, at).await?,
            None => None,
        };
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
            Some(state) => reader.load(&answers, None).await?.map(|loaded| (loaded, Some(state))),
            None if depth == Depth::Path => reader.load(&answers, None).await?.map(|loaded| (loaded, None)),
            None => {
                session.roll_back().await?;
                match Reader::begin(database, &mut session, thread, None, Depth::Path).await? {
                    Some((reader, answers)) => {
                        reader.load(&answers, None).await?.map(|loaded| (loaded, None))
                    }
                    None => None,
                }
            }
        };
        session.commit().await?;
        Ok(loaded)
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
        let begun = Reader::begin(database, &mut session, thread, Some(at), Depth::Commit).await?;
        let commit = match begun {
            Some((reader, answers)) => reader.commit(&answers, at).await?,
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
        let sql = format!(
            "SELECT {META}, {LOST_PARENT}, {columns} FROM threads t LEFT JOIN checkpoints c ON c.thread = t.key AND c.id = t.head
             WHERE t.root IS NULL"
        );
        let query = Query::of(sql, &[]);
        let mut found = Vec::new();
        for row in query.rows(session.client()).await? {
            let (thread, own) = thread_of(database, &row, 13)?;
            if row.try_get::<_, Option<i64>>(1)?.is_none() {
                return Err(database.stored(&thread).missing(own.head(), "its row").into());
            }
            let head = database.stored(&thread).meta(&StoredRow::read(&row)?.meta(&row)?)?;
            found.push((thread, head));
        }
        found.sort_by(|(a, one), (b, other)| other.created_ms.cmp(&one.created_ms).then_with(|| a.cmp(b)));
        Ok(found)
    })
}

/// Returns the names alone, so that damaged heads do not matter.
pub(crate) async fn names(database: &Database) -> Result<Vec<ThreadId>, CheckpointError> {
    repeated!(database, "list the threads", |_nth| async {
        let session = database.session().await?;
        let query = Query::of(format!("SELECT {THREAD} FROM threads WHERE root IS NULL ORDER BY name"), &[]);
        let rows = query.rows(session.client()).await?;
        rows.iter().map(|row| Ok(thread_of(database, row, 0)?.0)).collect::<Result<Vec<_>, Failed>>()
    })
}

/// Returns the roots that only the names of other threads have.
pub(crate) async fn orphans(database: &Database) -> Result<Vec<ThreadId>, CheckpointError> {
    repeated!(database, "list the threads without checkpoints", |_nth| async {
        let session = database.session().await?;
        let sql = format!(
            "SELECT {THREAD} FROM threads c WHERE root IS NOT NULL
             AND NOT EXISTS (SELECT FROM threads r WHERE sha256(r.name) = sha256(c.root)) ORDER BY name"
        );
        let query = Query::of(sql, &[]);
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

/// Reads one thread in a transaction.
pub(crate) struct Reader<'a> {
    pub(crate) database: &'a Database,
    pub(crate) session: &'a Session,
    pub(crate) thread: &'a ThreadId,
    pub(crate) row: ThreadRow,
}

/// The server's answers about a checkpoint.
struct Answers {
    depth: Depth,
    path: Vec<Row>,
    tasks: Vec<Row>,
    sum: i64,
}

impl<'a> Reader<'a> {
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
        let continues = if depth == Depth::Path { "path.snapshot IS NULL" } else { "false" };
        let path = format!(
            "WITH RECURSIVE path AS (
                 SELECT c.* FROM threads t JOIN checkpoints c ON c.thread = t.key AND c.id = coalesce($2, t.head)
                 WHERE sha256(t.name) = sha256($1)
                 UNION ALL
                 SELECT p.* FROM path JOIN checkpoints p ON p.thread = path.thread AND p.id = path.parent AND p.id < path.id
                 WHERE {continues}
             ) SELECT {CHECKPOINT}, {LOST_PARENT} FROM path c ORDER BY id DESC"
        );
        let of = |table, columns| {
            format!(
                "SELECT {columns} FROM threads t
                 JOIN {table} c ON c.thread = t.key AND c.checkpoint = coalesce($2, t.head) WHERE sha256(t.name) = sha256($1)"
            )
        };
        let own =
            Query::of(format!("SELECT {THREAD} FROM threads WHERE sha256(name) = sha256($1)"), &[&name]);
        let path = Query::of(path, &[&name, &id]);
        let tasks = Query::of(of("tasks", TASK) + " ORDER BY slot", &[&name, &id]);
        let sum = Query::of(of("task_sums", "c.sum"), &[&name, &id]);
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
        let Some(row) = found.first() else { return Ok(None) };
        let row = write::read(database, thread, row)?;
        Ok(Some((Self { database, session, thread, row }, Answers { depth, path, tasks, sum })))
    }

    pub(crate) fn stored(&self) -> StoredThread<'a> {
        self.database.stored(self.thread)
    }

    /// Loads a checkpoint; `None` if it does not exist.
    async fn load(&self, answers: &Answers, at: Option<CheckpointId>) -> Result<Option<Loaded>, Failed> {
        let head = self.row.head();
        let id = at.unwrap_or(head);
        let Some(path) = self.path(answers, id).await? else { return Ok(None) };
        let tasks = self.tasks(id, &answers.tasks, answers.sum).await?;
        Ok(Some(path.into_loaded(head, tasks)?))
    }

    /// Reads a checkpoint as it was committed.
    async fn commit(&self, answers: &Answers, id: CheckpointId) -> Result<Option<Commit>, Failed> {
        let Some(path) = self.path(answers, id).await? else { return Ok(None) };
        let records = self.own_tasks(id, &answers.tasks, answers.sum)?;
        Ok(Some(path.into_commit(records)?))
    }

    /// Reads the path to the state of a checkpoint; `None` if the thread never had the checkpoint, or it was pruned.
    async fn path(&self, answers: &Answers, from: CheckpointId) -> Result<Option<PathReader<'a>>, Failed> {
        if !self.row.counts().had(from) {
            return Ok(None);
        }
        let Some(first) = answers.path.first() else {
            return if self.was_pruned(from).await? {
                Ok(None)
            } else {
                Err(self.stored().missing(from, "its row").into())
            };
        };
        let meta = self.stored().meta(&StoredRow::read(first)?.meta(first)?)?;
        let mut path = PathReader::new(self.stored(), meta, answers.depth);
        for row in &answers.path {
            let row = StoredRow::read(row)?.content();
            if path.next() != Some(row.id) {
                break;
            }
            path.push(&row)?;
        }
        let recorded = self.recorded(&path).await?;
        path.fill(|parent, slot| Ok::<_, Failed>(recorded.get(&(parent, slot.into())).cloned()))?;
        Ok(Some(path))
    }

    /// Requests the records with updates that the checkpoints of a path applied, by checkpoint and slot.
    async fn recorded(
        &self,
        path: &PathReader<'_>,
    ) -> Result<BTreeMap<(CheckpointId, i64), TaskRecord>, Failed> {
        let columns = |(id, slot): (CheckpointId, u32)| Some((column_of(id)?, i64::from(slot)));
        let (checkpoints, slots): (Vec<_>, Vec<_>) = path.recorded().filter_map(columns).unzip();
        let mut recorded = BTreeMap::new();
        if slots.is_empty() {
            return Ok(recorded);
        }
        let sql = format!(
            "SELECT {TASK}, c.checkpoint FROM tasks c, unnest($1, $2) AS w (checkpoint, slot)
             WHERE c.thread = $3 AND c.checkpoint = w.checkpoint AND c.slot = w.slot"
        );
        let query = Query::of(sql, &[&checkpoints, &slots, &self.row.key]);
        for row in query.rows(self.session.client()).await? {
            let id = id_of(row.try_get(3)?);
            let row = task(self.row.key, id, &row)?;
            recorded.insert((id, row.slot), self.stored().record(id, row.slot, row.record, row.is_intact)?);
        }
        Ok(recorded)
    }

    /// Returns whether a checkpoint whose row was not found was pruned: if the number of missing ones is correct, and it is
    /// one of them.
    async fn was_pruned(&self, id: CheckpointId) -> Result<bool, Failed> {
        Ok(self.row.counts().may_lack(id)
            && !Box::pin(self.history(&History::default())).await?.iter().any(|meta| meta.id == id))
    }

    /// Returns the records of the checkpoint's own tasks, with those that a superstep folded.
    async fn tasks(
        &self,
        id: CheckpointId,
        rows: &[Row],
        sum: i64,
    ) -> Result<Vec<(u32, TaskRecord)>, Failed> {
        let tasks = self.own_tasks(id, rows, sum)?;
        if id == self.row.head() {
            return Ok(tasks);
        }
        let (key, parent, client) = (self.row.key, column_of(id).unwrap_or_default(), self.session.client());
        let branched = "SELECT count(*) FROM checkpoints WHERE thread = $1 AND parent <> id - 1";
        let branched: i64 = Query::of(branched, &[&key]).only(client).await?.try_get(0)?;
        let mut reader =
            ChildReader::new(self.stored(), &self.row.counts(), branched.cast_unsigned(), id, tasks)?;
        let children = format!(
            "SELECT {CHECKPOINT} FROM checkpoints c WHERE thread = $1 AND parent = $2 AND parent <> id - 1
             UNION ALL SELECT {CHECKPOINT} FROM checkpoints c WHERE thread = $1 AND id = $3 ORDER BY id DESC"
        );
        for row in Query::of(children, &[&key, &parent, &(parent + 1)]).rows(client).await? {
            reader.push(&StoredRow::read(&row)?.child())?;
        }
        match reader.missing_next() {
            Some(next) if !self.was_pruned(next).await? => Err(self.stored().lost_checkpoints().into()),
            _ => Ok(reader.finish()),
        }
    }

    /// Returns the records of the checkpoint's own tasks.
    fn own_tasks(&self, id: CheckpointId, rows: &[Row], sum: i64) -> Result<Vec<(u32, TaskRecord)>, Failed> {
        let mut reader = TaskReader::new(self.stored(), id);
        for row in rows {
            reader.push(&task(self.row.key, id, row)?)?;
        }
        Ok(reader.finish(sum)?)
    }

    /// Requests the records of a checkpoint's tasks.
    pub(crate) async fn requested_tasks(&self, id: CheckpointId) -> Result<Vec<(u32, TaskRecord)>, Failed> {
        let (checkpoint, client) = (column_of(id).unwrap_or_default(), self.session.client());
        let of =
            |table, columns| format!("SELECT {columns} FROM {table} c WHERE thread = $1 AND checkpoint = $2");
        let tasks = of("tasks", TASK) + " ORDER BY slot";
        let rows = Query::of(tasks, &[&self.row.key, &checkpoint]).rows(client).await?;
        let sum = Query::of(of("task_sums", "sum"), &[&self.row.key, &checkpoint]).row(client).await?;
        self.tasks(id, &rows, sum.map_or(Ok(0), |row| row.try_get(0))?).await
    }

    pub(crate) async fn history(&self, range: &History) -> Result<Vec<CheckpointMeta>, Failed> {
        let mut reader = HistoryReader::new(self.stored(), self.row.counts(), range);
        let sql = format!(
            "SELECT {META}, {LOST_PARENT} FROM checkpoints c WHERE thread = $1 AND id <= $2 ORDER BY id DESC LIMIT $3"
        );
        let mut is_all = false;
        while !reader.is_full() && !is_all {
            let newest = reader.newest().map_or(i64::MAX, |id| column_of(id).unwrap_or_default());
            let page = reader.page(PAGE) as i64;
            let rows = Query::of(&*sql, &[&self.row.key, &newest, &page]).rows(self.session.client()).await?;
            for row in &rows {
                reader.push(&StoredRow::read(row)?.meta(row)?)?;
            }
            is_all = (rows.len() as i64) < page;
        }
        match reader.end(is_all)? {
            HistoryEnd::Complete(found) => Ok(found),
            HistoryEnd::Partial(part) => {
                let whole = Box::pin(self.history(&History::default())).await?;
                Ok(part.checked(self.stored(), &whole)?)
            }
        }
    }
}
