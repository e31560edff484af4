//! The execution requirements of tools, and calls that are nearly correct.

use superstep::agent::{
    AgentOutcome, ReactConfig,
    config::{LengthPolicy, LoopAction, LoopRule, Repeat, ToolMode},
};
use superstep_testing::script::{Answer, call, calls, txt};

use super::{Cancel, Scenario};

fn repairing(answers: impl IntoIterator<Item = Answer>) -> Scenario {
    Scenario::new(answers).config(|config| ReactConfig { repair: true, ..config })
}

#[test]
fn a_name_that_is_wrong_in_case_only_is_repaired() {
    let answers = [call("c1", "Echo", r#"{"x":"1"}"#), txt("ok")];
    let ran = repairing(answers.clone()).play();
    assert_eq!((ran.kit.n("echo"), ran.result("c1")), (1, "r:1"));
    assert!(ran.events().contains("+tool_repaired{c1,Echo,echo}"), "{}", ran.events());
    assert!(ran.state().tools_used.iter().eq(["echo"]));
    assert_eq!(ran.state().tool_call_history[0].name, "Echo");
    let ran = Scenario::new(answers).play();
    assert_eq!(ran.result("c1"), "Error: unknown tool 'Echo'. Available tools: add, echo");
}

#[test]
fn calls_whose_names_mean_the_same_tool_are_repetitions() {
    let same = |id, name| call(id, name, r#"{"x":"1"}"#);
    let answers = [same("c1", "echo"), same("c2", "Echo"), same("c3", "ECHO"), txt("ok")];
    let loops = vec![LoopRule { when: Repeat::Identical { n: 3 }, then: LoopAction::Refuse }];
    let ran = repairing(answers).config(|config| ReactConfig { loops, ..config }).play();
    assert_eq!((ran.kit.n("echo"), ran.reply()), (2, "ok"));
}

#[test]
fn wrapped_arguments_are_repaired_and_stay_as_the_model_wrote_them() {
    let fenced = "```json\n{\"x\":\"1\"}\n```";
    let ran = repairing([call("c1", "echo", fenced), call("c2", "echo", "{x:1"), txt("ok")]).play();
    assert_eq!((ran.kit.n("echo"), ran.result("c1")), (1, "r:1"));
    assert!(ran.events().contains("+args_repaired{c1,echo}"), "{}", ran.events());
    assert_eq!(ran.state().messages[1].tool_calls[0].arguments, fenced);
    assert!(ran.result("c2").starts_with("Error: arguments for 'echo' are not valid JSON:"));
}

#[test]
fn a_tool_may_be_the_answer() {
    let ran = Scenario::new([call("c1", "tell", r#"{"x":"That is it."}"#)]).tools(&["tell"]).play();
    assert_eq!((ran.requests.len(), ran.reply(), ran.outcome()), (1, "That is it.", AgentOutcome::Completed));
    // Only if every call of the round was one, and was executed.
    let mixed = calls([("c1", "tell", r#"{"x":"a"}"#), ("c2", "echo", r#"{"x":"1"}"#)]);
    let ran = Scenario::new([mixed, txt("ok")]).tools(&["tell", "echo"]).play();
    assert_eq!((ran.requests.len(), ran.reply()), (2, "ok"));
    let ran = Scenario::new([call("c1", "tell", "{}"), txt("ok")]).tools(&["tell"]).play();
    assert_eq!(ran.reply(), "ok");
}

#[test]
fn a_failed_tool_is_not_a_reply_and_a_cancelled_turn_stays_cancelled() {
    let scenario = Scenario::new([call("c1", "tell", r#"{"x":"fail"}"#), txt("ok")]).tools(&["tell"]);
    let ran = scenario.play();
    assert_eq!((ran.result("c1"), ran.reply()), ("Error executing 'tell': no luck", "ok"));

    let scenario = Scenario::new([call("c1", "tell", r#"{"x":"hang"}"#)]).tools(&["tell"]);
    let ran = Scenario { cancel: Cancel::At(50), ..scenario }.play_here();
    assert_eq!((ran.state().stop_reason.as_str(), ran.outcome()), ("cancelled", AgentOutcome::Cancelled));
}

#[test]
fn an_exclusive_tool_runs_alone() {
    let round = calls([
        ("c0", "slow", r#"{"x":"b"}"#),
        ("c1", "solo", r#"{"x":"b"}"#),
        ("c2", "slow", r#"{"x":"b"}"#),
    ]);
    let scenario = Scenario::new([round, txt("ok")]).tools(&["slow", "solo"]);
    let ran = scenario
        .config(|config| ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..config })
        .play_here();
    assert_eq!((ran.kit.most_at_once(), ran.turn().times("tool_end")), (1, vec![100, 200, 300]));
}

#[test]
fn a_polling_tool_is_not_a_loop() {
    let rules = || {
        vec![
            LoopRule { when: Repeat::Identical { n: 2 }, then: LoopAction::Refuse },
            LoopRule { when: Repeat::NoProgress { n: 2 }, then: LoopAction::Stop },
            LoopRule { when: Repeat::Period { max_period: 4, repeats: 2 }, then: LoopAction::Stop },
        ]
    };
    let polls = (0..4).map(|n| call(&format!("c{n}"), "poll", r#"{"id":"job"}"#)).chain([txt("done")]);
    let scenario = Scenario::new(polls).tools(&["poll"]);
    let ran = scenario.config(|config| ReactConfig { loops: rules(), ..config }).play();
    assert_eq!((ran.kit.n("poll"), ran.reply()), (4, "done"));

    // Nor is the question in between, and its name may be repaired.
    let look = |n: usize| call(&format!("l{n}"), "echo", r#"{"x":"log"}"#);
    let poll = |n: usize| call(&format!("p{n}"), "Poll", r#"{"id":"job"}"#);
    let answers = (0..2).flat_map(|n| [look(n), poll(n)]).chain([txt("done")]);
    let ran = repairing(answers).tools(&["echo", "poll"]);
    let ran = ran.config(|config| ReactConfig { loops: rules(), ..config }).play();
    assert_eq!((ran.kit.n("poll"), ran.kit.n("echo"), ran.reply()), (2, 2, "done"));
}

#[test]
fn calls_written_as_text_are_calls() {
    let wrote = r#"<tool_call>{"name": "echo", "arguments": {"x": "1"}}</tool_call>"#;
    let scenario = |answers: Vec<Answer>| {
        Scenario::new(answers).config(|config| ReactConfig { text_calls: true, ..config })
    };
    let ran = scenario(vec![txt(wrote), txt("done")]).play();
    assert_eq!((ran.kit.n("echo"), ran.result("call_1"), ran.reply()), (1, "r:1", "done"));
    assert!(ran.events().contains("+text_calls{1} ◂a tool_start"), "{}", ran.events());
    assert_eq!(ran.state().messages[1].content, "");

    let ran = scenario(vec![txt(&format!("Let me look.\n{wrote}")), txt("done")]).play();
    assert_eq!((ran.kit.n("echo"), ran.result("call_1"), ran.reply()), (1, "r:1", "done"));
    assert_eq!(ran.state().messages[1].content, "Let me look.");
    assert!(ran.events().contains("+text_calls{1} tok(Let me look.) ◂a tool_start"), "{}", ran.events());

    let prose = format!("I would call {wrote}.");
    let ran = scenario(vec![txt(&prose)]).play();
    assert_eq!((ran.kit.n("echo"), ran.reply()), (0, prose.as_str()));
    assert_eq!(Scenario::new([txt(wrote)]).play().reply(), wrote);
}

#[test]
fn a_call_written_as_text_that_is_cut_off_is_answered_like_another_one() {
    let cut = |text: &str| Answer::stream().text([text]).end("length").done();
    let native = Answer::stream().call(0, "call_1", "echo", [r#"{"x":"a"}"#]).end("length").done();
    let expected = Scenario::new([native, txt("done")]).play();
    for length in [LengthPolicy::Accept, LengthPolicy::Continue { max: 3, prompt: "continue".into() }] {
        let scenario = |answers: Vec<Answer>| {
            Scenario::new(answers).config(|config| ReactConfig {
                text_calls: true,
                length: length.clone(),
                ..config
            })
        };
        let ran = scenario(vec![
            cut(r#"Let me see. <tool_call>{"name": "echo", "arguments": {"x": "a"#),
            txt("done"),
        ])
        .play();
        assert_eq!((ran.kit.n("echo"), ran.reply()), (0, "done"));
        assert_eq!(ran.result("call_1"), expected.result("call_1"));
        assert_eq!(ran.state().messages[1].content, "Let me see.");
        assert!(ran.events().contains("+text_calls{1} tok(Let me see.)"), "{}", ran.events());
    }
    // Before its name is known, it is only removed, and the response is continued.
    let length = LengthPolicy::Continue { max: 3, prompt: "continue".into() };
    let whole = r#"<tool_call>{"name": "echo", "arguments": {"x": "a"}}</tool_call>"#;
    let scenario = Scenario::new([cut("Let me see.\n<tool_call>{\"na"), txt(whole), txt("done")]);
    let ran = scenario.config(|config| ReactConfig { text_calls: true, length, ..config }).play();
    assert_eq!((ran.kit.n("echo"), ran.reply()), (1, "done"));
    assert_eq!(ran.state().messages[1].content, "Let me see.");
}
