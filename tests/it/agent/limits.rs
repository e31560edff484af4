//! D: step limits and loops.

use superstep::{
    agent::{AgentOutcome, ReactConfig, config::Limit, state::Metadata},
    llm::wire::WireConfig,
};
use superstep_testing::script::{Answer, call, http, txt};

use super::{Ran, Scenario};

fn echo(id: &str, x: &str) -> Answer {
    call(id, "echo", &format!(r#"{{"x":"{x}"}}"#))
}

fn limited(max_steps: u32, answers: impl IntoIterator<Item = Answer>) -> Ran {
    Scenario::new(answers)
        .config(|config| ReactConfig { limit: Limit { max: max_steps, ..config.limit.clone() }, ..config })
        .play()
}

#[test]
fn after_the_last_round_the_model_is_called_without_tools() {
    let ran = limited(3, [echo("c1", "1"), echo("c2", "2"), echo("c3", "3"), txt("partial")]);
    assert_eq!((ran.requests.len(), ran.kit.n("echo")), (4, 3));
    let with_tools: Vec<bool> = ran.requests.iter().map(|request| request.get("tools").is_some()).collect();
    assert_eq!(with_tools, [true, true, true, false]);
    assert_eq!((ran.reply(), ran.outcome()), ("partial", AgentOutcome::Limit));
    let state = ran.state();
    assert_eq!((state.current_step, state.stop_reason.as_str()), (3, "max_steps"));
    assert_eq!(
        state.metadata,
        Metadata {
            steps_taken: 3,
            tools_used: vec!["echo".into(); 3],
            stop_reason: "max_steps".into(),
            llm_calls: 4,
            ..Metadata::default()
        }
    );
}

#[test]
fn a_limit_of_0_is_one_request_without_tools() {
    let ran = limited(0, [txt("partial")]);
    assert_eq!(ran.requests.len(), 1);
    assert_eq!(ran.requests[0].get("tools"), None);
    assert_eq!((ran.reply(), ran.outcome()), ("partial", AgentOutcome::Limit));
}

/// The strictest known server rejects the same conversation if its rules are not configured.
#[test]
fn a_server_that_requires_alternating_turns_and_called_tools_gets_them() {
    let answers = [http(400, &[], "{}"), echo("c1", "1"), txt("done")];
    let scenario = Scenario::new(answers).turns(&["one", "two"]);
    let scenario =
        scenario.config(|config| ReactConfig { limit: Limit { max: 1, ..config.limit.clone() }, ..config });
    let wire = WireConfig { alternates: true, lists_called_tools: true, ..scenario.wire.clone() };
    let ran = Scenario { wire, ..scenario }.play_wired();
    assert_eq!(ran.requests[1]["messages"][0]["content"], "one\n\ntwo");
    let last = &ran.requests[2];
    assert_eq!(
        (last["tools"][0]["function"]["name"].as_str(), &last["tool_choice"]),
        (Some("echo"), &"none".into())
    );
    assert_eq!((ran.reply(), ran.outcome()), ("done", AgentOutcome::Limit));
}

#[test]
fn calls_in_an_answer_without_tools_are_ignored_and_recorded() {
    let spoken = Answer::stream().text(["best effort"]).call(0, "c2", "echo", [r#"{"x":"2"}"#]);
    let spoken = spoken.end("tool_calls").done();
    for (last, reply) in [(spoken, Some("best effort")), (echo("c2", "2"), None)] {
        let ran = limited(1, [echo("c1", "1"), last]);
        assert_eq!(ran.kit.n("echo"), 1);
        let ignored: Vec<_> = ran.state().ignored_tool_calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ignored, ["c2"]);
        let told = serde_json::to_value(&ran.state().metadata).unwrap();
        assert_eq!(told["ignored_tool_calls"][0]["name"], "echo");
        assert_eq!(ran.outcome(), AgentOutcome::Limit);
        match reply {
            Some(reply) => assert_eq!(ran.reply(), reply),
            // There was no text, so the reply has the reason.
            None => assert_eq!(
                ran.reply(),
                "No answer: the step limit was reached before the model gave an answer (max_steps)."
            ),
        }
    }
}

fn searches(calls: [(&str, &str); 2], found: &[&'static str]) -> Scenario {
    let [(first, a), (second, b)] = calls;
    let scenario = Scenario::new([call("c1", first, a), call("c2", second, b)]).tools(&["find", "search"]);
    Scenario { found: found.to_vec(), ..scenario }
}

const TWICE: [(&str, &str); 2] = [("search", r#"{"q":"rust  Async"}"#), ("search", r#"{"q":"rust async"}"#)];
const SAME: &[&str] = &["10 hits: A,B", "10 hits: A,B"];

#[test]
fn two_calls_alike_end_the_turn() {
    let ran = searches(TWICE, SAME).play();
    assert_eq!(ran.requests.len(), 2);
    let state = ran.state();
    assert_eq!((state.stop, state.stop_reason.as_str()), (true, "loop_detected"));
    assert_eq!((state.llm_calls, state.current_step), (2, 2));
    assert_eq!(ran.outcome(), AgentOutcome::LoopDetected);
    assert_eq!(
        ran.reply(),
        "No answer: the model repeated the same tool call with the same result (loop_detected)."
    );
    assert_eq!(
        state.metadata,
        Metadata {
            steps_taken: 2,
            tools_used: vec!["search".into(); 2],
            stop_reason: "loop_detected".into(),
            llm_calls: 2,
            ..Metadata::default()
        }
    );
    assert_eq!(
        ran.events(),
        concat!(
            r#"a▸ ◂a tool_start{search,{"q":"rust  Async"},c1} tool_end{search,c1,"10 hits: A,B"} "#,
            r#"a▸ ◂a tool_start{search,{"q":"rust async"},c2} tool_end{search,c2,"10 hits: A,B"} "#,
            "a▸ +loop{similar,search,2} ◂a"
        )
    );
}

#[test]
fn different_calls_are_not_a_loop() {
    let other_tool = [TWICE[0], ("find", TWICE[1].1)];
    let other_args = [("search", r#"{"q":"rust async"}"#), ("search", r#"{"q":"go channels"}"#)];
    let progress: &[&str] = &["progress 10%", "progress 55%"];
    for (calls, found) in [(TWICE, progress), (other_tool, SAME), (other_args, SAME)] {
        let mut scenario = searches(calls, found);
        scenario.script.answers.push(txt("ok"));
        let ran = scenario.play();
        assert_eq!((ran.reply(), ran.outcome()), ("ok", AgentOutcome::Completed), "{calls:?} {found:?}");
        assert!(!ran.events().contains("+loop"), "{}", ran.events());
    }
}

#[test]
fn without_rules_nothing_is_a_loop() {
    let mut scenario = searches(TWICE, SAME).config(|config| ReactConfig { loops: Vec::new(), ..config });
    scenario.script.answers.push(txt("ok"));
    assert_eq!(scenario.play().reply(), "ok");
}

#[test]
fn at_the_step_limit_the_last_response_precedes_loop_detection() {
    let scenario = searches(TWICE, SAME)
        .config(|config| ReactConfig { limit: Limit { max: 2, ..config.limit.clone() }, ..config });
    let mut scenario = scenario;
    scenario.script.answers.push(txt("partial"));
    let ran = scenario.play();
    assert_eq!((ran.reply(), ran.outcome()), ("partial", AgentOutcome::Limit));
}

#[test]
fn the_model_is_informed_of_remaining_steps_if_configured() {
    let answers = [echo("c1", "1"), echo("c2", "2"), txt("ok")];
    let hint = Some("{left} of {max} steps are left.".to_owned());
    let ran = Scenario::new(answers)
        .config(|config| ReactConfig {
            limit: Limit { max: 2, ..config.limit },
            remaining_hint: hint,
            ..config
        })
        .play();
    let last = |request: usize| ran.requests[request]["messages"].as_array().unwrap().last().unwrap().clone();
    let told = |text: &str| serde_json::json!({"role": "user", "content": text});
    assert_eq!(last(0), told("2 of 2 steps are left."));
    assert_eq!(last(1), told("1 of 2 steps are left."));
    assert_eq!(last(2)["role"], "tool", "there is nothing left to be told");
    assert!(!ran.messages().contains("steps are left"), "{}", ran.messages());
}
