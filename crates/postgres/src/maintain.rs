//! Deletion, copy and prune.

use std::collections::{BTreeMap, BTreeSet};

use superstep_checkpoint::{CheckpointError, CheckpointId, History, Prune, Source, TaskRecord, ThreadId};
use tokio_postgres::{Row, types::Type};

use crate::{
    database::{Database, Session, repeated},
    error,
    error::Failed,
    leases::Fence,
    query::Query,
    read::{Reader, under},
    rows::{CHECKPOINT, CheckpointRow, StoredRow, ThreadRow, column_of, id_of, name_of, task_sum},
    stored::{self, EffectSlots},
    write::find,
};

/// The number of rows with content that are read at once.
const PAGE: i64 = 64;

/// Deletes a thread with those of its subgraphs, however damaged they are.
pub(crate) async fn delete(
    database: &Database,
    thread: &ThreadId,
    fence: Option<&Fence>,
) -> Result<(), CheckpointError> {
    database.check_writable()?;
    database.learn(thread, None);
    repeated!(database, format!("delete thread `{thread}`"), |_nth| async {
        let mut session = database.session().await?;
        session.begin().await?;
        if let Some(fence) = fence {
            fence.check(&session).await?;
        }
        let root = thread.root();
        let (name, root) = (name_of(thread), name_of(&root));
        let mut query = Query::new();
        query.sql("SELECT key, name FROM threads WHERE sha256(name) = sha256(").bytes(&name);
        query.sql(") OR sha256(root) = sha256(").bytes(&root).sql(") FOR UPDATE");
        let mut keys: Vec<i64> = Vec::new();
        for row in query.rows(session.client()).await? {
            let found: &[u8] = row.try_get(1)?;
            let is_child = found.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0x1f));
            if found == name || is_child {
                keys.push(row.try_get(0)?);
            }
        }
        remove(&session, &keys).await?;
        session.commit().await
    })
}

/// Deletes all rows of threads.
async fn remove(session: &Session, keys: &Vec<i64>) -> Result<(), Failed> {
    for table in
        ["tasks WHERE thread", "task_sums WHERE thread", "checkpoints WHERE thread", "threads WHERE key"]
    {
        let mut query = Query::new();
        query.sql("DELETE FROM ").sql(table).sql(" = ANY(").value(keys, Type::INT8_ARRAY).sql(")");
        query.rows(session.client()).await?;
    }
    Ok(())
}

/// Locks the row of a thread until the end of the transaction, and reads it.
async fn lock(
    database: &Database,
    session: &Session,
    thread: &ThreadId,
) -> Result<Option<ThreadRow>, Failed> {
    let name = name_of(thread);
    let mut query = Query::new();
    query.sql("SELECT FROM threads WHERE sha256(name) = sha256(").bytes(&name).sql(") FOR UPDATE");
    query.rows(session.client()).await?;
    find(database, session, thread).await
}

pub(crate) async fn copy(
    database: &Database,
    from: &ThreadId,
    to: &ThreadId,
    fences: &[Fence],
) -> Result<(), CheckpointError> {
    database.check_writable()?;
    let copied = async {
        let mut session = database.session().await?;
        session.begin().await?;
        for fence in fences {
            fence.check(&session).await?;
        }
        let row = lock(database, &session, from).await?.filter(|_| !from.is_child() && !to.is_child());
        let row = row.ok_or_else(|| CheckpointError::NoThread { thread: from.clone() })?;
        if find(database, &session, to).await?.is_some() || !under(database, &session, to).await?.is_empty() {
            return Err(CheckpointError::ThreadExists { thread: to.clone() }.into());
        }
        let children = under(database, &session, from).await?;
        for (source, row) in [(from.clone(), row)].into_iter().chain(children) {
            let reader = Reader { database, session: &session, thread: &source, row };
            reader.history(&History::default()).await?;
            copy_rows(&reader, &source.moved(from, to)).await?;
        }
        session.commit().await
    };
    let copied = database.in_time(copied).await;
    copied.map_err(|failed| failed.into_error(&database.place, &format!("copy thread `{from}`")))
}

/// Copies one thread without its subgraphs, and rejects damaged rows.
async fn copy_rows(reader: &Reader<'_>, to: &ThreadId) -> Result<(), Failed> {
    let (session, source) = (reader.session, reader.row);
    let key = reader.database.new_key(session.client()).await?;
    let row = ThreadRow { key, ..source }.summed(to);
    let (name, root) = (name_of(to), to.is_child().then(|| to.root()));
    let root = root.as_ref().map(name_of);
    let mut query = Query::new();
    query
        .sql("INSERT INTO threads (key, head, checkpoints, branched, prunes, checksum, name, root) VALUES (")
        .int(&row.key);
    for number in [&row.head, &row.checkpoints, &row.branched, &row.prunes, &row.checksum] {
        query.sql(", ").int(number);
    }
    query.sql(", ").bytes(&name).sql(", ").bytes(&root).sql(")");
    query.rows(session.client()).await?;
    let mut last = 0;
    loop {
        let rows = reader.page(last).await?;
        let Some(end) = rows.last() else { break };
        last = end.try_get(1)?;
        for row in &rows {
            let copied = CheckpointRow { thread: key, ..reader.checked(row)?.row };
            insert(session, &copied).await?;
        }
    }
    let mut place = (0_i64, i64::MIN);
    loop {
        let rows = reader.task_page(place).await?;
        let Some(end) = rows.last() else { break };
        place = (end.try_get(0)?, end.try_get(1)?);
        let (mut checkpoints, mut slots, mut records, mut sums) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            let (checkpoint, slot, record) = reader.checked_task(row)?;
            checkpoints.push(checkpoint);
            slots.push(slot);
            records.push(record);
            sums.push(task_sum(key, checkpoint, slot, record));
        }
        let mut query = Query::new();
        query
            .sql("INSERT INTO tasks (thread, checkpoint, slot, record, checksum) SELECT ")
            .int(&key)
            .sql(", * FROM unnest(");
        query.value(&checkpoints, Type::INT8_ARRAY).sql(", ").value(&slots, Type::INT8_ARRAY).sql(", ");
        query.value(&records, Type::TEXT_ARRAY).sql(", ").value(&sums, Type::INT8_ARRAY).sql(")");
        query.rows(session.client()).await?;
    }
    reader.check_sums().await?;
    sum_tasks(session, key).await
}

async fn insert(session: &Session, row: &CheckpointRow<'_>) -> Result<(), Failed> {
    let (sum, content) = (row.sum(), row.content_sum());
    let mut query = Query::new();
    query.sql("INSERT INTO checkpoints (thread, id, parent, source, created_ms, control, metadata, parent_pruned, checksum, ");
    query
        .sql("content_checksum, applied, snapshot) VALUES (")
        .int(&row.thread)
        .sql(", ")
        .int(&row.id)
        .sql(", ");
    query.value(&row.parent, Type::INT8).sql(", ").text(&row.source).sql(", ").int(&row.created_ms).sql(", ");
    query.text(&row.control).sql(", ").text(&row.metadata).sql(", ").value(&row.parent_pruned, Type::BOOL);
    query
        .sql(", ")
        .int(&sum)
        .sql(", ")
        .int(&content)
        .sql(", ")
        .text(&row.applied)
        .sql(", ")
        .text(&row.snapshot)
        .sql(")");
    query.rows(session.client()).await?;
    Ok(())
}

/// Recomputes the sums of a thread's task checksums.
async fn sum_tasks(session: &Session, thread: i64) -> Result<(), Failed> {
    let mut delete = Query::new();
    delete.sql("DELETE FROM task_sums WHERE thread = ").int(&thread);
    delete.rows(session.client()).await?;
    let mut sum = Query::new();
    sum.sql("INSERT INTO task_sums (thread, checkpoint, sum) SELECT thread, checkpoint, sum(checksum & 4294967295)::bigint ");
    sum.sql("FROM tasks WHERE thread = ").int(&thread).sql(" GROUP BY thread, checkpoint");
    sum.rows(session.client()).await?;
    Ok(())
}

impl Reader<'_> {
    /// Returns the rows after a checkpoint, oldest first.
    async fn page(&self, after: i64) -> Result<Vec<Row>, Failed> {
        let mut query = Query::new();
        query.sql("SELECT ").sql(CHECKPOINT).sql(" FROM checkpoints c WHERE thread = ").int(&self.row.key);
        query.sql(" AND id > ").int(&after).sql(" ORDER BY id LIMIT ").int(&PAGE);
        Ok(query.rows(self.session.client()).await?)
    }

    /// Returns the rows of tasks after one, in order.
    async fn task_page(&self, after: (i64, i64)) -> Result<Vec<Row>, Failed> {
        let mut query = Query::new();
        query.sql("SELECT checkpoint, slot, record, checksum FROM tasks WHERE thread = ").int(&self.row.key);
        query.sql(" AND (checkpoint, slot) > (").int(&after.0).sql(", ").int(&after.1);
        query.sql(") ORDER BY checkpoint, slot LIMIT ").int(&PAGE);
        Ok(query.rows(self.session.client()).await?)
    }

    /// Reads a row with its content, if it is intact.
    fn checked<'r>(&self, row: &'r Row) -> Result<StoredRow<'r>, Failed> {
        let stored = StoredRow::read(row)?;
        if stored.has_intact_meta() && stored.has_intact_content() {
            return Ok(stored);
        }
        Err(error::changed(&self.database.place, self.thread, id_of(stored.row.id), "its row").into())
    }

    /// Reads a row of a task, if it is intact: its checkpoint, slot and record.
    fn checked_task<'r>(&self, row: &'r Row) -> Result<(i64, i64, &'r str), Failed> {
        let (checkpoint, slot, record) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if row.try_get::<_, i64>(3)? == task_sum(self.row.key, checkpoint, slot, record) {
            return Ok((checkpoint, slot, record));
        }
        let what = "the rows of its tasks";
        Err(error::changed(&self.database.place, self.thread, id_of(checkpoint), what).into())
    }

    /// Rejects a thread that lost rows of tasks.
    async fn check_sums(&self) -> Result<(), Failed> {
        let mut query = Query::new();
        query.sql("SELECT checkpoint FROM (SELECT checkpoint, sum(checksum & 4294967295)::bigint AS sum FROM tasks WHERE thread = ");
        query.int(&self.row.key).sql(
            " GROUP BY checkpoint) found FULL JOIN (SELECT checkpoint, sum FROM task_sums WHERE thread = ",
        );
        query
            .int(&self.row.key)
            .sql(") stored USING (checkpoint) WHERE found.sum IS DISTINCT FROM stored.sum LIMIT 1");
        match query.row(self.session.client()).await? {
            None => Ok(()),
            Some(row) => {
                let (id, what) = (id_of(row.try_get(0)?), "the rows of its tasks");
                Err(error::changed(&self.database.place, self.thread, id, what).into())
            }
        }
    }
}

pub(crate) async fn prune(
    database: &Database,
    thread: &ThreadId,
    head: CheckpointId,
    prune: &Prune,
    fence: Option<&Fence>,
) -> Result<usize, CheckpointError> {
    database.check_writable()?;
    database.learn(thread, None);
    let conflict = || CheckpointError::Conflict { thread: thread.clone(), expected: Some(head) };
    let pruned = async {
        let mut session = database.session().await?;
        session.begin().await?;
        if let Some(fence) = fence {
            fence.check(&session).await?;
        }
        let row = lock(database, &session, thread).await?;
        let row = row.filter(|row| row.head() == head).ok_or_else(conflict)?;
        let pruning = Pruning { reader: Reader { database, session: &session, thread, row }, prune };
        let pruned = pruning.run(head).await?;
        session.commit().await?;
        Ok(pruned)
    };
    let pruned = database.in_time(pruned).await;
    pruned.map_err(|failed| failed.into_error(&database.place, &format!("prune thread `{thread}`")))
}

/// A checkpoint of a thread to prune.
struct Known {
    parent: Option<CheckpointId>,
    is_loop: bool,
    has_snapshot: bool,
}

struct Pruning<'a> {
    reader: Reader<'a>,
    prune: &'a Prune,
}

impl Pruning<'_> {
    async fn run(&self, head: CheckpointId) -> Result<usize, Failed> {
        let (reader, prune) = (&self.reader, self.prune);
        let known = self.known().await?;
        let mut keep = prune.keep.clone();
        keep.insert(head);
        if let Some(missing) = keep.iter().find(|id| !known.contains_key(id)) {
            return Err(CheckpointError::nothing_to_keep(reader.thread, *missing).into());
        }
        for (id, known) in known.iter().filter(|(id, _)| keep.contains(id)) {
            let has_way = known.parent.is_none_or(|parent| keep.contains(&parent));
            if !has_way && !known.has_snapshot && !prune.snapshots.contains_key(id) {
                return Err(CheckpointError::no_way_back(reader.thread, *id).into());
            }
        }
        self.keep_results(&known, &keep).await?;
        let goes = |caller| !keep.contains(&caller) && !prune.callers.contains(&caller);
        let children = under(reader.database, reader.session, reader.thread).await?;
        let children =
            children.into_iter().filter(|(name, _)| name.caller_under(reader.thread).is_some_and(goes));
        remove(reader.session, &children.map(|(_, row)| row.key).collect()).await?;
        self.rewrite(&known, &keep).await?;
        self.forget(&known, &keep).await
    }

    /// Reads and checks all checkpoints and tasks.
    async fn known(&self) -> Result<BTreeMap<CheckpointId, Known>, Failed> {
        self.reader.history(&History::default()).await?;
        let (mut known, mut last) = (BTreeMap::new(), 0);
        loop {
            let rows = self.reader.page(last).await?;
            let Some(end) = rows.last() else { break };
            last = end.try_get(1)?;
            for row in &rows {
                let row = self.reader.checked(row)?.row;
                let (parent, is_loop) = (row.parent.map(id_of), row.source == Source::Loop.as_str());
                known.insert(id_of(row.id), Known { parent, is_loop, has_snapshot: row.snapshot.is_some() });
            }
        }
        let mut place = (0, i64::MIN);
        loop {
            let rows = self.reader.task_page(place).await?;
            let Some(end) = rows.last() else { break };
            place = (end.try_get(0)?, end.try_get(1)?);
            for row in &rows {
                self.reader.checked_task(row)?;
            }
        }
        self.reader.check_sums().await?;
        Ok(known)
    }

    /// Records the writes of retained tasks whose superstep is about to be deleted.
    async fn keep_results(
        &self,
        known: &BTreeMap<CheckpointId, Known>,
        keep: &BTreeSet<CheckpointId>,
    ) -> Result<(), Failed> {
        let (reader, mut seen) = (&self.reader, BTreeSet::new());
        for (child, found) in known.iter().rev().filter(|(_, known)| known.is_loop) {
            // The newest superstep has the results of the tasks.
            let Some(parent) = found.parent.filter(|parent| seen.insert(*parent)) else { continue };
            if keep.contains(child) || !keep.contains(&parent) {
                continue;
            }
            let checkpoint = column_of(parent).unwrap_or_default();
            for (slot, record) in reader.requested_tasks(parent).await? {
                let TaskRecord::Finished { .. } = record else { continue };
                let record = stored::record_text(reader.thread, slot, &record)?;
                let (EffectSlots { first, last }, slot) = (EffectSlots::of(slot), i64::from(slot));
                let mut drop = Query::new();
                drop.sql("DELETE FROM tasks WHERE thread = ")
                    .int(&reader.row.key)
                    .sql(" AND checkpoint = ")
                    .int(&checkpoint);
                drop.sql(" AND slot BETWEEN ").int(&first).sql(" AND ").int(&last);
                drop.rows(reader.session.client()).await?;
                let sum = task_sum(reader.row.key, checkpoint, slot, &record);
                let mut put = Query::new();
                put.sql("INSERT INTO tasks (thread, checkpoint, slot, record, checksum) VALUES (")
                    .int(&reader.row.key);
                put.sql(", ")
                    .int(&checkpoint)
                    .sql(", ")
                    .int(&slot)
                    .sql(", ")
                    .text(&record)
                    .sql(", ")
                    .int(&sum);
                put.sql(") ON CONFLICT (thread, checkpoint, slot) DO UPDATE SET record = excluded.record, ");
                put.sql("checksum = excluded.checksum");
                put.rows(reader.session.client()).await?;
            }
        }
        Ok(())
    }

    /// Rewrites the retained checkpoints that get a snapshot or other metadata, or lose their parent.
    async fn rewrite(
        &self,
        known: &BTreeMap<CheckpointId, Known>,
        keep: &BTreeSet<CheckpointId>,
    ) -> Result<(), Failed> {
        let (reader, prune) = (&self.reader, self.prune);
        for (id, found) in known.iter().filter(|(id, _)| keep.contains(id)) {
            let snapshot = match prune.snapshots.get(id) {
                Some(channels) if !found.has_snapshot => {
                    Some(stored::snapshot_text(reader.thread, channels)?)
                }
                _ => None,
            };
            let metadata = prune.metadata.get(id);
            let metadata =
                metadata.map(|metadata| serde_json::to_string(metadata).expect("an object is JSON"));
            let is_orphan = found.parent.is_some_and(|parent| !keep.contains(&parent));
            if snapshot.is_none() && metadata.is_none() && !is_orphan {
                continue;
            }
            let column = column_of(*id).unwrap_or_default();
            let mut query = Query::new();
            query
                .sql("DELETE FROM checkpoints c WHERE thread = ")
                .int(&reader.row.key)
                .sql(" AND id = ")
                .int(&column);
            query.sql(" RETURNING ").sql(CHECKPOINT);
            let row = query.row(reader.session.client()).await?;
            let row = row.ok_or_else(|| error::lost_rows(&reader.database.place, reader.thread))?;
            let row = reader.checked(&row)?.row;
            let rewritten = CheckpointRow {
                metadata: metadata.as_deref().or(row.metadata),
                snapshot: snapshot.as_deref().or(row.snapshot),
                parent_pruned: row.parent_pruned || is_orphan,
                ..row
            };
            insert(reader.session, &rewritten).await?;
        }
        Ok(())
    }

    async fn forget(
        &self,
        known: &BTreeMap<CheckpointId, Known>,
        keep: &BTreeSet<CheckpointId>,
    ) -> Result<usize, Failed> {
        let reader = &self.reader;
        let kept: Vec<i64> = keep.iter().filter_map(|id| column_of(*id)).collect();
        for table in ["tasks WHERE NOT checkpoint", "checkpoints WHERE NOT id"] {
            let mut query = Query::new();
            query.sql("DELETE FROM ").sql(table).sql(" = ANY(").value(&kept, Type::INT8_ARRAY);
            query.sql(") AND thread = ").int(&reader.row.key);
            query.rows(reader.session.client()).await?;
        }
        sum_tasks(reader.session, reader.row.key).await?;
        let branches = |id: &&CheckpointId| known[id].parent.is_some_and(|parent| parent.0 + 1 != id.0);
        let count = |count: usize| i64::try_from(count).expect("checkpoints are counted in 32 bits");
        let row = ThreadRow {
            checkpoints: count(keep.len()),
            branched: count(keep.iter().filter(branches).count()),
            prunes: reader.row.prunes + 1,
            ..reader.row
        };
        let row = row.summed(reader.thread);
        let mut query = Query::new();
        query
            .sql("UPDATE threads SET checkpoints = ")
            .int(&row.checkpoints)
            .sql(", branched = ")
            .int(&row.branched);
        query
            .sql(", prunes = ")
            .int(&row.prunes)
            .sql(", checksum = ")
            .int(&row.checksum)
            .sql(" WHERE key = ")
            .int(&row.key);
        query.rows(reader.session.client()).await?;
        Ok(known.len() - keep.len())
    }
}
