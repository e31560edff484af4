//! `superstep pin`: what the model must not forget on a thread.

use serde_json::json;
use superstep::agent::{AgentState, config::Pin, state::Pins};
use superstep_session::{
    error::{ErrorKind, SessionError},
    text::printable_line,
    turn::{dream_thread, stored_graph::graph},
};

use crate::{
    args::{
        command_line::PinArgs,
        shared::{AGENT, Locate},
    },
    output::{
        exit::Exit,
        table::{lines, print},
    },
};

/// Adds or removes pins of a thread, or lists them.
pub(crate) async fn pin(args: PinArgs) -> Result<Exit, SessionError> {
    let location = args.thread.database.location.locate(AGENT)?;
    let name = args.thread.name.as_str();
    dream_thread::refuse(&location, &name.into())?;
    if args.text.is_none() && args.remove.is_empty() {
        let graph = graph()?.with_checkpointer(location.existing(name)?);
        return listed(&graph.thread(name).state().await?.values.pins, args.thread.database.json);
    }
    if args.id.as_ref().is_some_and(|id| id.starts_with(Pin::OF_MODEL)) {
        return Err(SessionError::usage("names that begin with `model:` are those of the model's pins"));
    }
    let graph = graph()?.with_checkpointer(location.change(&[name]).await?);
    let thread = graph.thread(name);
    let snapshot = thread.state().await?;
    if !snapshot.next.is_empty() {
        // A message between a call and its result would make the conversation invalid.
        let resume = location.command("resume", &[name]);
        let message = format!("thread `{name}` has an unfinished turn; end it with `{resume}`, then pin");
        return Err(SessionError::new(ErrorKind::Thread, message));
    }
    let state = snapshot.values;
    if let Some(unknown) = args.remove.iter().find(|id| state.pins.get(id).is_none()) {
        let message = format!(
            "thread `{name}` has no pin `{unknown}`; list them with `{}`",
            location.command("pin", &[name])
        );
        return Err(SessionError::new(ErrorKind::Thread, message));
    }
    let update = match args.text {
        Some(text) => {
            let pin = Pin::new(args.kind, text);
            AgentState::pin([match args.id {
                Some(id) => pin.with_id(id),
                None => pin,
            }])
        }
        None => state.unpin(args.remove),
    };
    thread.update(update).await?;
    listed(&thread.state().await?.values.pins, args.thread.database.json)
}

fn listed(pins: &Pins, is_json: bool) -> Result<Exit, SessionError> {
    if is_json {
        return print(&lines(pins.iter().map(|pin| json!(pin))));
    }
    if pins.is_empty() {
        return print("no pins\n");
    }
    let pins = pins.iter().map(|pin| {
        let text = pin.text.trim().lines().map(printable_line).collect::<Vec<_>>().join("\n  ");
        format!("{} `{}`\n  {text}\n", pin.kind.as_str(), printable_line(&pin.id))
    });
    print(&pins.collect::<String>())
}
