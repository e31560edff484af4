//! `superstep pin`: what the model must not forget on a thread.

use serde_json::json;
use superstep::{
    ThreadId,
    agent::{config::Pin, state::Pins},
};
use superstep_session::{
    error::SessionError,
    turn::{
        dream_thread,
        pins::{self, PinChange},
    },
};

use crate::{
    args::{
        command_line::PinArgs,
        shared::{AGENT, Locate},
    },
    inspect,
    output::{
        exit::Exit,
        table::{lines, print},
    },
};

/// Adds or removes pins of a thread, or lists them.
pub(crate) async fn pin(args: PinArgs) -> Result<Exit, SessionError> {
    let location = args.thread.database.location.locate(AGENT)?;
    let (name, thread) = (args.thread.name.as_str(), ThreadId::from(args.thread.name.as_str()));
    dream_thread::refuse(&location, &thread)?;
    let change = match args.text {
        Some(text) => {
            let pin = Pin::new(args.kind, text);
            Some(PinChange::Add(args.id.into_iter().fold(pin, Pin::with_id)))
        }
        None if args.remove.is_empty() => None,
        None => Some(PinChange::Remove(args.remove)),
    };
    let pins = match change {
        None => pins::pins(location.existing(name)?, &thread).await?,
        Some(change) => pins::change(&location, location.change(&[name]).await?, &thread, change).await?,
    };
    listed(&pins, args.thread.database.json)
}

fn listed(pins: &Pins, is_json: bool) -> Result<Exit, SessionError> {
    if is_json {
        return print(&lines(pins.iter().map(|pin| json!(pin))));
    }
    print(&inspect::pins::list(pins))
}
