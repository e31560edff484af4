//! From text to a checkpointer.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, Seek, SeekFrom},
    sync::Arc,
};

use superstep_engine::Control;
use superstep_state::chain;

use super::{
    Copied, TextError,
    lines::Counts,
    parse::{Parser, Part, thread},
};
use crate::{
    CheckpointError, CheckpointId, Checkpointer, Commit, GraphId, Prune, Source, TaskRecord, ThreadId,
    checkpointer::drawn,
};

/// The maximum number of commits that are stored at a time, and about how many bytes they have.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

/// The parts of a thread's temporary name before and after its number.
const BEGIN: &str = " (import ";
const END: char = ')';

/// Returns whether a thread has the temporary name of an import, as after an import that was killed.
pub fn is_unfinished(thread: &ThreadId) -> bool {
    let numbered = thread.as_str().strip_suffix(END).and_then(|name| name.rsplit_once(BEGIN));
    numbered.is_some_and(|(_, number)| {
        number.len() == 16 && number.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The text of a thread that was read once and is valid.
#[derive(Debug)]
pub struct Checked<'a, R> {
    source: &'a mut R,
    /// The position at which the text begins.
    begin: u64,
    thread: ThreadId,
    graph: Option<GraphId>,
    lines: BTreeMap<CheckpointId, u64>,
    counts: Counts,
}

/// Checks the text of a thread, without a store.
///
/// # Errors
/// [`TextError::Line`] if a line is wrong, [`TextError::Io`] if the text cannot be read.
pub fn check<R: BufRead + Seek + Send>(source: &mut R) -> Result<Checked<'_, R>, TextError> {
    let begin = source.stream_position().map_err(unread)?;
    let (mut parser, thread) = Parser::new(source)?;
    let (mut graph, mut is_child, mut lines) = (None, false, BTreeMap::new());
    let counts = loop {
        match parser.part()? {
            Part::Thread(path) => is_child = !path.is_empty(),
            Part::Checkpoint { id, line, commit, .. } if !is_child => {
                graph = GraphId::of(&commit.metadata);
                lines.insert(id, line);
            }
            Part::Checkpoint { .. } => {}
            Part::End(counts) => break counts,
        }
    };
    Ok(Checked { source, begin, thread: thread.into(), graph, lines, counts })
}

/// Stores the thread in a text, under its own name: [`check`], then [`Checked::store`].
///
/// # Errors
/// Those of both. Nothing is stored then.
pub async fn import<R: BufRead + Seek + Send>(
    store: &dyn Checkpointer,
    source: &mut R,
) -> Result<Copied, TextError> {
    let checked = check(source)?;
    let thread = checked.thread().clone();
    checked.store(store, &thread).await
}

impl<R: BufRead + Seek + Send> Checked<'_, R> {
    /// Returns the name of the thread in the text.
    pub fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// Returns the graph of the thread's newest checkpoint; `None` if an older program stored it.
    pub fn graph(&self) -> Option<&GraphId> {
        self.graph.as_ref()
    }

    /// Returns the numbers of the lines of the thread's checkpoints, without those of subgraphs.
    pub fn lines(&self) -> &BTreeMap<CheckpointId, u64> {
        &self.lines
    }

    /// Returns the number of checkpoints, with those of subgraphs.
    pub fn checkpoints(&self) -> u64 {
        self.counts.checkpoints
    }

    /// Stores the thread under a name. The text is read again.
    ///
    /// Everything is stored under the same ids as in the thread that was exported, so that it can be resumed, replayed and
    /// forked like that one. Do not resume both under the same name: keys of their effects are the same.
    ///
    /// The thread is stored under a temporary name first, `NAME (import NUMBER)`, and then [copied](Checkpointer::copy), so
    /// that no part of a thread is ever found under its name. If the process is killed meanwhile, or the temporary thread cannot
    /// be deleted, it is left, and [`is_unfinished`] detects it.
    ///
    /// # Errors
    /// [`CheckpointError::ThreadExists`] if the thread exists, [`CheckpointError::Busy`] if it has a writer, and other errors
    /// of the store. Nothing is stored then.
    pub async fn store(self, store: &dyn Checkpointer, name: &ThreadId) -> Result<Copied, TextError> {
        self.store_if(store, name, async |_| Ok(())).await
    }

    /// Stores the thread like [`store`](Self::store), if `accept` does not reject it. That is called when the thread is stored under
    /// its temporary name, with that name.
    ///
    /// # Errors
    /// Those of [`store`](Self::store), and that of `accept`. Nothing is stored then.
    pub async fn store_if<E: From<TextError>>(
        self,
        store: &dyn Checkpointer,
        name: &ThreadId,
        accept: impl AsyncFnOnce(ThreadId) -> Result<(), E>,
    ) -> Result<Copied, E> {
        let failed = |error: CheckpointError| E::from(error.into());
        if name.is_child() {
            return Err(failed(CheckpointError::NoThread { thread: name.root() }));
        }
        let _lease = store.lease(name).await.map_err(failed)?;
        if store.is_stored(name).await.map_err(failed)? {
            return Err(failed(CheckpointError::ThreadExists { thread: name.clone() }));
        }
        self.source.seek(SeekFrom::Start(self.begin)).map_err(unread)?;
        let drawn = drawn().map_err(failed)?;
        let temporary = ThreadId::from(format!("{}{BEGIN}{drawn}{END}", name.as_str()));
        let stored = async {
            let counts = stored_under(store, self.source, &temporary).await?;
            accept(temporary.clone()).await?;
            store.copy(&temporary, name).await.map_err(failed)?;
            Ok::<_, E>(counts)
        };
        let stored = stored.await;
        let deleted = store.delete(&temporary).await;
        let Counts { threads, checkpoints } = stored?;
        if let Err(error) = deleted {
            // The thread is stored. An error would say that it is not.
            tracing::warn!(thread = %temporary, error = chain(&error), "the temporary thread of an import cannot be deleted");
        }
        Ok(Copied {
            thread: name.clone(),
            threads,
            checkpoints,
            unused_rules: Vec::new(),
            remains: Vec::new(),
        })
    }
}

fn unread(source: io::Error) -> TextError {
    TextError::Io { action: "read", source }
}

/// Stores a file under a temporary name.
async fn stored_under(
    store: &dyn Checkpointer,
    source: &mut (impl BufRead + Send),
    temporary: &ThreadId,
) -> Result<Counts, TextError> {
    let (mut parser, _) = Parser::new(source)?;
    let mut writer = None;
    let counts = loop {
        match parser.part()? {
            Part::Thread(path) => {
                finish(writer.replace(Writer::new(store, thread(temporary, &path)))).await?;
            }
            Part::Checkpoint { id, commit, bytes, .. } => {
                if let Some(writer) = &mut writer {
                    writer.add(id, *commit, bytes).await?;
                }
            }
            Part::End(counts) => break counts,
        }
    };
    finish(writer).await?;
    Ok(counts)
}

async fn finish(writer: Option<Writer<'_>>) -> Result<(), CheckpointError> {
    match writer {
        Some(writer) => writer.finish().await,
        None => Ok(()),
    }
}

/// Stores one thread.
struct Writer<'a> {
    store: &'a dyn Checkpointer,
    thread: ThreadId,
    /// The newest checkpoint that is stored.
    head: Option<CheckpointId>,
    /// The checkpoints to store after it.
    waiting: Vec<Commit>,
    bytes: usize,
    /// The checkpoints of the file.
    ids: BTreeSet<CheckpointId>,
}

impl<'a> Writer<'a> {
    fn new(store: &'a dyn Checkpointer, thread: ThreadId) -> Self {
        Self { store, thread, head: None, waiting: Vec::new(), bytes: 0, ids: BTreeSet::new() }
    }

    /// Adds a checkpoint of about this size.
    async fn add(
        &mut self,
        id: CheckpointId,
        mut commit: Commit,
        bytes: usize,
    ) -> Result<(), CheckpointError> {
        // Ids count up by one, so pruned checkpoints are stored as well, and pruned at the end.
        while self.next() < id {
            self.push(placeholder()).await?;
        }
        self.add_recorded(&mut commit).await?;
        let copied = commit.applied.iter().filter(|task| task.recorded);
        self.bytes += bytes + copied.map(|task| task.update.bytes()).sum::<usize>();
        self.ids.insert(id);
        self.push(commit).await
    }

    /// Adds the updates of tasks that are recorded under the parent.
    async fn add_recorded(&self, commit: &mut Commit) -> Result<(), CheckpointError> {
        let Some(parent) = commit.parent.filter(|_| commit.applied.iter().any(|task| task.recorded)) else {
            return Ok(());
        };
        let first = self.head.map_or(1, |head| head.0 + 1);
        let waiting = parent.0.checked_sub(first).and_then(|nth| usize::try_from(nth).ok());
        let stored;
        let records = match waiting.and_then(|nth| self.waiting.get(nth)) {
            Some(waiting) => &waiting.records,
            None => {
                stored = self.store.read_commit(&self.thread, parent).await?;
                let missing = || CheckpointError::no_parent(&self.thread, parent);
                &stored.as_ref().ok_or_else(missing)?.records
            }
        };
        let records: BTreeMap<u32, &TaskRecord> =
            records.iter().map(|(slot, record)| (*slot, record)).collect();
        for task in commit.applied.iter_mut().filter(|task| task.recorded) {
            let Some(TaskRecord::Finished { update, .. }) = records.get(&task.slot) else {
                return Err(CheckpointError::not_recorded(&self.thread, Some(parent), task.slot));
            };
            task.update = update.clone();
        }
        Ok(())
    }

    /// Returns the id of the next checkpoint.
    fn next(&self) -> CheckpointId {
        let waiting = u64::try_from(self.waiting.len()).expect("a list has less than 2^64 elements");
        CheckpointId(self.head.map_or(0, |head| head.0) + waiting + 1)
    }

    async fn push(&mut self, commit: Commit) -> Result<(), CheckpointError> {
        self.waiting.push(commit);
        if self.waiting.len() >= BATCH || self.bytes >= BATCH_BYTES {
            self.store_waiting().await
        } else {
            Ok(())
        }
    }

    async fn store_waiting(&mut self) -> Result<(), CheckpointError> {
        let last = CheckpointId(self.next().0 - 1);
        let waiting = std::mem::take(&mut self.waiting);
        self.store.commit_all(&self.thread, self.head, waiting).await?;
        (self.head, self.bytes) = (Some(last), 0);
        Ok(())
    }

    async fn finish(mut self) -> Result<(), CheckpointError> {
        self.store_waiting().await?;
        match (self.head, self.ids.last()) {
            (Some(head), Some(last)) if last.0 > u64::try_from(self.ids.len()).unwrap_or(u64::MAX) => {
                let prune = Prune { keep: self.ids, ..Prune::default() };
                self.store.prune(&self.thread, head, prune).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// Returns a checkpoint in place of one that was pruned.
fn placeholder() -> Commit {
    Commit {
        parent: None,
        source: Source::Update,
        control: Control::new(0, Vec::new()),
        created_ms: 0,
        metadata: Arc::default(),
        applied: Vec::new(),
        snapshot: None,
        records: Vec::new(),
        fingerprints: None,
    }
}
