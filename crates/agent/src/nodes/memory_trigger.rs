//! The second node: what the user wants remembered is handed to the memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use superstep_graph::Cx;
use superstep_llm::Role;
use tokio::time::sleep;

use crate::{
    AgentDeps, AgentState, ReactConfig, events,
    memory::{NOBODY, owner},
    texts,
};

/// Starts to store the user's message if it asks to be remembered, and does not wait: the state stays as it is, and no
/// failure of the memory reaches the run.
pub(crate) async fn memory_trigger(deps: AgentDeps, state: AgentState, cx: Cx) {
    let Some(trigger) = deps.memory else { return };
    let Some(message) = state.messages.last().filter(|last| last.role == Role::User) else { return };
    match catch_unwind(AssertUnwindSafe(|| (trigger.asks)(&message.content))) {
        Ok(true) => {}
        Ok(false) => return,
        Err(panic) => {
            return events::memory_failed(&cx, &format!("the trigger panicked: {}", texts::panic(&*panic)));
        }
    }
    let messages = vec![message.clone()];
    let Some(user_id) = owner(&state, cx.thread()) else { return events::memory_failed(&cx, NOBODY) };
    let (key, background) = (cx.key(), cx.clone());
    background.spawn(async move {
        let store = AssertUnwindSafe(async { trigger.store.add(messages, &user_id, &key).await });
        let stored = tokio::select! {
            stored = store.catch_unwind() => stored,
            reason = give_up(&deps.config, &cx) => return events::memory_failed(&cx, &reason),
        };
        match stored {
            Ok(Ok(_)) => events::memory_stored(&cx),
            Ok(Err(error)) => events::memory_failed(&cx, &error.to_string()),
            Err(panic) => {
                events::memory_failed(&cx, &format!("the store panicked: {}", texts::panic(&*panic)))
            }
        }
    });
}

/// Waits as long as the memory may take, and says why that is over. The run ends only after it.
async fn give_up(config: &ReactConfig, cx: &Cx) -> String {
    let cancelled = async {
        cx.cancel().cancelled().await;
        sleep(config.cancel_grace).await;
    };
    tokio::select! {
        () = sleep(config.memory_timeout) => format!("no answer in {} ms", config.memory_timeout.as_millis()),
        () = cancelled => "the run was cancelled".to_owned(),
    }
}
