//! Guards of the input, the answer and the tool calls.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt, stream};
use serde_json::json;
use superstep::{
    Checkpointer, Event, MemoryCheckpointer, State, StateGraph, StreamMode,
    agent::{
        Agent, AgentBuilder, AgentError, AgentEvent, AgentOutcome, AgentState, ReactConfig,
        config::{Finish, LengthPolicy, OutputMode},
        deps::{AgentDeps, MemoryTrigger},
        graph::ReactNodes,
        guards::{Guard, GuardAt, Guards, OnSecret, Verdict, View},
        hooks::Hooks,
    },
    llm::{ChatModel, Delta, FinishReason, Message, Request, ResponseStream, Role, ToolRegistry},
};
use superstep_testing::{
    script::{Answer, Script, http},
    scripted::ScriptedModel,
};

use super::{
    check,
    crash::STOPS,
    kit::{Kit, Memory, Store},
    paused, preset,
    scripted_by_request::{Say, Says, says},
    usual_edges,
    writes::watched,
};
use crate::support::head;

/// A guard that counts its runs and decides by the text.
fn counting(name: &str, at: GuardAt, runs: &Arc<AtomicUsize>, decide: fn(&str) -> Verdict) -> Guard {
    let runs = runs.clone();
    Guard::new(name, at, move |view: View| {
        runs.fetch_add(1, Ordering::SeqCst);
        ready(Ok(decide(&view.text)))
    })
}

fn block(reply: &str) -> Verdict {
    Verdict::Block { reply: reply.to_owned() }
}

/// Calls a tool, then answers.
fn answers(request: &Request) -> Say {
    match request.messages.last().unwrap().role {
        Role::Tool => Say::Text("the code is 1234"),
        _ => Say::Calls(&[("echo", r#"{"x":"1"}"#)]),
    }
}

fn agent(model: &Says, kit: &Kit) -> AgentBuilder {
    Agent::builder(model.clone()).tools(kit.tools(&["echo"])).config(preset())
}

/// Runs a turn and returns its texts and pieces of messages in the stream, and its last state.
async fn streamed(agent: &Agent, text: &str) -> (String, String, AgentState) {
    let modes = [StreamMode::Custom, StreamMode::Messages];
    let mut stream = agent.thread("t").stream(agent.input(text), modes);
    let (mut texts, mut messages) = (String::new(), String::new());
    while let Some(event) = stream.next().await {
        match (&event, AgentEvent::of(&event)) {
            (_, Some(AgentEvent::LlmToken { token, .. })) => texts.push_str(&token),
            (_, Some(AgentEvent::AttemptDiscarded { .. })) => texts.push('✗'),
            (Event::Message { data, .. }, _) => messages.push_str(&format!("{data:?}")),
            _ => {}
        }
    }
    (texts, messages, stream.outcome().await.unwrap().state)
}

fn stored(builder: AgentBuilder) -> (Agent, Arc<MemoryCheckpointer>) {
    let store = Arc::new(MemoryCheckpointer::new());
    (builder.checkpointer(store.clone()).build().unwrap(), store)
}

#[test]
fn a_blocked_input_runs_no_tool_and_leaves_later_requests() {
    paused(async {
        let (kit, runs) = (Kit::default(), Arc::new(AtomicUsize::new(0)));
        let model = says("m", answers);
        let guard = counting("policy", GuardAt::Input, &runs, |text| {
            if text.contains("bomb") { block("I do not talk about that.") } else { Verdict::Pass }
        });
        let (agent, _) = stored(agent(&model, &kit).guard(guard));
        let reply = agent.thread("t").ask("build a bomb").await.unwrap();
        assert_eq!(
            (reply.outcome, reply.text.as_str()),
            (AgentOutcome::Guarded, "I do not talk about that.")
        );
        assert_eq!(reply.metadata.stop_reason.as_str(), "guardrail:policy");
        assert_eq!((kit.ran().len(), model.requests().len()), (0, 1), "it ran beside the first call");
        assert_eq!(reply.usage.input_tokens, 40, "the call is paid");
        let next = agent.thread("t").ask("hi").await.unwrap();
        assert_eq!((next.outcome, next.text.as_str()), (AgentOutcome::Completed, "the code is 1234"));
        let sent = format!("{:?}", model.requests()[1].messages);
        assert!(!sent.contains("bomb"), "{sent}");
        assert!(sent.contains("The guardrail `policy` blocked this message."), "{sent}");
        assert_eq!(runs.load(Ordering::SeqCst), 2, "one run for each message");
        check::calls_are_answered(head(agent.graph()).await.values.messages.iter());
        check::replays(agent.graph(), &kit).await;
        assert_eq!(runs.load(Ordering::SeqCst), 2, "a replay does not run a guard");
    });
}

#[test]
fn no_token_of_a_blocked_answer_is_streamed_with_hold() {
    paused(async {
        for hold in [true, false] {
            let (kit, model) = (Kit::default(), says("m", answers));
            let guard = Guard::new("codes", GuardAt::Output, |view: View| {
                ready(Ok(if view.text.contains("1234") { block("No codes.") } else { Verdict::Pass }))
            });
            let guard = if hold { guard.hold() } else { guard };
            let (agent, _) = stored(agent(&model, &kit).guard(guard));
            let (texts, messages, state) = streamed(&agent, "go").await;
            assert_eq!(texts.contains("1234"), !hold, "{texts}");
            assert_eq!(messages.contains("1234"), !hold, "{messages}");
            assert_eq!(texts.ends_with('✗'), !hold, "what was streamed is void: {texts}");
            assert_eq!(
                (state.outcome, state.final_reply.as_str()),
                (Some(AgentOutcome::Guarded), "No codes.")
            );
            let said: Vec<_> = state.messages.iter().map(|message| message.content.as_str()).collect();
            assert_eq!(said, ["go", "", "r:1", "No codes."]);
            assert_eq!(state.guarding.draft, None);
        }
    });
}

#[test]
fn a_held_answer_is_streamed_once_it_is_accepted() {
    paused(async {
        let (kit, model) = (Kit::default(), says("m", answers));
        let guard = Guard::new("any", GuardAt::Output, |_| ready(Ok(Verdict::Pass))).hold();
        let (agent, _) = stored(agent(&model, &kit).guard(guard));
        let (texts, messages, state) = streamed(&agent, "go").await;
        assert_eq!((texts.as_str(), state.outcome), ("the code is 1234", Some(AgentOutcome::Completed)));
        assert_eq!(messages.matches("the code is 1234").count(), 1, "{messages}");
    });
}

#[test]
fn guards_decide_in_their_order_and_a_new_text_is_checked_again() {
    paused(async {
        let (kit, model) = (Kit::default(), says("m", answers));
        let runs = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let first = counting("first", GuardAt::Output, &runs[0], |_| Verdict::Pass);
        let redacts = counting("redacts", GuardAt::Output, &runs[1], |text| {
            Verdict::Rewrite(text.replace("1234", "****"))
        });
        let last = counting("last", GuardAt::Output, &runs[2], |text| {
            if text.contains("1234") { block("seen") } else { Verdict::Pass }
        });
        let (agent, _) = stored(agent(&model, &kit).guard(first).guard(redacts).guard(last));
        let (texts, _, state) = streamed(&agent, "go").await;
        assert_eq!(state.final_reply, "the code is ****");
        assert_eq!(texts, "the code is 1234✗the code is ****");
        assert_eq!(runs.map(|runs| runs.load(Ordering::SeqCst)), [1, 1, 2]);
        check::replays(agent.graph(), &kit).await;
    });
}

#[test]
fn a_rewritten_input_is_what_the_model_answers() {
    paused(async {
        let (kit, model) = (Kit::default(), says("m", |_| Say::Text("ok")));
        let guard = Guard::secrets(GuardAt::Input, OnSecret::Redact, ["hunter2hunter2"]);
        let (agent, _) = stored(agent(&model, &kit).guard(guard));
        let reply = agent.thread("t").ask("my password is hunter2hunter2").await.unwrap();
        assert_eq!((reply.text.as_str(), reply.metadata.llm_calls), ("ok", 1));
        let last = model.requests().pop().unwrap();
        assert_eq!(last.messages.last().unwrap().content, "my password is [secret]");
        let state = head(agent.graph()).await.values;
        assert_eq!(state.messages[0].content, "my password is [secret]");
        assert_eq!(state.messages.len(), 2);
    });
}

/// A model whose provider wants its thoughts back.
struct Thinks;

impl ChatModel for Thinks {
    fn name(&self) -> &str {
        "thinks"
    }

    fn stream(&self, _: Request) -> ResponseStream<'_> {
        let (wire, server, model) = ("chat".to_owned(), "http://127.0.0.1".to_owned(), "thinks".to_owned());
        let thought = json!({ "opaque": "{\"thinking\":\"the code is 1234\"}" });
        let deltas = [
            Delta::Origin { wire, server, model, prefix: String::new() },
            Delta::Item { index: 0, item: serde_json::from_value(thought).unwrap() },
            Delta::Text("the code is 1234".to_owned()),
            Delta::Finish(FinishReason::Stop),
        ];
        stream::iter(deltas).map(Ok).boxed()
    }
}

#[test]
fn a_rewritten_answer_has_nothing_of_the_provider_for_its_old_text() {
    paused(async {
        for rewrites in [false, true] {
            let guard = Guard::new("codes", GuardAt::Output, move |_| {
                let text = "the code is secret".to_owned();
                ready(Ok(if rewrites { Verdict::Rewrite(text) } else { Verdict::Pass }))
            });
            let (agent, _) = stored(Agent::builder(Thinks).config(preset()).guard(guard));
            agent.thread("t").ask("go").await.unwrap();
            let answer = head(agent.graph()).await.values.messages.last().unwrap().clone();
            assert_eq!((answer.content.ends_with("secret"), answer.origin.is_none()), (rewrites, rewrites));
        }
    });
}

#[test]
fn a_guard_that_fails_blocks() {
    paused(async {
        let fails: [fn() -> Guard; 3] = [
            || Guard::new("g", GuardAt::Input, |_| ready(Err("no service".into()))),
            || Guard::new("g", GuardAt::Input, |_| async { panic!("oh") }),
            || {
                let never = Guard::new("g", GuardAt::Input, |_| std::future::pending());
                never.timeout(std::time::Duration::from_secs(1))
            },
        ];
        for (fails, why) in
            fails.into_iter().zip(["no service", "it panicked: oh", "no verdict within 1000 ms"])
        {
            let (agent, _) = stored(agent(&says("m", |_| Say::Text("ok")), &Kit::default()).guard(fails()));
            let reply = agent.thread("t").ask("go").await.unwrap();
            let expected = format!("No answer: a guardrail blocked the turn (guardrail:g): {why}");
            assert_eq!((reply.outcome, reply.text), (AgentOutcome::Guarded, expected));
        }
    });
}

#[test]
fn a_guard_of_tool_calls_denies_them_and_the_model_reads_why() {
    paused(async {
        let (kit, model) = (Kit::default(), says("m", answers));
        let guard = Guard::new("ones", GuardAt::Tool, |view: View| {
            assert_eq!(view.tool.as_deref(), Some("echo"));
            ready(Ok(if view.text.contains('1') { block("no ones") } else { Verdict::Pass }))
        });
        let (agent, _) = stored(agent(&model, &kit).guard(guard));
        let mut stream = agent.thread("t").stream(agent.input("go"), [StreamMode::Custom]);
        let mut blocked = Vec::new();
        while let Some(event) = stream.next().await {
            if let Some(AgentEvent::Guardrail { guard, at, action, reason }) = AgentEvent::of(&event) {
                blocked.push((guard, at, action, reason));
            }
        }
        let state = stream.outcome().await.unwrap().state;
        assert_eq!((state.outcome, kit.ran().len()), (Some(AgentOutcome::Completed), 0));
        assert_eq!(blocked, [("ones".into(), GuardAt::Tool, "block".into(), String::new())]);
        let result = model.requests()[1].messages.last().unwrap().content.clone();
        assert!(result.contains("no ones"), "{result}");
        assert!(agent.graph().topology().find("verdict").is_none(), "it is no node");
    });
}

#[test]
fn a_structured_reply_is_checked_and_rewritten_as_a_value() {
    paused(async {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let finish = |output| Finish { schema: Some(schema.clone()), output, ..preset().finish };
        let by_text = says("m", |_| Say::Text(r#"{"n": 1}"#));
        let by_tool = says("m", |_| Say::Calls(&[("finish", r#"{"n": 1}"#)]));
        for (model, output) in [(by_text, OutputMode::Prompted), (by_tool, OutputMode::Tool)] {
            let finish = Finish { tool: "finish".into(), ..finish(output) };
            let config = ReactConfig { finish, ..preset() };
            let rewrite = |to: &'static str| {
                Guard::new("adds", GuardAt::Output, move |view: View| {
                    ready(Ok(match view.text.contains('1') {
                        true => Verdict::Rewrite(to.to_owned()),
                        false => Verdict::Pass,
                    }))
                })
            };
            for (to, n) in [(r#"{"n": 2}"#, Some(2)), (r#"{"n": "two"}"#, None)] {
                let builder = agent(&model, &Kit::default()).config(config.clone()).guard(rewrite(to));
                let (agent, _) = stored(builder);
                let reply = agent.thread("t").ask("go").await.unwrap();
                assert_eq!(reply.output, n.map(|n| json!({ "n": n })), "{output:?} {}", reply.text);
                let outcome = if n.is_some() { AgentOutcome::Completed } else { AgentOutcome::Guarded };
                assert_eq!(reply.outcome, outcome);
            }
        }
    });
}

#[test]
fn a_message_during_the_turn_is_checked_before_the_next_tool() {
    paused(async {
        let (kit, runs) = (Kit::default(), Arc::new(AtomicUsize::new(0)));
        let model = says("m", answers);
        let guard = counting("policy", GuardAt::Input, &runs, |text| {
            if text.contains("bomb") { block("no") } else { Verdict::Pass }
        });
        let (agent, _) = stored(agent(&model, &kit).guard(guard));
        let thread = agent.thread("t");
        let stopped = thread.break_before(["tools"]).run(agent.input("go")).await.unwrap();
        assert_eq!(stopped.state.messages.len(), 2);
        thread.steer("build a bomb").await.unwrap();
        let reply = thread.resume().await.unwrap();
        assert_eq!((reply.outcome, reply.text.as_str()), (AgentOutcome::Guarded, "no"));
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    });
}

/// An agent with guards of each kind, which count their runs.
fn guarded(store: Arc<dyn Checkpointer>, runs: &Arc<AtomicUsize>, reply: &'static str) -> (Agent, Kit) {
    let kit = Kit::default();
    let input = counting("input", GuardAt::Input, runs, |_| Verdict::Pass);
    let runs = runs.clone();
    let output = Guard::new("output", GuardAt::Output, move |view: View| {
        runs.fetch_add(1, Ordering::SeqCst);
        ready(Ok(match view.text.contains("1234") && !reply.is_empty() {
            true => block(reply),
            false => Verdict::Pass,
        }))
    });
    let model = says("m", answers);
    let agent = agent(&model, &kit).guard(input).guard(output.hold()).checkpointer(store).build();
    (agent.unwrap(), kit)
}

#[test]
fn a_turn_with_guards_ends_alike_after_a_stop_at_each_write() {
    for reply in ["", "No codes."] {
        for at in STOPS {
            let mut stops = 0;
            for n in 1.. {
                let stopped = paused(async {
                    let (store, runs) = (Arc::new(MemoryCheckpointer::new()), Arc::new(AtomicUsize::new(0)));
                    let (watching, now) = watched(store.clone(), at, n);
                    let (agent, _) = guarded(watching, &runs, reply);
                    let stopped = tokio::select! {
                        ended = agent.thread("t").ask("go") => { ended.unwrap(); false }
                        () = now.notified() => true,
                    };
                    drop(agent);
                    let (agent, kit) = guarded(store.clone(), &runs, reply);
                    let is_stored = store.load(&"t".into(), None).await.unwrap().is_some();
                    let made = if is_stored { head(agent.graph()).await.values.verdicts.len() } else { 0 };
                    runs.store(0, Ordering::SeqCst);
                    let ended = match is_stored {
                        true => agent.thread("t").resume().await.unwrap(),
                        false => agent.thread("t").ask("go").await.unwrap(),
                    };
                    let state = head(agent.graph()).await.values;
                    check::calls_are_answered(state.messages.iter());
                    let outcome =
                        if reply.is_empty() { AgentOutcome::Completed } else { AgentOutcome::Guarded };
                    assert_eq!(ended.outcome, outcome, "{at:?} {n}");
                    assert_eq!(state.verdicts.len(), 2, "{at:?} {n}");
                    let again = runs.load(Ordering::SeqCst);
                    assert!(
                        again <= 2 - made,
                        "{at:?} {n}: {again} runs, although {made} verdicts were stored"
                    );
                    runs.store(0, Ordering::SeqCst);
                    check::replays(agent.graph(), &kit).await;
                    assert_eq!(runs.load(Ordering::SeqCst), 0, "a replay runs no guard");
                    stopped
                });
                if !stopped {
                    break;
                }
                stops += 1;
            }
            assert!(stops > 6, "{at:?}: {stops}");
        }
    }
}

#[test]
fn a_fork_before_the_verdict_decides_by_the_stored_verdicts() {
    paused(async {
        let (store, runs) = (Arc::new(MemoryCheckpointer::new()), Arc::new(AtomicUsize::new(0)));
        let (agent, _) = guarded(store, &runs, "No codes.");
        let first = agent.thread("t").ask("go").await.unwrap();
        let history = agent.thread("t").history().checkpoints().await.unwrap();
        let before = |node: &str| {
            history.iter().find(|meta| meta.control.next.iter().any(|next| next == node)).unwrap().id
        };
        runs.store(0, Ordering::SeqCst);
        let forked = agent.thread("t").at(before("verdict")).resume().await.unwrap();
        assert_eq!((forked.outcome, forked.text), (first.outcome, first.text));
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn an_answer_of_a_fallback_is_guarded_and_a_failed_first_call_can_be_resumed() {
    paused(async {
        let (kit, fails) = (Kit::default(), says("m", |_| Say::Fails));
        let pass = || Guard::new("in", GuardAt::Input, |_| ready(Ok(Verdict::Pass)));
        let codes = Guard::new("out", GuardAt::Output, |_| ready(Ok(block("No codes.")))).hold();
        let builder = agent(&fails, &kit).fallback(says("f", answers)).guard(pass()).guard(codes);
        let (guarded, _) = stored(builder);
        let (texts, _, state) = streamed(&guarded, "go").await;
        assert_eq!((texts.as_str(), state.final_reply.as_str()), ("", "No codes."));
        assert_eq!(state.model, "f");

        let store = Arc::new(MemoryCheckpointer::new());
        let first = agent(&says("m", |_| Say::Text("hello")), &kit).guard(pass());
        first.checkpointer(store.clone()).build().unwrap().thread("t").ask("hi").await.unwrap();
        let down = agent(&fails, &kit).guard(pass()).checkpointer(store.clone()).build().unwrap();
        assert_eq!(down.thread("t").ask("go").await.unwrap().outcome, AgentOutcome::LlmError);
        let up = agent(&says("m", answers), &kit).guard(pass()).checkpointer(store).build().unwrap();
        let reply = up.thread("t").resume().await.unwrap();
        assert_eq!((reply.outcome, reply.text.as_str()), (AgentOutcome::Completed, "the code is 1234"));
        let said = head(up.graph()).await.values.messages;
        let users = said.iter().filter(|message| message.role == Role::User);
        assert_eq!(users.map(|message| message.content.as_str()).collect::<Vec<_>>(), ["hi", "go"]);
    });
}

#[test]
fn a_cancelled_turn_does_not_wait_for_its_guards() {
    paused(async {
        let never = Guard::new("never", GuardAt::Output, |_| std::future::pending()).hold();
        let (agent, _) = stored(agent(&says("m", |_| Say::Text("ok")), &Kit::default()).guard(never));
        let token = tokio_util::sync::CancellationToken::new();
        let thread = agent.thread("t").cancel(token.clone());
        let (reply, ()) = tokio::join!(thread.ask("go"), async {
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            token.cancel();
        });
        let reply = reply.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::Cancelled);
        assert_eq!(head(agent.graph()).await.values.messages.len(), 1, "the answer was not accepted");
    });
}

/// A guard of the input that blocks messages with this word.
fn no_bombs(text: &str) -> Verdict {
    if text.contains("bomb") { block("no") } else { Verdict::Pass }
}

fn contents(state: &AgentState) -> Vec<&str> {
    state.messages.iter().map(|message| message.content.as_str()).collect()
}

#[test]
fn a_guard_of_the_input_without_a_text_repeats_no_node() {
    paused(async {
        let (kit, runs) = (Kit::default(), Arc::new(AtomicUsize::new(0)));
        let model = says("m", answers);
        let guard = counting("policy", GuardAt::Input, &runs, no_bombs);
        let (agent, store) = stored(agent(&model, &kit).guard(guard));
        let message = Message::synthetic("go");
        let reply = agent.thread("t").run(AgentState::update().messages([message])).await.unwrap();
        assert_eq!(reply.state.final_reply, "the code is 1234");
        assert_eq!((runs.load(Ordering::SeqCst), kit.n("echo"), model.requests().len()), (0, 1, 2));
        let ran = store.load(&"t".into(), None).await.unwrap().unwrap().meta.control.step;
        assert_eq!(ran, 6, "init_state, memory_trigger, agent, tools, agent, finalize");
        check::calls_are_answered(head(agent.graph()).await.values.messages.iter());
    });
}

#[test]
fn a_text_that_hooks_change_is_held_back_as_well() {
    paused(async {
        let (kit, model) = (Kit::default(), says("m", answers));
        let mut hooks = Hooks::default();
        hooks.reasoning.post(|_, answer: Message| {
            let content = format!("{}!", answer.content);
            ready(Ok(Some(answer.with(|answer| answer.content = content))))
        });
        let guard = Guard::new("codes", GuardAt::Output, |_| ready(Ok(block("No codes.")))).hold();
        let (agent, _) = stored(agent(&model, &kit).hooks(hooks).guard(guard));
        let (texts, messages, state) = streamed(&agent, "go").await;
        assert_eq!(state.final_reply, "No codes.");
        assert!(!texts.contains("1234") && !texts.contains('✗'), "{texts}");
        assert!(!messages.contains("1234"), "{messages}");
    });
}

#[test]
fn the_beginning_of_an_answer_without_an_end_is_no_reply() {
    paused(async {
        for hold in [true, false] {
            let begun = Answer::stream().text(["the code ", "is 1234"]).end("length").usage(5, 2).done();
            let model = ScriptedModel::new(Script::new([begun, http(401, &[], "no key")]));
            let guard = Guard::new("any", GuardAt::Output, |_| ready(Ok(Verdict::Pass)));
            let guard = if hold { guard.hold() } else { guard };
            let length = LengthPolicy::Continue { max: 3, prompt: "continue".into() };
            let config = ReactConfig { length, parts: true, ..preset() };
            let (agent, _) = stored(Agent::builder(model).config(config).guard(guard));
            let (texts, _, state) = streamed(&agent, "go").await;
            assert_eq!(state.outcome, Some(AgentOutcome::LlmError));
            assert!(!state.final_reply.contains("1234"), "{}", state.final_reply);
            assert_eq!((contents(&state), state.parts.len()), (vec!["go"], 0));
            assert!(if hold { texts.is_empty() } else { texts.ends_with('✗') }, "{texts}");
            check::replays(agent.graph(), &Kit::default()).await;
        }
    });
}

#[test]
fn a_text_beside_tool_calls_is_no_reply_of_a_turn_that_fails() {
    paused(async {
        let says = Answer::stream().text(["the code is 1234"]).call(0, "c1", "echo", [r#"{"x":"1"}"#]);
        let script = [says.end("tool_calls").usage(5, 2).done(), http(401, &[], "no key")];
        let guard = Guard::new("any", GuardAt::Output, |_| ready(Ok(Verdict::Pass)));
        let builder = Agent::builder(ScriptedModel::new(Script::new(script))).config(preset());
        let (agent, _) = stored(builder.tools(Kit::default().tools(&["echo"])).guard(guard));
        let reply = agent.thread("t").ask("go").await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::LlmError);
        assert!(!reply.text.contains("1234"), "{}", reply.text);
    });
}

#[test]
fn a_blocked_turn_leaves_no_message_that_has_not_passed() {
    paused(async {
        let (kit, runs) = (Kit::default(), Arc::new(AtomicUsize::new(0)));
        let model = says("m", |_| Say::Text("ok"));
        let hides = Guard::secrets(GuardAt::Input, OnSecret::Redact, ["hunter2hunter2"]);
        let guard = counting("policy", GuardAt::Input, &runs, no_bombs);
        let (agent, _) = stored(agent(&model, &kit).guard(hides).guard(guard));
        let said = ["bomb 1", "hunter2hunter2 here", "fine", "bomb 2"].map(Message::user);
        let ended = agent.thread("t").run(AgentState::update().messages(said)).await.unwrap();
        assert_eq!(ended.state.outcome, Some(AgentOutcome::Guarded));
        let left = contents(&ended.state).join("|");
        assert!(!left.contains("bomb") && !left.contains("hunter2"), "{left}");
        assert!(left.contains("fine"), "{left}");
        agent.thread("t").ask("hi").await.unwrap();
        let sent = format!("{:?}", model.requests().pop().unwrap().messages);
        assert!(!sent.contains("bomb") && !sent.contains("hunter2"), "{sent}");
    });
}

#[test]
fn a_message_is_remembered_once_it_has_passed() {
    paused(async {
        for (text, n) in [("remember that I like bombs", 0), ("remember that I like tea", 1)] {
            let kit = Kit::default();
            let memory = Store { kit: kit.clone(), how: Memory::Works, knows: Vec::new() };
            let guard = Guard::new("policy", GuardAt::Input, async |view: View| {
                tokio::time::sleep(std::time::Duration::from_secs(5)).await;
                Ok(no_bombs(&view.text))
            });
            let model = says("m", |_| Say::Text("ok"));
            let (agent, _) = stored(agent(&model, &kit).memory(MemoryTrigger::new(memory)).guard(guard));
            agent.thread("t").ask(text).await.unwrap();
            assert_eq!(kit.remembered().len(), n, "{text}");
            check::replays(agent.graph(), &kit).await;
        }
    });
}

#[test]
fn a_message_before_an_answer_of_the_input_or_of_a_cancelled_turn_is_checked() {
    paused(async {
        let kit = Kit::default();
        let guard = || Guard::new("policy", GuardAt::Input, |view: View| ready(Ok(no_bombs(&view.text))));
        let model = says("m", |_| Say::Text("ok"));
        let input = || AgentState::update().messages([Message::user("a bomb"), Message::assistant("Sure:")]);
        let (first, _) = stored(agent(&model, &kit).guard(guard()));
        for later in [false, true] {
            if later {
                assert_eq!(first.thread("t").ask("hi").await.unwrap().text, "ok");
            }
            let ended = first.thread("t").run(input()).await.unwrap();
            assert_eq!(ended.state.outcome, Some(AgentOutcome::Guarded), "{later}");
        }

        let token = tokio_util::sync::CancellationToken::new();
        token.cancel();
        let never = Guard::new("policy", GuardAt::Input, |_| std::future::pending());
        let config = ReactConfig { halt: Some("Stopped.".into()), ..preset() };
        let store = Arc::new(MemoryCheckpointer::new());
        let builder =
            |guard| agent(&model, &kit).config(config.clone()).guard(guard).checkpointer(store.clone());
        let halts = builder(never).build().unwrap();
        assert_eq!(halts.thread("t").cancel(token).ask("a bomb").await.unwrap().text, "Stopped.");
        let next = builder(guard()).build().unwrap();
        assert_eq!(next.thread("t").ask("hi").await.unwrap().outcome, AgentOutcome::Guarded);
        assert_eq!(next.thread("t").ask("hi").await.unwrap().text, "ok", "it is blocked once");
    });
}

#[test]
fn a_graph_of_ones_own_without_the_nodes_of_guards_has_its_reply() {
    paused(async {
        let blocks = |at| Guard::new("g", at, |_| ready(Ok(block("no"))));
        let guards = Guards::new(vec![blocks(GuardAt::Output).hold()]);
        let model: Arc<dyn ChatModel> = Arc::new(says("m", |_| Say::Text("hello")));
        let deps = AgentDeps { guards, ..AgentDeps::new(model, ToolRegistry::new(), preset()) };
        let mut graph = StateGraph::<AgentState>::new("own");
        let nodes = ReactNodes::add(&mut graph, &deps);
        usual_edges(&mut graph, nodes);
        let graph = graph.compile().unwrap().with_checkpointer(Arc::new(MemoryCheckpointer::new()));
        let agent = Agent::of(graph, &preset());
        let (texts, _, state) = streamed(&agent, "go").await;
        assert_eq!((texts.as_str(), state.final_reply.as_str()), ("hello", "hello"));
    });
}

#[test]
fn without_guards_the_graph_is_as_before() {
    let agent = agent(&says("m", answers), &Kit::default()).build().unwrap();
    let topology = agent.graph().topology();
    assert_eq!((topology.len(), topology.find("verdict").is_none()), (6, true));
    let state = AgentState::default();
    assert!(state.channels().iter().any(|channel| channel.name == "verdicts"));
}

#[test]
fn a_guard_has_a_valid_name_of_its_own() {
    let guard = |name: &str| Guard::new(name, GuardAt::Input, |_| ready(Ok(Verdict::Pass)));
    let build = |guards: [Guard; 2]| {
        let builder = Agent::builder(says("m", answers)).config(preset());
        guards.into_iter().fold(builder, AgentBuilder::guard).build().unwrap_err()
    };
    assert!(matches!(build([guard("a"), guard("a")]), AgentError::DuplicateGuard { name } if name == "a"));
    assert!(matches!(build([guard("a"), guard("a b")]), AgentError::GuardName { name } if name == "a b"));
}
