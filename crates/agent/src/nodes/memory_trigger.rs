//! The second node: sends the user's memory requests to the memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use superstep_graph::{Cx, ThreadId};
use superstep_llm::{Message, Role};
use tokio::time::sleep;

use crate::{
    AgentEvent, AgentState, ReactConfig,
    config::prompts,
    deps::{
        AgentDeps, MemoryTrigger,
        history::user_messages_of_turn,
        memory::{BegunRequest, NO_OWNER},
    },
    events::emit,
    guards::GuardAt,
    plain_name::hash_of,
    repair::steering::is_steered,
};

/// Starts to store the user's message if it is a memory request, without waiting: the state is unchanged, and
/// no failure of the memory reaches the run.
pub(crate) async fn memory_trigger(deps: AgentDeps, state: AgentState, cx: Cx) {
    let Some(trigger) = at_once(&deps, &cx) else { return };
    let newest = state.messages.iter().rev().find(|message| !message.synthetic);
    // An input without a message has no new request.
    let is_new = newest.is_some_and(|newest| newest.role == Role::User && !is_steered(newest));
    for request in PendingMemory::of_turn(trigger, &state, &cx) {
        trigger.begin(request.begun());
        if is_new {
            request.fulfil(trigger, &deps.config, &cx);
        }
    }
}

/// Returns the memory of requests that are stored before the end of the turn: none if guards of the input have yet to check them.
fn at_once<'a>(deps: &'a AgentDeps, cx: &Cx) -> Option<&'a MemoryTrigger> {
    // A replay stores nothing, so it must not report that this process does.
    deps.memory.as_ref().filter(|_| cx.is_live() && deps.guards.at(GuardAt::Input).next().is_none())
}

/// Starts to store the requests among messages that were sent while the turn ran, once a response to them is accepted:
/// a turn that is discarded later has no end.
pub(super) fn steered(deps: &AgentDeps, state: &AgentState, new: &[Message], cx: &Cx) {
    let Some(trigger) = at_once(deps, cx) else { return };
    let sent = new.iter().filter(|message| is_steered(message));
    for request in sent.filter_map(|message| PendingMemory::of(message, trigger, state, cx)) {
        trigger.begin(request.begun());
        request.fulfil(trigger, &deps.config, cx);
    }
}

// The state cannot record the requests: no memory operation may affect the run. The end of the turn does not wait for the memory either,
// so a process that is killed after the checkpoint of `finalize`, while the memory is still writing, may lose one.
/// At the end of a turn, repeats the requests that another process started, which may have stopped before the memory
/// had stored them, and starts those that had to wait for guards and have passed. The memory detects a repetition by its key.
pub(crate) fn make_sure(deps: &AgentDeps, state: &AgentState, cx: &Cx) {
    let Some(trigger) = deps.memory.as_ref().filter(|_| cx.is_live()) else { return };
    for request in PendingMemory::of_turn(trigger, state, cx) {
        let has_passed = deps.guards.have_passed(state, GuardAt::Input, &request.message);
        if !trigger.end(&request.begun()) && has_passed {
            request.fulfil(trigger, &deps.config, cx);
        }
    }
}

/// A memory request, or a message for which the trigger panicked.
struct PendingMemory {
    message: Message,
    user: Option<String>,
    /// The key, equal for the same message of a thread, also on its branches and in every process.
    key: String,
    /// The panic of the trigger, if any.
    panic: Option<String>,
}

impl PendingMemory {
    /// Returns the requests of the last turn.
    fn of_turn(trigger: &MemoryTrigger, state: &AgentState, cx: &Cx) -> Vec<Self> {
        let said = user_messages_of_turn(state);
        said.into_iter().filter_map(|message| Self::of(message, trigger, state, cx)).collect()
    }

    fn of(message: &Message, trigger: &MemoryTrigger, state: &AgentState, cx: &Cx) -> Option<Self> {
        let panic = match catch_unwind(AssertUnwindSafe(|| (trigger.asks)(&message.content))) {
            Ok(true) => None,
            Ok(false) => return None,
            Err(panic) => Some(prompts::panic(&*panic)),
        };
        let thread = cx.thread().map_or("", ThreadId::as_str);
        // Another node in another process must compute the same key. Branches of a thread may have different messages with one id.
        let key = format!("{thread}/{}/{}", message.id, hash_of(&message.content));
        Some(Self { message: message.clone(), user: state.memory_owner(cx.thread()), key, panic })
    }

    fn begun(&self) -> BegunRequest {
        (self.user.clone(), self.key.clone())
    }

    /// Sends it to the memory in the background.
    fn fulfil(self, trigger: &MemoryTrigger, config: &ReactConfig, cx: &Cx) {
        let Self { message, user, key, panic } = self;
        if let Some(panic) = panic {
            return failed(cx, format!("the trigger panicked: {panic}"));
        }
        let Some(user_id) = user else { return failed(cx, NO_OWNER) };
        let (trigger, config, background) = (trigger.clone(), config.clone(), cx.clone());
        let cx = cx.clone();
        background.spawn(async move {
            let store = AssertUnwindSafe(async { trigger.store.add(vec![message], &user_id, &key).await });
            let stored = tokio::select! {
                stored = store.catch_unwind() => stored,
                reason = give_up(&config, &cx) => return failed(&cx, reason),
            };
            match stored {
                Ok(Ok(_)) => emit(&cx, || AgentEvent::MemoryStored {}),
                Ok(Err(error)) => failed(&cx, error.to_string()),
                Err(panic) => failed(&cx, format!("the store panicked: {}", prompts::panic(&*panic))),
            }
        });
    }
}

/// Waits for the memory's time limit and returns the reason for the end. The run ends only after it.
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

fn failed(cx: &Cx, reason: impl Into<String>) {
    emit(cx, || AgentEvent::MemoryFailed { reason: reason.into() });
}
