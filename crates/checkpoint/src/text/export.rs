//! From a checkpointer to text.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use superstep_state::Snapshot;

use super::{
    Copied, MAX_LINE, MAX_PRUNED, Redaction, TextError,
    lines::{
        Applied, Channel, Checkpoint, Counts, FORMAT, Header, KIND, Line, Mark, Subgraph, Task, Total, raw,
    },
    redaction::Redacting,
};
use crate::{
    CheckpointError, CheckpointId, Checkpointer, Commit, History, Source, ThreadId,
    commit::{Superstep, WrongTask, own},
    ids::SEPARATOR,
};

/// The number of checkpoints that are listed at a time.
const PAGE: usize = 1_000;

/// The options of an export.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExportOptions {
    /// `true` to include all snapshots, so that the imported thread is loaded as fast as this one. `false` by default:
    /// snapshots repeat the updates, and their places depend on the backend.
    pub snapshots: bool,
    /// The values to replace. None by default.
    pub redaction: Redaction,
}

impl ExportOptions {
    /// Creates the default options: no snapshots that can be computed, and no redaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Includes all snapshots, so that the imported thread is loaded as fast as this one.
    #[must_use]
    pub fn snapshots(self) -> Self {
        Self { snapshots: true, ..self }
    }

    /// Sets the values to replace.
    #[must_use]
    pub fn redaction(self, values: Redaction) -> Self {
        Self { redaction: values, ..self }
    }
}

/// Returns a thread as text, with the threads of its subgraphs.
///
/// # Errors
/// Those of [`export_to`].
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::{io::Cursor, sync::Arc};
/// use superstep_checkpoint::text::{self, ExportOptions};
/// use superstep_graph::{END, MemoryCheckpointer, START, State, StateGraph};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Count { n: u32 }
///
/// let mut graph = StateGraph::<Count>::new("count");
/// let more = graph.add_node("more", async |state: Count, _| Count::update().n(state.n + 1));
/// graph.add_edge(START, more);
/// graph.add_edge(more, END);
/// let graph = graph.compile()?;
///
/// let store = Arc::new(MemoryCheckpointer::new());
/// graph.clone().with_checkpointer(store.clone()).thread("t").run(Count::update().n(1)).await?;
/// let text = text::export(&*store, &"t".into(), &ExportOptions::default()).await?;
///
/// let elsewhere = Arc::new(MemoryCheckpointer::new());
/// text::import(&*elsewhere, &mut Cursor::new(&text)).await?;
/// assert_eq!(text::export(&*elsewhere, &"t".into(), &ExportOptions::default()).await?, text);
/// assert_eq!(graph.with_checkpointer(elsewhere).thread("t").state().await?.values.n, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn export(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    options: &ExportOptions,
) -> Result<String, TextError> {
    let mut text = Vec::new();
    export_to(store, thread, options, &mut text).await?;
    Ok(String::from_utf8(text).expect("JSON is UTF-8"))
}

/// Writes a thread as text, with the threads of its subgraphs, one checkpoint after the other.
///
/// The thread may be running: the text ends with the checkpoints that are the heads when the export begins.
///
/// # Errors
/// [`CheckpointError::NoThread`] if the thread does not exist or is of a subgraph, [`TextError::Unexportable`] if a stored
/// value is not JSON or too long, more than [`MAX_PRUNED`] checkpoints were pruned, the thread is encrypted and `store` is not its `SealedCheckpointer`, or the thread is pruned or deleted
/// meanwhile, [`TextError::Io`] from `out`.
pub async fn export_to(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    options: &ExportOptions,
    out: &mut (dyn Write + Send),
) -> Result<Copied, TextError> {
    let ids = if thread.is_child() { Vec::new() } else { ids(store, thread).await? };
    if ids.is_empty() {
        return Err(CheckpointError::NoThread { thread: thread.clone() }.into());
    }
    let mut children = store.children(thread).await?;
    children.sort_unstable();
    // A text of its sealed values could not be read, because it has no keys.
    if children.iter().any(|child| child.as_str().split(SEPARATOR).nth(1) == Some(own::KEYS)) {
        return Err(encrypted(thread, ids.last().map_or(CheckpointId(0), |(id, _)| *id)));
    }
    // All ids before the first line: a thread that is deleted after this lacks its checkpoints.
    let mut listed = Vec::new();
    for child in children {
        let ids = self::ids(store, &child).await?;
        if ids.is_empty() {
            return Err(gone(&child, CheckpointId(0)));
        }
        listed.push((child, ids));
    }
    check_pruned([(thread, &ids)].into_iter().chain(listed.iter().map(|(child, ids)| (child, ids))))?;
    let mut nowhere = io::sink();
    let mut redaction = Redacting::new(&options.redaction);
    let threads: Vec<_> = [(thread.clone(), ids)].into_iter().chain(listed).collect();
    if redaction.reads_first() {
        redaction =
            Writer::new(store, options, redaction, &mut nowhere).all(&threads).await?.redaction.read();
    }
    let Writer { redaction, total, .. } = Writer::new(store, options, redaction, out).all(&threads).await?;
    let (unused_rules, remains) = redaction.into_problems();
    out.flush().map_err(|source| TextError::Io { action: "written", source })?;
    let Counts { threads, checkpoints } = total;
    Ok(Copied { thread: thread.clone(), threads, checkpoints, unused_rules, remains })
}

/// The ids of a thread's checkpoints, oldest first, each with whether its parent was pruned.
type Ids = Vec<(CheckpointId, bool)>;

/// Rejects threads of which so many checkpoints were pruned that no import accepts their text.
fn check_pruned<'a>(threads: impl Iterator<Item = (&'a ThreadId, &'a Ids)>) -> Result<(), TextError> {
    let mut pruned = 0_u64;
    for (thread, ids) in threads {
        let Some((last, _)) = ids.last() else { continue };
        pruned = pruned.saturating_add(last.0.saturating_sub(u64::try_from(ids.len()).unwrap_or(u64::MAX)));
        if pruned > MAX_PRUNED {
            let what = format!(
                "{pruned} checkpoints were pruned, and a thread with more than {MAX_PRUNED} of them cannot be imported"
            );
            return Err(unexportable(thread, *last, what));
        }
    }
    Ok(())
}

/// Reads the ids of a thread's checkpoints.
async fn ids(store: &dyn Checkpointer, thread: &ThreadId) -> Result<Ids, CheckpointError> {
    let mut ids = Ids::new();
    loop {
        let before = ids.last().map(|(id, _)| *id);
        let page = store.history(thread, History { limit: Some(PAGE), before, ..History::default() }).await?;
        ids.extend(page.iter().map(|meta| (meta.id, meta.parent_pruned)));
        if page.len() < PAGE {
            ids.reverse();
            return Ok(ids);
        }
    }
}

/// Creates the error of a checkpoint without a text.
fn unexportable(thread: &ThreadId, checkpoint: CheckpointId, what: impl Into<String>) -> TextError {
    TextError::Unexportable { thread: thread.clone(), checkpoint, what: what.into(), source: None }
}

/// Creates the error of an encrypted thread.
fn encrypted(thread: &ThreadId, checkpoint: CheckpointId) -> TextError {
    unexportable(thread, checkpoint, "it is encrypted; export it through `SealedCheckpointer`")
}

/// Creates the error of a checkpoint, or of a whole thread, that was deleted during the export.
fn gone(thread: &ThreadId, checkpoint: CheckpointId) -> TextError {
    unexportable(thread, checkpoint, "it was deleted meanwhile; export the thread again")
}

/// Reads a commit, with the fingerprints in its metadata.
async fn read(store: &dyn Checkpointer, thread: &ThreadId, id: CheckpointId) -> Result<Commit, TextError> {
    let gone = || gone(thread, id);
    let mut commit = store.read_commit(thread, id).await?.ok_or_else(gone)?;
    if commit.metadata.contains_key(own::SEALED) {
        return Err(encrypted(thread, id));
    }
    if commit.fingerprints.take().is_some() {
        let loaded = store.load(thread, Some(id)).await?.ok_or_else(gone)?;
        let unreadable = |source| TextError::Unexportable {
            thread: thread.clone(),
            checkpoint: id,
            what: "its state cannot be read".to_owned(),
            source: Some(source),
        };
        commit.metadata = loaded.into_fingerprinted(thread).map_err(unreadable)?.metadata.into();
    }
    Ok(commit)
}

/// A checkpoint to write, with its mark if that is not the mark of its thread.
struct Stored {
    id: CheckpointId,
    parent_pruned: bool,
    mark: Option<Mark>,
    commit: Commit,
}

/// Returns whether a checkpoint has the updates of the last of its supersteps only, because the others were not stored, so that
/// its snapshot repeats nothing. `before` is the superstep of its parent.
fn has_several_supersteps(commit: &Commit, before: Option<i64>) -> bool {
    let next = before.map_or(-1, |before| before.saturating_add(1));
    commit.source == Source::Loop && commit.control.step > next
}

struct Writer<'a> {
    store: &'a dyn Checkpointer,
    options: &'a ExportOptions,
    redaction: Redacting<'a>,
    out: &'a mut (dyn Write + Send),
    /// The line that is written, so that its memory is used again.
    line: Vec<u8>,
    total: Counts,
}

impl<'a> Writer<'a> {
    fn new(
        store: &'a dyn Checkpointer,
        options: &'a ExportOptions,
        redaction: Redacting<'a>,
        out: &'a mut (dyn Write + Send),
    ) -> Self {
        Self { store, options, redaction, out, line: Vec::new(), total: Counts::default() }
    }

    /// Writes all lines: those of the thread, which is the first one, and of its subgraphs.
    async fn all(mut self, threads: &[(ThreadId, Ids)]) -> Result<Self, TextError> {
        let root = &threads[0].0;
        for (thread, ids) in threads {
            let path: Vec<_> = thread.as_str().split(SEPARATOR).skip(1).map(str::to_owned).collect();
            let first = |mark| {
                if path.is_empty() {
                    Line::Header(Header {
                        superstep: KIND.to_owned(),
                        format: FORMAT,
                        thread: thread.as_str().to_owned(),
                        mark,
                    })
                } else {
                    Line::Subgraph(Subgraph { subgraph: path, mark })
                }
            };
            self.thread(thread, ids, first).await?;
        }
        let total = self.total;
        self.write(root, CheckpointId(0), Line::Total(Total { total }))?;
        Ok(self)
    }

    /// Writes the lines of one thread. `first` makes its first line.
    async fn thread(
        &mut self,
        thread: &ThreadId,
        ids: &Ids,
        first: impl FnOnce(Mark) -> Line,
    ) -> Result<(), TextError> {
        let mut first = Some(first);
        let mut shared = Mark::default();
        self.total.threads += 1;
        let mut supersteps = BTreeMap::new();
        for &(id, parent_pruned) in ids {
            let mut commit = read(self.store, thread, id).await?;
            let mut mark = Mark::take(Arc::make_mut(&mut commit.metadata));
            self.options.redaction.mark(&mut mark);
            mark.check().map_err(|what| unexportable(thread, id, what))?;
            if let Some(first) = first.take() {
                shared = mark.clone();
                self.write(thread, id, first(mark.clone()))?;
            }
            let mark = Some(mark).filter(|mark| *mark != shared);
            let before = commit.parent.and_then(|parent| supersteps.get(&parent)).filter(|_| !parent_pruned);
            if let Some(wrong) = before.and_then(|before| commit.wrong_task(before)) {
                let what = match wrong {
                    WrongTask::Missing(slot) => format!("the update of task {slot} is missing"),
                    WrongTask::Superfluous(slot) => format!("the update of task {slot} is superfluous"),
                };
                return Err(unexportable(thread, id, format!("{what}, because the thread is damaged")));
            }
            let before = before.map(Superstep::step);
            supersteps.insert(id, Superstep::of(&commit.control));
            if !self.options.snapshots && !parent_pruned && !has_several_supersteps(&commit, before) {
                commit.snapshot = None;
            }
            self.checkpoint(thread, Stored { id, parent_pruned, mark, commit })?;
            self.total.checkpoints += 1;
        }
        Ok(())
    }

    fn checkpoint(&mut self, thread: &ThreadId, stored: Stored) -> Result<(), TextError> {
        let Stored { id, parent_pruned, mark, commit } = stored;
        let Commit { parent, source, control, created_ms, metadata, applied, snapshot, records, .. } = commit;
        let not_json = |what: String| {
            move |source: serde_json::Error| TextError::Unexportable {
                thread: thread.clone(),
                checkpoint: id,
                what,
                source: Some(source.into()),
            }
        };
        let items = control.items.into_iter().map(|(slot, item)| Ok((slot, raw(&item.into())?)));
        let items = items.collect::<Result<_, _>>().map_err(not_json("an item is not JSON".to_owned()))?;
        let next = control.next.clone();
        let channels = snapshot.as_ref().map(Snapshot::channels).transpose();
        let channels = channels.map_err(not_json("its snapshot is not JSON".to_owned()))?;
        let lines = applied.len() + records.len() + channels.as_ref().map_or(0, |channels| channels.len());
        let lines = u64::try_from(lines).expect("a list has less than 2^64 elements");
        self.write(
            thread,
            id,
            Line::Checkpoint(Checkpoint {
                checkpoint: id.0,
                parent: parent.map(|parent| parent.0),
                parent_pruned,
                source,
                step: control.step,
                next: control.next,
                items,
                arrived: control.arrived,
                deferred: control.deferred,
                withheld: control.withheld,
                held: control.held,
                created_ms,
                metadata: Arc::unwrap_or_clone(metadata),
                mark,
                snapshot: snapshot.is_some(),
                lines: Some(lines).filter(|lines| *lines > 0),
            }),
        )?;
        for task in applied {
            let is_own = !task.recorded && !parent_pruned;
            let part =
                || not_json(format!("the update of node `{}`, task {}, is not JSON", task.node, task.slot));
            let update = is_own.then(|| raw(&*task.update.json()?)).transpose().map_err(part())?;
            let recorded = task.recorded && !parent_pruned;
            self.write(
                thread,
                id,
                Line::Applied(Applied { applied: task.slot, node: task.node, recorded, update }),
            )?;
        }
        for value in channels.iter().flat_map(|channels| channels.iter()) {
            let part = not_json(format!("channel `{}` of its snapshot is not JSON", value.channel));
            let channel = value.channel.clone();
            let value = raw(&value.json).map_err(part)?;
            self.write(thread, id, Line::Channel(Channel { channel, value }))?;
        }
        for (slot, record) in records {
            let node = usize::try_from(slot).ok().and_then(|slot| next.get(slot)).cloned();
            let task = Task::new(slot, node, &record);
            let task = task.map_err(not_json(format!("the record of task {slot} is not JSON")))?;
            self.write(thread, id, Line::Task(Box::new(task)))?;
        }
        Ok(())
    }

    fn write(&mut self, thread: &ThreadId, id: CheckpointId, mut line: Line) -> Result<(), TextError> {
        let unexportable = |what: String, source| TextError::Unexportable {
            thread: thread.clone(),
            checkpoint: id,
            what,
            source,
        };
        self.line.clear();
        self.redaction
            .apply(thread, &mut line)
            .and_then(|()| line.write(&mut self.line))
            .and_then(|()| self.redaction.inspect(&line, &self.line))
            .map_err(|cause| unexportable("it is not JSON".to_owned(), Some(cause.into())))?;
        if self.line.len() > MAX_LINE {
            let length = self.line.len();
            let what = format!("a line has {length} bytes, and at most {MAX_LINE} can be imported");
            return Err(unexportable(what, None));
        }
        self.line.push(b'\n');
        self.out.write_all(&self.line).map_err(|source| TextError::Io { action: "written", source })
    }
}
