//! One user's file: lines are written completely or not at all.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
};

use serde::{Deserialize, Serialize};
use superstep_agent::deps::TurnRecord;
use superstep_tools::internal::{LockedFile, ThreadFolders, lock, locked, open_stored, private};

/// Name of the lock file of dreams, beside the history.
pub(crate) const DREAM_LOCK: &str = "dream.lock";

/// The name of the file in the folder of its user.
const NAME: &str = "history.jsonl";

/// Maximum length of a line including its end, in bytes: control characters are escaped to six times their
/// length.
const MAX_LINE_LENGTH: u64 = 512 << 10;

/// A read position in a file: the lines before it were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPlace {
    /// The byte offset of the next line.
    pub offset: u64,
    /// The id of the last turn before the position, which locates it after an external change; empty for
    /// none.
    pub last: String,
}

/// Turns after a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// The turns, oldest first.
    pub turns: Vec<TurnRecord>,
    /// Their start, which differs from the requested position if the file was changed.
    pub from: HistoryPlace,
    /// Their end.
    pub to: HistoryPlace,
    /// More turns follow.
    pub more: bool,
}

#[derive(Clone)]
pub(super) struct HistoryFile {
    pub(super) folders: ThreadFolders,
    pub(super) user: String,
}

/// A locked file whose incomplete last line was removed.
struct RepairedFile {
    file: LockedFile,
    end: u64,
}

impl HistoryFile {
    /// Returns the end of the file; `None` while another process holds it.
    pub(super) fn end(&self) -> io::Result<Option<u64>> {
        Ok(self.mended()?.map(|mended| mended.end))
    }

    /// Appends a line, unless one with its id exists after `since`; `None` while another process holds the
    /// file.
    pub(super) fn append(&self, turn: &TurnRecord, since: u64) -> io::Result<Option<()>> {
        let Some(RepairedFile { mut file, end }) = self.mended()? else { return Ok(None) };
        file.seek(SeekFrom::Start(since.min(end)))?;
        let mut lines = Lines::new(&file, since.min(end));
        while let Some(line) = lines.next()? {
            if line.turn.is_some_and(|known| known.id == turn.id) {
                return Ok(Some(()));
            }
        }
        let mut line = serde_json::to_vec(turn).expect("a turn has a JSON form");
        line.push(b'\n');
        let written = file.write_all(&line).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // If that fails as well, the next writer repairs it.
            let _ = file.set_len(end);
            return Err(error);
        }
        Ok(Some(()))
    }

    pub(super) fn read(&self, from: &HistoryPlace, max: usize, max_bytes: u64) -> io::Result<Unread> {
        let below = self.folders.of_user(&self.user)?;
        let path = match self.folders.check(&below) {
            Ok(folder) => folder.join(NAME),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Unread::default()),
            Err(error) => return Err(error),
        };
        let file = match open_stored(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Unread::default()),
            Err(error) => return Err(error),
        };
        let from = find(&file, from)?;
        let mut unread = Unread { turns: Vec::new(), to: from.clone(), from, more: false };
        let mut lines = Lines::new(&file, unread.to.offset);
        while let Some(line) = lines.next()? {
            let is_one_more = unread.turns.len() < max && line.end - unread.from.offset <= max_bytes;
            if !is_one_more && !unread.turns.is_empty() {
                unread.more = true;
                break;
            }
            unread.to.offset = line.end;
            if let Some(turn) = line.turn {
                unread.to.last.clone_from(&turn.id);
                unread.turns.push(turn);
            }
        }
        Ok(unread)
    }

    /// Deletes the folder with all its contents; `None` while it is locked by a writer or a dream.
    pub(super) fn delete(&self) -> io::Result<Option<()>> {
        let below = self.folders.of_user(&self.user)?;
        let folder = match self.folders.check(&below) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(())),
            folder => folder?,
        };
        let (Some(_dreams), Some(_writes)) = (lock(&folder.join(DREAM_LOCK))?, lock(&folder.join(NAME))?)
        else {
            return Ok(None);
        };
        self.folders.remove(&below).map(Some)
    }

    fn mended(&self) -> io::Result<Option<RepairedFile>> {
        let path = self.folders.make(&self.folders.of_user(&self.user)?)?.join(NAME);
        let mut file = match locked(&path, private().read(true).append(true)) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            // The user was deleted concurrently.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let end = mend(&mut file)?;
        Ok(Some(RepairedFile { file, end }))
    }
}

/// Removes the bytes after the last complete line, or terminates them if they are a turn. Returns the new
/// end.
fn mend(file: &mut File) -> io::Result<u64> {
    let end = file.metadata()?.len();
    let start = end.saturating_sub(MAX_LINE_LENGTH);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(MAX_LINE_LENGTH).read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn = &tail[whole..];
    // Longer data than any line written here belongs to another program.
    let is_foreign = whole == 0 && start > 0;
    if torn.is_empty() {
        return Ok(end);
    }
    if is_foreign || serde_json::from_slice::<TurnRecord>(torn).is_ok() {
        file.write_all(b"\n")?;
        return Ok(end + 1);
    }
    let whole = start + whole as u64;
    file.set_len(whole)?;
    Ok(whole)
}

/// Locates a position in this file. If the line before it differs, its turn is searched; if the file does not
/// have it, it is another file and is read from the beginning.
fn find(file: &File, place: &HistoryPlace) -> io::Result<HistoryPlace> {
    if place.offset == 0 || is_behind(file, place)? {
        return Ok(place.clone());
    }
    let mut lines = Lines::new(file, 0);
    while let Some(line) = lines.next()? {
        if line.turn.is_some_and(|turn| turn.id == place.last) {
            return Ok(HistoryPlace { offset: line.end, last: place.last.clone() });
        }
    }
    Ok(HistoryPlace::default())
}

/// Returns whether the last turn before the position has the expected id. Other lines may stand between.
fn is_behind(mut file: &File, place: &HistoryPlace) -> io::Result<bool> {
    if file.metadata()?.len() < place.offset {
        return Ok(false);
    }
    let start = place.offset.saturating_sub(2 * MAX_LINE_LENGTH);
    file.seek(SeekFrom::Start(start))?;
    let mut before = Vec::new();
    file.take(place.offset - start).read_to_end(&mut before)?;
    if before.last() != Some(&b'\n') {
        return Ok(false);
    }
    let turn = |line: &[u8]| serde_json::from_slice::<TurnRecord>(line).ok();
    let last = before.split(|byte| *byte == b'\n').rev().find_map(turn);
    Ok(last.map(|turn| turn.id).unwrap_or_default() == place.last)
}

/// An iterator over complete lines.
struct Lines<'a> {
    file: BufReader<&'a File>,
    offset: u64,
    begun: bool,
}

struct Line {
    /// The turn; `None` if the line is not a turn.
    turn: Option<TurnRecord>,
    /// The offset of the next line.
    end: u64,
}

impl<'a> Lines<'a> {
    fn new(file: &'a File, offset: u64) -> Self {
        Self { file: BufReader::new(file), offset, begun: false }
    }

    /// Returns the next line; `None` if there is none, or it is incomplete.
    fn next(&mut self) -> io::Result<Option<Line>> {
        if !self.begun {
            self.file.seek(SeekFrom::Start(self.offset))?;
            self.begun = true;
        }
        let mut text = Vec::new();
        let read = (&mut self.file).take(MAX_LINE_LENGTH).read_until(b'\n', &mut text)? as u64;
        let mut end = self.offset + read;
        let mut turn = None;
        if text.last() == Some(&b'\n') {
            turn = serde_json::from_slice(&text).ok();
        } else if read < MAX_LINE_LENGTH {
            return Ok(None);
        } else {
            let rest = self.file.skip_until(b'\n')? as u64;
            end += rest;
            if rest == 0 || !ends_a_line(self.file.get_ref(), end)? {
                return Ok(None);
            }
            // The check moved the file's position.
            self.file.seek(SeekFrom::Start(end))?;
        }
        self.offset = end;
        Ok(Some(Line { turn, end }))
    }
}

/// Returns whether a line ends at this offset.
fn ends_a_line(mut file: &File, end: u64) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::Start(end - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;
    use superstep_agent::AgentOutcome;

    struct Fixture {
        dir: tempfile::TempDir,
        file: HistoryFile,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let folders = ThreadFolders::new(dir.path(), "history".as_ref()).unwrap();
            Self { dir, file: HistoryFile { folders, user: "ada".into() } }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("history/ada").join(NAME)
        }

        fn text(&self) -> String {
            fs::read_to_string(self.path()).unwrap()
        }

        fn write(&self, text: impl AsRef<[u8]>) {
            self.file.end().unwrap().unwrap();
            fs::write(self.path(), text).unwrap();
        }

        fn append(&self, id: &str) {
            self.file.append(&turn(id), 0).unwrap().unwrap();
        }

        fn read(&self, from: &HistoryPlace) -> (Vec<String>, Unread) {
            let unread = self.file.read(from, 100, u64::MAX).unwrap();
            (unread.turns.iter().map(|turn| turn.id.clone()).collect(), unread)
        }
    }

    fn turn(id: &str) -> TurnRecord {
        TurnRecord {
            id: id.into(),
            thread: "t".into(),
            user_id: "ada".into(),
            at_ms: 7,
            user: "hi\nthere".into(),
            reply: "hello".into(),
            outcome: AgentOutcome::Completed,
            tools_used: vec!["echo".into()],
        }
    }

    #[test]
    fn a_line_is_stored_as_it_always_was() {
        let place = Fixture::new();
        place.append("t/3@7/4.0");
        let line = r#"{"id":"t/3@7/4.0","thread":"t","user_id":"ada","at_ms":7,"user":"hi\nthere","reply":"hello","outcome":"completed","tools_used":["echo"]}"#;
        assert_eq!(place.text(), format!("{line}\n"));
        let least = r#"{"id":"x","at_ms":1,"user":"","reply":"","outcome":"llm_error","more":1}"#;
        place.write(format!("{least}\n"));
        let (_, unread) = place.read(&HistoryPlace::default());
        let known = TurnRecord { at_ms: 1, outcome: AgentOutcome::LlmError, ..turn("x") };
        let known = TurnRecord { thread: String::new(), user_id: String::new(), ..known };
        let known = TurnRecord { user: String::new(), reply: String::new(), tools_used: Vec::new(), ..known };
        assert_eq!(unread.turns, [known]);
        assert_eq!(
            serde_json::to_string(&unread.to).unwrap(),
            format!(r#"{{"offset":{},"last":"x"}}"#, least.len() + 1)
        );
    }

    #[test]
    fn a_turn_is_there_once_behind_where_it_was_first_tried() {
        let place = Fixture::new();
        place.append("a");
        let since = place.file.end().unwrap().unwrap();
        for id in ["b", "c", "b", "b"] {
            place.file.append(&turn(id), since).unwrap().unwrap();
        }
        assert_eq!(place.read(&HistoryPlace::default()).0, ["a", "b", "c"]);
    }

    #[test]
    fn a_line_that_was_cut_off_is_never_read_and_gone_with_the_next_one() {
        let place = Fixture::new();
        place.append("a");
        let whole = place.text();
        let half = serde_json::to_string(&turn("b")).unwrap();
        for cut in 0..half.len() {
            place.write(format!("{whole}{}", &half[..cut]));
            assert_eq!(place.read(&HistoryPlace::default()).0, ["a"], "{cut}");
            place.append("c");
            assert_eq!(place.read(&HistoryPlace::default()).0, ["a", "c"], "{cut}");
            assert_eq!(place.text(), format!("{whole}{}", whole.replace("\"a\"", "\"c\"")), "{cut}");
        }
        // Complete except for its end: it counts as a turn.
        place.write(format!("{whole}{half}"));
        assert_eq!(place.read(&HistoryPlace::default()).0, ["a"]);
        place.append("c");
        assert_eq!(place.read(&HistoryPlace::default()).0, ["a", "b", "c"]);
    }

    #[test]
    fn invalid_lines_are_skipped() {
        let place = Fixture::new();
        place.append("a");
        let long = "x".repeat(usize::try_from(MAX_LINE_LENGTH).unwrap() + 10);
        let a = place.text();
        place.write(format!("{{}}\nwhat?\n\n{a}{long}\n{}", a.replace("\"a\"", "\"b\"")));
        let (ids, unread) = place.read(&HistoryPlace::default());
        assert_eq!((ids, unread.to.offset), (vec!["a".into(), "b".into()], place.text().len() as u64));
        // An unterminated line too long for this program is left to its writer.
        place.write(format!("{a}{long}"));
        assert_eq!(place.read(&HistoryPlace::default()).0, ["a"]);
        place.append("c");
        assert_eq!(place.read(&HistoryPlace::default()).0, ["a", "c"]);
        place.write([b"\xff\xfe\n".as_slice(), a.as_bytes()].concat());
        assert_eq!(place.read(&HistoryPlace::default()).0, ["a"]);
    }

    #[test]
    fn reading_resumes_at_its_position_also_in_a_changed_file() {
        let place = Fixture::new();
        assert_eq!(place.read(&HistoryPlace::default()).1, Unread::default());
        place.append("a");
        place.append("b");
        let (_, unread) = place.read(&HistoryPlace::default());
        assert_eq!(place.read(&unread.to).0, [""; 0]);
        place.append("c");
        assert_eq!(place.read(&unread.to).0, ["c"]);
        // The first line is gone, or there is one more.
        let text = place.text();
        let second = text.find('\n').unwrap() + 1;
        place.write(&text[second..]);
        assert_eq!(place.read(&unread.to).0, ["c"]);
        place.write(format!("# by hand\n{text}"));
        let (ids, moved) = place.read(&unread.to);
        assert_eq!((ids, moved.from.offset), (vec!["c".to_owned()], unread.to.offset + 10));
        // It is another file.
        fs::remove_file(place.path()).unwrap();
        place.append("d");
        assert_eq!(place.read(&unread.to).0, ["d"]);
    }

    #[test]
    fn reads_are_limited() {
        let place = Fixture::new();
        ["a", "b", "c"].iter().for_each(|id| place.append(id));
        let line = place.text().len() as u64 / 3;
        let ids = |max, max_bytes| {
            let unread = place.file.read(&HistoryPlace::default(), max, max_bytes).unwrap();
            unread.turns.iter().map(|turn| turn.id.clone()).collect::<String>()
        };
        assert_eq!(
            (ids(2, u64::MAX), ids(9, 2 * line), ids(9, 2 * line - 1)),
            ("ab".into(), "ab".into(), "a".into())
        );
        assert_eq!((ids(0, 0), ids(1, 1)), ("a".into(), "a".into()), "one goes in any case");
    }

    #[test]
    fn two_write_at_once_and_wait_for_each_other() {
        let place = Fixture::new();
        let writers = ["a", "b"].map(|name| {
            let file = place.file.clone();
            std::thread::spawn(move || {
                for n in 0..50 {
                    while file.append(&turn(&format!("{name}{n}")), 0).unwrap().is_none() {
                        std::thread::yield_now();
                    }
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let mut ids = place.read(&HistoryPlace::default()).0;
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 100);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed_and_the_file_is_its_owners() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let place = Fixture::new();
        place.append("a");
        assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let elsewhere = place.dir.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        fs::remove_file(place.path()).unwrap();
        symlink(&elsewhere, place.path()).unwrap();
        assert!(place.file.append(&turn("b"), 0).is_err());
        assert!(place.file.read(&HistoryPlace::default(), 1, 1).is_err());
        assert_eq!(fs::read(&elsewhere).unwrap(), b"");
    }
}
