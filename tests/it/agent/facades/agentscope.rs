//! The facade `agentscope`.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use superstep::{
    RunOptions,
    agent::{
        AgentBuilder, ReactConfig,
        config::Finish,
        facades::{FacadeError, agentscope::ReActAgent},
        hooks::{Acting, Hooks, Msg, Printed, Steps},
    },
    llm::{ChatModel, Delta, FinishReason, Request, ResponseStream, Role, Tool, ToolCx, ToolFuture},
};
use superstep_testing::script::{Answer, call, calls, http, txt};

use super::{Asked, at_once, both, echo};
use crate::agent::{check, show};

type Notes = Arc<Mutex<Vec<String>>>;

fn friday(agent: AgentBuilder) -> ReActAgent {
    ReActAgent::new("Friday", agent.config(plain())).unwrap()
}

fn plain() -> ReactConfig {
    at_once(ReactConfig::agentscope())
}

async fn memory(agent: &ReActAgent) -> String {
    let state = agent.agent().graph().thread(agent.thread()).state().await.unwrap().values;
    check::calls_are_answered(state.messages.iter());
    show::messages(state.messages.iter())
}

/// Returns the stored form of a text that the design treats as the call that ends the turn.
fn finished(text: &str, step: i64) -> String {
    let call = format!(r#"{step}.0.finish generate_response{{"response":"{text}"}}"#);
    format!(r#"a:"{text}"[{call}], t({step}.0.finish):"Successfully generated response.""#)
}

#[test]
fn a_reply_has_a_name_a_role_content_and_metadata() {
    let ((made, memory), _) = both(&[echo(1), txt("done")], async |asked: Asked| {
        let agent = friday(asked.agent);
        let made = agent.reply("go").await.unwrap();
        (serde_json::to_value(&made).unwrap(), memory(&agent).await)
    });
    let metadata = json!({"steps_taken": 1, "tools_used": ["echo"], "stop_reason": "", "llm_calls": 2});
    assert_eq!(made, json!({"name": "Friday", "role": "assistant", "content": "done", "metadata": metadata}));
    assert_eq!(memory, format!(r#"u:"go", a:[c1 echo{{"x":"1"}}], t(c1):"r:1", {}"#, finished("done", 5)));
}

#[test]
fn the_fields_of_a_reply_with_a_schema_are_in_its_metadata() {
    let schema =
        json!({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]});
    let finish = |id: &str, answer: &str| {
        call(id, "generate_response", &format!(r#"{{"response":"x","answer":{answer}}}"#))
    };
    let (made, sent) = both(&[finish("c1", "\"many\""), finish("c2", "42")], async |asked: Asked| {
        let config = plain();
        let config =
            ReactConfig { finish: Finish { schema: Some(schema.clone()), ..config.finish }, ..config };
        let reply = ReActAgent::new("Friday", asked.agent.config(config)).unwrap().reply("go").await.unwrap();
        (reply.content, reply.metadata["answer"].clone())
    });
    assert_eq!((made, sent.requests), (("x".to_owned(), json!(42)), 2));
    assert_eq!(
        sent.last.last().unwrap(),
        "tool: Arguments Validation Error: `answer`: expected integer, got a string"
    );
}

#[test]
fn an_observed_message_is_stored_without_a_reply() {
    let (memory, sent) = both(&[txt("Paris"), txt("yes")], async |asked: Asked| {
        let agent = friday(asked.agent);
        agent.observe("Ada is in Paris.").await.unwrap();
        let bob = Msg::new("Bob", Role::Assistant, "So am I.");
        agent.observe(bob).await.unwrap();
        agent.reply("Where is Ada?").await.unwrap();
        agent.observe("It rains.").await.unwrap();
        agent.reply("Is it wet?").await.unwrap();
        memory(&agent).await
    });
    let (paris, yes) = (finished("Paris", 6), finished("yes", 15));
    let wanted = format!(
        r#"u:"Ada is in Paris.", u:"So am I.", u:"Where is Ada?", {paris}, u:"It rains.", u:"Is it wet?", {yes}"#
    );
    assert_eq!(memory, wanted);
    assert_eq!((sent.requests, sent.last.len()), (2, 7));
}

#[test]
fn at_the_limit_there_is_a_summary() {
    let (made, sent) = both(&[echo(1), echo(2), echo(3), txt("in short")], async |asked: Asked| {
        friday(asked.agent.max_steps(3)).reply("go").await.unwrap().content
    });
    assert_eq!((made.as_str(), sent.requests, sent.echoed, sent.offered_tools), ("in short", 4, 3, false));
    assert!(sent.last.last().unwrap().starts_with("user: You have failed to generate response"));
}

/// Creates hooks that record their runs, at every possible place.
fn noting(notes: &Notes, whose: &'static str) -> Hooks {
    let note = |what: &'static str| {
        let notes = notes.clone();
        move || notes.lock().unwrap().push(format!("{whose}{what}"))
    };
    let mut hooks = Hooks::default();
    let (pre, post) = (note("pre_reply"), note("post_reply"));
    hooks.reply.pre(move |_| {
        ready({
            pre();
            Ok(None)
        })
    });
    hooks.reply.post(move |_, _| {
        ready({
            post();
            Ok(None)
        })
    });
    let (pre, post) = (note("pre_observe"), note("post_observe"));
    hooks.observe.pre(move |_| {
        ready({
            pre();
            Ok(None)
        })
    });
    hooks.observe.post(move |_, ()| {
        ready({
            post();
            Ok(None)
        })
    });
    let (pre, post) = (note("pre_print"), note("post_print"));
    hooks.print.pre(move |_| {
        ready({
            pre();
            Ok(None)
        })
    });
    hooks.print.post(move |_, ()| {
        ready({
            post();
            Ok(None)
        })
    });
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
    let (pre, post) = (note("pre_acting"), note("post_acting"));
    hooks.acting.pre(move |_| {
        ready({
            pre();
            Ok(None)
        })
    });
    hooks.acting.post(move |_, _| {
        ready({
            post();
            Ok(None)
        })
    });
    hooks
}

#[test]
fn hooks_run_in_their_order() {
    let two = calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "echo", r#"{"x":"2"}"#)]);
    let (notes, _) = both(&[two, txt("done")], async |asked: Asked| {
        let notes = Notes::default();
        let agent = friday(asked.agent.hooks(noting(&notes, "")));
        agent.observe("psst").await.unwrap();
        agent.reply("go").await.unwrap();

        notes.lock().unwrap().join(" ")
    });
    // Events arrive while the graph continues, so only the last piece has a fixed place.
    let (rest, prints): (Vec<&str>, Vec<&str>) = notes.split(' ').partition(|note| !note.ends_with("print"));
    assert_eq!(
        rest.join(" "),
        "pre_observe post_observe pre_reply pre_reasoning post_reasoning pre_acting post_acting pre_acting post_acting \
         pre_reasoning post_reasoning pre_acting post_acting post_reply",
        "the call that ends the turn is one like any other"
    );
    assert_eq!(prints.join(" "), "pre_print post_print pre_print post_print");
    assert!(notes.ends_with("pre_print post_print post_reply"), "{notes}");
}

#[test]
fn the_hooks_of_an_agent_run_before_those_of_its_kind() {
    let (notes, _) = both(&[txt("done")], async |asked: Asked| {
        let notes = Notes::default();
        let hooks = noting(&notes, "own:").then(&noting(&notes, "kind:"));
        friday(asked.agent.hooks(hooks)).reply("go").await.unwrap();
        let notes = notes.lock().unwrap().clone();
        notes.into_iter().filter(|note| note.contains("_reply")).collect::<Vec<_>>()
    });
    assert_eq!(notes, ["own:pre_reply", "kind:pre_reply", "own:post_reply", "kind:post_reply"]);
}

#[test]
fn hooks_replace_inputs_and_outputs() {
    let ((content, memory), _) = both(&[txt("done")], async |asked: Asked| {
        let mut hooks = Hooks::default();
        hooks.reply.pre(|mut msg: Msg| async move {
            msg.content.push_str(", please");
            Ok(Some(msg))
        });
        hooks.reply.post(|msg: Msg, mut reply: Msg| async move {
            reply.content = format!("{} -> {}", msg.content, reply.content);
            Ok(Some(reply))
        });
        hooks.observe.pre(|mut msg: Msg| {
            ready({
                msg.content.clear();
                Ok(None)
            })
        });
        let agent = friday(asked.agent.hooks(hooks));
        agent.observe("a copy").await.unwrap();
        let reply = agent.reply("go").await.unwrap();
        (reply.content, memory(&agent).await)
    });
    assert_eq!(content, "go, please -> done");
    assert_eq!(memory, format!(r#"u:"a copy", u:"go, please", {}"#, finished("done", 5)));
}

#[test]
fn pieces_of_a_reply_are_printed_as_they_come() {
    let streamed = Answer::stream().text(["Hel", "lo"]).end("stop").done();
    let (shown, _) = both(&[streamed], async |asked: Asked| {
        let (shown, seen) = (Notes::default(), Notes::default());
        let sees = seen.clone();
        let mut hooks = Hooks::default();
        hooks.print.pre(move |mut printed: Printed| {
            printed.msg.content = printed.msg.content.to_uppercase();
            ready(Ok(Some(printed)))
        });
        let agent = friday(asked.agent.hooks(hooks)).display(move |printed| {
            sees.lock().unwrap().push(format!("{} {}", printed.msg.content, printed.last));
        });
        let reply = agent.reply("go").await.unwrap();
        shown.lock().unwrap().push(reply.content);

        [seen.lock().unwrap().clone(), shown.lock().unwrap().clone()].concat()
    });
    assert_eq!(shown, ["HEL false", "HELLO false", "HELLO true", "Hello"]);
}

#[test]
fn a_hook_that_fails_is_the_error_of_the_run_and_leaves_every_call_answered() {
    type Adds = fn(&mut Hooks);
    let places: [(&str, Adds); 8] = [
        ("pre_reply", |hooks| hooks.reply.pre(|_| ready(Err("no".into())))),
        ("post_reply", |hooks| hooks.reply.post(|_, _| ready(Err("no".into())))),
        ("pre_print", |hooks| hooks.print.pre(|_| ready(Err("no".into())))),
        ("post_print", |hooks| hooks.print.post(|_, ()| async { std::panic::resume_unwind(Box::new("no")) })),
        ("pre_reasoning", |hooks| hooks.reasoning.pre(|_| ready(Err("no".into())))),
        ("post_reasoning", |hooks| hooks.reasoning.post(|_, _| ready(Err("no".into())))),
        ("pre_acting", |hooks| hooks.acting.pre(|_| ready(Err("no".into())))),
        ("post_acting", |hooks| hooks.acting.post(|_: Acting, _| ready(Err("no".into())))),
    ];
    for (place, add) in places {
        let ((failed, next), _) = super::super::paused(async {
            let script =
                superstep_testing::script::Script::new([echo(1), txt("done"), txt("later"), txt("later")]);
            let model = superstep_testing::scripted::ScriptedModel::new(script);
            let kit = super::Kit::new(&[]);
            let mut hooks = Hooks::default();
            add(&mut hooks);
            let builder = super::Agent::builder(Arc::new(model)).tools(kit.tools(&["echo"]));
            let agent = friday(builder.hooks(hooks));
            let failed = agent.reply("go").await.unwrap_err();
            let FacadeError::Hook(failure) = failed else { panic!("{place}: {failed}") };
            let _ = memory(&agent).await;
            // The thread accepts the next message.
            let observed = agent.observe("still there?").await;
            ((failure.hook, observed.is_ok()), ())
        });
        assert_eq!((failed.as_str(), next), (place, true));
    }
}

#[test]
fn a_failed_model_call_is_an_error_and_the_next_reply_continues() {
    let down = http(503, &[], "{}");
    let answers = [down.clone(), down.clone(), down, txt("here I am")];
    let (made, sent) = both(&answers, async |asked: Asked| {
        let agent = friday(asked.agent);
        let failed = agent.reply("go").await.unwrap_err();
        let status = match failed {
            FacadeError::Model(error) => error.status,
            other => panic!("{other}"),
        };
        (status, agent.reply("hello?").await.unwrap().content)
    });
    assert_eq!((made, sent.requests), ((Some(503), "here I am".to_owned()), 4));
    assert_eq!(sent.last, ["user: go", "user: hello?"]);
}

#[test]
fn an_interrupted_reply_has_a_fixed_text() {
    let batch = calls([("c0", "echo", r#"{"x":"1"}"#), ("c1", "hang", "{}")]);
    let ((made, memory), _) = both(&[batch], async |asked: Asked| {
        let agent = friday(asked.agent);
        let config = RunOptions::new();
        let (cancel, kit) = (config.get_cancel().clone(), asked.kit);
        tokio::spawn(async move {
            while kit.n("hang") == 0 {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        });
        let reply = agent.reply_with("go", config).await.unwrap();
        ((reply.content, reply.metadata["is_interrupted"].clone()), memory(&agent).await)
    });
    assert_eq!(
        made,
        ("I noticed that you have interrupted me. What can I do for you?".to_owned(), json!(true))
    );
    assert_eq!(
        memory,
        r#"u:"go", a:[c0 echo{"x":"1"}, c1 hang{}], t(c0):"r:1", t(c1):"The tool call has been interrupted by the user.", a:"I noticed that you have interrupted me. What can I do for you?""#
    );
}

#[test]
fn a_facade_can_be_run_in_a_task() {
    fn is_send<T: Send>(_: &T) {}
    let agent = friday(super::Agent::builder(Arc::new(superstep_testing::scripted::ScriptedModel::new(
        superstep_testing::script::Script::new([]),
    ))));
    is_send(&agent.reply("go"));
    is_send(&agent.observe("go"));
}

/// Implements both steps, in some cases.
struct Own;

impl Steps for Own {
    fn reasoning<'a>(&'a self, request: Request, model: &'a dyn ChatModel) -> ResponseStream<'a> {
        if request.messages.iter().any(|message| message.content == "quiet") {
            let said = [Delta::Text("…".into()), Delta::Finish(FinishReason::Stop)];
            return stream::iter(said.map(Ok)).boxed();
        }
        model.stream(request)
    }

    fn acting<'a>(&'a self, args: Value, cx: ToolCx, tool: &'a dyn Tool) -> ToolFuture<'a> {
        match args["x"] == "mine" {
            true => Box::pin(async { Ok("done by hand".into()) }),
            false => tool.call(args, cx),
        }
    }
}

#[test]
fn reasoning_and_acting_may_be_overridden() {
    let both_ways = calls([("c1", "echo", r#"{"x":"mine"}"#), ("c2", "echo", r#"{"x":"1"}"#)]);
    let (made, sent) = both(&[both_ways, txt("ok")], async |asked: Asked| {
        let friday = ReActAgent::new("Friday", asked.agent.steps(Arc::new(Own))).unwrap();
        let first = friday.reply("go").await.unwrap().content;
        let state = friday.agent().graph().thread(friday.thread()).state().await.unwrap().values;
        let results: Vec<_> = state.tool_result_history.iter().cloned().collect();
        (first, results, friday.reply("quiet").await.unwrap().content)
    });
    let results = ["done by hand", "r:1", "Successfully generated response."];
    assert_eq!(made, ("ok".to_owned(), results.map(str::to_owned).to_vec(), "…".to_owned()));
    assert_eq!((sent.requests, sent.echoed), (2, 1));
}
