//! Invariants after every scenario.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use superstep::{
    CompiledGraph, MemoryCheckpointer, State,
    agent::{AgentOutcome, AgentState},
    llm::{Message, Request, Role},
    replay::ReplayError,
};

use super::{Turn, kit::Kit, show::Told};

/// Each call has exactly one result, before any other message, in call order; no result is without
/// call.
pub(crate) fn calls_are_answered<'a>(messages: impl IntoIterator<Item = &'a Message>) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message.role {
            Role::Tool => {
                let expected = (!open.is_empty()).then(|| open.remove(0));
                assert_eq!(expected, Some(message.tool_call_id.as_str()), "I1, I2: {message:?}");
            }
            _ => assert!(open.is_empty(), "I1: {open:?} have no result before {message:?}"),
        }
        if message.role == Role::Assistant {
            open = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
        }
    }
    assert!(open.is_empty(), "I1: {open:?} have no result at the end");
}

/// A listener receives exactly the text that is stored as the model's. An answer of several parts is one
/// message.
fn events_rebuild_the_text(turn: &Turn) {
    let (mut heard, mut part) = (Vec::<(String, String)>::new(), 0);
    for event in &turn.told {
        match event.name {
            "node_start" => {
                part = heard.len();
                heard.push(Default::default());
            }
            "attempt_discarded" => heard[part] = Default::default(),
            "text_calls" => heard[part].0.clear(),
            "llm_token" => {
                let (text, reasoning) = &mut heard[part];
                text.push_str(event.text("token"));
                reasoning.push_str(event.text("reasoning_token"));
            }
            _ => {}
        }
    }
    let halted = |message: &&Message| message.id.ends_with(".halt");
    let said = turn.of_this_turn().filter(|message| message.role == Role::Assistant && !halted(message));
    let join = |parts: Vec<(String, String)>| -> (String, String) { parts.into_iter().unzip() };
    let said = join(said.map(|message| (message.content.clone(), message.reasoning.clone())).collect());
    assert_eq!(join(heard), said, "I3");
}

/// A started call is ended once; a call that is not started is skipped once; both in call order, except for calls that wait for
/// an approver.
fn calls_are_reported(told: &[Told], state: &AgentState, this_turn: &[&Message]) {
    let ids = |name: &str| -> Vec<&str> {
        told.iter().filter(|event| event.name == name).map(|event| event.text("id")).collect()
    };
    let sorted = |mut ids: Vec<&str>| -> Vec<String> {
        ids.sort_unstable();
        ids.into_iter().map(str::to_owned).collect()
    };
    let mut taken = ids("tool_start");
    assert_eq!(sorted(taken.clone()), sorted(ids("tool_end")), "I5: a start without an end, or the reverse");
    taken.extend(ids("tool_skipped"));
    let calls = this_turn.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.as_str());
    let calls: Vec<&str> = calls.collect();
    assert_eq!(sorted(taken), sorted(calls.clone()), "I5: each call is begun or skipped, once");
    let waits = |event: &Told| event.text("tool") == "send";
    let started = told.iter().filter(|event| event.name == "tool_start" && !waits(event));
    started.map(|event| event.text("id")).fold(0, |from, id| {
        let at = calls[from..].iter().position(|call| *call == id);
        from + at.expect("calls begin in their order") + 1
    });
    let results: Vec<&str> = this_turn
        .iter()
        .filter(|message| message.role == Role::Tool)
        .map(|message| message.content.as_str())
        .collect();
    assert_eq!(state.tool_result_history.iter().map(String::as_str).collect::<Vec<_>>(), results);
    // A later round may reuse an id, so the n-th result belongs to the n-th event of its id.
    let mut answered: BTreeMap<&str, VecDeque<Option<&str>>> = BTreeMap::new();
    for event in told {
        let result = match event.name {
            "tool_end" => Some(event.text("result")),
            "tool_skipped" => None,
            _ => continue,
        };
        answered.entry(event.text("id")).or_default().push_back(result);
    }
    for message in this_turn.iter().filter(|message| message.role == Role::Tool) {
        let told = answered.get_mut(message.tool_call_id.as_str()).and_then(VecDeque::pop_front);
        if let Some(result) = told.expect("each call is begun or skipped") {
            assert_eq!(result, message.content, "an event tells another result than is stored");
        }
    }
}

/// And the guarantees at the end of a turn.
pub(crate) fn the_end_fits(state: &AgentState) {
    let outcome = state.outcome.expect("a turn that ended has an outcome");
    assert_eq!(state.stop_reason.is_done(), outcome == AgentOutcome::Completed, "R6: {outcome:?}");
    assert_eq!(outcome == AgentOutcome::LlmError, state.error.is_some());
    assert_eq!(outcome == AgentOutcome::HookFailed, state.hook_error.is_some());
    assert!(outcome == AgentOutcome::Completed || !state.final_reply.is_empty(), "R6: an explanation");
    assert_eq!(state.metadata.steps_taken, state.current_step);
    assert_eq!(state.metadata.llm_calls, state.llm_calls);
    assert_eq!(state.metadata.stop_reason, state.stop_reason);
    assert!(state.metadata.tools_used.iter().eq(state.tools_used.iter()));
    assert!(state.current_step <= state.max_steps);
    assert_eq!(state.tool_call_history.len(), state.tool_result_history.len());
}

pub(crate) fn turn(turn: &Turn) {
    let this_turn: Vec<&Message> = turn.of_this_turn().collect();
    calls_are_answered(turn.state.messages.iter());
    events_rebuild_the_text(turn);
    calls_are_reported(&turn.told, &turn.state, &this_turn);
    the_end_fits(&turn.state);
}

/// Each request continues the previous one, unless a compaction came in between; a retry is equal.
/// Exceptions: texts that only one request has at its end, a message that was finished since, and requests
/// for summaries.
pub(crate) fn requests_extend(requests: &[Request], compacted: usize) {
    let of_agent: Vec<&Request> = requests.iter().filter(|request| !is_for_summary(request)).collect();
    let breaks: Vec<_> = of_agent.windows(2).filter(|pair| !extends(pair[0], pair[1])).collect();
    assert!(breaks.len() <= compacted, "I4: {breaks:#?}");
    for request in requests {
        calls_are_answered(&request.messages);
    }
}

pub(crate) fn is_for_summary(request: &Request) -> bool {
    request.messages[0].content.starts_with("You sum up conversations")
}

fn extends(before: &Request, after: &Request) -> bool {
    let (before, after) = (&before.messages, &after.messages);
    let shared = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let one_shot = |message: &Message| message.role == Role::User;
    let finished = |(a, b): (&Message, &Message)| {
        a.role == Role::Assistant && a.id == b.id && b.content.starts_with(&a.content)
    };
    let mut rest = &before[shared..];
    if let (Some(a), Some(b)) = (rest.first(), after.get(shared))
        && finished((a, b))
    {
        rest = &rest[1..];
    }
    rest.len() <= 4 && rest.iter().all(one_shot)
}

/// Asserts that the thread `t` can be replayed from its records with the same result and without effects, and that the same graph
/// records an equal thread again from them.
pub(crate) async fn replays<S: State>(graph: &CompiledGraph<S>, kit: &Kit) {
    let seen = || (kit.ran(), kit.asked().len(), kit.notes(), kit.remembered().len());
    let before = seen();
    let replayed = graph.thread("t").replay().run().await.expect("the thread can be read");
    replayed.assert_same();
    let again = Arc::new(MemoryCheckpointer::new());
    match graph.thread("t").replay().rerecord(again.clone()).await {
        Ok(()) => {
            let again = graph.clone().with_checkpointer(again).thread("t").replay().run().await;
            assert_eq!(again.expect("the new thread can be read"), replayed);
        }
        // Its messages are those of a run that reads the inbox.
        Err(ReplayError::NotRerecorded { missing, .. }) => {
            assert!(missing.starts_with("messages that it received"), "{missing}");
        }
        Err(error) => panic!("{error:?}"),
    }
    assert_eq!(seen(), before, "a replay does nothing");
}
