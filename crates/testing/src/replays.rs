//! Replays of many stored threads as one test.
//!
//! Start at [`replay_all`].

use std::{
    error::Error,
    fmt,
    fs::File,
    future::{Future, IntoFuture},
    io::{self, BufReader},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use serde_json::Value;
use superstep_graph::{
    Checkpointer, CompiledGraph, MemoryCheckpointer, RunError, State, Store, ThreadId,
    checkpoint::{CheckpointError, text},
    convert::IntoShared,
    error::chain,
    replay::{ReplayError, Replayed},
};
use superstep_llm::text::{printable, printable_line};

/// Replays every thread of a folder of texts, of one text, or of a checkpointer against this build of a graph, in the order of the
/// files and of the names.
///
/// A folder contains files `*.thread.jsonl` as `superstep export` writes them. They are imported into memory; nothing is
/// stored, and no model and no tool is called. See [`Replay`](superstep_graph::replay::Replay) for what is compared.
///
/// ```no_run
/// # use superstep_graph::{CompiledGraph, State};
/// # use superstep_testing::replay_all;
/// # #[derive(State, Clone, Debug, Default)]
/// # struct Order { cents: u32 }
/// # fn orders() -> CompiledGraph<Order> { unimplemented!() }
/// #[test]
/// fn recorded_orders_are_processed_as_before() {
///     replay_all(&orders(), "tests/threads").blocking().unwrap().assert_same();
/// }
/// ```
#[must_use = "it replays nothing until it is awaited, or `blocking` is called"]
pub fn replay_all<S: State>(graph: &CompiledGraph<S>, threads: impl Into<ThreadSource>) -> ReplayAll<S> {
    let (graph, source) = (graph.clone(), threads.into());
    ReplayAll { graph, source, skips_others: false, context: Value::Null, store: None }
}

/// A replay of many threads: see [`replay_all`].
#[must_use = "it replays nothing until it is awaited, or `blocking` is called"]
pub struct ReplayAll<S: State> {
    graph: CompiledGraph<S>,
    source: ThreadSource,
    skips_others: bool,
    context: Value,
    store: Option<Arc<dyn Store>>,
}

/// The threads of a [`replay_all`]: a path, or a checkpointer.
pub enum ThreadSource {
    /// A folder of texts, or one text.
    Path(PathBuf),
    /// All threads of a checkpointer.
    Store(Arc<dyn Checkpointer>),
}

macro_rules! paths {
    ($($path:ty),*) => {$(
        impl From<$path> for ThreadSource {
            fn from(path: $path) -> Self {
                Self::Path(path.into())
            }
        }
    )*};
}

paths!(&str, String, &Path, PathBuf);

impl<C: Checkpointer> From<Arc<C>> for ThreadSource {
    fn from(store: Arc<C>) -> Self {
        Self::Store(store)
    }
}

impl From<Arc<dyn Checkpointer>> for ThreadSource {
    fn from(store: Arc<dyn Checkpointer>) -> Self {
        Self::Store(store)
    }
}

impl<S: State> ReplayAll<S> {
    /// Skips the threads of graphs with another name, which are errors otherwise.
    pub fn skip_other_graphs(self) -> Self {
        Self { skips_others: true, ..self }
    }

    /// Sets the value of [`Cx::context`](superstep_graph::Cx::context).
    pub fn context(self, context: Value) -> Self {
        Self { context, ..self }
    }

    /// Sets the store for [`Cx::store`](superstep_graph::Cx::store).
    pub fn store(self, store: impl IntoShared<dyn Store>) -> Self {
        Self { store: Some(store.into_shared()), ..self }
    }

    /// Replays the threads on a runtime of its own, for a test that is not asynchronous.
    ///
    /// # Errors
    /// [`ReplayAllError`].
    ///
    /// # Panics
    /// If it is called inside of a runtime: await it there.
    pub fn blocking(self) -> Result<ReplayReport, ReplayAllError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of one thread starts").block_on(self.into_future())
    }

    async fn run(self) -> Result<ReplayReport, ReplayAllError> {
        let mut threads = Vec::new();
        match &self.source {
            ThreadSource::Store(store) => {
                let mut names = store.names().await?;
                names.retain(|name| !name.is_child());
                names.sort_unstable();
                for thread in names {
                    let outcome = self.replay(store.clone(), &thread).await;
                    threads.push(ThreadReplay { thread, file: None, outcome });
                }
            }
            ThreadSource::Path(path) => {
                let unreadable = |source| ReplayAllError::Unreadable { path: path.clone(), source };
                for file in text::files(path).map_err(unreadable)? {
                    threads.push(self.replay_file(file).await);
                }
            }
        }
        Ok(ReplayReport { threads })
    }

    async fn replay_file(&self, file: PathBuf) -> ThreadReplay {
        let store = Arc::new(MemoryCheckpointer::new());
        let imported = match File::open(&file) {
            Ok(open) => {
                let imported = text::import(&*store, &mut BufReader::new(open)).await;
                imported.map_err(|error| Box::new(error) as Box<dyn Error + Send + Sync>)
            }
            Err(error) => Err(error.into()),
        };
        let (thread, outcome) = match imported {
            Ok(imported) => {
                let outcome = self.replay(store, &imported.thread).await;
                (imported.thread, outcome)
            }
            Err(error) => {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let name = name.strip_suffix(text::FILE_END).unwrap_or(&name);
                (ThreadId::from(name), ReplayOutcome::NotReplayable(error))
            }
        };
        ThreadReplay { thread, file: Some(file), outcome }
    }

    async fn replay(&self, store: Arc<dyn Checkpointer>, thread: &ThreadId) -> ReplayOutcome {
        let graph = self.graph.clone().with_checkpointer(store);
        let mut replay = graph.thread(thread).replay().context(self.context.clone());
        if let Some(store) = &self.store {
            replay = replay.store(store.clone());
        }
        match replay.run().await {
            Ok(replayed) => ReplayOutcome::Replayed(replayed.into()),
            Err(ReplayError::Run(RunError::OtherGraph { stored, .. })) if self.skips_others => {
                ReplayOutcome::OtherGraph(stored.to_string())
            }
            Err(error) => ReplayOutcome::NotReplayable(error.into()),
        }
    }
}

impl<S: State> IntoFuture for ReplayAll<S> {
    type Output = Result<ReplayReport, ReplayAllError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The remedy for intended divergences.
const ACCEPT: &str = "\nif the changes are intended, record the texts again with `replay --accept`, or with `Replay::rerecord`";

/// The results of a [`replay_all`].
#[derive(Debug)]
#[must_use = "a divergence is not an error: call `assert_same`, or inspect `threads`"]
#[non_exhaustive]
pub struct ReplayReport {
    /// The threads, in the order of their replays.
    pub threads: Vec<ThreadReplay>,
}

/// The result of one thread.
#[derive(Debug)]
#[non_exhaustive]
pub struct ThreadReplay {
    /// The thread.
    pub thread: ThreadId,
    /// The file of its text, if it is one.
    pub file: Option<PathBuf>,
    /// The result.
    pub outcome: ReplayOutcome,
}

/// The result of replaying a thread.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayOutcome {
    /// The text was replayed; it may have diverged.
    Replayed(Box<Replayed>),
    /// The text cannot be replayed: it was redacted, belongs to another graph, or its text is not valid.
    NotReplayable(Box<dyn Error + Send + Sync>),
    /// The text was skipped, because it belongs to this other graph.
    OtherGraph(String),
}

/// Threads that cannot be listed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ReplayAllError {
    /// The folder or the file cannot be read.
    #[error("cannot read the threads of `{}`", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The checkpointer reported an error.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

superstep_graph::__private::debug_by_chain!(ReplayAllError);

impl ThreadReplay {
    /// Returns whether the whole thread was replayed and agrees, or was skipped.
    pub fn is_same(&self) -> bool {
        match &self.outcome {
            ReplayOutcome::Replayed(replayed) => replayed.is_same() && replayed.is_whole(),
            ReplayOutcome::NotReplayable(_) => false,
            ReplayOutcome::OtherGraph(_) => true,
        }
    }

    /// Returns the divergence, if there is one.
    pub fn divergence(&self) -> Option<&superstep_graph::replay::Divergence> {
        match &self.outcome {
            ReplayOutcome::Replayed(replayed) => replayed.divergence.as_ref(),
            _ => None,
        }
    }
}

impl ReplayReport {
    /// Returns whether every thread was replayed completely and agrees with this build.
    pub fn is_same(&self) -> bool {
        self.replayed() > 0 && self.threads.iter().all(ThreadReplay::is_same)
    }

    fn replayed(&self) -> usize {
        let is_replayed = |thread: &&ThreadReplay| matches!(thread.outcome, ReplayOutcome::Replayed(_));
        self.threads.iter().filter(is_replayed).count()
    }

    /// Asserts complete replays without divergence, for tests.
    ///
    /// # Panics
    /// If a thread diverged, could not be replayed, or was replayed in part only, with a list of all of them. Also if no thread
    /// was replayed, because the test would then cover nothing.
    #[track_caller]
    pub fn assert_same(&self) {
        let has_diverged = self.threads.iter().any(|thread| thread.divergence().is_some());
        let accept = if has_diverged { ACCEPT } else { "" };
        assert!(self.is_same(), "{self}{accept}");
    }
}

impl fmt::Display for ThreadReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All of it may come from a file.
        write!(f, "thread `{}`", printable_line(self.thread.as_str()))?;
        if let Some(file) = &self.file {
            write!(f, " ({})", printable_line(&file.display().to_string()))?;
        }
        let indented = |text: String| printable(&text).replace('\n', "\n  ");
        match &self.outcome {
            ReplayOutcome::Replayed(replayed) if replayed.divergence.is_some() => {
                write!(f, " diverged\n  {}", indented(replayed.to_string()))
            }
            ReplayOutcome::Replayed(replayed) if !replayed.is_whole() => {
                write!(f, " was not replayed completely\n  {}", indented(replayed.to_string()))
            }
            ReplayOutcome::Replayed(replayed) => write!(f, ": {replayed}"),
            ReplayOutcome::NotReplayable(error) => {
                write!(f, " cannot be replayed\n  {}", indented(chain(&**error)))
            }
            ReplayOutcome::OtherGraph(graph) => {
                write!(f, ": skipped, it belongs to graph {}", printable_line(graph))
            }
        }
    }
}

impl fmt::Display for ReplayReport {
    /// Formats the number of threads, and those that are not the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others: Vec<&ThreadReplay> = self.threads.iter().filter(|thread| !thread.is_same()).collect();
        let s = |number: usize| if number == 1 { "" } else { "s" };
        match (self.replayed(), others.len()) {
            (0, 0) => f.write_str("no thread was replayed")?,
            (replayed, 0) => write!(f, "{replayed} thread{} replayed, no divergence", s(replayed))?,
            (_, n) => {
                let all = self.threads.len();
                write!(f, "{n} of {all} thread{} did not replay as stored", s(all))?;
            }
        }
        others.iter().try_for_each(|thread| write!(f, "\n{thread}"))
    }
}
