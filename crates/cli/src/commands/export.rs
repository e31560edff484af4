//! `export` and `import`: threads as text.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, IsTerminal, Read, Seek, Write},
    path::Path,
};

use serde_json::json;
use superstep::{
    Checkpointer, ThreadId,
    agent::state::conversation,
    checkpoint::text::{self, ExportOptions, Redaction, TextError},
};
use superstep_session::{
    config::names::new_thread_name,
    error::SessionError,
    text::{count, json_escaped, printable_line},
};

use crate::{
    args::{
        export::{ExportArgs, FileArgs, ImportArgs, TextArgs},
        shared::{DatabaseArgs, Locate},
    },
    commands::checks::mismatch,
    graphs::graph_set::GraphSet,
    output::{
        exit::{self, Exit},
        table::{lines, print},
    },
    session::stdin::is_piped,
};

const MAX_STDIN_BYTES: u64 = 2 << 30;

/// Writes a thread to stdout.
pub(crate) async fn export<L: Locate>(args: ExportArgs<L>, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let ExportArgs { thread: name, mut text, location } = args;
    let is_agent = graphs.is_agent;
    for rule in text.redact.iter_mut().filter(|rule| is_agent && *rule == "conversation") {
        "messages".clone_into(rule);
    }
    let options = options(text, if is_agent { conversation() } else { Redaction::new() })?;
    let location = location.locate(&graphs.program)?;
    let thread = ThreadId::from(name.as_str());
    if !is_agent {
        let found = graphs.find(&location, &name, None).await?;
        return export_of(&*found.store, &thread, &options).await;
    }
    // The text of a damaged thread ends where it is damaged.
    let store = location.existing(&name)?;
    if !store.names().await?.contains(&thread) {
        return Err(location.unknown(&name));
    }
    export_of(&*store, &thread, &options).await
}

/// Writes a thread of a database to stdout.
async fn export_of(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    options: &ExportOptions,
) -> Result<Exit, SessionError> {
    check_rules(store, thread, options).await?;
    let stdout = io::stdout();
    let exported = if stdout.is_terminal() {
        text::export_to(store, thread, options, &mut Visible::new(stdout)).await
    } else {
        text::export_to(store, thread, options, &mut BufWriter::new(stdout)).await
    };
    match exported {
        Ok(_) => Ok(Exit::Ok),
        Err(TextError::Io { source, .. }) => exit::unwritten(&source).map_or(Ok(Exit::Ok), Err),
        Err(error) => Err(SessionError::from(error)),
    }
}

/// Rejects a rule that replaces nothing, which may be misspelt, and one that leaves replaced values elsewhere, before anything is
/// written.
async fn check_rules(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    options: &ExportOptions,
) -> Result<(), SessionError> {
    if options.redaction.is_empty() {
        return Ok(());
    }
    let copied =
        text::export_to(store, thread, options, &mut io::sink()).await.map_err(SessionError::from)?;
    let Some(rule) = copied.unused_rules.first() else {
        return match copied.remains.as_slice() {
            [] => Ok(()),
            places => Err(SessionError::usage(format!(
                "what the rules replace is still in {}; nothing was written. Replace these as well, a channel with `--redact`",
                places.join(", ")
            ))),
        };
    };
    let name = rule.split_once(' ').map_or(rule.as_str(), |(_, name)| name);
    Err(SessionError::usage(format!(
        "`--redact {name}` replaces nothing, because thread `{thread}` stores no such value; nothing was written. Correct the name \
         or omit it; `state` shows the channels of a thread"
    )))
}

/// Stores the thread of a file. A program with graphs of its own rejects a thread of another graph.
pub(crate) async fn import<L: Locate>(args: ImportArgs<L>, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let ImportArgs { file: FileArgs { path, name, accept }, database: DatabaseArgs { location, json } } =
        args;
    let location = &location.locate(&graphs.program)?;
    let mut file = if is_stdin(&path) { spooled_stdin()? } else { open_text(&path)? };
    let in_file = |error: TextError| {
        let SessionError { kind, message } = SessionError::from(error);
        SessionError::new(kind, format!("`{}`: {message}", path.display()))
    };
    // Before anything is created.
    let checked = text::check(&mut file).map_err(in_file)?;
    let name = match name {
        Some(name) => name,
        None => new_thread_name(checked.thread().as_str())
            .map_err(|reason| SessionError::usage(format!("{reason}; choose one with `--as`")))?,
    };
    let thread = ThreadId::from(name.as_str());
    graphs.owner(&thread, checked.graph())?;
    // A new database is the user's own, and the thread is not.
    let store = if graphs.is_agent { location.open()? } else { location.open_own(None, false).await? };
    // Decisions on a thread of this name were not about this one.
    if store.load(&thread, None).await?.is_none() {
        location.mark_imported(&thread)?;
    }
    let (graph, lines_of) = (checked.graph().cloned(), checked.lines().clone());
    let compare = async |stored: ThreadId| {
        if accept {
            return Ok(());
        }
        let Some(mismatch) = mismatch(graphs, location, &store, &stored, graph.as_ref()).await? else {
            return Ok(());
        };
        let line = lines_of.get(&mismatch.checkpoint).copied().unwrap_or_default();
        let file = path.display();
        let replay = location.command("replay --all", &[&file.to_string()]);
        Err(SessionError::usage(format!(
            "`{file}`: line {line}: {mismatch}; the file was changed, or the program: `{replay}` shows the difference, and `--accept` \
             imports the thread as it is"
        )))
    };
    let imported = checked.store_if(&*store, &thread, compare).await?;
    if json {
        let (threads, checkpoints) = (imported.threads, imported.checkpoints);
        return print(&lines([json!({ "thread": name, "threads": threads, "checkpoints": checkpoints })]));
    }
    let checkpoints = count(imported.checkpoints, "checkpoint");
    print(&format!("imported thread `{}` with {checkpoints}\n", printable_line(&name)))
}

/// Returns the options of the flags, which add rules to `redaction`.
fn options(args: TextArgs, redaction: Redaction) -> Result<ExportOptions, SessionError> {
    let TextArgs { redact, redact_env, snapshots } = args;
    let options = ExportOptions::new().redaction(with_rules(redaction, redact, redact_env)?);
    Ok(if snapshots { options.snapshots() } else { options })
}

fn with_rules(
    mut redaction: Redaction,
    channels: Vec<String>,
    variables: Vec<String>,
) -> Result<Redaction, SessionError> {
    for channel in channels {
        redaction = if channel.contains('.') { redaction.path(channel) } else { redaction.channel(channel) };
    }
    for variable in variables {
        let secret = std::env::var(&variable).ok().filter(|secret| !secret.is_empty());
        let secret = secret.ok_or_else(|| {
            SessionError::usage(format!("the environment variable `{variable}` is not set"))
        })?;
        redaction = redaction.secret(secret);
    }
    Ok(redaction)
}

/// Opens the file of a thread's text.
pub(super) fn open_text(path: &Path) -> Result<BufReader<File>, SessionError> {
    let unreadable = |cause: &dyn std::fmt::Display| {
        SessionError::usage(format!("cannot read `{}`: {cause}", path.display()))
    };
    // Opening a pipe waits for its writer, and a device may never end.
    if !fs::metadata(path).map_err(|cause| unreadable(&cause))?.is_file() {
        return Err(unreadable(&"it is not a regular file"));
    }
    Ok(BufReader::new(File::open(path).map_err(|cause| unreadable(&cause))?))
}

fn is_stdin(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|stdin| path == Path::new(stdin))
}

/// Stores the text of stdin in a file without a name, because it is read twice.
fn spooled_stdin() -> Result<BufReader<File>, SessionError> {
    let unread = |cause: io::Error| SessionError::usage(format!("cannot read the text from stdin: {cause}"));
    if !is_piped() {
        return Err(SessionError::usage(
            "stdin is a terminal or a device; pipe the text in, or name its file",
        ));
    }
    let mut file = tempfile::tempfile().map_err(unread)?;
    let length = io::copy(&mut io::stdin().lock().take(MAX_STDIN_BYTES + 1), &mut file).map_err(unread)?;
    if length > MAX_STDIN_BYTES {
        let most = MAX_STDIN_BYTES >> 30;
        return Err(SessionError::usage(format!(
            "the text on stdin is longer than {most} GiB; import it from a file"
        )));
    }
    file.rewind().map_err(unread)?;
    Ok(BufReader::new(file))
}

/// A terminal: characters that cannot be seen are JSON escapes.
struct Visible<W> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Visible<W> {
    fn new(out: W) -> Self {
        Self { out, line: Vec::new() }
    }
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            let line = std::mem::replace(&mut self.line, rest);
            let line = json_escaped(&String::from_utf8_lossy(&line[..end]));
            writeln!(self.out, "{line}")?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_every_character_of_a_line() {
        let mut shown = Visible::new(Vec::new());
        for part in ["{\"a\":\"\u{202e}x", "\u{9b}2J\"}\n{\"b\":1", "}\n"] {
            shown.write_all(part.as_bytes()).unwrap();
        }
        let text = String::from_utf8(shown.out).unwrap();
        assert_eq!(text, "{\"a\":\"\\u202ex\\u009b2J\"}\n{\"b\":1}\n");
    }

    #[test]
    fn a_redaction_needs_its_variables() {
        let missing = with_rules(Redaction::new(), Vec::new(), vec!["SUPERSTEP_NO_SUCH_VARIABLE".to_owned()]);
        let message = missing.unwrap_err().message;
        assert_eq!(message, "the environment variable `SUPERSTEP_NO_SUCH_VARIABLE` is not set");
        let channels = vec!["email".to_owned(), "messages.*.content".to_owned()];
        let rules = with_rules(Redaction::new(), channels, Vec::new()).unwrap();
        assert_eq!(format!("{rules:?}"), r#"["channel email", "path messages.*.content"]"#);
    }
}
