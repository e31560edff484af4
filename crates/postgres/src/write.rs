//! Commits and records.
//!
//! A commit is one statement: it compares the thread's row with the one that is known, checks the lease, the parent and the
//! recorded tasks, and appends all rows. If it has no effect, [`why`] finds out why.

use std::collections::BTreeMap;

use futures::future::join_all;
use superstep_checkpoint::{CheckpointError, CheckpointId, ThreadId, internal::leftovers};
use tokio_postgres::{Row, Statement};

use crate::{
    database::{Database, repeated},
    error,
    error::Failed,
    fence::Fence,
    follow::notify,
    query::{Param, Query},
    rows::{CheckpointRow, SHARE, THREAD, ThreadRow, column_of, name_of, task_sum},
    session::Session,
    stored::{EffectSlots, NewCheckpoint, NewRecord, NewRecords},
};

/// The maximum number of statements that are sent before the first answer.
const MAX_PIPELINED: usize = 16;

/// The statement behind which others see each record that was stored before.
const LOCK: &str = "SELECT key FROM threads WHERE key = $1 FOR NO KEY UPDATE";

/// The beginning of the record of a finished task, which begins with the kind of its end.
const FINISHED: &str = r#"left(record, 17) = '{"end":"finished"'"#;

// A commit is one statement, which is a transaction of its own: one round trip and one write of the log. It updates the thread's
// row if that has the known checksum, and inserts the other rows only then; what the process knows of the row comes from its
// last commit. If nothing was stored, further requests find out why. A pool of connections on an own thread completes each
// request even if its future is dropped, so that no connection returns to the pool within a transaction.
//
// A connection that breaks leaves open whether the commit was stored. The commit is repeated only if the checkpoint with its
// number has other checksums or is not there.

pub(crate) async fn commit_all(
    database: &Database,
    all: &[NewCheckpoint],
    fence: Option<&Fence>,
) -> Result<(), CheckpointError> {
    database.check_writable()?;
    let Some(first) = all.first() else { return Ok(()) };
    let thread = &first.thread;
    let mut planned = None;
    let done = repeated!(database, format!("commit to thread `{thread}`"), |nth| {
        attempt(database, all, fence, &mut planned, nth)
    });
    if done.is_err() {
        database.learn(thread, None);
    }
    done
}

/// A checkpoint with its row, the rows of its thread before and after, and the rows of its tasks.
struct Planned<'a> {
    new: &'a NewCheckpoint,
    before: ThreadRow,
    after: ThreadRow,
    parent: Option<i64>,
    recorded: Vec<i64>,
    tasks: Tasks<'a>,
    sums: (i64, i64),
}

/// The rows of tasks, column by column.
pub(crate) struct Tasks<'a> {
    pub(crate) slots: Vec<i64>,
    pub(crate) records: Vec<&'a str>,
    pub(crate) sums: Vec<i64>,
    /// The sum of their shares.
    share: i64,
}

impl<'a> Tasks<'a> {
    pub(crate) fn new(
        thread: i64,
        checkpoint: i64,
        records: impl IntoIterator<Item = (u32, &'a str)>,
    ) -> Self {
        // Of two records of a task, the last one counts.
        let records: BTreeMap<u32, &str> = records.into_iter().collect();
        let mut tasks = Self { slots: Vec::new(), records: Vec::new(), sums: Vec::new(), share: 0 };
        for (slot, record) in records {
            let slot = i64::from(slot);
            let sum = task_sum(thread, checkpoint, slot, record);
            tasks.slots.push(slot);
            tasks.records.push(record);
            tasks.sums.push(sum);
            tasks.share += sum & SHARE;
        }
        tasks
    }
}

impl<'a> Planned<'a> {
    fn new(new: &'a NewCheckpoint, before: ThreadRow) -> Self {
        let parent = new.parent.map(|parent| column_of(parent).unwrap_or(i64::MAX));
        let after = before.grown(&new.thread, parent);
        let records = new.records.iter().map(|(slot, record)| (*slot, record.as_str()));
        let tasks = Tasks::new(before.key, after.head, records);
        let row = row_of(new, before.key, after.head, parent);
        let recorded = new.recorded.iter().map(|slot| i64::from(*slot)).collect();
        Self { new, before, after, parent, recorded, tasks, sums: (row.sum(), row.content_sum()) }
    }

    /// Returns the statement that appends the checkpoint. It returns a row if it has.
    fn query(
        &'a self,
        fence: Option<(&'a Fence, &'a &'a [u8])>,
        name: &'a &'a [u8],
        source: &'a &'static str,
        followers: &'a i64,
    ) -> Query<'a> {
        let Self { new, after, parent, tasks, sums, .. } = self;
        let mut query = Query::of("WITH ", &[]);
        if let Some((fence, root)) = fence {
            fence.define(&mut query, root);
            query.push(", ", &[]);
        }
        query.push("head AS (", &[]);
        self.define_head(&mut query, name, fence.is_some());
        let added = " RETURNING key), added AS (
            INSERT INTO checkpoints (thread, id, parent, source, created_ms, control, metadata, parent_pruned, checksum,
                content_checksum, applied, snapshot)
            SELECT key, ?, ?, ?, ?, ?, ?, false, ?, ?, ?, ? FROM head)";
        let params: [&dyn Param; 10] = [
            &after.head,
            parent,
            source,
            &new.created_ms,
            &new.control,
            &new.metadata,
            &sums.0,
            &sums.1,
            &new.applied,
            &new.snapshot,
        ];
        query.push(added, &params);
        if !tasks.slots.is_empty() {
            let records = ", records AS (
                INSERT INTO tasks (thread, checkpoint, slot, record, checksum)
                SELECT key, ?, r.slot, r.record, r.checksum FROM head, unnest(?, ?, ?) AS r (slot, record, checksum)
            ), total AS (INSERT INTO task_sums (thread, checkpoint, sum) SELECT key, ?, ? FROM head)";
            let Tasks { slots, records: texts, sums, share } = tasks;
            query.push(records, &[&after.head, slots, texts, sums, &after.head, share]);
        }
        notify(query.push(" SELECT ", &[]), followers);
        query.push(" FROM head", &[]);
        query
    }

    /// Appends the statement that creates the thread's row, or moves its head.
    fn define_head(&'a self, query: &mut Query<'a>, name: &'a &'a [u8], is_fenced: bool) {
        let Self { before, after, parent, recorded, .. } = self;
        let ThreadRow { key, head, checkpoints, branched, prunes, checksum } = after;
        if before.head == 0 {
            // The root of a subgraph's thread is the text before the separator.
            let row = "INSERT INTO threads (key, head, checkpoints, branched, prunes, checksum, root, name) SELECT ?, ?, ?, ?, ?, ?,
                CASE WHEN position('\\x1f'::bytea IN ?) > 0 THEN substring(? FROM 1 FOR position('\\x1f'::bytea IN ?) - 1) END, ?";
            query.push(row, &[key, head, checkpoints, branched, prunes, checksum, name, name, name, name]);
            // A new thread has no checkpoint to follow, and no records. It does not continue what is stored below its name, except its
            // data keys, nor rows under its key.
            let is_possible = parent.is_none() && recorded.is_empty();
            query.push(if is_possible { " WHERE true" } else { " WHERE false" }, &[]);
            let is_unused = " AND NOT EXISTS (
                    SELECT FROM threads t WHERE sha256(t.root) = sha256(?) AND t.name <> ? || '\\x1f246b657973'::bytea
                ) AND NOT EXISTS (SELECT FROM tasks WHERE thread = ?)";
            query.push(is_unused, &[name, name, key]);
            if is_fenced {
                query.push(" AND EXISTS (SELECT FROM fence)", &[]);
            }
            // Of the name; or of the key, if an earlier attempt is still at work.
            query.push(" ON CONFLICT DO NOTHING", &[]);
            return;
        }
        let row = "UPDATE threads SET head = ?, checkpoints = ?, branched = ?, checksum = ?
            WHERE key = ? AND head = ? AND checksum = ?";
        query.push(row, &[head, checkpoints, branched, checksum, key, &before.head, &before.checksum]);
        if is_fenced {
            query.push(" AND EXISTS (SELECT FROM fence)", &[]);
        }
        if let Some(parent) = parent {
            query.push(" AND EXISTS (SELECT FROM checkpoints WHERE thread = ? AND id = ?)", &[key, parent]);
        }
        match parent {
            _ if recorded.is_empty() => {}
            None => _ = query.push(" AND false", &[]),
            Some(parent) => {
                let finished = " AND NOT EXISTS (
                    SELECT unnest(?) EXCEPT SELECT slot FROM tasks WHERE thread = ? AND checkpoint = ? AND slot >= 0 AND ";
                query.push(finished, &[recorded, key, parent]).push(FINISHED, &[]).push(")", &[]);
            }
        }
    }
}

fn row_of(new: &NewCheckpoint, thread: i64, id: i64, parent: Option<i64>) -> CheckpointRow<'_> {
    CheckpointRow {
        thread,
        id,
        parent,
        source: new.source.as_str(),
        created_ms: new.created_ms,
        control: &new.control,
        metadata: new.metadata.as_deref(),
        parent_pruned: false,
        applied: &new.applied,
        snapshot: new.snapshot.as_deref(),
    }
}

/// Appends all checkpoints or none. `planned` has the thread's row of the last statements that were sent; `nth` counts the earlier
/// attempts, of which one may be stored, or be at work on the server.
async fn attempt(
    database: &Database,
    all: &[NewCheckpoint],
    fence: Option<&Fence>,
    planned: &mut Option<ThreadRow>,
    nth: u32,
) -> Result<(), Failed> {
    let mut session = database.session().await?;
    if nth > 0 && is_stored(database, &session, all, *planned).await? {
        // The answer was lost, and not the commit.
        return Ok(());
    }
    let Some(refusal) = append_to_head(database, &mut session, all, fence, planned).await? else {
        return Ok(());
    };
    // An earlier attempt may have been at work until now.
    if nth > 0 && is_stored(database, &session, all, *planned).await? {
        return Ok(());
    }
    if let (CheckpointError::Conflict { .. }, Some(fence)) = (&refusal, fence) {
        fence.check(&session).await?;
    }
    Err(refusal.into())
}

/// Appends all checkpoints or none, and returns the reason if nothing was stored.
async fn append_to_head(
    database: &Database,
    session: &mut Session,
    all: &[NewCheckpoint],
    fence: Option<&Fence>,
    planned: &mut Option<ThreadRow>,
) -> Result<Option<CheckpointError>, Failed> {
    let first = &all[0];
    let thread = &first.thread;
    for is_again in [false, true] {
        let before = match (first.expected, database.known(thread)) {
            (None, _) => match *planned {
                Some(before) => before,
                None => ThreadRow::new(database.new_key(session.client()).await?),
            },
            (Some(expected), Some(known)) if known.head() == expected => known,
            (Some(_), _) => match find(database, session, thread).await? {
                Some(row) => row,
                None => return Ok(Some(first.conflict())),
            },
        };
        if before.head() != first.expected.unwrap_or(CheckpointId(0)) {
            return Ok(Some(first.conflict()));
        }
        if before.head + all.len() as i64 > i64::from(u32::MAX) {
            return Ok(Some(CheckpointError::too_long(thread)));
        }
        let mut row = before;
        let mut plan = Vec::with_capacity(all.len());
        for new in all {
            if new.expected.unwrap_or(CheckpointId(0)) != row.head() {
                return Ok(Some(new.conflict()));
            }
            let next = Planned::new(new, row);
            row = next.after;
            plan.push(next);
        }
        *planned = Some(before);
        match append(database, session, &plan, fence).await? {
            Appended::Done => {
                database.learn(thread, Some(row));
                return Ok(None);
            }
            Appended::Refused(Some(error)) => return Ok(Some(error)),
            // The known row was old.
            Appended::Refused(None) if !is_again => database.learn(thread, None),
            Appended::Refused(None) => {}
        }
    }
    Ok(Some(first.conflict()))
}

/// The end of some commits.
enum Appended {
    Done,
    /// The commit was not stored; the reason, if there is one beside an old row of the thread.
    Refused(Option<CheckpointError>),
}

/// Executes the statements of some commits.
async fn append(
    database: &Database,
    session: &mut Session,
    plan: &[Planned<'_>],
    fence: Option<&Fence>,
) -> Result<Appended, Failed> {
    let name = name_of(&plan[0].new.thread);
    let root = fence.map(Fence::name).unwrap_or_default();
    let followers = database.follow_key(&plan[0].new.thread);
    let sources: Vec<&'static str> = plan.iter().map(|next| next.new.source.as_str()).collect();
    let queries: Vec<_> = plan
        .iter()
        .zip(&sources)
        .map(|(next, source)| next.query(fence.map(|fence| (fence, &root)), &name, source, &followers))
        .collect();
    let mut prepared: Vec<Statement> = Vec::with_capacity(queries.len());
    for query in &queries {
        prepared.push(query.prepare(session.client()).await?);
    }
    let has_recorded = plan.iter().any(|next| !next.recorded.is_empty());
    if plan.len() == 1 && !has_recorded {
        let rows = queries[0].run(session.client(), &prepared[0]).await?;
        return if rows.is_empty() {
            why(database, session, &plan[0], fence).await.map(Appended::Refused)
        } else {
            Ok(Appended::Done)
        };
    }
    let lock = Query::of(LOCK, &[&plan[0].before.key]);
    let locked = lock.prepare(session.client()).await?;
    session.enter();
    let client = session.client();
    if plan.len() == 1 {
        // A statement without an effect may be committed, so that all are sent at once.
        let (begun, locked, rows, ended) = futures::join!(
            client.batch_execute("BEGIN"),
            lock.run(client, &locked),
            queries[0].run(client, &prepared[0]),
            client.batch_execute("COMMIT"),
        );
        begun?;
        locked?;
        let rows = rows?;
        ended?;
        session.leave();
        return if rows.is_empty() {
            why(database, session, &plan[0], fence).await.map(Appended::Refused)
        } else {
            Ok(Appended::Done)
        };
    }
    let (begun, locked) = futures::join!(client.batch_execute("BEGIN"), lock.run(client, &locked));
    begun?;
    locked?;
    for (chunk, (queries, prepared)) in
        queries.chunks(MAX_PIPELINED).zip(prepared.chunks(MAX_PIPELINED)).enumerate()
    {
        let rows = queries.iter().zip(prepared).map(|(query, prepared)| query.run(client, prepared));
        for (nth, rows) in join_all(rows).await.into_iter().enumerate() {
            if rows?.is_empty() {
                let why = why(database, session, &plan[chunk * MAX_PIPELINED + nth], fence).await?;
                session.roll_back().await?;
                return Ok(Appended::Refused(why));
            }
        }
    }
    session.commit().await?;
    Ok(Appended::Done)
}

/// Returns the reason why a commit has no effect; `None` if there is none beside an old row of the thread.
async fn why(
    database: &Database,
    session: &Session,
    refused: &Planned<'_>,
    fence: Option<&Fence>,
) -> Result<Option<CheckpointError>, Failed> {
    let Planned { new, before, .. } = refused;
    if let Some(fence) = fence {
        match fence.check(session).await {
            Err(Failed::Refused(lost)) => return Ok(Some(lost)),
            other => other?,
        }
    }
    let is_behind_head = async || {
        let row = find(database, session, &new.thread).await?;
        Ok::<_, Failed>(match row {
            None => before.head == 0,
            Some(row) => row.head == before.head && row.key == before.key,
        })
    };
    if !is_behind_head().await? {
        return Ok(Some(new.conflict()));
    }
    if before.head == 0 {
        let children = under(database, session, &new.thread).await?.into_iter().map(|(child, _)| child);
        let children = leftovers(children.collect());
        if !new.thread.is_child() && !children.is_empty() {
            return Ok(Some(CheckpointError::Leftovers { thread: new.thread.clone(), children }));
        }
        let tasks = Query::of("SELECT FROM tasks WHERE thread = $1 LIMIT 1", &[&before.key]);
        if tasks.row(session.client()).await?.is_some() {
            return Ok(Some(database.stored(&new.thread).lost_checkpoints()));
        }
    }
    let missing = missing(session, refused).await?;
    // The parent may have been pruned behind another commit since the row was read.
    let is_conflict = missing.is_some() && !is_behind_head().await?;
    Ok(if is_conflict { Some(new.conflict()) } else { missing })
}

/// Returns an error if the parent of a commit, or the record of a task that it applies, does not exist.
async fn missing(session: &Session, refused: &Planned<'_>) -> Result<Option<CheckpointError>, Failed> {
    let Planned { new, before, parent, recorded, .. } = refused;
    let Some(parent) = parent else {
        let not_recorded = |slot: &u32| CheckpointError::not_recorded(&new.thread, None, *slot);
        return Ok(new.recorded.first().map(not_recorded));
    };
    let given = new.parent.expect("its column is there");
    let known = Query::of("SELECT 1 FROM checkpoints WHERE thread = $1 AND id = $2", &[&before.key, parent]);
    if *parent > before.head || known.row(session.client()).await?.is_none() {
        return Ok(Some(CheckpointError::no_parent(&new.thread, given)));
    }
    let sql = format!(
        "SELECT slot FROM unnest($1) slot EXCEPT SELECT slot FROM tasks
         WHERE thread = $2 AND checkpoint = $3 AND slot >= 0 AND {FINISHED} ORDER BY slot LIMIT 1"
    );
    let query = Query::of(sql, &[recorded, &before.key, parent]);
    let slot: Option<i64> = query.row(session.client()).await?.map(|row| row.try_get(0)).transpose()?;
    Ok(slot.map(|slot| {
        let slot = u32::try_from(slot).expect("it is one of those given");
        CheckpointError::not_recorded(&new.thread, new.parent, slot)
    }))
}

/// Returns whether the commits to the thread with this row are stored, behind which others may have been. Waits for the end of other
/// transactions on the thread.
async fn is_stored(
    database: &Database,
    session: &Session,
    all: &[NewCheckpoint],
    planned: Option<ThreadRow>,
) -> Result<bool, Failed> {
    let (last, Some(before)) = (all.last().expect("a request with no commit is not sent"), planned) else {
        return Ok(false);
    };
    let id = before.head + all.len() as i64;
    Query::of("SELECT key FROM threads WHERE key = $1 FOR SHARE", &[&before.key])
        .rows(session.client())
        .await?;
    let Some(row) = find(database, session, &last.thread).await? else { return Ok(false) };
    if row.key != before.key || row.head < id {
        return Ok(false);
    }
    let parent = last.parent.and_then(column_of);
    let wanted = row_of(last, row.key, id, parent);
    let (sum, content) = (wanted.sum(), wanted.content_sum());
    let sql =
        "SELECT 1 FROM checkpoints WHERE thread = $1 AND id = $2 AND checksum = $3 AND content_checksum = $4";
    let query = Query::of(sql, &[&row.key, &id, &sum, &content]);
    let is_stored = query.row(session.client()).await?.is_some();
    if is_stored {
        database.learn(&last.thread, Some(row));
    }
    Ok(is_stored)
}

/// Reads the row of a thread.
pub(crate) async fn find(
    database: &Database,
    session: &Session,
    thread: &ThreadId,
) -> Result<Option<ThreadRow>, Failed> {
    let name = name_of(thread);
    let sql = format!("SELECT {THREAD} FROM threads WHERE sha256(name) = sha256($1)");
    let row = Query::of(sql, &[&name]).row(session.client()).await?;
    row.map(|row| read(database, thread, &row)).transpose()
}

/// Reads the row of a thread from a query with the columns of [`THREAD`].
pub(crate) fn read(database: &Database, thread: &ThreadId, row: &Row) -> Result<ThreadRow, Failed> {
    let damaged = |cause| error::damaged_thread(&database.place, &format!("thread `{thread}`"), cause);
    match ThreadRow::read(row, 0) {
        Ok((name, found)) if name == *thread => Ok(found),
        Ok(_) => Err(damaged("it has another name".into()).into()),
        Err(cause) => Err(damaged(cause).into()),
    }
}

/// Returns the threads of a thread's subgraphs, by name.
pub(crate) async fn under(
    database: &Database,
    session: &Session,
    thread: &ThreadId,
) -> Result<Vec<(ThreadId, ThreadRow)>, Failed> {
    let root = thread.root();
    let root = name_of(&root);
    let sql = format!("SELECT {THREAD} FROM threads WHERE sha256(root) = sha256($1) ORDER BY name");
    let query = Query::of(sql, &[&root]);
    let mut found = Vec::new();
    for row in query.rows(session.client()).await? {
        let (child, row) = thread_of(database, &row, 0)?;
        if child.is_under(thread) {
            found.push((child, row));
        }
    }
    Ok(found)
}

/// Reads the row of any thread.
pub(crate) fn thread_of(
    database: &Database,
    row: &Row,
    column: usize,
) -> Result<(ThreadId, ThreadRow), CheckpointError> {
    ThreadRow::read(row, column).map_err(|cause| {
        let key = row.try_get::<_, i64>(column).unwrap_or_default();
        error::damaged_thread(&database.place, &format!("the thread with key {key}"), cause)
    })
}

/// Stores records and replaces earlier ones of the same tasks.
pub(crate) async fn record_all(
    database: &Database,
    new: &NewRecords,
    fence: Option<&Fence>,
) -> Result<(), CheckpointError> {
    let write = |thread: i64, checkpoint: i64| {
        let records = new.texts.iter().map(|(slot, record)| (*slot, record.as_str()));
        Write::Put(Tasks::new(thread, checkpoint, records))
    };
    at_head(database, &new.thread, new.checkpoint, fence, write).await.map(drop)
}

/// Adds results of effects to the record of an unfinished task; `false` if there is none.
pub(crate) async fn add_effects(
    database: &Database,
    new: &NewRecord,
    fence: Option<&Fence>,
) -> Result<bool, CheckpointError> {
    let slots = EffectSlots::of(new.task.slot);
    let write = |thread: i64, checkpoint: i64| Write::Effects {
        slot: new.task.slot.into(),
        first: slots.first,
        last: slots.last,
        record: &new.text,
        sum: task_sum(thread, checkpoint, slots.first, &new.text),
    };
    at_head(database, &new.task.thread, new.task.checkpoint, fence, write).await
}

/// A write to tasks of the head.
enum Write<'a> {
    Put(Tasks<'a>),
    Effects { slot: i64, first: i64, last: i64, record: &'a String, sum: i64 },
}

impl Write<'_> {
    /// Appends the definition of the table `put`, of the written rows, and the start of `total`, of the changed sum.
    fn define<'a>(&'a self, query: &mut Query<'a>, thread: &'a i64, checkpoint: &'a i64) {
        match self {
            Self::Put(Tasks { slots, records, sums, share }) => {
                let put = "new AS MATERIALIZED (SELECT r.* FROM unnest(?, ?, ?) AS r (slot, record, checksum)),
                    old AS (
                        SELECT coalesce(sum(tasks.checksum & 4294967295), 0)::bigint AS share FROM t, new, tasks
                        WHERE tasks.thread = t.key AND tasks.checkpoint = ? AND tasks.slot = new.slot
                    ), gone AS (
                        DELETE FROM tasks USING t, new WHERE tasks.thread = t.key AND tasks.checkpoint = ?
                        AND tasks.slot BETWEEN -((new.slot + 1) << 24) AND -((new.slot + 1) << 24) + 16777215
                        RETURNING tasks.checksum & 4294967295 AS share
                    ), put AS (
                        INSERT INTO tasks (thread, checkpoint, slot, record, checksum)
                        SELECT t.key, ?, new.slot, new.record, new.checksum FROM t, new
                        ON CONFLICT (thread, checkpoint, slot) DO UPDATE SET record = excluded.record, checksum = excluded.checksum
                        RETURNING 1
                    ), total AS (
                        INSERT INTO task_sums (thread, checkpoint, sum)
                        SELECT t.key, ?, ? - old.share - (SELECT coalesce(sum(share), 0)::bigint FROM gone) FROM t, old ";
                query.push(
                    put,
                    &[slots, records, sums, checkpoint, checkpoint, checkpoint, checkpoint, share],
                );
            }
            Self::Effects { slot, first, last, record, sum } => {
                let put = "place AS (
                        SELECT coalesce(max(tasks.slot) + 1, ?) AS slot FROM tasks
                        WHERE thread = ? AND checkpoint = ? AND tasks.slot BETWEEN ? AND ?
                    ), put AS (
                        INSERT INTO tasks (thread, checkpoint, slot, record, checksum) SELECT t.key, ?, place.slot, ?, ?
                        FROM t, place WHERE place.slot <= ?
                        AND EXISTS (SELECT FROM tasks WHERE thread = ? AND checkpoint = ? AND slot = ? AND NOT ";
                let total = ") RETURNING checksum & 4294967295 AS share
                    ), total AS (INSERT INTO task_sums (thread, checkpoint, sum) SELECT ?, ?, share FROM put ";
                query.push(
                    put,
                    &[
                        first, thread, checkpoint, first, last, checkpoint, *record, sum, last, thread,
                        checkpoint, slot,
                    ],
                );
                query.push(FINISHED, &[]).push(total, &[thread, checkpoint]);
            }
        }
    }
}

/// Writes to tasks of the head in a transaction.
async fn at_head<'a>(
    database: &Database,
    thread: &ThreadId,
    checkpoint: CheckpointId,
    fence: Option<&Fence>,
    write: impl Fn(i64, i64) -> Write<'a>,
) -> Result<bool, CheckpointError> {
    database.check_writable()?;
    let conflict = || CheckpointError::conflict(thread, Some(checkpoint));
    let id = column_of(checkpoint).ok_or_else(conflict)?;
    let followers = database.follow_key(thread);
    repeated!(database, format!("record tasks of thread `{thread}`"), |_nth| async {
        let mut session = database.session().await?;
        let known = database.known(thread).filter(|row| row.head == id);
        for known in [known, None].into_iter().skip(usize::from(known.is_none())) {
            let row = match known {
                Some(row) => Some(row),
                None => find(database, &session, thread).await?,
            };
            let Some(row) = row.filter(|row| row.head == id) else { break };
            let written = put(&mut session, row.key, id, &write(row.key, id), fence, followers).await?;
            if let Some(done) = written {
                database.learn(thread, Some(row));
                return Ok(done);
            }
            database.learn(thread, None);
        }
        if let Some(fence) = fence {
            fence.check(&session).await?;
        }
        Err(conflict().into())
    })
}

/// Executes a write to tasks. Returns `None` if the checkpoint is not the head or the lease is lost, and `false` if the task has no
/// unfinished record.
async fn put(
    session: &mut Session,
    thread: i64,
    checkpoint: i64,
    write: &Write<'_>,
    fence: Option<&Fence>,
    followers: i64,
) -> Result<Option<bool>, Failed> {
    let lock = Query::of(LOCK, &[&thread]);
    let root = fence.map(Fence::name).unwrap_or_default();
    let mut query = Query::of("WITH ", &[]);
    if let Some(fence) = fence {
        fence.define(&mut query, &root);
        query.push(", ", &[]);
    }
    let head = "t AS MATERIALIZED (SELECT key FROM threads WHERE key = ? AND head = ?";
    query.push(head, &[&thread, &checkpoint]);
    query.push(if fence.is_some() { " AND EXISTS (SELECT FROM fence)), " } else { "), " }, &[]);
    write.define(&mut query, &thread, &checkpoint);
    let ends = "ON CONFLICT (thread, checkpoint) DO UPDATE SET sum = task_sums.sum + excluded.sum)
        SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM put), CASE WHEN EXISTS (SELECT FROM put) THEN ";
    query.push(ends, &[]);
    notify(&mut query, &followers);
    query.push(" END", &[]);
    let (locked, prepared) = (lock.prepare(session.client()).await?, query.prepare(session.client()).await?);
    session.enter();
    let client = session.client();
    let (begun, locked, rows, ended) = futures::join!(
        client.batch_execute("BEGIN"),
        lock.run(client, &locked),
        query.run(client, &prepared),
        client.batch_execute("COMMIT"),
    );
    begun?;
    locked?;
    let rows = rows?;
    ended?;
    session.leave();
    let row = rows.first().expect("a query without a table has one row");
    let (threads, put): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok((threads > 0).then_some(put > 0))
}
