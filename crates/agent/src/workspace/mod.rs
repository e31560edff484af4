//! Tools of an agent that works in one directory: list, read, search, edit and write files, run commands,
//! read web pages, maintain a task list, calculate, tell the time.
//!
//! File tools cannot leave the directory: see [`Workspace`]. Start at [`tools`].

mod calculate;
mod clock;
mod edit;
mod ends;
mod fetch;
mod files;
mod held;
mod html;
mod journal;
mod question;
mod reach;
mod read;
mod root;
mod rounding;
mod search;
mod shell;
mod snapshots;
mod store;
mod todo;
mod walk;
mod write;

#[cfg(test)]
#[cfg(unix)]
mod racing;
#[cfg(test)]
mod testing;

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use serde_json::Value;
use superstep_llm::{Behaviour, Subject, Tool, ToolCx, ToolError};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::{
    calculate::calculate,
    clock::current_time,
    edit::edit_file,
    fetch::fetch_url,
    files::list_files,
    read::read_file,
    root::{RESULTS, Workspace},
    search::search_files,
    shell::shell,
    snapshots::{FileSnapshots, RestoreError},
    todo::todo,
    write::write_file,
};
pub(crate) use self::{edit::edit_file_once, journal::EditJournal};

/// All tools of a workspace: `list_files`, `read_file`, `search_files`, `edit_file`, `write_file`, `shell`, `fetch_url`,
/// `todo`, `calculate`, `current_time`.
///
/// `edit_file`, `write_file`, `shell` and `fetch_url` require approval; the others change nothing. Build your
/// own list from the constructors of the single tools.
/// # Units    `clock` gives UTC milliseconds since 1970.
/// # Errors    `root` is missing, unreadable or not a directory.
/// # Example
/// ```
/// use superstep_agent::workspace;
///
/// let dir = tempfile::tempdir()?;
/// let tools = workspace::tools(dir.path(), || 1_767_225_600_000)?;
/// assert_eq!(tools[0].spec().name, "list_files");
/// # std::io::Result::Ok(())
/// ```
pub fn tools(root: &Path, clock: impl Fn() -> i64 + Send + Sync + 'static) -> io::Result<Vec<Arc<dyn Tool>>> {
    let workspace = Workspace::open(root)?;
    Ok(vec![
        Arc::new(list_files(&workspace)),
        Arc::new(read_file(&workspace)),
        Arc::new(search_files(&workspace)),
        Arc::new(edit_file(&workspace)),
        Arc::new(write_file(&workspace)),
        Arc::new(shell(&workspace)),
        Arc::new(fetch_url()),
        Arc::new(todo()),
        Arc::new(calculate()),
        Arc::new(current_time(clock)),
    ])
}

/// Returns a function that makes the tool for another folder.
fn made_by<T: Tool + 'static>(make: fn(&Workspace) -> T) -> impl Fn(&Path) -> io::Result<Arc<dyn Tool>> {
    move |folder| Ok(Arc::new(make(&Workspace::open_real(folder)?)))
}

/// The behaviour of tools that change nothing: an interrupted call may be repeated.
const REPEATABLE: Behaviour =
    Behaviour { exclusive: false, poll: false, answers: false, idempotent: true, timeout: None };

/// Creates a token that stops the blocking half of a call when the call is cancelled or its future dropped.
fn stop_signal(cx: &ToolCx) -> (CancellationToken, DropGuard) {
    let stop = cx.cancel.child_token();
    (stop.clone(), stop.drop_guard())
}

/// Runs the blocking half of a call that changes nothing; does not wait for its result after cancellation.
async fn look<F>(cx: ToolCx, work: F) -> Result<String, ToolError>
where
    F: FnOnce(&CancellationToken) -> Result<String, ToolError> + Send + 'static,
{
    let (stop, _guard) = stop_signal(&cx);
    let task = tokio::task::spawn_blocking({
        let stop = stop.clone();
        move || work(&stop)
    });
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(cancelled()),
        done = task => done.unwrap_or_else(|_| Err(crashed())),
    }
}

/// Runs the blocking half of a call that changes something. It is always awaited, even after cancellation,
/// because "cancelled" must not be reported for a change that was made.
async fn change<F>(cx: ToolCx, work: F) -> Result<String, ToolError>
where
    F: FnOnce(&CancellationToken) -> Result<String, ToolError> + Send + 'static,
{
    let (stop, _guard) = stop_signal(&cx);
    tokio::task::spawn_blocking(move || work(&stop)).await.unwrap_or_else(|_| Err(crashed()))
}

/// Returns the permission subject of a tool's argument: a path for `path`, otherwise its text.
fn path(workspace: &Workspace, argument: &str, args: &Value, whole: bool) -> Option<Subject> {
    let given = args.get(argument).and_then(Value::as_str);
    match (argument, given) {
        ("path", given) => Some(workspace.subject(given.unwrap_or("."), whole)),
        (_, text) => text.map(|text| Subject::Text(text.to_owned())),
    }
}

fn cancelled() -> ToolError {
    ToolError::failed("cancelled")
}

fn crashed() -> ToolError {
    ToolError::failed("the tool crashed on this call; find another way")
}

fn check_stop(stop: &CancellationToken) -> Result<(), ToolError> {
    if stop.is_cancelled() { Err(cancelled()) } else { Ok(()) }
}

/// A reader that fails once the call is cancelled, so that reading a large file does not outlive its call.
struct Stoppable<'a, R> {
    inner: R,
    stop: &'a CancellationToken,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.inner.read(buffer)
    }
}

/// Formats 1234567 as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the longest prefix of `text` of at most `max` bytes that ends on a character boundary.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_come_in_a_fixed_order_and_take_the_documented_arguments() {
        let dir = tempfile::tempdir().unwrap();
        let tools = tools(dir.path(), || 0).unwrap();
        let shapes: Vec<String> = tools
            .iter()
            .map(|tool| {
                let parameters = &tool.spec().parameters;
                let required = parameters["required"].as_array().cloned().unwrap_or_default();
                let mut names: Vec<String> = parameters["properties"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| {
                        let optional = !required.contains(&name.as_str().into());
                        format!("{name}{}", if optional { "?" } else { "" })
                    })
                    .collect();
                names.sort();
                assert_eq!(parameters["additionalProperties"], false, "{}", tool.spec().name);
                format!("{}({})", tool.spec().name, names.join(", "))
            })
            .collect();
        assert_eq!(
            shapes,
            [
                "list_files(glob?, path?)",
                "read_file(limit?, offset?, path)",
                "search_files(path?, pattern)",
                "edit_file(new, old, path)",
                "write_file(content, path)",
                "shell(command, cwd?, timeout_seconds?)",
                "fetch_url(url)",
                "todo(items)",
                "calculate(expression)",
                "current_time()",
            ]
        );
    }

    #[test]
    fn every_argument_is_described_to_the_model() {
        let dir = tempfile::tempdir().unwrap();
        for tool in tools(dir.path(), || 0).unwrap() {
            for (name, schema) in tool.spec().parameters["properties"].as_object().into_iter().flatten() {
                assert!(schema["description"].is_string(), "{} {name}", tool.spec().name);
            }
        }
    }

    #[test]
    fn a_root_that_is_missing_or_a_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let missing = tools(&dir.path().join("missing"), || 0).err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let file = tools(&dir.path().join("file"), || 0).err().unwrap();
        assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
        assert_eq!(file.to_string(), "the workspace root is not a directory");
    }

    #[test]
    fn what_reaches_beyond_looking_asks_first() {
        let dir = tempfile::tempdir().unwrap();
        let args = |name: &str| match name {
            "edit_file" => serde_json::json!({"path": "a", "old": "b", "new": "c"}),
            "write_file" => serde_json::json!({"path": "a", "content": ""}),
            "shell" => serde_json::json!({"command": "true"}),
            _ => serde_json::json!({"url": "https://example.com"}),
        };
        let asking: Vec<String> = tools(dir.path(), || 0)
            .unwrap()
            .iter()
            .filter(|tool| tool.approval(&args(&tool.spec().name)).is_some())
            .map(|tool| tool.spec().name.clone())
            .collect();
        assert_eq!(asking, ["edit_file", "write_file", "shell", "fetch_url"]);
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        let texts = [0, 12, 123, 1234, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "12", "123", "1,234", "1,234,567"]);
    }

    #[tokio::test]
    async fn a_dropped_call_stops_its_blocking_half() {
        let cx = testing::cx();
        let (started, seen) = tokio::sync::oneshot::channel();
        let (ended, end) = tokio::sync::oneshot::channel();
        let call = look(cx, move |stop| {
            started.send(()).expect("the test waits for the start");
            while !stop.is_cancelled() {
                std::thread::yield_now();
            }
            ended.send(()).expect("the test waits for the end");
            Err(cancelled())
        });
        tokio::select! {
            _ = call => panic!("nothing has cancelled it"),
            _ = seen => {}
        }
        end.await.expect("the blocking half has seen the drop");
    }
}
