//! Any script, any tools, any moment to cancel: the rules of every preset hold.

use std::time::Duration;

use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{Index, select},
    test_runner::Config,
};
use superstep::agent::{Approval, Limit, ReactConfig, ToolMode, Truncate};
use superstep_testing::script::{Answer, http};

use super::{Cancel, Scenario};

const TOOLS: [&str; 10] = ["add", "big", "boom", "deaf", "echo", "fails", "hang", "late", "send", "slow"];

fn arguments() -> impl Strategy<Value = &'static str> {
    select(&[
        r#"{"x":"a"}"#,
        r#"{"x":"b"}"#,
        r#"{"a":1,"b":2}"#,
        r#"{"n":3000}"#,
        r#"{"to":"a"}"#,
        r#"{"to":"b"}"#,
        "{}",
        "",
        "{x:1",
        "[1]",
    ])
}

fn calls() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let name = prop_oneof![9 => select(&TOOLS), 1 => Just("nope")];
    vec((name, arguments()), 0..4)
}

fn answer() -> impl Strategy<Value = Answer> {
    let end = select(&["stop", "stop", "tool_calls", "tool_calls", "length", "content_filter", "odd", "cut"]);
    let text = option::of(select(&["fine", " ", "añ😀b"]));
    let streamed =
        (text, any::<bool>(), calls(), end, 0..60u64).prop_map(|(text, thinks, calls, end, wait)| {
            let mut answer = Answer::stream();
            if thinks {
                answer = answer.reasoning("hm");
            }
            if let Some(text) = text {
                answer = answer.text([text]);
            }
            answer = answer.delay(wait);
            for (at, (name, arguments)) in calls.into_iter().enumerate() {
                answer = answer.call(at, &format!("c{at}"), name, [arguments]);
            }
            answer = answer.usage(10, 1);
            if end == "cut" { answer.cut() } else { answer.end(end).usage(10, 2).done() }
        });
    prop_oneof![
        16 => streamed,
        1 => select(&[400u16, 401, 429, 500, 503]).prop_map(|status| http(status, &[], "{}")),
        1 => Just(Answer::NoConnection),
    ]
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let mode =
        prop_oneof![Just(ToolMode::Sequential), (0..4usize).prop_map(|max| ToolMode::Parallel { max })];
    let cancel = option::of(0..3000u64);
    (
        vec(answer(), 0..10),
        mode,
        prop_oneof![4 => 1..6u32, 1 => Just(0)],
        cancel,
        any::<bool>(),
        any::<Index>(),
    )
        .prop_map(|(answers, tool_mode, max_steps, cancel, truncates, tools)| {
            let offered = &TOOLS[tools.index(TOOLS.len())..];
            let scenario = Scenario::new(answers).tools(offered).turns(&["go", "go on"]);
            let scenario = scenario.config(|config| ReactConfig {
                tool_mode,
                limit: Limit { max: max_steps, ..config.limit.clone() },
                tool_timeout: Some(Duration::from_millis(500)),
                truncate: truncates.then(|| Truncate::chars(100, "…{omitted}")),
                ..config
            });
            let decide = |request: &superstep::agent::ApprovalRequest| {
                let yes = request.args["to"] == "a";
                Some(if yes { Approval::Approve } else { Approval::Deny("no".into()) })
            };
            let cancel = cancel.map_or(Cancel::Never, Cancel::At);
            Scenario { cancel, decide: Some(decide), exact: false, ..scenario }
        })
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    #[test]
    fn r1_r2_r6_hold_for_any_turn(scenario in scenario()) {
        let ran = scenario.play_here();
        prop_assert_eq!(ran.turns.len(), 2);
    }
}
