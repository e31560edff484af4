//! The course of runs, node by node, and the drawing of the graph.

use std::sync::Arc;

use superstep::{
    agent::{ReactConfig, config::ToolMode, deps::AgentDeps, graph::react_graph},
    llm::ToolRegistry,
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
    transcript::transcript,
};

use super::{Scenario, paused, stream::ADD_CALL};

#[test]
fn the_transcript_of_a_text_reply() {
    let answer = Answer::stream().text(["Hel", "lo"]).end("stop").usage(5, 2).done();
    let ran = Scenario::new([answer]).turns(&["hi"]).play_here();
    insta::assert_snapshot!("text_reply", transcript(&ran.turn().events));
}

#[test]
fn the_transcript_of_a_tool_call() {
    let ran = Scenario::new([Answer::sse(ADD_CALL), txt("5")]).turns(&["2+3?"]).play_here();
    insta::assert_snapshot!("tool_call", transcript(&ran.turn().events));
}

#[test]
fn the_transcript_of_parallel_calls() {
    let three = calls([
        ("c0", "slow", r#"{"x":"a"}"#),
        ("c1", "slow", r#"{"x":"b"}"#),
        ("c2", "slow", r#"{"x":"c"}"#),
    ]);
    let scenario = Scenario::new([three, txt("ok")]).tools(&["slow"]);
    let tool_mode = ToolMode::Parallel { max: 8 };
    let ran = scenario.config(|config| ReactConfig { tool_mode, ..config }).play_here();
    insta::assert_snapshot!("parallel_calls", transcript(&ran.turn().events));
}

#[test]
fn the_transcript_of_a_repeated_call() {
    let first = call("c1", "search", r#"{"q":"rust  Async"}"#);
    let second = call("c2", "search", r#"{"q":"rust async"}"#);
    let scenario = Scenario::new([first, second]).tools(&["search"]);
    let scenario = Scenario { found: vec!["10 hits: A,B", "10 hits: A,B"], ..scenario };
    insta::assert_snapshot!("repeated_call", transcript(&scenario.play_here().turn().events));
}

#[test]
fn the_graph_has_five_nodes() {
    let model = paused(async { ScriptedModel::new(Script::default()) });
    let deps = AgentDeps::new(Arc::new(model), ToolRegistry::new(), ReactConfig::graph(5));
    let graph = react_graph(deps).compile().unwrap();
    assert!(graph.warnings().is_empty());
    insta::assert_snapshot!("graph", graph.topology().mermaid());
}
