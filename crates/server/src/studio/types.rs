//! The JSON of the studio's API. The page has the same types, which a test generates from these.
//!
//! Start at [`ThreadView`].

use serde::Serialize;
use serde_json::Value;

macro_rules! json_types {
    ($($(#[$meta:meta])* $kind:ident $name:ident $body:tt)*) => {
        $(
            #[derive(Clone, Debug, PartialEq, Serialize)]
            #[cfg_attr(test, derive(ts_rs::TS))]
            #[serde(rename_all = "snake_case")]
            $(#[$meta])*
            pub(crate) $kind $name $body
        )*

        /// Returns the TypeScript of all types.
        #[cfg(test)]
        pub(crate) fn typescript() -> String {
            let config = ts_rs::Config::new().with_large_int("number");
            let declarations = [$(<$name as ts_rs::TS>::decl(&config)),*];
            let exported = declarations.map(|declaration| format!("export {declaration}\n"));
            format!("// Generated from `src/studio/types.rs` by a test of the crate.\n\n{}", exported.join("\n"))
        }
    };
}

json_types! {
    /// The server, as the page has to know it before anything else.
    struct Info {
        pub(crate) version: &'static str,
        pub(crate) read_only: bool,
        pub(crate) graphs: Vec<String>,
    }

    /// A page of the list of threads, newest first.
    struct ThreadList {
        pub(crate) threads: Vec<ThreadLine>,
        /// The number of threads that match.
        pub(crate) total: usize,
        /// The number of questions that wait, on all threads.
        pub(crate) waiting: usize,
    }

    struct ThreadLine {
        pub(crate) id: String,
        /// The name of the graph on this server; null if the server does not have it.
        pub(crate) graph: Option<String>,
        pub(crate) status: Status,
        /// The text of the first input.
        pub(crate) title: String,
        pub(crate) head: u64,
        pub(crate) step: i64,
        pub(crate) next: Vec<String>,
        /// The number of questions that wait.
        pub(crate) waits: usize,
        pub(crate) error: Option<String>,
        pub(crate) updated_ms: i64,
    }

    #[derive(Copy, Eq)]
    enum Status {
        Running,
        Waits,
        Failed,
        /// Nodes are pending, and no run is under way.
        Paused,
        Done,
        /// The thread cannot be read.
        Damaged,
        /// The thread has no checkpoint.
        Empty,
    }

    /// A graph with its layout.
    struct GraphView {
        pub(crate) name: String,
        pub(crate) version: Option<String>,
        pub(crate) width: f64,
        pub(crate) height: f64,
        pub(crate) nodes: Vec<NodeView>,
        pub(crate) arrows: Vec<ArrowView>,
        pub(crate) channels: Vec<ChannelInfo>,
        #[cfg_attr(test, ts(type = "unknown"))]
        pub(crate) input_schema: Value,
        /// Runs read messages that are sent meanwhile, and files that they change can be restored.
        pub(crate) has_actions: bool,
    }

    /// A node. `x` and `y` are the centre of its box.
    struct NodeView {
        pub(crate) label: String,
        pub(crate) is_round: bool,
        pub(crate) x: f64,
        pub(crate) y: f64,
        pub(crate) width: f64,
        pub(crate) height: f64,
    }

    /// An arrow between two positions of the list of nodes. `line` and `head` are paths of SVG.
    struct ArrowView {
        pub(crate) from: usize,
        pub(crate) to: usize,
        pub(crate) line: String,
        pub(crate) head: String,
        pub(crate) is_dashed: bool,
        pub(crate) labels: Vec<LabelView>,
    }

    struct LabelView {
        pub(crate) text: String,
        pub(crate) x: f64,
        pub(crate) y: f64,
    }

    struct ChannelInfo {
        pub(crate) name: String,
        /// One write in each superstep.
        pub(crate) exclusive: bool,
        pub(crate) ephemeral: bool,
        pub(crate) untracked: bool,
    }

    /// A thread at its head.
    struct ThreadView {
        pub(crate) line: ThreadLine,
        /// The number of checkpoints.
        pub(crate) checkpoints: usize,
        pub(crate) questions: Vec<QuestionView>,
        /// The graph that stored the thread.
        pub(crate) stored_by: Option<String>,
    }

    /// The checkpoints of a thread in columns, newest first.
    struct Overview {
        pub(crate) ids: Vec<u64>,
        /// The distance to the parent, 0 for none.
        pub(crate) parents: Vec<u64>,
        pub(crate) steps: Vec<i64>,
        pub(crate) sources: Vec<&'static str>,
        /// UTC milliseconds.
        pub(crate) created_ms: Vec<i64>,
        /// The pending nodes of each, as positions in `nodes`.
        pub(crate) next: Vec<Vec<usize>>,
        pub(crate) nodes: Vec<String>,
        /// `true` if older checkpoints are left out.
        pub(crate) is_cut: bool,
    }

    /// The details of some checkpoints.
    struct Window {
        pub(crate) rows: Vec<WindowRow>,
    }

    struct WindowRow {
        pub(crate) id: u64,
        pub(crate) wrote: Vec<String>,
        pub(crate) bytes: usize,
        pub(crate) tokens: Option<Tokens>,
        /// The text of an input.
        pub(crate) title: Option<String>,
        pub(crate) error: Option<String>,
    }

    #[derive(Copy, Eq)]
    struct Tokens {
        pub(crate) input: u64,
        pub(crate) output: u64,
    }

    /// The state at a checkpoint in outline, and its tasks.
    struct CheckpointView {
        pub(crate) id: u64,
        pub(crate) parent: Option<u64>,
        pub(crate) parent_pruned: bool,
        pub(crate) source: &'static str,
        pub(crate) step: i64,
        pub(crate) created_ms: i64,
        pub(crate) next: Vec<String>,
        #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
        pub(crate) metadata: Value,
        pub(crate) channels: Vec<Entry>,
        pub(crate) tasks: Vec<TaskView>,
        /// The updates that made it from its parent.
        pub(crate) wrote: Vec<WriteView>,
        pub(crate) has_messages: bool,
    }

    struct TaskView {
        pub(crate) slot: usize,
        pub(crate) node: String,
        pub(crate) status: TaskStatus,
        pub(crate) attempts: u32,
        pub(crate) error: Option<String>,
        pub(crate) questions: Vec<QuestionView>,
        pub(crate) answered: Vec<String>,
        /// The names of its effects with stored results.
        pub(crate) effects: Vec<String>,
        /// The text of its update, if it is finished.
        pub(crate) result: Option<String>,
        pub(crate) item: Option<String>,
        /// The paths of the graphs that it called.
        pub(crate) subgraphs: Vec<String>,
    }

    /// The state of a graph that a pending task called, at the head of the thread.
    struct SubgraphView {
        pub(crate) checkpoint: u64,
        pub(crate) step: i64,
        pub(crate) next: Vec<String>,
        pub(crate) created_ms: i64,
        pub(crate) channels: Vec<Entry>,
        /// The paths of the graphs that its tasks called.
        pub(crate) subgraphs: Vec<String>,
    }

    #[derive(Copy, Eq)]
    enum TaskStatus {
        Done,
        Waits,
        Failed,
        Cancelled,
        Started,
        Pending,
    }

    struct WriteView {
        pub(crate) node: String,
        pub(crate) channels: Vec<String>,
        pub(crate) bytes: usize,
    }

    struct QuestionView {
        pub(crate) id: String,
        pub(crate) node: String,
        pub(crate) key: String,
        #[cfg_attr(test, ts(type = "unknown"))]
        pub(crate) question: Value,
        #[cfg_attr(test, ts(type = "unknown"))]
        pub(crate) schema: Value,
    }

    /// An entry of an object or a list, or a channel.
    struct Entry {
        pub(crate) key: String,
        pub(crate) kind: JsonKind,
        /// The size of its JSON.
        pub(crate) bytes: usize,
        /// The number of entries of a list or an object, of characters of a text.
        pub(crate) count: usize,
        pub(crate) preview: String,
        /// The preview is not the whole value.
        pub(crate) is_cut: bool,
    }

    #[derive(Copy, Eq)]
    enum JsonKind {
        Null,
        Boolean,
        Number,
        Text,
        List,
        Object,
    }

    /// A part of a value: some of the entries of a list or an object, or a piece of a text.
    struct Part {
        pub(crate) value: Entry,
        pub(crate) entries: Vec<Entry>,
        pub(crate) text: Option<String>,
        pub(crate) offset: usize,
        /// The offset of the next part; null at the end.
        pub(crate) next: Option<usize>,
    }

    /// The difference of two states, and the channels without one.
    struct Changes {
        pub(crate) against: Option<u64>,
        pub(crate) channels: Vec<ChannelChange>,
        pub(crate) unchanged: Vec<String>,
    }

    struct ChannelChange {
        pub(crate) channel: String,
        /// The change in short, such as `+1 of 9`.
        pub(crate) summary: String,
        pub(crate) changes: Vec<Change>,
        /// Changes that are left out.
        pub(crate) more: usize,
    }

    /// A change of one value.
    struct Change {
        /// The place of the value in the channel, as a JSON pointer.
        pub(crate) pointer: String,
        pub(crate) kind: ChangeKind,
        pub(crate) before: Option<String>,
        pub(crate) after: Option<String>,
        /// The lines of a text, instead of both.
        pub(crate) lines: Vec<DiffLine>,
    }

    #[derive(Copy, Eq)]
    enum ChangeKind {
        Added,
        Removed,
        Changed,
    }

    #[derive(Eq)]
    struct DiffLine {
        /// `-`, `+`, a blank, or `~` for lines that are left out.
        pub(crate) sign: char,
        pub(crate) text: String,
    }

    struct MessagePage {
        pub(crate) total: usize,
        /// The position of the first message.
        pub(crate) first: usize,
        pub(crate) messages: Vec<MessageView>,
    }

    struct MessageView {
        pub(crate) id: String,
        pub(crate) role: String,
        pub(crate) content: String,
        pub(crate) is_cut: bool,
        pub(crate) reasoning: String,
        pub(crate) calls: Vec<CallView>,
        /// The call that it answers.
        pub(crate) call: Option<String>,
        pub(crate) failed: bool,
        pub(crate) interrupted: bool,
        /// The checkpoint with which it came; null if that is not among the last ones.
        pub(crate) from: Option<u64>,
    }

    struct CallView {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) arguments: String,
    }

    /// The threads with questions.
    struct Inbox {
        pub(crate) threads: Vec<InboxThread>,
    }

    struct InboxThread {
        pub(crate) line: ThreadLine,
        pub(crate) questions: Vec<QuestionView>,
    }

    /// A run, a fork or an update that was accepted.
    struct Accepted {
        /// The new checkpoint; null for a run.
        pub(crate) checkpoint: Option<u64>,
        pub(crate) thread: String,
    }

    /// The numbers of checkpoints that were deleted, and that are left.
    struct Pruned {
        pub(crate) pruned: usize,
        pub(crate) left: usize,
    }

    /// The files that were restored, a line for each.
    struct Reverted {
        pub(crate) files: Vec<String>,
    }

    /// A thread as the file of a case.
    struct CaseFile {
        pub(crate) name: String,
        pub(crate) text: String,
    }

    /// A case that was replayed.
    struct CaseView {
        pub(crate) thread: String,
        pub(crate) graph: String,
        pub(crate) replay: ReplayView,
    }

    /// The result of an update that was not stored.
    struct DryRun {
        pub(crate) changes: Changes,
        pub(crate) next: Vec<String>,
    }

    /// Two checkpoints side by side.
    struct Comparison {
        pub(crate) changes: Changes,
        /// The newest checkpoint on the paths to both, if they are of one thread.
        pub(crate) common: Option<u64>,
        pub(crate) one: Vec<PathStep>,
        pub(crate) other: Vec<PathStep>,
    }

    /// A checkpoint on the path after the common one, oldest first.
    struct PathStep {
        pub(crate) id: u64,
        pub(crate) step: i64,
        pub(crate) source: &'static str,
        pub(crate) ran: Vec<String>,
        pub(crate) created_ms: i64,
    }

    /// The result of a replay.
    struct ReplayView {
        /// `true` if all was executed: none was taken as stored, skipped, or not reached.
        pub(crate) is_whole: bool,
        pub(crate) same: usize,
        pub(crate) taken: usize,
        pub(crate) skipped: usize,
        pub(crate) left: usize,
        pub(crate) fork: Option<u64>,
        pub(crate) divergence: Option<DivergenceView>,
    }

    struct DivergenceView {
        /// The whole in words.
        pub(crate) text: String,
        pub(crate) checkpoint: u64,
        pub(crate) step: i64,
        pub(crate) node: String,
        pub(crate) at: String,
        pub(crate) kind: String,
        pub(crate) place: String,
        pub(crate) recorded: String,
        pub(crate) now: String,
        pub(crate) changes: Vec<String>,
    }

    /// The data of the event `head`.
    struct HeadEvent {
        pub(crate) thread: String,
        pub(crate) head: u64,
        pub(crate) status: Status,
        pub(crate) next: Vec<String>,
        pub(crate) waits: usize,
    }

    /// The data of the event `message`: a piece of a message, or its end.
    struct MessageEvent {
        pub(crate) id: String,
        pub(crate) node: String,
        pub(crate) text: String,
        pub(crate) reasoning: String,
        /// The message is complete, or its pieces are void.
        pub(crate) ended: bool,
    }
}

impl Status {
    /// Returns the name, as in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waits => "waits",
            Self::Failed => "failed",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Damaged => "damaged",
            Self::Empty => "empty",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    #[test]
    fn the_page_has_the_types_of_the_server() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("studio/src/lib/api.ts");
        let generated = super::typescript();
        if env::var_os("SUPERSTEP_STUDIO_TYPES").is_some() {
            fs::write(&file, &generated).unwrap();
        }
        let stored = fs::read_to_string(&file).unwrap();
        assert_eq!(stored, generated, "run this test with SUPERSTEP_STUDIO_TYPES=1, and `just studio`");
    }
}
