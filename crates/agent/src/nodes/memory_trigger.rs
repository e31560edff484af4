//! The second node: what the user wants remembered is handed to the memory.

use superstep_graph::{Cx, ThreadId};
use superstep_llm::Role;

use crate::{AgentDeps, AgentState, events};

/// Starts to store the user's message if it asks to be remembered, and does not wait: the state stays as it is, and no
/// failure of the memory reaches the run.
pub(crate) async fn memory_trigger(deps: AgentDeps, state: AgentState, cx: Cx) {
    let Some(trigger) = deps.memory else { return };
    let Some(message) = state.messages.last().filter(|last| last.role == Role::User) else { return };
    if !(trigger.asks)(&message.content) {
        return;
    }
    let messages = vec![message.clone()];
    let user_id = match state.user_id.as_str() {
        "" => cx.thread().map(ThreadId::as_str).unwrap_or_default().to_owned(),
        user_id => user_id.to_owned(),
    };
    let this = cx.clone();
    this.spawn(async move {
        let stored =
            tokio::time::timeout(deps.config.memory_timeout, trigger.store.add(messages, &user_id)).await;
        match stored {
            Ok(Ok(())) => events::memory_stored(&cx),
            Ok(Err(error)) => events::memory_failed(&cx, &error.to_string()),
            Err(_) => {
                let reason = format!("no answer in {} ms", deps.config.memory_timeout.as_millis());
                events::memory_failed(&cx, &reason);
            }
        }
    });
}
