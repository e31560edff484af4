//! The facade `harness`.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use superstep::{
    MemoryCheckpointer,
    agent::{
        Agent, AgentBuilder, AgentOutcome, ReactConfig,
        config::ToolErrors,
        deps::SubAgent,
        facades::{
            FacadeError,
            harness::{AgentLoop, EventEmitter, TOOL_RESULT_MAX_CHARS, TurnResult},
        },
        hooks::ToolCheck,
    },
    llm::{
        Tool, ToolCx, ToolRegistry, ToolSpec, tool_fn,
        toolset::{RefreshFuture, ToolSource},
    },
};
use superstep_testing::{
    script::{Answer, Script, call, calls, http, txt},
    scripted::ScriptedModel,
};

use super::{Asked, at_once, both, echo};
use crate::support::{head, t};

fn context(msg: &String, history: &[Value]) -> Vec<Value> {
    let system = json!({"role": "system", "content": "Be helpful."});
    [&[system], history, &[json!({"role": "user", "content": msg})]].concat()
}

fn agent(agent: AgentBuilder) -> AgentLoop<String> {
    let context = |msg: &String, history: &[Value]| ready(Ok(context(msg, history)));
    let agent = agent.config(at_once(ReactConfig::harness()));
    AgentLoop::new(agent, context, |_| ready(Ok(())), |_, _| {}).unwrap()
}

async fn run(asked: Asked) -> TurnResult {
    let history = [json!({"role": "user", "content": "before"})];
    agent(asked.agent).run(&"go".to_owned(), &history, None).await.unwrap()
}

#[test]
fn a_turn_has_the_whole_history_and_its_own_start() {
    let two = calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "echo", r#"{ "x":"2"}"#)]);
    let (made, sent) = both(&[two, echo(3), txt("done")], run);
    assert_eq!(sent.requests, 3);
    assert_eq!(
        serde_json::to_value(&made).unwrap(),
        json!({
            "final_content": "done",
            "tools_used": ["echo", "echo", "echo"],
            "messages": [
                {"role": "system", "content": "Be helpful."},
                {"role": "user", "content": "before"},
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": "{\"x\":\"1\"}"}},
                    {"id": "c2", "type": "function", "function": {"name": "echo", "arguments": "{ \"x\":\"2\"}"}},
                ]},
                {"role": "tool", "content": "r:1", "tool_call_id": "c1"},
                {"role": "tool", "content": "r:2", "tool_call_id": "c2"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c3", "type": "function", "function": {"name": "echo", "arguments": "{\"x\":\"3\"}"}},
                ]},
                {"role": "tool", "content": "r:3", "tool_call_id": "c3"},
                {"role": "assistant", "content": "done"},
            ],
            "new_messages_start": 3,
        })
    );
    assert_eq!(TOOL_RESULT_MAX_CHARS, 16_000);
}

#[test]
fn a_steering_message_that_the_turn_before_did_not_read_precedes_the_prompt() {
    let (made, _) = both(&[call("c1", "hang", "{}"), txt("ok")], async |asked: Asked| {
        let agent = agent(asked.agent.checkpointer(Arc::new(MemoryCheckpointer::new())));
        let (steers, options) = (agent.agent().clone(), t());
        let token = options.get_cancel().clone();
        let agent = agent.on_event(move |event, _| {
            let (steers, token, hangs) = (steers.clone(), token.clone(), event == "tool_start");
            async move {
                if hangs {
                    steers.thread("t").steer("wait").await.unwrap();
                    token.cancel();
                }
            }
        });
        let first = agent.run_with(&"go".to_owned(), &[], options).await.unwrap();
        assert_eq!((first.messages.len(), first.new_messages_start), (4, 2));
        agent.run_with(&"on".to_owned(), &[], t()).await.unwrap()
    });
    let texts: Vec<_> = made.messages.iter().map(|said| said["content"].as_str().unwrap()).collect();
    assert_eq!((texts, made.new_messages_start), (vec!["Be helpful.", "wait", "on", "ok"], 3));
}

#[test]
fn an_empty_response_is_empty_content_and_not_none() {
    let (made, _) = both(&[Answer::stream().end("stop").done()], run);
    assert_eq!(made.final_content.as_deref(), Some(""));
}

#[test]
fn at_the_limit_the_content_is_fixed_and_the_history_ends_with_a_tool() {
    let (made, sent) = both(&[echo(1), echo(2), echo(3)], async |asked: Asked| {
        agent(asked.agent.max_steps(3)).run(&"go".to_owned(), &[], None).await.unwrap()
    });
    assert_eq!(made.final_content.as_deref(), Some("Max iterations reached."));
    assert_eq!((made.tools_used.len(), sent.requests, sent.echoed), (3, 3, 3));
    assert_eq!(made.messages.last().unwrap()["role"], "tool");
    let (made, sent) = both(&[], async |asked: Asked| {
        agent(asked.agent.max_steps(0)).run(&"go".to_owned(), &[], None).await.unwrap()
    });
    assert_eq!((made.final_content.as_deref(), sent.requests), (Some("Max iterations reached."), 0));
}

/// Adds a check that denies `{"x":"no"}`, immediately or after a delay.
fn checking(builder: AgentBuilder, waits: bool, seen: &Arc<Mutex<Vec<Value>>>) -> AgentLoop<String> {
    let seen = seen.clone();
    let check = move |check: ToolCheck| {
        assert_eq!((check.name.as_str(), check.tool.spec().name.as_str()), ("echo", "echo"));
        seen.lock().unwrap().push(check.args.clone());
        async move {
            if waits {
                tokio::task::yield_now().await;
            }
            if check.args["x"] == "no" { Err("not that".to_owned()) } else { Ok(()) }
        }
    };
    let context = |msg: &String, history: &[Value]| ready(Ok(context(msg, history)));
    AgentLoop::new(builder, context, check, |_, _| {}).unwrap()
}

#[test]
fn a_check_denies_without_a_pause_and_is_called_for_valid_calls_only() {
    let all = calls([
        ("c1", "echo", r#"{"x":"no"}"#),
        ("c2", "echo", r#"{"x":1}"#),
        ("c3", "nope", "{}"),
        ("c4", "echo", r#"{"x":"yes"}"#),
    ]);
    for waits in [false, true] {
        let ((made, seen), sent) = both(&[all.clone(), txt("ok")], async |asked: Asked| {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let made = checking(asked.agent, waits, &seen).run(&"go".to_owned(), &[], None).await.unwrap();
            let seen = seen.lock().unwrap().clone();
            (made, seen)
        });
        assert_eq!(seen, [json!({"x": "no"}), json!({"x": "yes"})]);
        assert_eq!(made.messages[3]["content"], "Error: Permission denied: not that");
        assert!(made.messages[4]["content"].as_str().unwrap().starts_with("Error: invalid args for 'echo'"));
        assert_eq!((made.tools_used, sent.echoed), (vec!["echo".to_owned()], 1));
    }
}

/// A changing source of tools, like a server.
struct Elsewhere(Arc<ToolRegistry>);

impl ToolSource for Elsewhere {
    fn tools(&self) -> Arc<ToolRegistry> {
        self.0.clone()
    }

    fn refresh(&self) -> RefreshFuture<'_> {
        Box::pin(ready(()))
    }
}

#[test]
fn a_check_is_called_for_tools_of_sources_and_sub_agents() {
    let both_kinds = calls([("c1", "far", r#"{"x":"1"}"#), ("c2", "helper", r#"{"task":"help"}"#)]);
    let (denied, sent) = both(&[both_kinds, txt("ok")], async |asked: Asked| {
        let spec = json!({"type": "object", "properties": {"x": {"type": "string"}}});
        let spec = ToolSpec { name: "far".into(), description: String::new(), parameters: spec };
        let mut far = ToolRegistry::new();
        far.insert(Arc::new(tool_fn(spec, |_: Value, _: ToolCx| ready(Ok("done".to_owned()))))).unwrap();
        let helper = Agent::builder(Arc::new(ScriptedModel::new(Script::new([])))).build().unwrap();
        let helper = SubAgent::new("helper", "Helps.", &helper);
        let agent = asked.agent.tool_source(Arc::new(Elsewhere(Arc::new(far)))).sub_agent(helper);
        let context = |msg: &String, history: &[Value]| ready(Ok(context(msg, history)));
        let no = |check: ToolCheck| ready(Err(format!("no {}", check.tool.spec().name)));
        let agent = AgentLoop::new(agent, context, no, |_, _| {}).unwrap();
        agent.run(&"go".to_owned(), &[], None).await.unwrap()
    });
    let results: Vec<_> = denied.messages[3..5].iter().map(|message| message["content"].clone()).collect();
    assert_eq!(results, ["Error: Permission denied: no far", "Error: Permission denied: no helper"]);
    assert_eq!((denied.tools_used.len(), sent.requests), (0, 2));
}

type Errors = Arc<Mutex<Vec<(String, String)>>>;

fn complaining(builder: AgentBuilder, errors: &Errors) -> AgentLoop<String> {
    let errors = errors.clone();
    let context = |msg: &String, history: &[Value]| {
        let built = context(msg, history);
        async move { if built.len() > 2 { Err("too much history".into()) } else { Ok(built) } }
    };
    let on_error = move |error: &(dyn std::error::Error + 'static), context: &str| {
        errors.lock().unwrap().push((context.to_owned(), error.to_string()));
    };
    let agent = builder.config(at_once(ReactConfig::harness()));
    AgentLoop::new(agent, context, |_| ready(Ok(())), on_error).unwrap()
}

#[test]
fn exhausted_retries_are_reported_once_then_an_error_and_the_thread_continues() {
    let down = http(503, &[], r#"{"error":{"message":"down"}}"#);
    let answers = [down.clone(), down.clone(), down.clone(), down, txt("here I am")];
    let (made, sent) = both(&answers, async |asked: Asked| {
        let errors = Errors::default();
        let agent = complaining(asked.agent.checkpointer(Arc::new(MemoryCheckpointer::new())), &errors);
        let failed = agent.run_with(&"go".to_owned(), &[], t()).await.unwrap_err();
        assert!(matches!(failed, FacadeError::Model(error) if error.status == Some(503)));
        let contexts: Vec<String> =
            errors.lock().unwrap().iter().map(|(context, _)| context.clone()).collect();
        (contexts, agent.agent().thread("t").resume().await.unwrap().text)
    });
    assert_eq!((made, sent.requests), ((vec!["llm".to_owned()], "here I am".to_owned()), 5));
}

#[test]
fn a_context_that_cannot_be_built_is_an_error() {
    let (told, sent) = both(&[], async |asked: Asked| {
        let errors = Errors::default();
        let agent = complaining(asked.agent, &errors);
        let history = [json!({"role": "user", "content": "before"})];
        let failed = agent.run(&"go".to_owned(), &history, None).await.unwrap_err();
        assert_eq!(std::error::Error::source(&failed).unwrap().to_string(), "too much history");

        errors.lock().unwrap().clone()
    });
    assert_eq!(told, [("context".to_owned(), "the callback `on_build_context` failed".to_owned())]);
    assert_eq!(sent.requests, 0);
}

#[test]
fn a_thread_has_the_conversation_that_was_built_last() {
    let (made, sent) = both(&[txt("one"), txt("two")], async |asked: Asked| {
        let agent = agent(asked.agent.checkpointer(Arc::new(MemoryCheckpointer::new())));
        let first = agent.run_with(&"1".to_owned(), &[], t()).await.unwrap();
        agent.run_with(&"2".to_owned(), &first.messages[1..], t()).await.unwrap()
    });
    assert_eq!((made.messages.len(), made.new_messages_start), (5, 4));
    assert_eq!(sent.last, ["system: Be helpful.", "user: 1", "assistant: one", "user: 2"]);
}

#[test]
fn changes_of_a_result_do_not_affect_the_agent() {
    let (made, sent) = both(&[echo(1), txt("one"), txt("two")], async |asked: Asked| {
        let agent = agent(asked.agent.checkpointer(Arc::new(MemoryCheckpointer::new())));
        let mut first = agent.run_with(&"1".to_owned(), &[], t()).await.unwrap();
        let before = head(agent.agent().graph()).await.values;
        first.messages.clear();
        first.tools_used.clear();
        first.final_content = Some("?".to_owned());
        let same = head(agent.agent().graph()).await.values == before;
        let second = agent.run_with(&"2".to_owned(), &[], t()).await.unwrap();
        (same, second.tools_used.len(), second.final_content)
    });
    assert_eq!(made, (true, 0, Some("two".to_owned())));
    assert_eq!(sent.last, ["system: Be helpful.", "user: 2"]);
}

#[test]
fn tools_find_the_working_directory_in_the_context() {
    #[derive(schemars::JsonSchema, serde::Deserialize)]
    struct Nothing {}
    let folder = std::env::temp_dir().canonicalize().unwrap();
    let (made, _) = both(&[call("c1", "pwd", "{}"), txt("ok")], async |asked: Asked| {
        let pwd = tool_fn(ToolSpec::of::<Nothing>("pwd", ""), |Nothing {}: Nothing, cx: ToolCx| async move {
            Ok(cx.extension::<Value>()?["cwd"].to_string())
        });
        let agent = agent(asked.agent.tools([Arc::new(pwd) as Arc<dyn Tool>]));
        agent.run(&"go".to_owned(), &[], Some(&folder)).await.unwrap()
    });
    assert_eq!(made.messages[3]["content"], json!(folder).to_string());
}

#[derive(Default)]
struct Names(Mutex<Vec<String>>);

impl EventEmitter for Names {
    fn emit(&self, event: &str, _: &Value) {
        self.0.lock().unwrap().push(event.to_owned());
    }
}

#[test]
fn an_emitter_is_preferred_to_the_older_callback() {
    let events = ["node_start", "node_end", "tool_start", "tool_end", "node_start", "llm_token", "node_end"];
    let ((emitted, told), _) = both(&[echo(1), txt("ok")], async |asked: Asked| {
        let (names, told) = (Arc::new(Names::default()), Arc::new(Names::default()));
        let by_event = told.clone();
        let agent = agent(asked.agent).emitter(names.clone()).on_event(move |event, payload| {
            by_event.emit(event, &payload);
            ready(())
        });
        agent.run(&"go".to_owned(), &[], None).await.unwrap();
        let (emitted, told) = (names.0.lock().unwrap().clone(), told.0.lock().unwrap().clone());
        (emitted, told)
    });
    assert_eq!((emitted, told), (events.map(str::to_owned).to_vec(), Vec::new()));
}

#[test]
fn events_are_emitted_one_after_the_other() {
    let (told, _) = both(&[txt("ok")], async |asked: Asked| {
        let told = Arc::new(Names::default());
        let by_event = told.clone();
        let agent = agent(asked.agent).on_event(move |event, payload| {
            let (told, event) = (by_event.clone(), event.to_owned());
            async move {
                tokio::task::yield_now().await;
                told.emit(&event, &payload);
            }
        });
        agent.run(&"go".to_owned(), &[], None).await.unwrap();

        told.0.lock().unwrap().clone()
    });
    assert_eq!(told, ["node_start", "llm_token", "node_end"]);
}

/// The calls of `on_error`.
type Reported = Arc<Mutex<Vec<(String, String)>>>;

fn listening(builder: AgentBuilder, config: ReactConfig, reported: &Reported) -> AgentLoop<String> {
    let context = |msg: &String, history: &[Value]| ready(Ok(context(msg, history)));
    let reported = reported.clone();
    let on_error = move |error: &(dyn std::error::Error + 'static), place: &str| {
        reported.lock().unwrap().push((place.to_owned(), error.to_string()));
    };
    AgentLoop::new(builder.config(config), context, |_| ready(Ok(())), on_error).unwrap()
}

#[test]
fn on_error_receives_a_failed_tool_and_the_turn_continues() {
    for (tool, said) in [
        ("fails", "Error executing 'fails': no luck"),
        ("boom", "Error executing 'boom': the tool panicked: boom"),
    ] {
        let script = Script::new([call("c1", tool, "{}"), call("c2", "nope", "{}"), txt("sorry")]);
        let (reported, kit) = (Reported::default(), super::Kit::default());
        let model = ScriptedModel::new(script);
        let builder = Agent::builder(Arc::new(model)).tools(kit.tools(&["fails", "boom"]));
        let agent = listening(builder, ReactConfig::harness(), &reported);
        let turn = super::paused(agent.run(&"go".to_owned(), &[], None)).unwrap();
        assert_eq!(turn.final_content.as_deref(), Some("sorry"));
        // An error of the model is not a failure of a tool.
        let told = ("tool".to_owned(), format!("the tool `{tool}` failed: {said}"));
        assert_eq!(*reported.lock().unwrap(), [told]);
    }
}

#[test]
fn a_tool_that_fails_may_end_the_turn_with_every_call_answered() {
    let round =
        calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "fails", "{}"), ("c3", "echo", r#"{"x":"2"}"#)]);
    let (reported, kit) = (Reported::default(), super::Kit::default());
    let model = ScriptedModel::new(Script::new([round]));
    let builder = Agent::builder(Arc::new(model)).tools(kit.tools(&["echo", "fails"]));
    let builder = builder.checkpointer(Arc::new(MemoryCheckpointer::new()));
    let config = ReactConfig { tool_errors: ToolErrors::Fail, ..ReactConfig::harness() };
    let agent = listening(builder, config, &reported);
    super::paused(async {
        let error = agent.run_with(&"go".to_owned(), &[], t()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "No answer: a tool failed (tool_error): Error executing 'fails': no luck"
        );
        assert!(matches!(error, FacadeError::Tool(_)), "{error}");
        let state = head(agent.agent().graph()).await.values;
        assert_eq!(state.outcome, Some(AgentOutcome::ToolFailed));
        let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
        let behind = "Error: a tool failed before, not executed.";
        assert_eq!(results, ["r:1", "Error executing 'fails': no luck", behind]);
        super::super::check::calls_are_answered(state.messages.iter());
    });
    assert_eq!((kit.n("echo"), reported.lock().unwrap().len()), (1, 1), "it is told once");
}
