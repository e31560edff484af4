//! The pins of a thread, which its user changes between turns.

use std::sync::Arc;

use superstep::{
    Checkpointer, ThreadId,
    agent::{
        AgentState,
        config::{Pin, PinSource},
        state::Pins,
    },
};

use crate::{
    config::{location::Location, settings::Given},
    error::{ErrorKind, SessionError},
    turn::{setup::steps::next_configuration, stored_graph::graph},
};

/// A change of the pins of a thread.
#[derive(Clone, Debug)]
pub enum PinChange {
    Add(Pin),
    /// Removes those with these ids.
    Remove(Vec<String>),
}

/// Returns the pins of a thread.
///
/// # Errors
/// Its state cannot be read.
pub async fn pins(store: Arc<dyn Checkpointer>, thread: &ThreadId) -> Result<Pins, SessionError> {
    Ok(graph()?.with_checkpointer(store).thread(thread.clone()).state().await?.values.pins)
}

/// Changes the pins of a thread, and returns them. The model learns of it with the next message.
///
/// # Errors
/// The thread has an unfinished turn, or no pin of an id to remove; or the id is one of the model's own, or a pin to remove is one of
/// the configuration.
pub async fn change(
    location: &Location,
    store: Arc<dyn Checkpointer>,
    thread: &ThreadId,
    change: PinChange,
) -> Result<Pins, SessionError> {
    let name = thread.as_str();
    let stored = graph()?.with_checkpointer(store.clone()).thread(thread.clone());
    let snapshot = stored.state().await?;
    if !snapshot.next.is_empty() {
        // A message between a call and its result would make the conversation invalid.
        let resume = location.command("resume", &[name]);
        let message = format!("thread `{name}` has an unfinished turn; end it with `{resume}`, then pin");
        return Err(SessionError::new(ErrorKind::Thread, message));
    }
    let state = snapshot.values;
    let is_of_config = |id: &String| state.pins.get(id).is_some_and(|pin| pin.source == PinSource::Config);
    let update = match change {
        PinChange::Add(pin) if pin.id.starts_with(Pin::OF_MODEL) => {
            return Err(SessionError::usage("names that begin with `model:` are those of the model's pins"));
        }
        PinChange::Add(pin) => AgentState::pin([pin]),
        PinChange::Remove(ids) => {
            if let Some(unknown) = ids.iter().find(|id| state.pins.get(id).is_none()) {
                let message = format!(
                    "thread `{name}` has no pin `{unknown}`; list them with `{}`",
                    location.command("pin", &[name])
                );
                return Err(SessionError::new(ErrorKind::Thread, message));
            }
            let configured = match ids.iter().any(is_of_config) {
                true => configured(location, &*store, thread).await?,
                false => Vec::new(),
            };
            let is_configured = |id: &&String| {
                let text = state.pins.get(id).map(|pin| &pin.text);
                is_of_config(id) && configured.iter().any(|pin| pin.id == **id || Some(&pin.text) == text)
            };
            if let Some(id) = ids.iter().find(is_configured) {
                // The next turn would add it again.
                let message = format!("pin `{id}` is one of the configuration; remove it there");
                return Err(SessionError::usage(message));
            }
            state.unpin(ids)
        }
    };
    stored.update(update).await?;
    Ok(stored.state().await?.values.pins)
}

/// Returns the pins of the configuration of the next turn.
async fn configured(
    location: &Location,
    store: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<Vec<Pin>, SessionError> {
    let configuration = next_configuration(location, store, thread, &Given::default()).await?;
    let react = configuration.react(false).map_err(|wrong| SessionError::usage(wrong.to_string()))?;
    Ok(react.context.keep.pins)
}
