//! The user's memory requests.

use std::time::Duration;

use serde_json::json;
use superstep::{
    agent::{AgentOutcome, ReactConfig},
    llm::Role,
};
use superstep_testing::script::{Answer, Script, txt};

use super::{Cancel, Ran, Scenario, kit::Memory};

fn remembering(how: Memory, text: &'static str) -> Scenario {
    let scenario = Scenario::new([txt("noted")]).turns(&[text]);
    Scenario { memory: Some(how), ..scenario }
}

/// Asserts that the turn is the same as without a memory, apart from the memory's own events.
fn the_turn_is_not_touched(ran: &Ran) {
    let events: Vec<_> = ran.turn().told.iter().filter(|told| !told.name.starts_with("memory")).collect();
    assert_eq!(events.len(), 3, "{}", ran.events());
    assert!(events.iter().all(|told| told.at == 0), "the memory delays the agent: {events:?}");
    assert_eq!((ran.reply(), ran.outcome()), ("noted", AgentOutcome::Completed));
    assert_eq!(ran.turn().updates("memory_trigger"), [json!({})]);
}

fn memory_events(ran: &Ran) -> Vec<String> {
    let told = ran.turn().told.iter().filter(|told| told.name.starts_with("memory"));
    told.map(|told| super::show::events(std::slice::from_ref(told))).collect()
}

#[test]
fn a_memory_request_is_stored_once() {
    let scenario = remembering(Memory::Works, "remember that I like tea");
    for (user_id, stored_for) in [("u-7", "u-7"), ("", "t")] {
        let scenario = Scenario { user_id, ..scenario.clone() };
        let ran = scenario.play_here();
        the_turn_is_not_touched(&ran);
        for ran in [ran, scenario.play_wired()] {
            let remembered = ran.kit.remembered();
            assert_eq!(remembered.len(), 1);
            let (messages, user) = &remembered[0];
            assert_eq!(user, stored_for);
            assert_eq!(messages.len(), 1);
            assert_eq!((messages[0].role, &*messages[0].content), (Role::User, "remember that I like tea"));
            assert_eq!(memory_events(&ran), ["+memory_stored"]);
        }
    }
}

#[test]
fn a_memory_request_may_be_typed_in_any_way() {
    for text in [
        "REMEMBER THAT I like tea",
        "Don\u{2019}t forget that I like tea",
        "don\u{2bc}t forget that I like tea",
        "remember\u{a0} that I like tea",
        "please\n\tremember: tea",
        "请记住我喜欢茶",
    ] {
        let ran = remembering(Memory::Works, text).play_here();
        let stored = ran.kit.remembered();
        assert_eq!(stored.len(), 1, "{text}");
        assert_eq!(stored[0].0[0].content, text, "it is stored as it was written");
    }
}

#[test]
fn other_messages_are_not_stored() {
    for text in ["hello", "I remembered that", "remember to that", "rememberthat"] {
        let ran = remembering(Memory::Works, text).play();
        assert!(ran.kit.remembered().is_empty(), "{text}");
        assert!(memory_events(&ran).is_empty());
        the_turn_is_not_touched(&ran);
    }
}

#[test]
fn a_store_that_fails_does_not_reach_the_run() {
    let ran = remembering(Memory::Fails, "Please remember: tea").play_here();
    assert_eq!(memory_events(&ran), ["+memory_failed{LLMError: no key}"]);
    the_turn_is_not_touched(&ran);
}

#[test]
fn a_store_that_panics_does_not_reach_the_run() {
    let ran = remembering(Memory::Panics, "请记住我喜欢茶").play_here();
    assert_eq!(memory_events(&ran), ["+memory_failed{the store panicked: the store is broken}"]);
    the_turn_is_not_touched(&ran);
}

#[test]
fn a_trigger_that_panics_does_not_reach_the_run() {
    let ran = remembering(Memory::Puzzled, "remember that I like tea").play_here();
    assert_eq!(memory_events(&ran), ["+memory_failed{the trigger panicked: what is this?}"]);
    the_turn_is_not_touched(&ran);
}

#[test]
fn a_hanging_store_delays_no_reply() {
    let scenario = remembering(Memory::Hangs, "remember that I like tea");
    let ran = scenario.play_here();
    assert_eq!(memory_events(&ran), ["+memory_failed{no answer in 5000 ms}"]);
    the_turn_is_not_touched(&ran);
    let scenario =
        scenario.config(|config| ReactConfig { memory_timeout: Duration::from_millis(10), ..config });
    let ran = scenario.play_wired();
    assert_eq!(memory_events(&ran), ["+memory_failed{no answer in 10 ms}"]);
    assert_eq!(ran.reply(), "noted");
}

#[test]
fn a_store_that_hangs_holds_a_cancelled_turn_for_its_grace_only() {
    let slow = Answer::stream().delay(1000).text(["noted"]).end("stop").done();
    let scenario = Scenario { cancel: Cancel::At(50), ..remembering(Memory::Hangs, "remember this") };
    let ran = Scenario { script: Script::new([slow]), ..scenario }.play_here();
    assert_eq!(ran.turn().ended, 300);
    assert_eq!(memory_events(&ran), ["+memory_failed{the run was cancelled}"]);
    assert_eq!(ran.outcome(), AgentOutcome::Cancelled);
}
