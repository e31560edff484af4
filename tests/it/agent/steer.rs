//! Messages of users during a turn.

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt;
use serde_json::json;
use superstep::{
    Checkpointer, Event, MemoryCheckpointer, OnUnfinished, RunOptions, State, StreamMode,
    agent::{
        Agent, AgentOutcome, AgentState, ReactConfig, SteerError,
        config::{
            AtLimit, Budget, Finish, LengthPolicy, Limit, LimitUnit, OutputMode, PermissionRule, Permit,
            ToolMode,
        },
    },
    clock::TokioClock,
    llm::Role,
    sqlite::SqliteCheckpointer,
    stream::MessageKind,
};
use superstep_testing::{
    script::{Answer, Script, call, calls, http, txt},
    scripted::ScriptedModel,
};

use super::{
    Scenario, check,
    kit::{Kit, Memory},
    paused, show,
};

/// A thread that receives messages at some events of its turns.
struct Steered {
    agent: Agent,
    model: ScriptedModel,
    kit: Kit,
    /// The messages, each with the event and the call or token at which it is sent.
    said: Vec<(&'static str, &'static str, &'static str)>,
}

impl Steered {
    fn new(answers: impl IntoIterator<Item = Answer>, checkpointer: Arc<dyn Checkpointer>) -> Self {
        Self::with(super::preset(), answers, checkpointer)
    }

    fn with(
        config: ReactConfig,
        answers: impl IntoIterator<Item = Answer>,
        checkpointer: Arc<dyn Checkpointer>,
    ) -> Self {
        let scenario = Scenario { config, memory: Some(Memory::Works), ..Scenario::new([]) };
        let scenario = scenario.tools(&["add", "echo", "hang", "slow", "tell"]);
        let (model, kit) = (ScriptedModel::new(Script::new(answers)), Kit::default());
        let agent = scenario.agent(Arc::new(model.clone()), &kit).checkpointer(checkpointer);
        let agent = agent.approve_by_interrupt().build().unwrap();
        Self { agent, model, kit, said: Vec::new() }
    }

    fn say(mut self, event: &'static str, about: &'static str, text: &'static str) -> Self {
        self.said.push((event, about, text));
        self
    }

    fn config() -> RunOptions {
        RunOptions::new().thread("t").clock(TokioClock::starting_at(0))
    }

    /// Runs a turn, and returns its end and its steering events.
    async fn turn(&self, text: &str) -> (AgentState, Vec<String>) {
        let (state, told) = self.part(text).await;
        check::calls_are_answered(state.messages.iter());
        (state, told)
    }

    /// Runs a turn that may end with a question.
    async fn part(&self, text: &str) -> (AgentState, Vec<String>) {
        let mut stream = self
            .agent
            .thread("t")
            .clock(TokioClock::starting_at(0))
            .stream(self.agent.input(text), [StreamMode::Custom]);
        let mut told = Vec::new();
        while let Some(event) = stream.next().await {
            let Event::Custom { name, data, .. } = event else { continue };
            if name == "steered" {
                told.push(data["text"].as_str().unwrap().to_owned());
            }
            for (on, about, text) in &self.said {
                if *on == name && (data["id"] == *about || data["token"] == *about) {
                    self.agent.thread("t").clock(TokioClock::starting_at(0)).steer(text).await.unwrap();
                }
            }
        }
        (stream.outcome().await.unwrap().state, told)
    }

    /// Returns the last message of each request.
    fn asked(&self) -> Vec<String> {
        let last = |request: &superstep::llm::Request| request.messages.last().unwrap().content.clone();
        self.model.requests().iter().map(last).collect()
    }
}

fn memory() -> Arc<dyn Checkpointer> {
    Arc::new(MemoryCheckpointer::new())
}

fn messages(state: &AgentState) -> String {
    show::messages(state.messages.iter())
}

#[test]
fn a_message_is_read_behind_the_results_of_its_round_by_the_next_model_call() {
    paused(async {
        let two = calls([("c0", "slow", r#"{"x":"b"}"#), ("c1", "slow", r#"{"x":"c"}"#)]);
        let steered = Steered::new([two, txt("ok"), txt("on")], memory());
        let steered = steered.say("tool_start", "c0", "in French").say("tool_end", "c0", "and short");
        let (state, told) = steered.turn("go").await;
        assert_eq!(
            messages(&state),
            concat!(
                r#"u:"go", a:[c0 slow{"x":"b"}, c1 slow{"x":"c"}], t(c0):"r:b", t(c1):"r:c", "#,
                r#"u:"in French", u:"and short", a:"ok""#
            )
        );
        assert_eq!(told, ["in French", "and short"]);
        assert_eq!(steered.asked(), ["go", "and short"]);
        assert_eq!((state.steered, state.outcome), (2, Some(AgentOutcome::Completed)));
        // No message is read twice.
        let (state, told) = steered.turn("on").await;
        assert_eq!((state.steered, told.len()), (2, 0));
    });
}

#[test]
fn a_memory_request_is_stored_once() {
    paused(async {
        let script = [call("c0", "slow", r#"{"x":"c"}"#), txt("ok"), txt("on")];
        let steered = Steered::new(script, memory());
        let steered = steered.say("tool_start", "c0", "remember this: tea");
        steered.turn("remember that I am Ada").await;
        let remembered = || {
            let all = steered.kit.remembered();
            all.iter().map(|(messages, _)| messages[0].content.clone()).collect::<Vec<_>>()
        };
        assert_eq!(remembered(), ["remember that I am Ada", "remember this: tea"]);
        // A turn without a message has no new ones.
        let input = AgentState::update();
        steered.agent.thread("t").clock(TokioClock::starting_at(0)).run(input).await.unwrap();
        assert_eq!(remembered().len(), 2);
    });
}

#[test]
fn a_message_during_the_last_response_is_answered_in_the_same_turn() {
    paused(async {
        let slow = Answer::stream().text(["Hel"]).delay(100).text(["lo"]).end("stop").done();
        let steered = Steered::new([slow, txt("Bonjour")], memory()).say("llm_token", "Hel", "in French");
        let (state, _) = steered.turn("hi").await;
        assert_eq!(messages(&state), r#"u:"hi", a:"Hello", u:"in French", a:"Bonjour""#);
        assert_eq!((state.final_reply.as_str(), state.llm_calls), ("Bonjour", 2));
    });
}

#[test]
fn a_message_during_a_reply_by_call_is_answered_too() {
    paused(async {
        let first =
            calls([("c0", "generate_response", r#"{"response":"Hello"}"#), ("c1", "slow", r#"{"x":"c"}"#)]);
        let script = [first, call("c2", "generate_response", r#"{"response":"Bonjour"}"#)];
        let steered = Steered::with(ReactConfig::agentscope(), script, memory());
        let steered = steered.say("tool_start", "c1", "in French");
        let (state, _) = steered.turn("hi").await;
        assert_eq!((state.final_reply.as_str(), steered.asked().len()), ("Bonjour", 2));
        assert_eq!(steered.asked()[1], "in French");
    });
}

#[test]
fn a_message_during_a_reply_by_a_tool_is_answered_too() {
    paused(async {
        let tells = Answer::stream().text(["Look: "]).delay(100).call(0, "c0", "tell", [r#"{"x":"Hello"}"#]);
        let tells = tells.end("tool_calls").done();
        let script = [tells.clone(), txt("Bonjour"), tells];
        let steered = Steered::new(script, memory()).say("llm_token", "Look: ", "in French");
        let (state, _) = steered.turn("hi").await;
        assert_eq!((state.final_reply.as_str(), state.llm_calls), ("Bonjour", 2));
        assert_eq!(steered.asked()[1], "in French");
        // Without a message the tool's result is the reply.
        let silent = Steered { said: Vec::new(), ..steered };
        let (state, _) = silent.turn("hi").await;
        assert_eq!((state.final_reply.as_str(), state.llm_calls), ("Hello", 1));
    });
}

#[test]
fn a_memory_request_is_stored_although_its_turn_is_discarded() {
    paused(async {
        let script = [call("c0", "slow", r#"{"x":"c"}"#), call("c1", "add", r#"{"a":1,"b":1}"#), txt("ok")];
        let steered = Steered::with(preset_that_asks(), script, memory());
        let steered = steered.say("tool_start", "c0", "remember this: tea");
        steered.part("go").await;
        let (thread, input) = (steered.agent.thread("t"), steered.agent.input("go on"));
        let thread = thread.clock(TokioClock::starting_at(0)).on_unfinished(OnUnfinished::Discard);
        assert_eq!(thread.run(input).await.unwrap().state.final_reply, "ok");
        let remembered = steered.kit.remembered();
        assert_eq!(remembered.len(), 1, "{remembered:?}");
        assert_eq!(remembered[0].0[0].content, "remember this: tea");
    });
}

/// Returns a response during whose last part a message can be sent.
fn hello() -> Answer {
    Answer::stream().text(["Hel"]).delay(100).text(["lo"]).end("stop").usage(10, 5).done()
}

/// Asserts that the reply `Hello` stands, and that the next turn reads the message.
async fn is_left_to_the_next_turn(steered: Steered, answer: &str) {
    let (state, told) = steered.turn("hi").await;
    let end = (state.final_reply.as_str(), state.outcome, state.steered, told.len());
    assert_eq!(end, ("Hello", Some(AgentOutcome::Completed), 0, 0));
    let (state, told) = steered.turn("go on").await;
    let end = (state.final_reply.as_str(), state.outcome, state.steered, told.len());
    assert_eq!(end, (answer, Some(AgentOutcome::Completed), 1, 1));
    assert_eq!(steered.asked(), ["hi", "go on"]);
}

#[test]
fn a_message_during_the_last_response_that_a_limit_allows_is_left_to_the_next_turn() {
    paused(async {
        for at in [AtLimit::LastMessage, AtLimit::Fixed("enough".into()), AtLimit::Fail] {
            let limit = Limit { max: 1, unit: LimitUnit::ModelCalls, at };
            let config = ReactConfig { limit, ..super::preset() };
            let steered = Steered::with(config, [hello(), txt("Bonjour")], memory());
            is_left_to_the_next_turn(steered.say("llm_token", "Hel", "in French"), "Bonjour").await;
        }
        let budget = Budget { tokens: Some(15), reserve_final: false, ..Budget::default() };
        let config = ReactConfig { budget, ..super::preset() };
        let steered = Steered::with(config, [hello(), txt("Bonjour")], memory());
        is_left_to_the_next_turn(steered.say("llm_token", "Hel", "in French"), "Bonjour").await;
        // A limit with another call leaves nothing.
        let limit = Limit { max: 1, unit: LimitUnit::ModelCalls, at: AtLimit::NoToolsCall { hint: None } };
        let config = ReactConfig { limit, ..super::preset() };
        let steered = Steered::with(config, [hello(), txt("Bonjour")], memory());
        let (state, _) = steered.say("llm_token", "Hel", "in French").turn("hi").await;
        assert_eq!((state.final_reply.as_str(), state.steered), ("Bonjour", 1));
    });
}

#[test]
fn a_message_during_a_reply_by_call_in_the_last_round_is_left_to_the_next_turn() {
    paused(async {
        for at in [AtLimit::LastMessage, AtLimit::Fail] {
            let limit = Limit { max: 1, unit: LimitUnit::ToolRounds, at };
            let by_finish = |id, text| (id, "generate_response", text);
            let first = calls([by_finish("c0", r#"{"response":"Hello"}"#), ("c1", "slow", r#"{"x":"c"}"#)]);
            let script = [first, calls([by_finish("c2", r#"{"response":"Bonjour"}"#)])];
            let config = ReactConfig { limit: limit.clone(), ..ReactConfig::agentscope() };
            let steered = Steered::with(config, script, memory()).say("tool_start", "c1", "in French");
            is_left_to_the_next_turn(steered, "Bonjour").await;

            let tell =
                Answer::stream().text(["Look: "]).delay(100).call(0, "c0", "tell", [r#"{"x":"Hello"}"#]);
            let tell = tell.end("tool_calls").done();
            let config = ReactConfig { limit, ..super::preset() };
            let steered = Steered::with(config, [tell, txt("Bonjour")], memory());
            is_left_to_the_next_turn(steered.say("llm_token", "Look: ", "in French"), "Bonjour").await;
        }
    });
}

#[test]
fn the_value_of_a_reply_that_a_message_replaced_is_not_that_of_the_turn() {
    paused(async {
        let schema =
            json!({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]});
        let finish =
            Finish { schema: Some(schema), output: OutputMode::Native, retries: 0, ..Finish::default() };
        let one = || Answer::stream().text([r#"{"answer":"#]).delay(100).text(["1}"]).end("stop").done();
        for (second, outcome, output) in [
            (txt("sorry"), AgentOutcome::InvalidOutput, None),
            (http(401, &[], "{}"), AgentOutcome::LlmError, None),
            (txt(r#"{"answer":2}"#), AgentOutcome::Completed, Some(json!({"answer": 2}))),
        ] {
            let config = ReactConfig { finish: finish.clone(), ..super::preset() };
            let steered = Steered::with(config, [one(), second], memory());
            let (state, _) = steered.say("llm_token", r#"{"answer":"#, "the other one").turn("hi").await;
            assert_eq!((state.outcome, state.output), (Some(outcome), output));
        }
    });
}

#[test]
fn a_message_survives_a_failed_model_call_and_a_cancelled_turn() {
    paused(async {
        let script = [call("c0", "slow", r#"{"x":"c"}"#), http(401, &[], "{}"), txt("ok")];
        let steered = Steered::new(script, memory()).say("tool_start", "c0", "in French");
        let (state, _) = steered.turn("go").await;
        assert_eq!((state.outcome, state.steered), (Some(AgentOutcome::LlmError), 0));
        steered.agent.thread("t").clock(TokioClock::starting_at(0)).resume().await.unwrap();
        assert_eq!(steered.asked(), ["go", "in French", "in French"]);

        let script = [call("c0", "hang", "{}"), txt("ok")];
        let steered = Steered::new(script, memory()).say("tool_start", "c0", "in French");
        let config = Steered::config();
        let token = config.get_cancel().clone();
        let mut stream =
            steered.agent.configured(config).stream(steered.agent.input("go"), [StreamMode::Custom]);
        while let Some(event) = stream.next().await {
            if matches!(event, Event::Custom { name: "tool_start", .. }) {
                steered.agent.thread("t").clock(TokioClock::starting_at(0)).steer("in French").await.unwrap();
                token.cancel();
            }
        }
        let state = stream.outcome().await.unwrap().state;
        assert_eq!((state.outcome, state.steered), (Some(AgentOutcome::Cancelled), 0));
        let (state, told) = steered.turn("go on").await;
        assert_eq!((told.len(), state.steered, state.outcome), (1, 1, Some(AgentOutcome::Completed)));
        assert_eq!(steered.kit.n("hang"), 1);
        assert!(messages(&state).ends_with(r#"u:"in French", u:"go on", a:"ok""#), "{}", messages(&state));
        let last = steered.model.requests().pop().unwrap().messages;
        assert_eq!(last.iter().filter(|message| message.content == "in French").count(), 1);
    });
}

#[test]
fn a_message_survives_a_run_that_is_dropped_and_is_read_by_another_process() {
    paused(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("threads.db");
        let open = || Arc::new(SqliteCheckpointer::open(&path).unwrap()) as Arc<dyn Checkpointer>;
        let crashed = Steered::new([call("c0", "hang", "{}")], open());
        let mut stream = crashed
            .agent
            .thread("t")
            .clock(TokioClock::starting_at(0))
            .stream(crashed.agent.input("go"), [StreamMode::Custom]);
        while let Some(event) = stream.next().await {
            if matches!(event, Event::Custom { name: "tool_start", .. }) {
                break;
            }
        }
        // The sender has the database open as well, but not the thread.
        let other = Steered::new([], open());
        for (number, text) in [(1, "in French"), (2, "please")] {
            assert_eq!(
                other.agent.thread("t").clock(TokioClock::starting_at(0)).steer(text).await.unwrap(),
                number
            );
        }
        drop(stream);
        let recovered = Steered::new([txt("ok")], open());
        let reply = recovered.agent.thread("t").clock(TokioClock::starting_at(0)).resume().await.unwrap();
        assert_eq!((reply.text.as_str(), recovered.asked()), ("ok", vec!["please".to_owned()]));
        let state = recovered.agent.graph().thread("t").state().await.unwrap().values;
        assert!(messages(&state).ends_with(r#"u:"in French", u:"please", a:"ok""#), "{}", messages(&state));
    });
}

#[test]
fn messages_of_several_speakers_all_arrive() {
    paused(async {
        let steered = Steered::new([call("c0", "hang", "{}")], memory());
        let mut stream = steered
            .agent
            .thread("t")
            .clock(TokioClock::starting_at(0))
            .stream(steered.agent.input("go"), [StreamMode::Custom]);
        while let Some(event) = stream.next().await {
            if matches!(event, Event::Custom { name: "tool_start", .. }) {
                break;
            }
        }
        let say = |n: usize| {
            let agent = steered.agent.clone();
            async move { agent.thread("t").clock(TokioClock::starting_at(0)).steer(&n.to_string()).await.unwrap() }
        };
        let mut numbers = futures::future::join_all((0..60).map(say)).await;
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=60).collect::<Vec<u64>>());
    });
}

#[test]
fn a_thread_that_has_nothing_to_run_is_not_steered() {
    paused(async {
        let steered = Steered::new([txt("ok")], memory());
        let error =
            steered.agent.thread("t").clock(TokioClock::starting_at(0)).steer("hi").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "SS110: thread `t` has no checkpoint to resume from; give it an input first"
        );
        steered.turn("go").await;
        let error =
            steered.agent.thread("t").clock(TokioClock::starting_at(0)).steer("hi").await.unwrap_err();
        assert!(matches!(error, SteerError::NotRunning { .. }));
        let message = "thread `t` has no turn in progress; send the text as a message, which begins a turn";
        assert_eq!(error.to_string(), message);
    });
}

#[test]
fn a_message_follows_the_results_of_parallel_tools() {
    paused(async {
        let two = calls([("c0", "slow", r#"{"x":"b"}"#), ("c1", "add", r#"{"a":1,"b":1}"#)]);
        let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..super::preset() };
        let steered = Steered::with(config, [two, txt("ok")], memory()).say("tool_start", "c0", "wait");
        let (state, _) = steered.turn("go").await;
        assert!(
            messages(&state).ends_with(r#"t(c0):"r:b", t(c1):"2", u:"wait", a:"ok""#),
            "{}",
            messages(&state)
        );
    });
}

#[test]
fn a_message_during_a_continuation_that_repeats_the_answer_is_read_in_the_next_turn() {
    paused(async {
        let first = Answer::stream().text(["Once ", "upon"]).delay(100).end("length").done();
        let again = Answer::stream().text(["up"]).delay(100).text(["on"]).end("length").done();
        let length = LengthPolicy::Continue { max: 3, prompt: "continue".into() };
        let config = ReactConfig { length, ..super::preset() };
        let steered = Steered::with(config, [first, again, txt("Bon")], memory());
        let thread = || steered.agent.thread("t").clock(TokioClock::starting_at(0));
        let mut stream =
            thread().stream(steered.agent.input("hi"), [StreamMode::Messages, StreamMode::Custom]);
        // The text of each message by superstep, and that of the events.
        let (mut sent, mut told) = (BTreeMap::<String, BTreeMap<i64, String>>::new(), Vec::<String>::new());
        while let Some(event) = stream.next().await {
            match event {
                Event::Message { step, id, kind, data, .. } => {
                    let text = data["content"].as_str().unwrap_or_default();
                    let parts = sent.entry(id).or_default();
                    match kind {
                        MessageKind::Chunk => parts.entry(step).or_default().push_str(text),
                        MessageKind::Full => *parts = [(step, text.to_owned())].into(),
                        MessageKind::Discarded => drop(parts.remove(&step)),
                        other => panic!("{other:?}"),
                    }
                }
                Event::Custom { name: "llm_token", data, .. } => {
                    told.last_mut().unwrap().push_str(data["token"].as_str().unwrap());
                    if data["token"] == "up" {
                        thread().steer("in French").await.unwrap();
                    }
                }
                Event::Custom { name: "node_start", .. } => told.push(String::new()),
                Event::Custom { name: "attempt_discarded", .. } => told.last_mut().unwrap().clear(),
                _ => {}
            }
        }
        let state = stream.outcome().await.unwrap().state;
        assert_eq!(messages(&state), r#"u:"hi", a:"Once upon""#);
        assert_eq!((state.outcome, state.steered), (Some(AgentOutcome::Length), 0));
        assert_eq!((told.concat().as_str(), state.final_reply.as_str()), ("Once upon", "Once upon"));
        let stored = state.messages.iter().filter(|message| message.role == Role::Assistant);
        for message in stored {
            assert_eq!(sent[&message.id].values().cloned().collect::<String>(), message.content, "{sent:?}");
        }
        let (state, told) = steered.turn("go on").await;
        assert_eq!(messages(&state), r#"u:"hi", a:"Once upon", u:"in French", u:"go on", a:"Bon""#);
        assert_eq!((told.len(), state.steered, state.outcome), (1, 1, Some(AgentOutcome::Completed)));
    });
}

#[test]
fn a_message_that_an_interrupted_turn_did_not_read_precedes_the_next_prompt() {
    paused(async {
        // The first turn stores no response, so that its prompt is followed by the next one.
        let slow = Answer::stream().text(["Hel"]).delay(1000).text(["lo"]).end("stop").done();
        let steered = Steered::new([slow, txt("ok")], memory());
        let options = Steered::config();
        let token = options.get_cancel().clone();
        let mut stream =
            steered.agent.configured(options).stream(steered.agent.input("go"), [StreamMode::Custom]);
        while let Some(event) = stream.next().await {
            if matches!(event, Event::Custom { name: "llm_token", .. }) {
                for text in ["remember this: tea", "in French"] {
                    steered.agent.thread("t").clock(TokioClock::starting_at(0)).steer(text).await.unwrap();
                }
                token.cancel();
            }
        }
        let state = stream.outcome().await.unwrap().state;
        assert_eq!((state.outcome, state.steered), (Some(AgentOutcome::Cancelled), 0));
        let (state, told) = steered.turn("go on").await;
        let all = r#"u:"go", u:"remember this: tea", u:"in French", u:"go on", a:"ok""#;
        assert_eq!((messages(&state).as_str(), told.len(), state.steered), (all, 2, 2));
        assert_eq!(steered.asked(), ["go", "go on"]);
        let remembered = steered.kit.remembered();
        assert_eq!(remembered.len(), 1, "{remembered:?}");
        assert_eq!(remembered[0].0[0].content, "remember this: tea");

        // The rest of a turn that waits is discarded.
        let steered =
            Steered::with(preset_that_asks(), [call("c0", "add", r#"{"a":1,"b":1}"#), txt("ok")], memory());
        let thread = || steered.agent.thread("t").clock(TokioClock::starting_at(0));
        thread().ask("go").await.unwrap();
        thread().steer("in French").await.unwrap();
        let input = steered.agent.input("go on");
        let end = thread().on_unfinished(OnUnfinished::Discard).run(input).await.unwrap();
        let discarded = messages(&end.state);
        assert!(discarded.ends_with(r#", u:"in French", u:"go on", a:"ok""#), "{discarded}");
        steered.agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    });
}

/// Returns a configuration that asks about `add`.
fn preset_that_asks() -> ReactConfig {
    ReactConfig { permissions: vec![PermissionRule::new("add", Permit::Ask)], ..super::preset() }
}
