//! The facade `opencode`.

use std::{error::Error, sync::Arc};

use superstep::{
    MemoryCheckpointer,
    agent::{
        ReactConfig,
        facades::{
            FacadeError,
            opencode::{AiClient, ReactLoop, Running, react_system_prompt},
        },
        state::{Part, PartKind, ToolStatus},
    },
    llm::ModelError,
};
use superstep_testing::script::{Answer, calls, http, txt};

use super::{Asked, Kit, TOOLS, at_once, both, echo};
use crate::support::t;

fn react(asked: Asked) -> ReactLoop {
    ReactLoop::new(AiClient::new(asked.agent.config(at_once(ReactConfig::opencode()))))
}

/// Returns the result of a run, with its error as its chain of sources.
fn told(made: Result<String, FacadeError>) -> Result<String, Option<u16>> {
    made.map_err(|error| {
        let source = error.source().and_then(|source| source.downcast_ref::<ModelError>());
        source.expect("the source is the model's error").status
    })
}

fn down() -> Answer {
    http(503, &[], "{}")
}

#[test]
fn a_query_has_a_final_answer() {
    let (made, sent) = both(&[echo(1), txt("done")], async |asked: Asked| told(react(asked).run("go").await));
    assert_eq!((made, sent.requests, sent.echoed), (Ok("done".to_owned()), 2, 1));
    let wanted = [
        format!("system: {}", react_system_prompt(15, &Kit::default().tools(TOOLS))),
        "user: go".to_owned(),
        "assistant: ".to_owned(),
        "tool: r:1".to_owned(),
        "user: Based on the tool output above, continue with your task.".to_owned(),
    ];
    assert_eq!(sent.last, wanted);
}

#[test]
fn a_run_leaves_the_parts_of_its_answers() {
    let (made, _) = both(&[echo(1), txt("done")], async |asked: Asked| {
        let mut react = react(asked);
        react.run("go").await.unwrap();
        let part = |part: &Part| {
            let state = part.state.as_ref();
            (part.kind, part.tool.clone(), state.map(|state| (state.status, state.output.clone())))
        };
        react.parts.iter().map(part).collect::<Vec<_>>()
    });
    let ran = (ToolStatus::Completed, Some("r:1".to_owned()));
    let wanted = [(PartKind::Tool, Some("echo".to_owned()), Some(ran)), (PartKind::Text, None, None)];
    assert_eq!(made, wanted);
}

#[test]
fn the_prompt_describes_the_procedure_and_the_step_limit() {
    let prompt = react_system_prompt(7, &Kit::default().tools(TOOLS));
    assert!(prompt.starts_with("# Role: "), "{prompt}");
    for part in
        ["Think → Act → Observe", "Final Answer", "one or two tools", "at most 7 steps", "Never make data up"]
    {
        assert!(prompt.contains(part), "{part}");
    }
}

#[test]
fn the_example_has_tools_of_the_agent_and_no_question() {
    let called = |names: &[&'static str]| {
        let prompt = react_system_prompt(7, &Kit::default().tools(names));
        assert!(!prompt.contains("User:") && !prompt.contains("get_action"), "{prompt}");
        assert_eq!(prompt.contains("## Example"), !names.is_empty(), "{prompt}");
        let calls = prompt.lines().filter_map(|line| line.strip_prefix("Act: "));
        calls.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(called(&["add", "ping", "echo"]), ["add(a=…, b=…)", "ping()"]);
    assert_eq!(called(&["echo"]), ["echo(x=…)"]);
    assert_eq!(called(&[]), [""; 0]);
    // Those that only read come first.
    let folder = tempfile::tempdir().unwrap();
    let tools = superstep::tools::all(folder.path(), || 0).unwrap();
    let prompt = react_system_prompt(7, &tools.into_iter().rev().collect::<Vec<_>>());
    let changes = ["Act: write_file", "Act: edit_file", "Act: shell"];
    assert!(prompt.contains("\nAct: ") && !changes.iter().any(|call| prompt.contains(call)), "{prompt}");
}

#[test]
fn the_last_step_is_reminded_that_it_is() {
    let (made, sent) = both(&[echo(1), echo(2), txt("partial")], async |asked: Asked| {
        told(ReactLoop { max_steps: 3, ..react(asked) }.run("go").await)
    });
    assert_eq!((made, sent.requests, sent.echoed), (Ok("partial".to_owned()), 3, 2));
    assert!(sent.last.last().unwrap().starts_with("user: This is the last step"), "{:?}", sent.last);
}

#[test]
fn exhausted_retries_are_an_error_and_the_thread_continues() {
    let answers = [down(), down(), down(), txt("here I am")];
    let (made, sent) = both(&answers, async |asked: Asked| {
        let store = Arc::new(MemoryCheckpointer::new());
        let agent = asked.agent.checkpointer(store).config(at_once(ReactConfig::opencode()));
        let mut react = ReactLoop::new(AiClient::new(agent.clone()));
        let failed = told(react.run_with("go", t()).await);
        let resumed = agent.build().unwrap().thread("t").resume().await.unwrap();
        (failed, resumed.text)
    });
    assert_eq!((made, sent.requests), ((Err(Some(503)), "here I am".to_owned()), 4));
}

#[test]
fn without_retries_the_first_error_is_returned() {
    let (made, sent) = both(&[down()], async |asked: Asked| {
        told(ReactLoop { enable_retry: false, ..react(asked) }.run("go").await)
    });
    assert_eq!((made, sent.requests), (Err(Some(503)), 1));
}

#[test]
fn doom_loops_are_refused_unless_that_is_switched_off() {
    let same = || echo(1);
    for (enable_doom_detection, echoed) in [(true, 2), (false, 3)] {
        let (made, sent) = both(&[same(), same(), same(), txt("sorry")], async |asked: Asked| {
            told(ReactLoop { enable_doom_detection, ..react(asked) }.run("go").await)
        });
        assert_eq!((made, sent.echoed), (Ok("sorry".to_owned()), echoed));
    }
}

#[test]
fn a_single_round_has_two_requests_at_the_most() {
    let two = calls([("c1", "slow", r#"{"x":"a"}"#), ("c2", "slow", r#"{"x":"b"}"#)]);
    let (made, sent) = both(&[two, txt("done")], async |asked: Asked| {
        let made = told(AiClient::new(asked.agent).chat("go").await);
        (made, asked.kit.most_at_once())
    });
    assert_eq!((made, sent.requests), ((Ok("done".to_owned()), 2), 2));
    assert!(!sent.offered_tools, "the second is for the answer");
    assert_eq!(sent.last, ["user: go", "assistant: ", "tool: r:a", "tool: r:b"]);
    let (made, sent) =
        both(&[txt("hi")], async |asked: Asked| told(AiClient::new(asked.agent).chat("go").await));
    assert_eq!((made, sent.requests), (Ok("hi".to_owned()), 1));
    let (made, sent) =
        both(&[down()], async |asked: Asked| told(AiClient::new(asked.agent).chat("go").await));
    assert_eq!((made, sent.requests), (Err(Some(503)), 1));
    let too_long = http(400, &[], r#"{"error":{"message":"no","code":"context_length_exceeded"}}"#);
    let (made, sent) =
        both(&[too_long], async |asked: Asked| told(AiClient::new(asked.agent).chat("go").await));
    assert_eq!((made, sent.requests), (Err(Some(400)), 1));
}

#[test]
fn a_second_round_of_calls_is_not_made() {
    let (made, sent) =
        both(&[echo(1), echo(2)], async |asked: Asked| told(AiClient::new(asked.agent).chat("go").await));
    assert_eq!((sent.requests, sent.echoed), (2, 1));
    assert!(made.unwrap().starts_with("No answer: "));
}

async fn told_of(mut running: Running<'_>) -> (Vec<serde_json::Value>, String) {
    let mut told = Vec::new();
    while let Some(event) = running.next().await {
        told.push(serde_json::to_value(event).unwrap());
    }
    (told, running.end().await.unwrap())
}

#[test]
fn a_run_is_reported_step_by_step() {
    let call = serde_json::json!({"type": "tool-call", "id": "c1", "tool": "echo", "input": {"x": "1"}});
    let steps = |text: &str| {
        [
            call.clone(),
            serde_json::json!({"type": "tool-result", "id": "c1", "output": "r:1"}),
            serde_json::json!({"type": "finish-step", "next": "continue"}),
            serde_json::json!({"type": "text-delta", "text": text}),
            serde_json::json!({"type": "finish-step", "next": "stop"}),
        ]
    };
    let (made, _) = both(&[echo(1), txt("done")], async |asked: Asked| {
        let mut react = react(asked);
        let told = told_of(react.run_stream("go", Default::default()).unwrap()).await;
        (told, react.parts.len())
    });
    assert_eq!(made, ((steps("done").to_vec(), "done".to_owned()), 2));
    let (made, _) = both(&[echo(1), txt("done")], async |asked: Asked| {
        told_of(AiClient::new(asked.agent).chat_stream("go").unwrap()).await
    });
    assert_eq!(made, (steps("done").to_vec(), "done".to_owned()));
}

#[test]
fn the_end_at_the_limit_is_not_a_step() {
    let (made, sent) = both(&[echo(1)], async |asked: Asked| {
        let mut react = ReactLoop { max_steps: 1, ..react(asked) };
        told_of(react.run_stream("go", Default::default()).unwrap()).await.0
    });
    let next: Vec<_> = made.iter().filter_map(|event| event["next"].as_str()).collect();
    assert_eq!((next, sent.requests), (vec!["stop"], 1));
}

#[test]
fn a_tool_that_fails_is_an_error_of_its_step() {
    let wrong = superstep_testing::script::call("c1", "echo", "{}");
    let (made, _) = both(&[wrong, txt("sorry")], async |asked: Asked| {
        told_of(react(asked).run_stream("go", Default::default()).unwrap()).await.0
    });
    let error = "Error: invalid args for 'echo': `x` is missing";
    assert_eq!(made[1], serde_json::json!({"type": "tool-error", "id": "c1", "error": error}));
}
