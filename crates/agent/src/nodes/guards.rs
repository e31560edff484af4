//! The nodes of guards, and the node that applies their verdicts.
//!
//! Start at [`verdict`].

use superstep_graph::{
    Cx, NodeError, State,
    state::{Merge, Merges, Update},
};
use superstep_llm::Message;

use super::{
    chunk::{emit_message, emit_text},
    model_turn::stop,
    parts,
};
use crate::{
    AgentEvent, AgentOutcome, AgentState,
    config::prompts,
    context::finish::{Finishing, TextMeaning, meant},
    deps::AgentDeps,
    events::emit,
    guards::{Guard, View, chain::Settled},
    state::{
        AgentStateUpdate, LastAnswer, StopReason,
        guarding::{Draft, GuardAt, GuardVerdict, Guarding, Verdict},
    },
};

/// Runs a guard on each text that it has not checked yet. A cancelled guard leaves no verdict.
pub(crate) async fn guard((deps, guard): (AgentDeps, Guard), state: AgentState, cx: Cx) -> AgentStateUpdate {
    let mut verdicts = Vec::new();
    for (message, text) in deps.guards.due(&guard, &state) {
        let view = View::of(&state, guard.at(), text);
        let run = async {
            tokio::select! {
                biased;
                () = cx.cancel().cancelled() => None,
                made = guard.run(view) => Some(made),
            }
        };
        let made: Option<Result<Verdict, String>> = cx.recorded("verdict", || run).await;
        let Some(made) = made else { break };
        let (verdict, failure) = match made {
            Ok(verdict) => (verdict, None),
            Err(failure) => (Verdict::Block { reply: String::new() }, Some(failure)),
        };
        verdicts.push(GuardVerdict { failure, ..GuardVerdict::new(guard.name(), message, text, verdict) });
    }
    let update = AgentState::update();
    if verdicts.is_empty() { update } else { update.verdicts(verdicts) }
}

/// Applies the verdicts: accepts the response of the model as a part of the conversation, replaces a text, or ends the turn. Does nothing
/// as long as verdicts are missing; their guards run next.
///
/// # Errors
/// If the stored response was written by another version of the program.
pub(crate) async fn verdict(
    deps: AgentDeps,
    state: AgentState,
    cx: Cx,
) -> Result<AgentStateUpdate, NodeError> {
    let round = Round { deps: deps.active(&state), cx: &cx };
    let is_cancelled = cx.noted("cancelled", cx.cancel().is_cancelled());
    let update = match round.decide(state.clone())? {
        Some(update) => update,
        // Their guards are cancelled as well.
        None if is_cancelled && !state.stop => round.discard(&state, stop(AgentOutcome::Cancelled)),
        None => AgentState::update(),
    };
    Ok(match round.deps.guards.unchecked_beginning(&state) {
        Some(begun) => round.remove(&state, begun, update),
        None => update,
    })
}

struct Round<'a> {
    deps: &'a AgentDeps,
    cx: &'a Cx,
}

impl Round<'_> {
    /// Returns the update by the verdicts so far; `None` if one is missing.
    fn decide(&self, mut state: AgentState) -> Result<Option<AgentStateUpdate>, NodeError> {
        let mut update = AgentState::update();
        let (mut changed, mut accepted) = (Vec::new(), Vec::new());
        let guards = &self.deps.guards;
        let (mut blocked, mut open) = (Vec::new(), Vec::new());
        for mut message in state.inputs().cloned().collect::<Vec<_>>() {
            loop {
                let text = (message.id.as_str(), message.content.as_str());
                match guards.settled(&state, GuardAt::Input, text) {
                    Settled::Passed => break,
                    Settled::Open => {
                        open.push(message);
                        break;
                    }
                    Settled::Blocked(made) => {
                        blocked.push((made.clone(), message));
                        break;
                    }
                    Settled::Rewritten(guard, new) => {
                        self.report(guard, GuardAt::Input, "rewrite", None);
                        let new = message.clone().with(|message| message.content = new.to_owned());
                        let passes = guards.accept(GuardAt::Input, guard, (&new.id, &new.content));
                        message = new;
                        state.verdicts.extend(passes.iter().cloned());
                        accepted.extend(passes);
                        changed.retain(|earlier: &Message| earlier.id != message.id);
                        changed.push(message.clone());
                    }
                }
            }
        }
        if let Some((first, _)) = blocked.first() {
            let first = first.clone();
            // The turn ends before the others are checked.
            blocked.extend(open.into_iter().map(|message| (first.clone(), message)));
            return Ok(Some(self.block_input(&state, changed, &first, blocked)));
        }
        if !changed.is_empty() {
            // The model has answered another text.
            let answer = LastAnswer { again: true, ..state.answer };
            update = self.discard(&state, update.messages(changed).verdicts(accepted).answer(answer));
            return Ok(Some(update));
        }
        if !open.is_empty() {
            return Ok(None);
        }
        let Some(mut draft) = state.guarding.draft.clone() else { return Ok(Some(update)) };
        let was = draft.text.clone();
        while let Some(text) = draft.text.clone() {
            match guards.settled(&state, GuardAt::Output, (draft.id(), &text)) {
                Settled::Passed => break,
                Settled::Open => {
                    if draft.text == was {
                        return Ok(None);
                    }
                    let guarding = Guarding { draft: Some(draft), ..state.guarding.clone() };
                    return Ok(Some(update.guarding(guarding).verdicts(accepted)));
                }
                Settled::Blocked(made) => {
                    let update = self.blocked(made, GuardAt::Output, update);
                    return Ok(Some(self.discard(&state, update)));
                }
                Settled::Rewritten(guard, new) => {
                    let guard = guard.to_owned();
                    self.report(&guard, GuardAt::Output, "rewrite", None);
                    draft = match self.rewritten(&state, draft, new)? {
                        Ok(draft) => draft,
                        Err(problem) => {
                            let made =
                                GuardVerdict::new(&guard, "", &text, Verdict::Block { reply: String::new() });
                            let made = GuardVerdict { failure: Some(problem), ..made };
                            let update =
                                self.blocked(&made, GuardAt::Output, update.verdicts([made.clone()]));
                            return Ok(Some(self.discard(&state, update)));
                        }
                    };
                    let new = draft.text.as_deref().unwrap_or_default();
                    let passes = guards.accept(GuardAt::Output, &guard, (draft.id(), new));
                    state.verdicts.extend(passes.iter().cloned());
                    accepted.extend(passes);
                }
            }
        }
        if !accepted.is_empty() {
            update = update.verdicts(accepted);
        }
        self.accept(&state, draft, update).map(Some)
    }

    /// Ends the turn because of a verdict, and replaces the messages of the user that have not passed, so that no later request contains
    /// them. `changed` are messages with other texts.
    fn block_input(
        &self,
        state: &AgentState,
        mut changed: Vec<Message>,
        made: &GuardVerdict,
        unpassed: Vec<(GuardVerdict, Message)>,
    ) -> AgentStateUpdate {
        for (made, message) in unpassed {
            let notice = message.with(|message| {
                message.content = prompts::blocked_input(&made.guard);
                message.media.clear();
            });
            changed.retain(|earlier| earlier.id != notice.id);
            changed.push(notice);
        }
        let update = self.blocked(made, GuardAt::Input, AgentState::update().messages(changed));
        self.discard(state, update)
    }

    /// Ends the turn because of a verdict.
    fn blocked(&self, made: &GuardVerdict, at: GuardAt, update: AgentStateUpdate) -> AgentStateUpdate {
        self.report(&made.guard, at, "block", made.failure.clone());
        update.stop(true).stop_reason(StopReason::guardrail(&made.guard))
    }

    /// Discards the response that waits, if there is one.
    fn discard(&self, state: &AgentState, update: AgentStateUpdate) -> AgentStateUpdate {
        let Some(draft) = &state.guarding.draft else { return update };
        if draft.streamed {
            emit(self.cx, || AgentEvent::AttemptDiscarded { attempt: state.model_requests });
            self.cx.discard_message(draft.id());
        }
        let update = update.guarding(Guarding { draft: None, ..state.guarding.clone() });
        // The beginning of a continued answer is in the conversation already.
        match state.messages.get(draft.id()) {
            Some(begun) => update.then(removed(begun)),
            None => update,
        }
    }

    /// Removes the beginning of an answer, whose end was not checked.
    fn remove(&self, state: &AgentState, begun: &Message, update: AgentStateUpdate) -> AgentStateUpdate {
        if !self.deps.guards.hold(&state.active) {
            emit(self.cx, || AgentEvent::AttemptDiscarded { attempt: state.model_requests });
            self.cx.discard_message(&begun.id);
        }
        update.then(removed(begun))
    }

    /// Adds the response to the conversation, and emits what was held back.
    fn accept(
        &self,
        state: &AgentState,
        draft: Draft,
        update: AgentStateUpdate,
    ) -> Result<AgentStateUpdate, NodeError> {
        let Draft { messages, cut_off, streamed, calls, rest, .. } = draft;
        let rest = read(state, &rest)?;
        if let Some(answer) = messages.first() {
            if !streamed {
                emit(self.cx, || AgentEvent::NodeStart { node: self.cx.node().to_string() });
                emit_text(self.cx, answer);
                emit(self.cx, || AgentEvent::NodeEnd { node: self.cx.node().to_string() });
            }
            emit_message(self.cx, &answer.id, Some(answer), if streamed { calls } else { 0 }, false);
        }
        let mut update = update.then(rest).guarding(Guarding { draft: None, ..state.guarding.clone() });
        if self.deps.config.parts {
            let parts = messages.iter().flat_map(|message| parts::of_message(message, cut_off, self.cx));
            update = update.parts(
                parts.inspect(|part| emit(self.cx, || AgentEvent::Part(part.clone()))).collect::<Vec<_>>(),
            );
        }
        Ok(update.messages(messages))
    }

    /// Replaces the text of an answer. The error is the problem of the new text.
    fn rewritten(
        &self,
        state: &AgentState,
        draft: Draft,
        text: &str,
    ) -> Result<Result<Draft, String>, NodeError> {
        if draft.streamed {
            emit(self.cx, || AgentEvent::AttemptDiscarded { attempt: state.model_requests });
            self.cx.discard_message(draft.id());
        }
        let config = &self.deps.config;
        let finishing = Finishing::of(config, state);
        let mut messages = draft.messages;
        let Some(first) = messages.first_mut() else { return Ok(Err("there is no answer".to_owned())) };
        let mut rest = draft.rest;
        let mut answer = first.clone().into_data();
        // It belongs to another text, which it may repeat.
        answer.reasoning.clear();
        answer.origin = None;
        let called =
            answer.tool_calls.iter_mut().find(|call| meant(config, &call.name) == config.finish.tool);
        if let Some(call) = called {
            if let Some(Err(problem)) = finishing.called(&config.finish.tool, text) {
                return Ok(Err(problem));
            }
            call.arguments = text.to_owned();
            answer.content.clear();
        } else {
            answer.content = text.to_owned();
            match finishing.meaning(text, draft.had_tools) {
                TextMeaning::Reply(output) if finishing.has_schema() => {
                    let update = read(state, &rest)?.output(output);
                    rest = serde_json::to_value(&update).expect("an update has a JSON form");
                }
                TextMeaning::Wrong { problem, .. } if finishing.has_schema() => return Ok(Err(problem)),
                _ => {}
            }
        }
        *first = answer.into();
        Ok(Ok(Draft { messages, text: Some(text.to_owned()), streamed: false, rest, ..draft }))
    }

    fn report(&self, guard: &str, at: GuardAt, action: &str, reason: Option<String>) {
        emit(self.cx, || AgentEvent::Guardrail {
            guard: guard.to_owned(),
            at,
            action: action.to_owned(),
            reason: reason.unwrap_or_default(),
        });
    }
}

fn removed(message: &Message) -> AgentStateUpdate {
    AgentState::update().messages(Merges(vec![Merge::remove(&message.id)]))
}

/// Reads the other channels of a response.
fn read(state: &AgentState, rest: &serde_json::Value) -> Result<AgentStateUpdate, NodeError> {
    let read = state.read_update(rest.to_string().as_bytes());
    read.map_err(|error| NodeError::new(Unreadable(error.to_string())).fatal())
}

/// A response that another version of the program stored.
#[derive(Debug, thiserror::Error)]
#[error(
    "the stored response that waits for guards, written by another version of the program, cannot be read: {0}"
)]
struct Unreadable(String);
