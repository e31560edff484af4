//! Threads as text: one line of JSON for each checkpoint, update and record.
//!
//! The text of a thread shows everything that is stored of it, in an order that does not depend on the backend, so that it can
//! be reviewed, compared with `diff`, stored in a repository, and imported by any backend. Equal threads have equal texts, and
//! a thread that was exported and imported has the same text again.
//!
//! ```text
//! {"superstep":"thread","format":1,"thread":"trip","mark":{"graph":"trip"}}
//! {"checkpoint":1,"source":"input","step":-1,"next":["__start__"],"created_ms":0}
//! {"task":0,"node":"__start__","end":"finished","update":{"city":"Bonn"},"targets":[]}
//! {"checkpoint":2,"parent":1,"source":"loop","step":0,"next":["look_up"],"created_ms":0}
//! {"applied":0,"node":"__start__","recorded":true}
//! {"checkpoint":3,"parent":2,"source":"loop","step":1,"next":[],"created_ms":0}
//! {"applied":0,"node":"look_up","update":{"weather":"rain"}}
//! {"subgraph":["sub:0@2"]}                 the lines of a subgraph's thread follow
//! {"total":{"threads":2,"checkpoints":7}}
//! ```
//!
//! Snapshots repeat what the updates say, so they are left out, except that of a checkpoint whose parent was pruned, and that of
//! one that stands for several supersteps; [`ExportOptions::snapshots`] adds the others.
//!
//! Start at [`export`] and [`import`].

mod export;
mod files;
mod import;
mod known;
mod lines;
mod parse;
mod redaction;

use std::{error::Error, io};

pub use self::{
    export::{ExportOptions, export, export_to},
    files::{FILE_END, files},
    import::{Checked, check, import, is_unfinished},
    redaction::Redaction,
};
use crate::{CheckpointError, CheckpointId, ThreadId};

/// The maximum length of a line in bytes, without its end.
pub const MAX_LINE: usize = 256 << 20;

/// The maximum number of pruned checkpoints of the threads in a file: ids between those of its checkpoints. Threads with more are
/// not exported.
pub const MAX_PRUNED: u64 = 1_000_000;

/// The threads and checkpoints that were exported or imported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The thread.
    pub thread: ThreadId,
    /// The number of threads: the thread itself and those of its subgraphs.
    pub threads: u64,
    /// The number of their checkpoints.
    pub checkpoints: u64,
    /// The rules of the [`Redaction`] about channels and paths that replaced nothing, such as `channel mail`, because they are
    /// misspelt or the thread has no such values. Empty after an import.
    pub unused_rules: Vec<String>,
    /// The places that still contain a value which the [`Redaction`] replaced elsewhere, such as channel `reply`, or a secret, such as
    /// the name of a node: texts of 8 bytes or more, those of 16 or more also as parts of others, and
    /// within objects those with a space. Empty after an import.
    pub remains: Vec<String>,
}

/// A failed export or import.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The text is not one of a thread.
    #[error("SS312: line {line} of the thread file: {what}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The problem.
        what: String,
    },
    /// A part of the thread has no text.
    #[error("SS313: checkpoint {checkpoint} of thread `{thread}` cannot be exported: {what}")]
    Unexportable {
        /// The thread.
        thread: ThreadId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The problem.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The text cannot be read or written.
    #[error("SS314: the thread file cannot be {action}")]
    Io {
        /// `read` or `written`.
        action: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The store reported an error.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

superstep_state::debug_by_chain!(TextError);
