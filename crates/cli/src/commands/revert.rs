//! `superstep revert`: restores files that tools changed.

use serde_json::json;
use superstep::{CheckpointId, ThreadId, tools::Restored};
use superstep_session::{
    error::{ErrorKind, SessionError},
    text::{changed_files, printable_line},
    turn::revert::Revert,
};

use crate::{
    args::{
        command_line::RevertArgs,
        shared::{AGENT, Locate},
    },
    commands::thread_admin::allowed,
    output::{
        exit::Exit,
        table::{lines, print},
    },
};

/// Restores the files that tools changed after a checkpoint.
pub(crate) async fn revert(args: RevertArgs) -> Result<Exit, SessionError> {
    let location = args.thread.database.location.locate(AGENT)?;
    let name = args.thread.name.as_str();
    let store = location.change(&[name]).await?;
    let thread = ThreadId::from(name);
    let revert = Revert::new(&location, store, &thread, args.force).await?;
    let to = CheckpointId(args.to);
    let asked = format!("restore the files of thread `{}` to checkpoint {to}", printable_line(name));
    if !allowed(&asked, args.yes)? {
        return Ok(Exit::Interrupted);
    }
    let restored = revert.to(to).await?;
    report(name, &restored, args.thread.database.json)
}

/// Prints what was restored.
///
/// # Errors
/// The files that could not be restored.
fn report(thread: &str, restored: &Restored, as_json: bool) -> Result<Exit, SessionError> {
    let Restored { changes, left, .. } = restored;
    let printed = match changed_files(changes) {
        _ if as_json => {
            let mut line = json!({ "thread": thread, "files": changes });
            if !left.is_empty() {
                line["left"] = json!(left);
            }
            print(&lines([line]))?
        }
        none if none.is_empty() && left.is_empty() => print("no file had to be restored\n")?,
        none if none.is_empty() => Exit::Ok,
        listed => print(&format!("{}\n", listed.join("\n")))?,
    };
    if left.is_empty() {
        return Ok(printed);
    }
    let reasons = left.iter().map(|(path, why)| format!("{}: {}", printable_line(path), printable_line(why)));
    let reasons: Vec<_> = reasons.collect();
    Err(SessionError::new(
        ErrorKind::Failed,
        format!("not restored, and left as they are: {}", reasons.join("; ")),
    ))
}
