//! Any script, preset, tools and hooks, steered, cancelled and crashed at any moment: the rules of every
//! preset hold.

mod case;
mod hooked;
mod life;
mod order;

use std::collections::BTreeSet;

use proptest::{prelude::*, test_runner::Config};
use superstep::{
    agent::{
        AgentOutcome, AgentState,
        config::{AtLimit, LimitUnit},
    },
    llm::{Message, Role},
};

use self::{
    case::{Case, case},
    life::{End, Lived, live},
};
use super::{Turn, begins_a_turn, check, paused};

/// Asserts the invariants of every case.
fn holds(case: &Case) -> Lived {
    let lived = paused(live(case));
    assert_eq!(lived.model.refused(), [], "a provider would refuse a request");
    for request in lived.model.requests() {
        let body = serde_json::to_value(case.scenario.wire.body(&request)).unwrap();
        case.scenario.rules().check(&body).expect("a provider takes it");
    }
    // A smaller view changes the beginning; the property of contexts checks its event.
    let most_breaks = if case.scenario.config.context.layers.is_empty() { 0 } else { usize::MAX };
    check::requests_extend(&lived.model.requests(), most_breaks);
    for end in &lived.ends {
        if let End::Whole(Turn { state, .. }) | End::InParts(state) = end {
            is_in_order(state);
        }
        match end {
            End::Whole(turn) => {
                check::turn(turn);
                is_bounded(case, &turn.state);
            }
            End::InParts(state) => {
                check::calls_are_answered(state.messages.iter());
                check::the_end_fits(state);
                is_bounded(case, state);
            }
            End::Failed(error, state) => {
                assert_eq!(case.scenario.config.limit.at, AtLimit::Fail, "{error}");
                assert!(error.contains("reached its limit"), "{error}");
                has_no_reply(state);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (tool, key) in lived.kit.effects() {
        let again = tool == "again" && lived.crashed;
        assert!(seen.insert(key.clone()) || again, "{tool} took effect twice under {key}");
    }
    lived
}

/// Asserts that a message sent during the first turn precedes the prompts of later ones.
fn is_in_order(state: &AgentState) {
    let at = |message: &Message| state.messages.position(&message.id).unwrap();
    let sent = state.messages.iter().filter(|message| message.id.starts_with("steered."));
    let next = state.messages.iter().filter(|message| begins_a_turn(message)).nth(1);
    for message in sent {
        assert!(next.is_none_or(|next| at(message) < at(next)), "{:?}", state.messages);
    }
}

fn is_bounded(case: &Case, state: &AgentState) {
    let limit = &case.scenario.config.limit;
    let (used, over) = match limit.unit {
        LimitUnit::ToolRounds => (state.current_step, 0),
        // The call without tools.
        LimitUnit::ModelCalls => (state.llm_calls, 1),
    };
    let goes_on = state.answer.continuations + state.answer.invalid;
    assert!(used <= limit.max + over + goes_on, "{used} of {limit:?}");
    if state.outcome == Some(AgentOutcome::Limit) {
        assert_eq!(state.stop_reason.as_str(), "max_steps");
        let ends_at_once = matches!(limit.at, AtLimit::LastMessage | AtLimit::Fixed(_));
        if ends_at_once && case.scenario.config.finish.schema.is_none() {
            has_no_reply(state);
        }
    }
}

/// Asserts that a turn which its limit ended had no reply, also if the user sent another message during it.
fn has_no_reply(state: &AgentState) {
    let last = state.messages.last().filter(|_| !state.answer.continuing);
    let is_reply = |last: &Message| match last.role {
        Role::Assistant => last.tool_calls.is_empty(),
        _ => last.content == "Successfully generated response.",
    };
    assert!(!last.is_some_and(is_reply), "{:?}", state.messages);
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_rules_hold_for_any_turns(case in case()) {
        holds(&case);
    }

    #[test]
    fn equal_turns_have_equal_histories(case in case()) {
        let (one, other) = (paused(live(&case)), paused(live(&case)));
        prop_assert_eq!(one.history, other.history);
        prop_assert_eq!(one.model.requests(), other.model.requests());
    }
}
