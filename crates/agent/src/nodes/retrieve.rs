//! The node before `memory_trigger` for retrieval: adds the results for the user's message to the
//! conversation. It exists only if configured.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::{FutureExt, future::join_all};
use serde::{Serialize, de::DeserializeOwned};
use superstep_graph::{Cx, State, state::fingerprint};
use superstep_llm::{Message, Role};
use tokio::time::timeout;

use crate::{
    AgentEvent, AgentState,
    config::{Retrieve, prompts},
    context::retrieved,
    deps::{AgentDeps, MemoryFuture, Passage, memory::NO_OWNER},
    events::emit,
    state::AgentStateUpdate,
};

/// Maximum number of characters of a query.
const MAX_QUERY: usize = 4_000;

// The results join the conversation: each request extends the one before, as prompt caches require, and a stored thread shows why the
// model replied as it did.
/// Searches all sources concurrently for the user's new message. A source that fails or times out is reported
/// and omitted; no failure reaches the run.
pub(crate) async fn retrieve(deps: AgentDeps, state: AgentState, cx: Cx) -> AgentStateUpdate {
    let update = AgentState::update();
    let Some(wanted) = deps.config.retrieve else { return update };
    let of_the_user = |message: &&Message| message.role == Role::User && !message.synthetic;
    let Some(message) = state.messages.last().filter(of_the_user) else { return update };
    let query: String = message.content.chars().take(MAX_QUERY).collect();
    let search = Search { deps: &deps, cx: &cx, query: &query, wanted };
    let (memories, passages) = tokio::join!(search.memory(&state), search.knowledge());
    let Some(found) = retrieved::message(&memories, &passages, wanted.max_chars) else { return update };
    let found = found.with_id(cx.id("retrieved"));
    emit(&cx, || AgentEvent::Retrieved {
        id: found.id.clone(),
        memories: memories.len(),
        passages: passages.len(),
    });
    update.messages([found])
}

struct Search<'a> {
    deps: &'a AgentDeps,
    cx: &'a Cx,
    query: &'a str,
    wanted: Retrieve,
}

impl Search<'_> {
    async fn memory(&self, state: &AgentState) -> Vec<String> {
        let Some(memory) = self.deps.memory.as_ref().filter(|_| self.wanted.memories > 0) else {
            return Vec::new();
        };
        let Some(user) = state.memory_owner(self.cx.thread()) else {
            self.failed(MEMORY, NO_OWNER);
            return Vec::new();
        };
        let limit = self.wanted.memories;
        let found = self.ask(MEMORY, "search", || memory.store.search(self.query, &user, limit)).await;
        found.into_iter().take(limit).map(|entry| entry.text).collect()
    }

    async fn knowledge(&self) -> Vec<Passage> {
        let limit = self.wanted.passages;
        let knowledge = self.deps.knowledge.iter().filter(|_| limit > 0).enumerate();
        let asked = knowledge.map(|(nth, knowledge)| async move {
            // Two sources may have the same name.
            let mark = format!("search.{nth}");
            let found = self.ask(knowledge.name(), &mark, || knowledge.search(self.query, limit)).await;
            found.into_iter().take(limit)
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Returns the results of one source within the time limit; none on failure.
    async fn ask<'a, T: Serialize + DeserializeOwned>(
        &self,
        whom: &str,
        mark: &str,
        search: impl FnOnce() -> MemoryFuture<'a, Vec<T>>,
    ) -> Vec<T> {
        let limit = self.deps.config.memory_timeout;
        self.cx.compared(mark, || fingerprint(self.query).ok()).await;
        let found: Result<Vec<T>, String> = self.cx.recorded(mark, || self.search(limit, search)).await;
        found.unwrap_or_else(|reason| {
            self.failed(whom, &reason);
            Vec::new()
        })
    }

    fn failed(&self, source: &str, reason: &str) {
        emit(self.cx, || AgentEvent::RetrievalFailed { source: source.into(), reason: reason.into() });
    }

    async fn search<'a, T>(
        &self,
        limit: Duration,
        search: impl FnOnce() -> MemoryFuture<'a, Vec<T>>,
    ) -> Result<Vec<T>, String> {
        // Code before the first await may panic as well.
        let search = timeout(limit, AssertUnwindSafe(async { search().await }).catch_unwind());
        tokio::select! {
            biased;
            () = self.cx.cancel().cancelled() => Err("the run was cancelled".to_owned()),
            found = search => match found {
                Ok(Ok(Ok(found))) => Ok(found),
                Ok(Ok(Err(error))) => Err(error.to_string()),
                Ok(Err(panic)) => Err(format!("the search panicked: {}", prompts::panic(&*panic))),
                Err(_) => Err(format!("no answer in {} ms", limit.as_millis())),
            },
        }
    }
}

/// The name of the memory in events.
const MEMORY: &str = "memory";
