//! From text to commits: each line is checked, and each commit can be stored.
//!
//! Start at [`Parser`].

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, Read as _},
};

use superstep_engine::{Control, NodeName};
use superstep_state::{ChannelValue, RawJson, StoredUpdate};

use super::{
    MAX_LINE, MAX_PRUNED, TextError,
    lines::{Applied, Channel, Checkpoint, Counts, FORMAT, Header, KIND, Line, Mark, Subgraph, Task},
};
use crate::{
    AppliedTask, CheckpointId, Commit, ThreadId,
    commit::{Superstep, WrongTask, own},
    ids::SEPARATOR,
};

/// The mark that some editors and shells write at the beginning of a file.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// A part of a file.
#[derive(Debug)]
pub(super) enum Part {
    /// A thread begins: the segments of its path, of which the thread of the file has none.
    Thread(Vec<String>),
    /// A checkpoint of that thread.
    Checkpoint {
        id: CheckpointId,
        /// The number of its line.
        line: u64,
        commit: Box<Commit>,
        /// About how many bytes it has, with the metadata that it shares.
        bytes: usize,
    },
    /// The end of the file.
    End(Counts),
}

/// A file that is read from the beginning to the end.
pub(super) struct Parser<'a> {
    source: &'a mut (dyn BufRead + Send),
    /// The longest line to read.
    max_line: usize,
    /// The number of the last line that was read.
    line: u64,
    bytes: Vec<u8>,
    /// The first line of the next part, if it was read to find the end of the part before it.
    next: Option<(u64, Line)>,
    /// The number of bytes of the lines that were read.
    read: usize,
    found: Counts,
    /// The number of pruned checkpoints.
    pruned: u64,
    thread: Thread,
}

/// The thread that is read.
#[derive(Default)]
struct Thread {
    path: Vec<String>,
    mark: Mark,
    checkpoints: BTreeMap<u64, Seen>,
}

/// A checkpoint that was read.
struct Seen {
    tasks: Superstep,
    /// The slots of its finished tasks, in order.
    finished: Vec<u32>,
}

impl<'a> Parser<'a> {
    /// Reads the first line.
    pub(super) fn new(source: &'a mut (dyn BufRead + Send)) -> Result<(Self, String), TextError> {
        Self::with_limit(source, MAX_LINE)
    }

    fn with_limit(
        source: &'a mut (dyn BufRead + Send),
        max_line: usize,
    ) -> Result<(Self, String), TextError> {
        let mut parser = Self {
            source,
            max_line,
            line: 0,
            bytes: Vec::new(),
            next: None,
            read: 0,
            found: Counts::default(),
            pruned: 0,
            thread: Thread::default(),
        };
        let what =
            "it is not the first line of a thread's text, which begins with `{\"superstep\":\"thread\",`";
        let text = parser.text()?.ok_or_else(|| parser.error("the file is empty"))?;
        // A newer format may have entries that this program does not know.
        let format: Format = serde_json::from_str(&text).map_err(|_| parser.error(what))?;
        if format.superstep != KIND {
            return Err(parser.error(what));
        }
        if format.format != FORMAT {
            let format = format.format;
            let newer = if format > FORMAT { "; use a newer superstep" } else { "" };
            return Err(parser.error(&format!(
                "the file has format {format}, and this program knows format {FORMAT}{newer}"
            )));
        }
        let Line::Header(Header { thread, mark, .. }) =
            Line::parse(&text).map_err(|what| parser.error(&what))?
        else {
            return Err(parser.error(what));
        };
        if thread.is_empty() || thread.contains(SEPARATOR) {
            return Err(parser.error("`thread` is not a valid name of a thread"));
        }
        mark.check().map_err(|what| parser.error(&what))?;
        parser.thread.mark = mark;
        Ok((parser, thread))
    }

    /// Returns the next part; the first one is the thread of the file.
    pub(super) fn part(&mut self) -> Result<Part, TextError> {
        if self.found.threads == 0 {
            self.found.threads = 1;
            return Ok(Part::Thread(Vec::new()));
        }
        let (number, line) = self.line()?;
        match line {
            Line::Checkpoint(checkpoint) => {
                self.found.checkpoints += 1;
                self.checkpoint(number, checkpoint)
            }
            Line::Subgraph(subgraph) => {
                self.found.threads += 1;
                self.subgraph(number, subgraph)
            }
            Line::Total(total) => {
                self.ends(number)?;
                if total.total != self.found {
                    let Counts { threads, checkpoints } = self.found;
                    return Err(error(
                        number,
                        &format!(
                            "`total` does not fit the file, which has {threads} threads and {checkpoints} checkpoints"
                        ),
                    ));
                }
                match self.text()? {
                    Some(_) => Err(self.error("it follows the last line, `total`")),
                    None => Ok(Part::End(self.found)),
                }
            }
            Line::Header(_) => Err(error(number, "a thread's text begins here, within another one")),
            Line::Applied(_) | Line::Channel(_) | Line::Task(_) => {
                let what = "the line does not belong here: after a `checkpoint` come its `applied` tasks, the values of each \
                            `channel` if it has a snapshot, and its `task` records by slot";
                Err(error(number, what))
            }
        }
    }

    /// Checks that the thread before this line has a checkpoint.
    fn ends(&self, number: u64) -> Result<(), TextError> {
        if self.thread.checkpoints.is_empty() {
            Err(error(number, "the thread before this line has no checkpoint"))
        } else {
            Ok(())
        }
    }

    fn subgraph(&mut self, number: u64, line: Subgraph) -> Result<Part, TextError> {
        self.ends(number)?;
        let Subgraph { subgraph: path, mark } = line;
        let is_valid = |segment: &String| !segment.is_empty() && !segment.contains(SEPARATOR);
        if path.is_empty() || !path.iter().all(is_valid) {
            return Err(error(number, "`subgraph` is not a valid path"));
        }
        if path.iter().any(|segment| segment == own::KEYS) {
            return Err(error(
                number,
                "`subgraph` is the thread with the keys of an encrypted one, which has no text",
            ));
        }
        let [last, next] = [&self.thread.path, &path].map(|path| name(path));
        if next <= last {
            return Err(error(number, "the thread of this subgraph is there already, or not in order"));
        }
        mark.check().map_err(|what| error(number, &what))?;
        self.thread = Thread { path: path.clone(), mark, checkpoints: BTreeMap::new() };
        Ok(Part::Thread(path))
    }

    fn checkpoint(&mut self, number: u64, line: Checkpoint) -> Result<Part, TextError> {
        let id = self.id(number, &line)?;
        let control = line.control();
        if !Control::STEPS.contains(&control.step) {
            return Err(self.error(&format!("`step` {} is not the number of a superstep", control.step)));
        }
        let Checkpoint {
            parent, parent_pruned, source, created_ms, mut metadata, mark, snapshot, lines, ..
        } = line;
        let mark = mark.as_ref().unwrap_or(&self.thread.mark);
        mark.check().map_err(|what| error(number, &what))?;
        mark.put(&mut metadata);
        let marked = mark.bytes();
        let mut commit = Commit {
            parent: parent.map(CheckpointId),
            source,
            control,
            created_ms,
            metadata: metadata.into(),
            applied: Vec::new(),
            snapshot: None,
            records: Vec::new(),
            fingerprints: None,
        };
        while let Some((number, task)) = self.follows(|line| match line {
            Line::Applied(task) => Ok(task),
            other => Err(Box::new(other)),
        })? {
            commit.applied.push(self.applied(number, task, parent, parent_pruned)?);
        }
        self.check_applied(number, id, &commit, parent_pruned)?;
        let mut channels = 0;
        if snapshot {
            let (mut names, mut values) = (BTreeSet::new(), Vec::new());
            while let Some((number, Channel { channel, value })) = self.follows(|line| match line {
                Line::Channel(value) => Ok(value),
                other => Err(Box::new(other)),
            })? {
                if !names.insert(channel.clone()) {
                    return Err(error(number, &format!("channel `{channel}` is there already")));
                }
                values.push(ChannelValue { channel, json: value.into() });
            }
            channels = values.len();
            commit.snapshot = Some(values.into());
        }
        let mut finished = Vec::new();
        while let Some((number, task)) = self.follows(|line| match line {
            Line::Task(task) => Ok(task),
            other => Err(Box::new(other)),
        })? {
            let slot = task.task;
            let last = commit.records.last().map(|(slot, _)| *slot);
            if last.is_some_and(|last| slot <= last) {
                return Err(error(number, &format!("task {slot} is there already, or not in order")));
            }
            finished.extend(Some(slot).filter(|_| task.is_finished()));
            let record = Self::record(number, &commit.control.next, *task)?;
            commit.records.push((slot, record));
        }
        let has = commit.applied.len() + channels + commit.records.len();
        let has = u64::try_from(has).unwrap_or(u64::MAX);
        if let Some(lines) = lines.filter(|lines| *lines != has) {
            return Err(error(
                number,
                &format!(
                    "checkpoint {id} has {lines} `lines`, and {has} follow: an `applied`, `channel` or `task` line is missing or \
                     superfluous; export the thread again"
                ),
            ));
        }
        self.thread.checkpoints.insert(id.0, Seen { tasks: Superstep::of(&commit.control), finished });
        let bytes = std::mem::take(&mut self.read) + marked;
        Ok(Part::Checkpoint { id, line: number, commit: Box::new(commit), bytes })
    }

    /// Checks that a superstep has the updates of all its tasks.
    fn check_applied(
        &self,
        number: u64,
        id: CheckpointId,
        commit: &Commit,
        parent_pruned: bool,
    ) -> Result<(), TextError> {
        let parent = commit.parent.filter(|_| !parent_pruned);
        let Some((parent, seen)) = parent.and_then(|id| Some((id, self.thread.checkpoints.get(&id.0)?)))
        else {
            return Ok(());
        };
        let what = match commit.wrong_task(&seen.tasks) {
            None => return Ok(()),
            Some(WrongTask::Missing(slot)) => format!("the `applied` line of task {slot} is missing"),
            Some(WrongTask::Superfluous(slot)) => format!("the `applied` line of task {slot} is superfluous"),
        };
        Err(error(
            number,
            &format!(
                "{what}: checkpoint {id} folds one update of each task of checkpoint {parent}; export the thread again"
            ),
        ))
    }

    /// Checks the id of a checkpoint, and its parent.
    fn id(&mut self, number: u64, line: &Checkpoint) -> Result<CheckpointId, TextError> {
        let Checkpoint { checkpoint: id, parent, parent_pruned, snapshot, .. } = *line;
        let last = self.thread.checkpoints.last_key_value().map_or(0, |(id, _)| *id);
        if id <= last {
            let what =
                format!("checkpoint {id} is there already, or not in order: it follows checkpoint {last}");
            return Err(error(number, &what));
        }
        self.pruned = self.pruned.saturating_add(id - last - 1);
        if self.pruned > MAX_PRUNED {
            let what =
                format!("the ids of more than {MAX_PRUNED} checkpoints are missing before checkpoint {id}");
            return Err(error(number, &what));
        }
        match (parent, parent_pruned) {
            (None, true) => Err(error(number, "a checkpoint without `parent` cannot have `parent_pruned`")),
            (Some(parent), _) if parent == 0 || parent >= id => {
                Err(error(number, &format!("the parent {parent} is not older than checkpoint {id}")))
            }
            (Some(parent), true) if self.thread.checkpoints.contains_key(&parent) => {
                Err(error(number, &format!("the parent {parent} is in the file, so it is not pruned")))
            }
            (Some(parent), false) if !self.thread.checkpoints.contains_key(&parent) => {
                Err(error(number, &format!("the parent {parent} is not in the file")))
            }
            (_, true) if !snapshot => {
                Err(error(number, "a checkpoint without its parent needs a `snapshot`"))
            }
            _ => Ok(CheckpointId(id)),
        }
    }

    fn applied(
        &self,
        number: u64,
        task: Applied,
        parent: Option<u64>,
        parent_pruned: bool,
    ) -> Result<AppliedTask, TextError> {
        let Applied { applied: slot, node, recorded, update } = task;
        let update = match (update, recorded, parent_pruned) {
            (Some(update), false, false) => RawJson::from(update).into(),
            (None, true, false) => {
                let parent = parent.and_then(|parent| self.thread.checkpoints.get(&parent));
                if parent.is_none_or(|parent| parent.finished.binary_search(&slot).is_err()) {
                    let what = format!("task {slot} is not recorded as finished under the parent");
                    return Err(error(number, &what));
                }
                // It is added from the record when the commit is stored.
                StoredUpdate::empty()
            }
            (None, false, true) => StoredUpdate::empty(),
            (_, _, false) => {
                return Err(error(number, "an applied task has either its `update` or `recorded`"));
            }
            (_, _, true) => {
                return Err(error(number, "the updates of a checkpoint without its parent are not stored"));
            }
        };
        Ok(AppliedTask { slot, recorded, node, update })
    }

    fn record(number: u64, next: &[NodeName], task: Task) -> Result<crate::TaskRecord, TextError> {
        let slot = task.task;
        let runs = usize::try_from(slot).ok().and_then(|slot| next.get(slot));
        if task.node.as_ref() != runs {
            let what = match runs {
                Some(node) => format!("task {slot} of the checkpoint is of node `{node}`"),
                None => format!("the checkpoint has no task {slot} to run, so it has no `node`"),
            };
            return Err(error(number, &what));
        }
        task.into_record().map_err(|what| error(number, &what))
    }

    /// Returns the next line if it is of a kind, with its number.
    fn follows<T>(
        &mut self,
        is: impl FnOnce(Line) -> Result<T, Box<Line>>,
    ) -> Result<Option<(u64, T)>, TextError> {
        let (number, line) = self.line()?;
        match is(line) {
            Ok(found) => Ok(Some((number, found))),
            Err(other) => {
                self.next = Some((number, *other));
                Ok(None)
            }
        }
    }

    /// Returns the next line, with its number.
    fn line(&mut self) -> Result<(u64, Line), TextError> {
        if let Some(next) = self.next.take() {
            return Ok(next);
        }
        let Some(text) = self.text()? else {
            self.line += 1;
            return Err(self.error("the file ends here, without its last line, `total`: it is incomplete"));
        };
        let line = Line::parse(&text).map_err(|what| self.error(&what));
        self.bytes = text.into_bytes();
        Ok((self.line, line?))
    }

    /// Returns the text of the next line; `None` at the end of the file.
    fn text(&mut self) -> Result<Option<String>, TextError> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let limit = u64::try_from(self.max_line).unwrap_or(u64::MAX).saturating_add(1);
        let read = (&mut *self.source).take(limit).read_until(b'\n', &mut bytes);
        if read.map_err(|source| TextError::Io { action: "read", source })? == 0 {
            return Ok(None);
        }
        self.line += 1;
        self.read += bytes.len();
        if self.line == 1 && bytes.starts_with(BOM) {
            bytes.drain(..BOM.len());
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if bytes.len() > self.max_line {
            return Err(self.error(&format!("it is longer than {} bytes", self.max_line)));
        }
        String::from_utf8(bytes).map(Some).map_err(|error| {
            let at = error.utf8_error().valid_up_to() + 1;
            self.error(&format!("it is not UTF-8 at byte {at}"))
        })
    }

    fn error(&self, what: &str) -> TextError {
        error(self.line, what)
    }
}

/// The entries of the first line that no format changes.
#[derive(serde::Deserialize)]
struct Format {
    superstep: String,
    format: u64,
}

fn error(line: u64, what: &str) -> TextError {
    TextError::Line { line, what: what.to_owned() }
}

/// Returns the name of a thread by its path, relative to the thread of the file.
pub(super) fn name(path: &[String]) -> String {
    path.iter().map(|segment| format!("{SEPARATOR}{segment}")).collect()
}

/// Returns the thread of a path.
pub(super) fn thread(root: &ThreadId, path: &[String]) -> ThreadId {
    format!("{root}{}", name(path), root = root.as_str()).into()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const HEADER: &str = r#"{"superstep":"thread","format":1,"thread":"t"}"#;

    /// Returns the error of a file whose lines have at most 100 bytes.
    fn refused(file: &str) -> String {
        let mut source = Cursor::new(file);
        let read = Parser::with_limit(&mut source, 100).and_then(|(mut parser, _)| {
            while !matches!(parser.part()?, Part::End(_)) {}
            Ok(())
        });
        read.expect_err("the file is wrong").to_string()
    }

    #[test]
    fn a_line_is_limited_before_it_is_read_as_a_whole() {
        let long = "x".repeat(1_000_000);
        let wanted = |line| format!("SS312: line {line} of the thread file: it is longer than 100 bytes");
        assert_eq!(refused(&long), wanted(1));
        assert_eq!(refused(&format!("{HEADER}\n{long}\n")), wanted(2));
        let fits = format!("{HEADER}\n{}\n", "x".repeat(100));
        assert_eq!(refused(&fits), "SS312: line 2 of the thread file: expected value, at column 1");
        assert_eq!(refused(&format!("{HEADER}\n{}\n", "x".repeat(101))), wanted(2));
        let mut source = Cursor::new(&long);
        let _ = Parser::with_limit(&mut source, 100);
        assert!(source.position() <= 101, "the rest is not read");
    }

    #[test]
    fn a_checkpoint_has_the_number_of_a_superstep() {
        let line = r#"{"checkpoint":1,"source":"input","step":9223372036854775807,"next":[],"created_ms":0}"#;
        let wanted =
            "SS312: line 2 of the thread file: `step` 9223372036854775807 is not the number of a superstep";
        assert_eq!(refused(&format!("{HEADER}\n{line}\n")), wanted);
    }

    #[test]
    fn a_channel_has_one_value_in_a_snapshot() {
        let checkpoint =
            r#"{"checkpoint":1,"source":"input","step":0,"next":[],"created_ms":0,"snapshot":true}"#;
        let line = |channel: usize| format!("{{\"channel\":\"{channel}\",\"value\":7}}\n");
        // Quadratic time would take minutes for these.
        let lines: String = (0..200_000).chain([7]).map(line).collect();
        let wanted = "SS312: line 200003 of the thread file: channel `7` is there already";
        assert_eq!(refused(&format!("{HEADER}\n{checkpoint}\n{lines}")), wanted);
    }

    #[test]
    fn a_thread_with_keys_is_refused() {
        let line = r#"{"checkpoint":1,"source":"input","step":0,"next":[],"created_ms":0}"#;
        let wanted = "SS312: line 3 of the thread file: `subgraph` is the thread with the keys of an encrypted one, which has no text";
        for before in ["", "\"sub:0@2\","] {
            let path = format!("{{\"subgraph\":[{before}\"{}\"]}}", own::KEYS);
            assert_eq!(refused(&format!("{HEADER}\n{line}\n{path}\n")), wanted);
        }
    }

    #[test]
    fn a_file_without_checkpoints_is_refused() {
        let total = r#"{"total":{"threads":1,"checkpoints":0}}"#;
        let wanted = "SS312: line 2 of the thread file: the thread before this line has no checkpoint";
        assert_eq!(refused(&format!("{HEADER}\n{total}\n")), wanted);
        assert_eq!(refused(&format!("{HEADER}\n{{\"subgraph\":[\"a\"]}}\n{total}\n")), wanted);
    }
}
