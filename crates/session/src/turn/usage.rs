//! The tokens and costs of stored turns.
//!
//! Start at [`of_all`].

use std::sync::Arc;

use superstep::{
    Checkpointer, History, ThreadId,
    agent::AgentState,
    llm::{Usage, models::NanoDollars},
    memory::Dreams,
};

use crate::{config::location::is_unreadable, error::SessionError, turn::stored_graph::graph};

/// The tokens of a model in a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnUsage {
    /// The thread.
    pub thread: ThreadId,
    /// The end of the turn in UTC milliseconds.
    pub ended_ms: i64,
    /// The model; empty if it is unknown.
    pub model: String,
    /// The tokens.
    pub usage: Usage,
    /// The estimated cost, if the prices are known.
    pub cost: Option<NanoDollars>,
}

/// Returns the tokens of all turns of the agent that ended since a time in UTC milliseconds, of each branch of a thread, and the
/// threads that cannot be read.
///
/// # Errors
/// The database cannot be read.
pub async fn of_all(
    store: &Arc<dyn Checkpointer>,
    since_ms: i64,
) -> Result<(Vec<TurnUsage>, Vec<ThreadId>), SessionError> {
    let graph = graph()?.with_checkpointer(store.clone());
    let (mut turns, mut unreadable) = (Vec::new(), Vec::new());
    for thread in store.names().await? {
        if Dreams::is_thread(&thread) {
            continue;
        }
        let history = match store.history(&thread, History::default()).await {
            Ok(history) => history,
            Err(error) if is_unreadable(&error) => {
                unreadable.push(thread);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let is_of_agent = |name: &str| name == graph.name();
        let ended = history.iter().filter(|meta| {
            meta.control.next.is_empty()
                && meta.created_ms >= since_ms
                && meta.graph().is_none_or(|owner| is_of_agent(&owner.name))
        });
        // An update after a turn repeats its tokens.
        let ended = ended.filter(|meta| meta.source == superstep::checkpoint::Source::Loop);
        for meta in ended {
            match graph.thread(&thread).at(meta.id).state().await {
                Ok(state) => turns.extend(of_turn(&thread, meta.created_ms, &state.values)),
                Err(_) if unreadable.contains(&thread) => {}
                Err(_) => unreadable.push(thread.clone()),
            }
        }
    }
    Ok((turns, unreadable))
}

fn of_turn(thread: &ThreadId, ended_ms: i64, state: &AgentState) -> Vec<TurnUsage> {
    let of = |model: &str, usage: Usage| {
        let cost = state.estimated_cost.get(model).map(|cost| cost.nano_dollars);
        TurnUsage { thread: thread.clone(), ended_ms, model: model.to_owned(), usage, cost }
    };
    match state.usage_by_model.is_empty() {
        _ if state.llm_calls == 0 => Vec::new(),
        true => vec![of(&state.frame.model, state.usage)],
        false => state.usage_by_model.iter().map(|(model, usage)| of(model, *usage)).collect(),
    }
}
