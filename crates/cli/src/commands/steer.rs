//! `superstep steer`: sends a message to a turn that another process runs.

use serde_json::json;
use superstep::agent::{SteerError, steer as say};
use superstep_session::{
    error::{ErrorKind, SessionError},
    turn::{dream_thread, stored_graph::graph},
};

use crate::{
    args::{
        command_line::SteerArgs,
        shared::{AGENT, Locate},
    },
    output::{
        exit::Exit,
        table::{lines, print},
    },
};

/// Sends a message to a running turn.
pub(crate) async fn steer(args: SteerArgs) -> Result<Exit, SessionError> {
    if args.text.trim().is_empty() {
        return Err(SessionError::usage(
            "the message is empty; write what the turn should take into account",
        ));
    }
    let location = args.thread.database.location.locate(AGENT)?;
    dream_thread::refuse(&location, &args.thread.name.as_str().into())?;
    let graph = graph()?.with_checkpointer(location.change(&[&args.thread.name]).await?);
    let number = match say(&graph.thread(args.thread.name.as_str()), &args.text).await {
        Ok(number) => number,
        Err(SteerError::Run(error)) => return Err(error.into()),
        Err(_) => {
            let run = location.command("run", &[&args.text, "--thread", &args.thread.name]);
            let message = format!("thread `{}` has no turn in progress; use `{run}`", args.thread.name);
            return Err(SessionError::new(ErrorKind::Thread, message));
        }
    };
    if args.thread.database.json {
        return print(&lines([json!({ "thread": args.thread.name, "steered": number })]));
    }
    print(&format!("`{}` receives the message before its next model call\n", args.thread.name))
}
