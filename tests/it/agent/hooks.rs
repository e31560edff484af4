//! Hooks before and after model calls and tool calls, in any graph.

use std::{future::ready, sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep::{
    Answers, MemoryCheckpointer,
    agent::{
        AgentOutcome, Approval, ReactConfig,
        config::{LengthPolicy, ToolMode},
        hooks::{Acting, HookError, Hooks},
    },
    llm::{Message, Request, Tool, ToolCx, ToolError, ToolFuture, ToolSpec, calls::Sequence},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};
use tokio::sync::Semaphore;

use super::{Cancel, Ran, Scenario, kit::Kit, paused, show};

/// Creates hooks that only observe, and record their calls under `name`.
fn noting(kit: &Kit, name: &'static str) -> Hooks {
    let mut hooks = Hooks::default();
    let note = |what: &'static str| {
        let kit = kit.clone();
        move || kit.note(format!("{name}{what}"))
    };
    let (pre, post) = (note("pre_reasoning"), note("post_reasoning"));
    hooks.reasoning.pre(move |_| {
        ready({
            pre();
            Ok(None)
        })
    });
    hooks.reasoning.post(move |_, _| {
        ready({
            post();
            Ok(None)
        })
    });
    let (pre, post) = (kit.clone(), kit.clone());
    hooks.acting.pre(move |acting: Acting| {
        ready({
            pre.note(format!("{name}pre_acting {}", acting.call_id()));
            Ok(None)
        })
    });
    hooks.acting.post(move |acting: Acting, _| {
        ready({
            post.note(format!("{name}post_acting {}", acting.call_id()));
            Ok(None)
        })
    });
    hooks
}

fn failed() -> HookError {
    "no".into()
}

fn explained(ran: &Ran, hook: &str) {
    assert_eq!(ran.outcome(), AgentOutcome::HookFailed);
    assert_eq!(
        ran.reply(),
        format!("No answer: a hook of the program failed (hook_error): the hook `{hook}` failed: no")
    );
}

#[test]
fn hooks_run_around_each_model_call_and_each_tool_call() {
    let script = [calls([("c0", "echo", r#"{"x":"a"}"#), ("c1", "echo", r#"{"x":"b"}"#)]), txt("ok")];
    let ran = Scenario { hooks: |kit| noting(kit, ""), ..Scenario::new(script) }.play();
    assert_eq!(
        ran.kit.notes(),
        [
            "pre_reasoning",
            "post_reasoning",
            "pre_acting c0",
            "post_acting c0",
            "pre_acting c1",
            "post_acting c1",
            "pre_reasoning",
            "post_reasoning",
        ]
    );
    assert_eq!(
        ran.messages(),
        r#"u:"go", a:[c0 echo{"x":"a"}, c1 echo{"x":"b"}], t(c0):"r:a", t(c1):"r:b", a:"ok""#
    );
}

#[test]
fn an_agents_own_hooks_run_before_those_of_its_kind() {
    let hooks = |kit: &Kit| noting(kit, "own ").then(&noting(kit, "kind "));
    let ran = Scenario { hooks, ..Scenario::new([txt("ok")]) }.play();
    assert_eq!(
        ran.kit.notes(),
        ["own pre_reasoning", "kind pre_reasoning", "own post_reasoning", "kind post_reasoning"]
    );
}

#[test]
fn hooks_replace_request_and_response_and_the_conversation_has_the_original() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.reasoning.pre(|mut request: Request| async move {
            request.messages.insert(0, Message::system("be brief"));
            request.tools.to_mut().clear();
            Ok(Some(request))
        });
        hooks.reasoning.post(|request: Request, mut answer: Message| async move {
            assert_eq!(request.messages[0].content, "be brief", "it sees what was asked");
            answer.to_mut().content.push('!');
            Ok(Some(answer))
        });
        hooks
    };
    let ran = Scenario { hooks, ..Scenario::new([txt("ok")]) }.play();
    assert_eq!(ran.requests[0]["messages"][0], json!({"role": "system", "content": "be brief"}));
    assert_eq!(ran.requests[0].get("tools"), None);
    assert_eq!(ran.messages(), r#"u:"go", a:"ok!""#);
    assert_eq!(ran.events(), "a▸ tok(ok) +attempt_discarded{1} tok(ok!) ◂a");
}

#[test]
fn a_hook_gets_a_copy() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.reasoning.pre(|mut request: Request| {
            ready({
                request.messages.clear();
                Ok(None)
            })
        });
        hooks.reasoning.post(|_, mut answer: Message| {
            ready({
                answer.to_mut().content.clear();
                Ok(None)
            })
        });
        hooks.acting.pre(|mut acting: Acting| {
            ready({
                acting.args = json!({"x": "?"});
                Ok(None)
            })
        });
        hooks.acting.post(|_, mut result: String| {
            ready({
                result.clear();
                Ok(None)
            })
        });
        hooks
    };
    let script = [call("c1", "echo", r#"{"x":"1"}"#), txt("ok")];
    let ran = Scenario { hooks, ..Scenario::new(script.clone()) }.play();
    let plain = Scenario::new(script).play();
    assert_eq!((ran.messages(), ran.events()), (plain.messages(), plain.events()));
    assert_eq!(ran.requests, plain.requests);
}

#[test]
fn hooks_replace_arguments_and_results_but_not_the_models_call() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.acting.pre(|mut acting: Acting| async move {
            acting.args = json!({"x": "other"});
            Ok(Some(acting))
        });
        hooks.acting.post(|acting: Acting, result: String| async move {
            assert_eq!(acting.args, json!({"x": "other"}));
            Ok(Some(format!("<{result}>")))
        });
        hooks
    };
    let ran = Scenario { hooks, ..Scenario::new([call("c1", "echo", r#"{"x":"1"}"#), txt("ok")]) }.play();
    assert_eq!(ran.messages(), r#"u:"go", a:[c1 echo{"x":"1"}], t(c1):"<r:other>", a:"ok""#);
    assert!(
        ran.events().contains(r#"tool_start{echo,{"x":"other"},c1} tool_end{echo,c1,"<r:other>"}"#),
        "{}",
        ran.events()
    );
}

#[test]
fn arguments_of_a_hook_are_checked_like_any_others() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.acting.pre(|mut acting: Acting| async move {
            acting.args = json!({"x": 1});
            Ok(Some(acting))
        });
        hooks
    };
    let ran = Scenario { hooks, ..Scenario::new([call("c1", "echo", r#"{"x":"1"}"#), txt("ok")]) }.play();
    assert!(ran.result("c1").starts_with("Error: invalid args for 'echo': "), "{}", ran.result("c1"));
    assert_eq!(ran.kit.n("echo"), 0);
}

#[test]
fn a_hook_denies_a_call_without_a_pause() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.acting.pre(|mut acting: Acting| async move {
            acting.denied = (acting.tool == "send").then(|| "not today".to_owned());
            Ok(Some(acting))
        });
        hooks
    };
    let decide = |_: &_| panic!("nobody is asked about what is denied");
    let script = [calls([("c0", "send", r#"{"to":"a"}"#), ("c1", "echo", r#"{"x":"1"}"#)]), txt("ok")];
    let scenario = Scenario { hooks, decide: Some(decide), ..Scenario::new(script) }.tools(&["send", "echo"]);
    let ran = scenario.play();
    assert_eq!(ran.result("c0"), "Error: Permission denied: not today");
    assert_eq!((ran.kit.n("send"), ran.kit.n("echo"), ran.reply()), (0, 1, "ok"));
}

#[test]
fn a_hook_before_the_model_call_that_fails_ends_the_turn_before_it() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.reasoning.pre(|_| ready(Err(failed())));
        hooks
    };
    let ran = Scenario { hooks, ..Scenario::new([]) }.play();
    explained(&ran, "pre_reasoning");
    assert_eq!((ran.messages().as_str(), ran.requests.len()), (r#"u:"go""#, 0));
}

#[test]
fn a_failing_hook_after_the_model_call_voids_streamed_text() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.reasoning.post(|_, _| ready(Err(failed())));
        hooks
    };
    let ran = Scenario { hooks, ..Scenario::new([txt("secret")]) }.play();
    explained(&ran, "post_reasoning");
    assert_eq!(ran.messages(), r#"u:"go""#);
    assert_eq!(ran.events(), "a▸ tok(secret) +attempt_discarded{1} ◂a");
    assert_eq!((ran.state().llm_calls, ran.state().model_requests), (0, 1));
}

#[test]
fn a_hook_before_a_tool_call_that_fails_leaves_every_call_answered() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks
            .acting
            .pre(|acting: Acting| ready(if acting.call_id() == "c1" { Err(failed()) } else { Ok(None) }));
        hooks
    };
    let all =
        [("c0", "echo", r#"{"x":"0"}"#), ("c1", "echo", r#"{"x":"1"}"#), ("c2", "echo", r#"{"x":"2"}"#)];
    let ran = Scenario { hooks, ..Scenario::new([calls(all)]) }.play();
    explained(&ran, "pre_acting");
    let not_run = "Error: a hook failed, not executed.";
    assert_eq!((ran.result("c0"), ran.result("c1"), ran.result("c2")), ("r:0", not_run, not_run));
    assert_eq!(ran.kit.n("echo"), 1);
    assert!(
        ran.events().ends_with("+tool_skipped{echo,c1,hook_error} +tool_skipped{echo,c2,hook_error} a▸ ◂a"),
        "{}",
        ran.events()
    );
}

#[test]
fn a_panicking_hook_after_a_tool_call_retains_the_result() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.acting.post(|_, _| async { std::panic::resume_unwind(Box::new("no")) });
        hooks
    };
    let script = [calls([("c0", "send", r#"{"to":"a"}"#), ("c1", "echo", r#"{"x":"1"}"#)])];
    let scenario = Scenario { hooks, decide: Some(|_| Some(Approval::Approve)), ..Scenario::new(script) };
    let ran = scenario.tools(&["send", "echo"]).play();
    assert_eq!(ran.outcome(), AgentOutcome::HookFailed);
    assert_eq!(
        ran.state().hook_error.as_ref().unwrap().to_string(),
        "the hook `post_acting` failed: it panicked: no"
    );
    assert_eq!((ran.result("c0"), ran.result("c1")), ("sent", "Error: a hook failed, not executed."));
}

#[test]
fn calls_beside_a_failing_hook_retain_their_results() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks
            .acting
            .post(|acting: Acting, _| ready(if acting.call_id() == "c1" { Err(failed()) } else { Ok(None) }));
        hooks
    };
    let script = [calls([("c0", "slow", r#"{"x":"a"}"#), ("c1", "slow", r#"{"x":"c"}"#)])];
    let scenario = Scenario { hooks, ..Scenario::new(script) }.tools(&["slow"]);
    let ran =
        scenario.config(|config| ReactConfig { tool_mode: ToolMode::Parallel { max: 2 }, ..config }).play();
    explained(&ran, "post_acting");
    assert_eq!((ran.result("c0"), ran.result("c1")), ("r:a", "r:c"));
}

#[test]
fn a_hook_that_hangs_does_not_hold_a_cancelled_turn() {
    for hang in [
        (|_: &Kit| {
            let mut hooks = Hooks::default();
            hooks.reasoning.pre(|_| std::future::pending());
            hooks
        }) as fn(&Kit) -> Hooks,
        |_| {
            let mut hooks = Hooks::default();
            hooks.acting.pre(|_| std::future::pending());
            hooks
        },
        |_| {
            let mut hooks = Hooks::default();
            hooks.acting.post(|_, _| std::future::pending());
            hooks
        },
        |_| {
            let mut hooks = Hooks::default();
            hooks.reasoning.post(|_, _| std::future::pending());
            hooks
        },
    ] {
        let scenario = Scenario {
            hooks: hang,
            cancel: Cancel::At(50),
            exact: false,
            ..Scenario::new([call("c1", "echo", r#"{"x":"1"}"#)])
        };
        let ran = scenario.config(|config| ReactConfig { keep_interrupted: true, ..config }).play_here();
        assert_eq!((ran.outcome(), ran.turn().ended), (AgentOutcome::Cancelled, 50));
        assert!(!format!("{:?}", ran.state()).contains("r:1"), "{}", ran.messages());
    }
}

#[test]
fn a_response_whose_hooks_were_cancelled_is_not_stored() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.reasoning.post(|_, _| std::future::pending());
        hooks
    };
    let scenario = Scenario { hooks, cancel: Cancel::At(50), exact: false, ..Scenario::new([txt("secret")]) };
    let ran = scenario.config(|config| ReactConfig { keep_interrupted: true, ..config }).play_here();
    assert_eq!((ran.messages().as_str(), ran.outcome()), (r#"u:"go""#, AgentOutcome::Cancelled));
    assert!(!ran.reply().contains("secret"), "{}", ran.reply());
    assert_eq!(ran.events(), "a▸ tok(secret) +attempt_discarded{1} ◂a");
}

#[test]
fn a_result_whose_hooks_were_cancelled_is_answered_as_interrupted() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.acting.post(|_, _| std::future::pending());
        hooks
    };
    // `tell` would reply to the user.
    for tool in ["echo", "tell"] {
        let new = Scenario::new([call("c1", tool, r#"{"x":"hunter2"}"#)]).tools(&["echo", "tell"]);
        let ran = Scenario { hooks, cancel: Cancel::At(50), exact: false, ..new }.play_here();
        let interrupted = "The tool call has been interrupted by the user.";
        assert_eq!(
            (ran.result("c1"), ran.outcome(), ran.kit.n(tool)),
            (interrupted, AgentOutcome::Cancelled, 1)
        );
        let end = format!(r#"tool_end{{{tool},c1,"{interrupted}"}}"#);
        assert!(ran.events().contains(&end), "{}", ran.events());
    }
}

#[test]
fn text_that_broke_off_is_stored_only_without_hooks_on_responses() {
    let cut =
        || Answer::stream().text(["secret".repeat(9).as_str()]).delay(100).text(["ret"]).end("stop").done();
    let text = format!(r#"u:"go", a:"{}""#, "secret".repeat(9));
    let mut spent = Vec::new();
    for (hooks, messages) in [
        ((|_: &Kit| Hooks::default()) as fn(&Kit) -> Hooks, text.as_str()),
        (|kit| noting(kit, ""), r#"u:"go""#),
    ] {
        let scenario = Scenario { hooks, cancel: Cancel::At(50), exact: false, ..Scenario::new([cut()]) };
        let ran = scenario.config(|config| ReactConfig { keep_interrupted: true, ..config }).play_here();
        assert_eq!((ran.messages().as_str(), ran.outcome()), (messages, AgentOutcome::Cancelled));
        spent.push(ran.state().usage);
    }
    // Its tokens were spent.
    assert!(spent[0] == spent[1] && spent[0].output_tokens > 10, "{spent:?}");
}

/// A tool whose calls run one after the other.
struct Queued(ToolSpec, Arc<Semaphore>);

impl Tool for Queued {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn sequence(&self) -> Option<Sequence<'_>> {
        Some(Sequence { name: "queue", overlaps: false })
    }

    fn call(&self, _: Value, _: ToolCx) -> ToolFuture<'_> {
        Box::pin(async {
            let _alone = self.1.try_acquire().map_err(|_| ToolError::failed("not alone"))?;
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok("alone".into())
        })
    }
}

#[test]
fn calls_that_a_hook_redirects_retain_the_order_of_the_new_tool() {
    paused(async {
        let hooks = |_: &Kit| {
            let mut hooks = Hooks::default();
            hooks.acting.pre(|mut acting: Acting| {
                (acting.tool, acting.args) = ("queued".to_owned(), json!({}));
                ready(Ok(Some(acting)))
            });
            hooks
        };
        let mut scenario = Scenario { hooks, ..Scenario::new([]) };
        scenario.config.tool_mode = ToolMode::Parallel { max: 4 };
        let two = calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "echo", r#"{"x":"2"}"#)]);
        let model = ScriptedModel::new(Script::new([two, txt("ok")]));
        let parameters = json!({"type": "object"});
        let spec = ToolSpec { name: "queued".into(), description: String::new(), parameters };
        let queued: Arc<dyn Tool> = Arc::new(Queued(spec, Arc::new(Semaphore::new(1))));
        let agent = scenario.agent(Arc::new(model), &Kit::default()).tools([queued]).build().unwrap();
        let state = agent.without_thread().run(agent.input("go")).await.unwrap().state;
        assert_eq!(state.tool_result_history.iter().collect::<Vec<_>>(), ["alone", "alone"]);
    });
}

#[test]
fn the_next_turn_after_a_failed_hook_is_a_turn_like_any_other() {
    let hooks = |kit: &Kit| {
        let (mut hooks, kit) = (Hooks::default(), kit.clone());
        hooks.acting.pre(move |_| {
            kit.note("asked");
            ready(if kit.notes().len() == 1 { Err(failed()) } else { Ok(None) })
        });
        hooks
    };
    let echo = |id| call(id, "echo", r#"{"x":"1"}"#);
    let ran = Scenario { hooks, ..Scenario::new([echo("c1"), echo("c2"), txt("ok")]) }
        .turns(&["go", "again"])
        .play();
    assert_eq!(ran.turns[0].state.outcome, Some(AgentOutcome::HookFailed));
    assert_eq!(
        (ran.reply(), ran.outcome(), ran.state().hook_error.as_ref()),
        ("ok", AgentOutcome::Completed, None)
    );
}

#[test]
fn a_turn_whose_hook_failed_is_resumed_from_its_last_model_call() {
    let hooks = |kit: &Kit| {
        let (mut hooks, kit) = (Hooks::default(), kit.clone());
        hooks.reasoning.pre(move |_| {
            kit.note("asked");
            ready(if kit.notes().len() == 1 { Err(failed()) } else { Ok(None) })
        });
        hooks
    };
    paused(async {
        let scenario = Scenario { hooks, ..Scenario::new([]) };
        let (kit, model) = (Kit::default(), ScriptedModel::new(Script::new([txt("ok")])));
        let agent = scenario.agent(Arc::new(model), &kit).checkpointer(Arc::new(MemoryCheckpointer::new()));
        let agent = agent.build().unwrap();
        let reply = agent.thread("t").ask("go").await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::HookFailed);
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((reply.text.as_str(), reply.outcome), ("ok", AgentOutcome::Completed));
    });
}

/// Creates a hook that redirects messages to `b`, and records its observations.
fn redirecting(kit: &Kit) -> Hooks {
    let mut hooks = Hooks::default();
    let (pre, post) = (kit.clone(), kit.clone());
    hooks.acting.pre(move |mut acting: Acting| {
        pre.note(format!("pre {}", acting.call_id()));
        if acting.tool == "send" {
            acting.args = json!({"to": "b"});
        }
        ready(Ok(Some(acting)))
    });
    hooks.acting.post(move |acting: Acting, _| {
        post.note(format!("post {} {}", acting.call_id(), acting.args));
        ready(Ok(None))
    });
    hooks
}

#[test]
fn a_call_is_approved_after_its_hooks_which_run_once() {
    paused(async {
        let (kit, store) = (Kit::default(), Arc::new(MemoryCheckpointer::new()));
        let scenario = Scenario { hooks: redirecting, ..Scenario::new([]) }.tools(&["send", "echo"]);
        let program = |answers: Vec<Answer>| {
            let model = ScriptedModel::new(Script::new(answers));
            scenario
                .agent(Arc::new(model), &kit)
                .checkpointer(store.clone())
                .approve_by_interrupt()
                .build()
                .unwrap()
        };
        let two = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "echo", r#"{"x":"1"}"#)]);
        let asked = program(vec![two]).thread("t").ask("go").await.unwrap();
        let question = &asked.interrupts[0].question;
        assert_eq!((&question["args"], &question["question"]), (&json!({"to": "b"}), &json!("Send to b?")));
        // Another process, after the answer.
        let agent = program(vec![txt("ok")]);
        let answers = Answers::new().answer("c1", Approval::Approve);
        let reply = agent.thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((reply.text.as_str(), kit.n("send")), ("ok", 1));
        assert_eq!(kit.notes(), ["pre c1", "pre c2", r#"post c1 {"to":"b"}"#, r#"post c2 {"x":"1"}"#]);
        let state = agent.graph().thread("t").state().await.unwrap().values;
        let said = show::messages(state.messages.iter());
        assert!(said.contains(r#"c1 send{"to":"a"}"#), "the model's words stay: {said}");
    });
}

#[test]
fn the_text_of_a_hook_that_repeats_what_came_before_is_discarded() {
    let loud = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.reasoning.post(|_, answer: Message| {
            let content = format!("{}!", answer.content);
            ready(Ok(Some(answer.with(|answer| answer.content = content))))
        });
        hooks
    };
    let cut = || Answer::stream().end("length").done();
    let mut scenario = Scenario { hooks: loud, ..Scenario::new([cut(), cut()]) };
    scenario.config.length = LengthPolicy::Continue { max: 3, prompt: "continue".into() };
    let ran = scenario.play();
    // Of the model nothing was streamed; what the hooks wrote is discarded all the same.
    assert_eq!((ran.messages().as_str(), ran.outcome()), (r#"u:"go", a:"!""#, AgentOutcome::Length));
}
