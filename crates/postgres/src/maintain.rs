//! Deletion, copy and prune.

use std::collections::BTreeMap;

use superstep_checkpoint::{CheckpointError, CheckpointId, Prune, Source, TaskRecord, ThreadId};
use tokio_postgres::Row;

use crate::{
    database::{Database, repeated},
    error::Failed,
    fence::Fence,
    query::{Param, Query, run_all},
    read::Reader,
    rows::{
        CHECKPOINT, CheckpointRow, LOST_PARENT, StoredRow, ThreadRow, column_of, id_of, name_of, task_sum,
    },
    session::Session,
    stored::{self, Known, PrunePlan},
    write::{Tasks, find, under},
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
        // In the order of a copy, which locks them as well.
        let sql = "SELECT key, name FROM threads WHERE sha256(name) = sha256($1) OR sha256(root) = sha256($2)
            ORDER BY name FOR UPDATE";
        let query = Query::of(sql, &[&name, &root]);
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
        let query = Query::of(format!("DELETE FROM {table} = ANY($1)"), &[keys]);
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
    let query = Query::of("SELECT FROM threads WHERE sha256(name) = sha256($1) FOR UPDATE", &[&name]);
    query.rows(session.client()).await?;
    find(database, session, thread).await
}

/// Locks the rows of the threads below a root, so that nothing is committed to them or pruned while they are read.
async fn lock_children(session: &Session, root: &ThreadId) -> Result<(), Failed> {
    let root = name_of(root);
    let sql = "SELECT FROM threads WHERE sha256(root) = sha256($1) ORDER BY name FOR UPDATE";
    Query::of(sql, &[&root]).rows(session.client()).await.map(drop)
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
        lock_children(&session, from).await?;
        let children = under(database, &session, from).await?;
        for (source, row) in [(from.clone(), row)].into_iter().chain(children) {
            let reader = Reader { database, session: &session, thread: &source, row };
            copy_rows(&reader, &source.moved(from, to)).await?;
        }
        session.commit().await
    };
    let copied = database.attempt(copied).await;
    copied.map_err(|failed| failed.into_error(&database.place, &format!("copy thread `{from}`")))
}

/// Copies one thread without its subgraphs, and rejects damaged rows.
async fn copy_rows(reader: &Reader<'_>, to: &ThreadId) -> Result<(), Failed> {
    let (session, source) = (reader.session, reader.row);
    let key = reader.database.new_key(session.client()).await?;
    let row = ThreadRow { key, ..source }.summed(to);
    let (name, root) = (name_of(to), to.is_child().then(|| to.root()));
    let root = root.as_ref().map(name_of);
    let ThreadRow { key, head, checkpoints, branched, prunes, checksum } = row;
    let sql = "INSERT INTO threads (key, head, checkpoints, branched, prunes, checksum, name, root)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let params: [&dyn Param; 8] = [&key, &head, &checkpoints, &branched, &prunes, &checksum, &name, &root];
    Query::of(sql, &params).rows(session.client()).await?;
    let mut read = Read::default();
    loop {
        let rows = reader.page(&mut read).await?;
        let copies = rows.iter().map(|row| Ok(CheckpointRow { thread: key, ..StoredRow::read(row)?.row }));
        let copies = copies.collect::<Result<Vec<_>, Failed>>()?;
        if copies.is_empty() {
            break;
        }
        insert(session, &copies).await?;
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
        let sql = "INSERT INTO tasks (thread, checkpoint, slot, record, checksum) SELECT $1, * FROM unnest($2, $3, $4, $5)";
        Query::of(sql, &[&key, &checkpoints, &slots, &records, &sums]).rows(session.client()).await?;
    }
    reader.check_sums().await?;
    sum_tasks(session, key).await
}

/// Appends rows, all sent at once.
async fn insert(session: &Session, rows: &[CheckpointRow<'_>]) -> Result<(), Failed> {
    let sums: Vec<_> = rows.iter().map(|row| (row.sum(), row.content_sum())).collect();
    let queries: Vec<_> = rows.iter().zip(&sums).map(|(row, sums)| insertion(row, sums)).collect();
    run_all(&queries, session.client()).await
}

fn insertion<'q>(row: &'q CheckpointRow<'_>, sums: &'q (i64, i64)) -> Query<'q> {
    let CheckpointRow { thread, id, parent, source, created_ms, control, metadata, .. } = row;
    let params: [&dyn Param; 12] = [
        thread,
        id,
        parent,
        source,
        created_ms,
        control,
        metadata,
        &row.parent_pruned,
        &sums.0,
        &sums.1,
        &row.applied,
        &row.snapshot,
    ];
    let sql = "INSERT INTO checkpoints (thread, id, parent, source, created_ms, control, metadata, parent_pruned, checksum,
            content_checksum, applied, snapshot)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    Query::of(sql, &params)
}

/// Recomputes the sums of a thread's task checksums.
async fn sum_tasks(session: &Session, thread: i64) -> Result<(), Failed> {
    let delete = "DELETE FROM task_sums WHERE thread = $1";
    let sum = "INSERT INTO task_sums (thread, checkpoint, sum) SELECT thread, checkpoint, sum(checksum & 4294967295)::bigint
        FROM tasks WHERE thread = $1 GROUP BY thread, checkpoint";
    Query::of(delete, &[&thread]).rows(session.client()).await?;
    Query::of(sum, &[&thread]).rows(session.client()).await.map(drop)
}

/// The rows of a thread that were read so far, oldest first.
#[derive(Default)]
struct Read {
    last: i64,
    count: i64,
}

impl Reader<'_> {
    /// Returns the next rows of the thread, which are intact; none after the last one. Rejects a thread that lost rows.
    async fn page(&self, read: &mut Read) -> Result<Vec<Row>, Failed> {
        let sql = format!(
            "SELECT {CHECKPOINT}, {LOST_PARENT} FROM checkpoints c WHERE thread = $1 AND id > $2 ORDER BY id LIMIT $3"
        );
        let rows = Query::of(sql, &[&self.row.key, &read.last, &PAGE]).rows(self.session.client()).await?;
        let lost = || self.stored().lost_checkpoints();
        for row in &rows {
            let id = self.checked(row)?.row.id;
            if id > self.row.head || (self.row.counts().is_whole() && id != read.last + 1) {
                return Err(lost().into());
            }
            self.stored().meta(&StoredRow::read(row)?.meta(row)?)?;
            *read = Read { last: id, count: read.count + 1 };
        }
        if rows.is_empty() && (read.last, read.count) != (self.row.head, self.row.checkpoints) {
            return Err(lost().into());
        }
        Ok(rows)
    }

    /// Returns the rows of tasks after one, in order.
    async fn task_page(&self, after: (i64, i64)) -> Result<Vec<Row>, Failed> {
        let sql = "SELECT checkpoint, slot, record, checksum FROM tasks
            WHERE thread = $1 AND (checkpoint, slot) > ($2, $3) ORDER BY checkpoint, slot LIMIT $4";
        Query::of(sql, &[&self.row.key, &after.0, &after.1, &PAGE]).rows(self.session.client()).await
    }

    /// Reads a row with its content, if it is intact.
    fn checked<'r>(&self, row: &'r Row) -> Result<StoredRow<'r>, Failed> {
        let stored = StoredRow::read(row)?;
        if stored.content().is_intact {
            return Ok(stored);
        }
        Err(self.stored().changed(id_of(stored.row.id), "its row").into())
    }

    /// Reads a row of a task, if it is intact: its checkpoint, slot and record.
    fn checked_task<'r>(&self, row: &'r Row) -> Result<(i64, i64, &'r str), Failed> {
        let (checkpoint, slot, record) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if row.try_get::<_, i64>(3)? == task_sum(self.row.key, checkpoint, slot, record) {
            return Ok((checkpoint, slot, record));
        }
        let what = "the rows of its tasks";
        Err(self.stored().changed(id_of(checkpoint), what).into())
    }

    /// Rejects a thread that lost rows of tasks.
    async fn check_sums(&self) -> Result<(), Failed> {
        let sql = "SELECT checkpoint FROM (
                SELECT checkpoint, sum(checksum & 4294967295)::bigint AS sum FROM tasks WHERE thread = $1 GROUP BY checkpoint
            ) found FULL JOIN (SELECT checkpoint, sum FROM task_sums WHERE thread = $1) stored USING (checkpoint)
            WHERE found.sum IS DISTINCT FROM stored.sum LIMIT 1";
        match Query::of(sql, &[&self.row.key]).row(self.session.client()).await? {
            None => Ok(()),
            Some(row) => {
                let (id, what) = (id_of(row.try_get(0)?), "the rows of its tasks");
                Err(self.stored().changed(id, what).into())
            }
        }
    }

    /// Reads and checks all checkpoints and tasks.
    async fn known(&self) -> Result<BTreeMap<CheckpointId, Known>, Failed> {
        let (mut known, mut read) = (BTreeMap::new(), Read::default());
        loop {
            let rows = self.page(&mut read).await?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                let row = StoredRow::read(row)?.row;
                let (parent, is_loop) = (row.parent.map(id_of), row.source == Source::Loop.as_str());
                known.insert(id_of(row.id), Known { parent, is_loop, has_snapshot: row.snapshot.is_some() });
            }
        }
        let mut place = (0, i64::MIN);
        loop {
            let rows = self.task_page(place).await?;
            let Some(end) = rows.last() else { break };
            place = (end.try_get(0)?, end.try_get(1)?);
            for row in &rows {
                self.checked_task(row)?;
            }
        }
        self.check_sums().await?;
        Ok(known)
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
    let conflict = || CheckpointError::conflict(thread, Some(head));
    let pruned = async {
        let mut session = database.session().await?;
        session.begin().await?;
        if let Some(fence) = fence {
            fence.check(&session).await?;
        }
        let row = lock(database, &session, thread).await?;
        let row = row.filter(|row| row.head() == head).ok_or_else(conflict)?;
        let reader = Reader { database, session: &session, thread, row };
        let plan = PrunePlan::new(thread, head, prune, reader.known().await?)?;
        let pruned = Pruning { reader, plan }.run().await?;
        session.commit().await?;
        Ok(pruned)
    };
    let pruned = database.attempt(pruned).await;
    pruned.map_err(|failed| failed.into_error(&database.place, &format!("prune thread `{thread}`")))
}

struct Pruning<'a> {
    reader: Reader<'a>,
    plan: PrunePlan<'a>,
}

impl Pruning<'_> {
    async fn run(&self) -> Result<usize, Failed> {
        let (reader, plan) = (&self.reader, &self.plan);
        for parent in plan.lost_results() {
            self.keep_results(parent).await?;
        }
        let children = under(reader.database, reader.session, reader.thread).await?;
        let children = children.into_iter().filter(|(name, _)| plan.deletes(reader.thread, name));
        remove(reader.session, &children.map(|(_, row)| row.key).collect()).await?;
        self.rewrite().await?;
        self.delete().await
    }

    /// Records the writes of a retained checkpoint's tasks, whose superstep is about to be deleted.
    async fn keep_results(&self, parent: CheckpointId) -> Result<(), Failed> {
        let (reader, checkpoint) = (&self.reader, column_of(parent).unwrap_or_default());
        let (key, client) = (reader.row.key, reader.session.client());
        let mut results = Vec::new();
        for (slot, record) in reader.requested_tasks(parent).await? {
            if let TaskRecord::Finished { .. } = record {
                results.push((slot, stored::record_text(reader.thread, slot, &record)?));
            }
        }
        let results = results.iter().map(|(slot, record)| (*slot, record.as_str()));
        let Tasks { slots, records, sums, .. } = Tasks::new(key, checkpoint, results);
        let delete = "DELETE FROM tasks USING unnest($3) AS r (slot) WHERE thread = $1 AND checkpoint = $2
             AND tasks.slot BETWEEN -((r.slot + 1) << 24) AND -((r.slot + 1) << 24) + 16777215";
        Query::of(delete, &[&key, &checkpoint, &slots]).rows(client).await?;
        let put = "INSERT INTO tasks (thread, checkpoint, slot, record, checksum)
             SELECT $1, $2, r.slot, r.record, r.checksum FROM unnest($3, $4, $5) AS r (slot, record, checksum)
             ON CONFLICT (thread, checkpoint, slot) DO UPDATE SET record = excluded.record, checksum = excluded.checksum";
        Query::of(put, &[&key, &checkpoint, &slots, &records, &sums]).rows(client).await.map(drop)
    }

    /// Rewrites the retained checkpoints that get a snapshot or other metadata, or lose their parent.
    async fn rewrite(&self) -> Result<(), Failed> {
        let Self { reader, plan } = self;
        let changes = |id: CheckpointId| {
            plan.adds_snapshot(id) || plan.prune.metadata.contains_key(&id) || plan.is_orphan(id)
        };
        let changed = plan.keep.iter().filter(|id| changes(**id)).filter_map(|id| column_of(*id));
        for ids in changed.collect::<Vec<_>>().chunks(PAGE as usize) {
            let ids = ids.to_vec();
            let sql = format!(
                "DELETE FROM checkpoints c WHERE thread = $1 AND id = ANY($2) RETURNING {CHECKPOINT}"
            );
            let rows = Query::of(sql, &[&reader.row.key, &ids]).rows(reader.session.client()).await?;
            if rows.len() != ids.len() {
                return Err(reader.stored().lost_checkpoints().into());
            }
            let mut rewritten = Vec::with_capacity(rows.len());
            for row in &rows {
                let row = reader.checked(row)?.row;
                let id = id_of(row.id);
                let snapshot = plan.prune.snapshots.get(&id).filter(|_| row.snapshot.is_none());
                let snapshot =
                    snapshot.map(|channels| stored::snapshot_text(reader.thread, channels)).transpose()?;
                let metadata = plan.prune.metadata.get(&id);
                let metadata =
                    metadata.map(|metadata| serde_json::to_string(metadata).expect("an object is JSON"));
                rewritten.push((row, snapshot, metadata));
            }
            let rewritten: Vec<_> = rewritten
                .iter()
                .map(|(row, snapshot, metadata)| CheckpointRow {
                    metadata: metadata.as_deref().or(row.metadata),
                    snapshot: snapshot.as_deref().or(row.snapshot),
                    parent_pruned: row.parent_pruned || plan.is_orphan(id_of(row.id)),
                    ..*row
                })
                .collect();
            insert(reader.session, &rewritten).await?;
        }
        Ok(())
    }

    /// Deletes the rows that are not retained, and returns the number of checkpoints.
    async fn delete(&self) -> Result<usize, Failed> {
        let Self { reader, plan } = self;
        let client = reader.session.client();
        let kept: Vec<i64> = plan.keep.iter().filter_map(|id| column_of(*id)).collect();
        for table in ["tasks WHERE NOT checkpoint", "checkpoints WHERE NOT id"] {
            let sql = format!("DELETE FROM {table} = ANY($1) AND thread = $2");
            Query::of(sql, &[&kept, &reader.row.key]).rows(client).await?;
        }
        sum_tasks(reader.session, reader.row.key).await?;
        let branches = |id: &&CheckpointId| plan.known[id].parent.is_some_and(|parent| parent.0 + 1 != id.0);
        let count = |count: usize| i64::try_from(count).expect("checkpoints are counted in 32 bits");
        let row = ThreadRow {
            checkpoints: count(plan.keep.len()),
            branched: count(plan.keep.iter().filter(branches).count()),
            prunes: reader.row.prunes + 1,
            ..reader.row
        };
        let row = row.summed(reader.thread);
        let sql =
            "UPDATE threads SET checkpoints = $2, branched = $3, prunes = $4, checksum = $5 WHERE key = $1";
        let params: [&dyn Param; 5] = [&row.key, &row.checkpoints, &row.branched, &row.prunes, &row.checksum];
        Query::of(sql, &params).rows(client).await?;
        Ok(plan.known.len() - plan.keep.len())
    }
}
