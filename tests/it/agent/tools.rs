//! B: calls that fail, take too long, or return too much.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use superstep::{
    agent::{
        AgentOutcome, ReactConfig,
        config::{ToolMode, Truncate},
    },
    llm::{Tool, ToolSpec, tool_fn, wire::WirePolicy},
};
use superstep_testing::script::{Script, call, calls, txt};

use super::{
    Scenario,
    facades::{Asked, both},
};

#[test]
fn an_unknown_tool_is_answered_and_the_run_continues() {
    let two = calls([("c1", "nope", "{}"), ("c2", "echo", r#"{"x":"1"}"#)]);
    let ran = Scenario::new([two, txt("ok")]).play();
    assert_eq!(ran.result("c1"), "Error: unknown tool 'nope'. Available tools: add, echo");
    assert_eq!(
        ran.events(),
        concat!(
            r#"a▸ ◂a tool_start{nope,{},c1} "#,
            r#"tool_end{nope,c1,"Error: unknown tool 'nope'. Available tools: add, echo"} "#,
            r#"tool_start{echo,{"x":"1"},c2} tool_end{echo,c2,"r:1"} a▸ tok(ok) ◂a"#
        )
    );
    assert_eq!(ran.result("c2"), "r:1");
    assert_eq!(ran.state().tools_used, ["echo".to_owned()]);
    assert_eq!(ran.state().tool_call_history.len(), 2);
}

#[test]
fn a_name_in_another_case_is_unknown() {
    let ran = Scenario::new([call("c1", "Echo", r#"{"x":"1"}"#), txt("ok")]).play();
    assert_eq!(ran.result("c1"), "Error: unknown tool 'Echo'. Available tools: add, echo");
    assert_eq!(ran.kit.n("echo"), 0);
}

fn broken_arguments(arguments: WirePolicy) -> serde_json::Value {
    let answers = [call("c1", "echo", "{x:1"), call("c2", "echo", r#"{"x":"1"}"#), txt("ok")];
    let scenario = Scenario::new(answers);
    let wire = superstep::llm::wire::WireConfig { arguments, ..scenario.wire.clone() };
    let ran = Scenario { wire, ..scenario }.play();
    assert_eq!(ran.kit.n("echo"), 1);
    let start = "Error: arguments for 'echo' are not valid JSON: ";
    assert!(ran.result("c1").starts_with(start), "{}", ran.result("c1"));
    assert!(ran.result("c1").len() > start.len());
    assert_eq!(ran.result("c2"), "r:1");
    let stored = ran.state().messages.iter().find(|message| !message.tool_calls.is_empty()).unwrap();
    assert_eq!(stored.tool_calls[0].arguments, "{x:1");
    assert_eq!(ran.state().tools_used, ["echo".to_owned()]);
    assert!(ran.events().contains(r#"tool_start{echo,"{x:1",c1}"#), "{}", ran.events());
    ran.requests[1]["messages"][1]["tool_calls"][0]["function"]["arguments"].clone()
}

#[test]
fn broken_arguments_are_not_executed_and_go_back_wrapped() {
    assert_eq!(broken_arguments(WirePolicy::Wrap), r#"{"_raw":"{x:1"}"#);
}

#[test]
fn broken_arguments_are_not_executed_and_go_back_as_they_are() {
    assert_eq!(broken_arguments(WirePolicy::Verbatim), "{x:1");
}

#[test]
fn empty_arguments_are_valid_for_a_tool_without_parameters() {
    let two = calls([("c1", "ping", ""), ("c2", "echo", "")]);
    let ran = Scenario::new([two, txt("ok")]).tools(&["echo", "ping"]).play();
    assert_eq!(ran.result("c1"), "pong");
    assert_eq!(
        ran.result("c2"),
        "Error: invalid args for 'echo': expected an object, got nothing; `x` is missing"
    );
    assert_eq!((ran.kit.n("ping"), ran.kit.n("echo")), (1, 0));
    assert_eq!(ran.state().tool_call_history[0].args, json!({}));
}

#[test]
fn arguments_of_the_wrong_type_are_not_executed() {
    let ran = Scenario::new([call("c1", "add", r#"{"a":"two","b":3}"#), txt("ok")]).play();
    assert_eq!(ran.kit.n("add"), 0);
    assert_eq!(ran.result("c1"), "Error: invalid args for 'add': `a`: expected integer, got a string");
}

#[test]
fn fields_that_the_schema_does_not_know_are_ignored() {
    let ran = Scenario::new([call("c1", "add", r#"{"a":2,"b":3,"c":4}"#), txt("ok")]).play();
    assert_eq!(ran.result("c1"), "5");
}

#[test]
fn fields_that_a_schema_forbids_are_not_ignored() {
    #[derive(schemars::JsonSchema, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema counts")]
    struct Strict {
        x: String,
    }
    let ((result, ran), _) =
        both(&[call("c1", "strict", r#"{"x":"1","y":2}"#), txt("ok")], async |asked: Asked| {
            let ran = Arc::new(AtomicUsize::new(0));
            let counts = ran.clone();
            let strict = tool_fn(ToolSpec::of::<Strict>("strict", ""), move |_: Strict, _| {
                counts.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Ok("ran"))
            });
            let agent = asked.agent.tools([Arc::new(strict) as Arc<dyn Tool>]).build().unwrap();
            let end = agent.without_thread().run(agent.input("go")).await.unwrap();
            (end.state.tool_result_history.iter().next().cloned(), ran.load(Ordering::Relaxed))
        });
    let result = result.unwrap();
    assert!(result.starts_with("Error: invalid args for 'strict': ") && result.contains("'y'"), "{result}");
    assert_eq!(ran, 0);
}

#[test]
fn arguments_are_an_object() {
    let ran = Scenario::new([call("c1", "add", "[1]"), txt("ok")]).play();
    assert_eq!(ran.result("c1"), "Error: invalid args for 'add': expected an object, got an array");
    assert_eq!(ran.kit.n("add"), 0);
}

#[test]
fn a_panic_is_a_result_and_its_neighbours_run() {
    let three = calls([("c1", "boom", "{}"), ("c2", "echo", r#"{"x":"1"}"#), ("c3", "fails", "{}")]);
    for tool_mode in [ToolMode::Sequential, ToolMode::Parallel { max: 8 }] {
        let scenario = Scenario::new([three.clone(), txt("ok")]).tools(&["boom", "echo", "fails"]);
        let ran = scenario.config(|config| ReactConfig { tool_mode, ..config }).play();
        assert_eq!(ran.result("c1"), "Error executing 'boom': the tool panicked: boom");
        assert_eq!(ran.result("c2"), "r:1");
        assert_eq!(ran.result("c3"), "Error executing 'fails': no luck");
        assert_eq!((ran.reply(), ran.outcome()), ("ok", AgentOutcome::Completed));
        assert_eq!(ran.state().tools_used, ["boom", "echo", "fails"].map(str::to_owned));
    }
}

fn timed(tool: &'static str) -> Scenario {
    let scenario = Scenario::new([call("c1", tool, "{}"), txt("ok")]).tools(&["deaf", "hang", "late"]);
    scenario.config(|config| ReactConfig {
        tool_timeout: Some(Duration::from_millis(1000)),
        cancel_grace: Duration::from_millis(250),
        ..config
    })
}

#[test]
fn a_tool_that_honours_cancellation_ends_when_its_time_is_up() {
    let ran = timed("hang").play_here();
    assert_eq!(ran.result("c1"), "Error: tool 'hang' timed out after 1000 ms");
    assert_eq!(ran.turn().times("tool_end"), [1000]);
    assert_eq!(
        ran.events(),
        r#"a▸ ◂a tool_start{hang,{},c1} tool_end{hang,c1,"Error: tool 'hang' timed out after 1000 ms"} a▸ tok(ok) ◂a"#
    );
}

#[test]
fn a_tool_that_ignores_cancellation_is_dropped_after_its_grace() {
    let ran = timed("deaf").play_here();
    assert_eq!(ran.result("c1"), "Error: tool 'deaf' timed out after 1000 ms");
    assert_eq!(ran.turn().times("tool_end"), [1250]);
    assert_eq!(ran.turn().ended, 1250);
}

#[test]
fn a_late_result_changes_nothing() {
    let ran = timed("late").play_here();
    assert_eq!(ran.result("c1"), "Error: tool 'late' timed out after 1000 ms");
    assert_eq!(
        ran.events(),
        concat!(
            r#"a▸ ◂a tool_start{late,{},c1} +late_result{late,c1} "#,
            r#"tool_end{late,c1,"Error: tool 'late' timed out after 1000 ms"} a▸ tok(ok) ◂a"#
        )
    );
}

#[test]
fn a_tool_may_set_its_own_timeout() {
    let calls = calls([("c1", "brief", "{}"), ("c2", "hang", "{}")]);
    let ran = Scenario { script: Script::new([calls, txt("ok")]), ..timed("hang") }.tools(&["brief", "hang"]);
    let ran = ran.play_here();
    assert_eq!(ran.result("c1"), "Error: tool 'brief' timed out after 40 ms");
    assert_eq!(ran.result("c2"), "Error: tool 'hang' timed out after 1000 ms");
}

#[test]
fn a_tool_times_out_over_the_wire() {
    let scenario = timed("hang")
        .config(|config| ReactConfig { tool_timeout: Some(Duration::from_millis(20)), ..config });
    assert_eq!(scenario.play().result("c1"), "Error: tool 'hang' timed out after 20 ms");
}

/// Returns the model's text of a result of `n` characters, which is equal in the event.
fn cut(truncate: &Truncate, tool: &'static str, n: usize) -> String {
    let arguments = format!(r#"{{"n":{n}}}"#);
    let scenario = Scenario::new([call("c1", tool, &arguments), txt("ok")]).tools(&["accents", "big"]);
    let ran = scenario.config(|config| ReactConfig { truncate: Some(truncate.clone()), ..config }).play();
    let end = ran.turn().told.iter().find(|told| told.name == "tool_end").unwrap();
    assert_eq!(end.data["result"], ran.result("c1"));
    assert_eq!(ran.state().tool_result_history, [ran.result("c1").to_owned()]);
    ran.result("c1").to_owned()
}

#[test]
fn cococat_cuts_beyond_2000_characters() {
    let cococat = Truncate::chars(2000, "[truncated {omitted} chars]");
    assert_eq!(cut(&cococat, "big", 2000), "x".repeat(2000));
    assert_eq!(cut(&cococat, "big", 2001), "x".repeat(2000) + "[truncated 1 chars]");
    assert_eq!(cut(&cococat, "big", 5000), "x".repeat(2000) + "[truncated 3000 chars]");
    assert_eq!(cut(&cococat, "accents", 2001), "é".repeat(2000) + "[truncated 1 chars]");
}

#[test]
fn harness_cuts_beyond_16000_characters() {
    let harness = Truncate::chars(16_000, "\n... truncated");
    assert_eq!(cut(&harness, "big", 16_000), "x".repeat(16_000));
    assert_eq!(cut(&harness, "big", 16_001), "x".repeat(16_000) + "\n... truncated");
}

#[test]
fn without_a_limit_results_stay_whole() {
    let ran = Scenario::new([call("c1", "big", r#"{"n":100000}"#), txt("ok")]).tools(&["big"]).play();
    assert_eq!(ran.result("c1").len(), 100_000);
}
