//! Agents on the Responses API: the faults of a turn, and the turn after it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    MemoryCheckpointer,
    agent::{
        Agent, AgentBuilder, AgentOutcome, ReactConfig,
        config::{
            ContextBudget, ContextConfig, ContextLayer, LengthPolicy, PermissionRule, Permit, Truncate,
        },
    },
    llm::{ModelRetry, ResponsesConfig, ResponsesModel, media::Accepts, retries::Jitter},
};

use super::{
    super::{
        rounds::recording,
        strict::{Logged, Strict},
    },
    KEY, served_as, types,
};

#[expect(dead_code, reason = "its `main` reads the environment")]
#[path = "../../../../examples/responses.rs"]
mod example;

/// Two turns of an agent.
struct Ran {
    /// The text and the outcome of the first turn.
    text: String,
    outcome: AgentOutcome,
    /// The names of the events of the first turn.
    events: Vec<&'static str>,
    /// The calls that were executed, as `tool x`.
    calls: Vec<String>,
    log: Vec<Logged>,
}

impl Ran {
    fn answered(&self) -> Vec<u16> {
        self.log.iter().map(|line| line.status).collect()
    }

    fn n(&self, event: &str) -> usize {
        self.events.iter().filter(|name| **name == event).count()
    }

    /// Returns the outputs of the n-th request.
    fn outputs(&self, n: usize) -> Vec<&Value> {
        let input = self.log[n].body["input"].as_array().unwrap().iter();
        input.filter(|item| item["type"] == "function_call_output").map(|item| &item["output"]).collect()
    }
}

async fn play(answers: Value) -> Option<Ran> {
    play_as(answers, |_| (), |agent| agent).await
}

/// Runs two turns. The second one has the answer `ok`.
async fn play_as(
    answers: Value,
    change: impl FnOnce(&mut ResponsesConfig),
    build: impl FnOnce(AgentBuilder) -> AgentBuilder,
) -> Option<Ran> {
    let Value::Array(mut answers) = answers else { panic!("a script is a list") };
    answers.push(json!({"out": [{"reasoning": "Hm"}, {"text": "ok"}]}));
    let (server, model) = served_as(answers.into(), change)?;
    let calls = Arc::default();
    let preset = ReactConfig::graph(9);
    let retry = ModelRetry { base: Duration::from_millis(1), jitter: Jitter::None, ..preset.retry };
    let agent = Agent::builder(model)
        .tools(recording(&calls))
        .config(ReactConfig { retry, loops: Vec::new(), ..preset })
        .checkpointer(MemoryCheckpointer::new());
    let agent = build(agent).build().unwrap();
    let mut events = Vec::new();
    let mut turn = agent.thread("t").ask_stream("go");
    while let Some(event) = turn.next().await {
        events.push(event.name());
    }
    let reply = turn.reply().await.unwrap();
    let next = agent.thread("t").ask("go on").await.unwrap();
    assert_eq!((next.text.as_str(), next.outcome), ("ok", AgentOutcome::Completed));
    let log = server.accepted();
    let calls = calls.lock().unwrap().clone();
    let mut once = calls.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), calls.len(), "{calls:?}");
    Some(Ran { text: reply.text, outcome: reply.outcome, events, calls, log })
}

fn add(x: &str) -> Value {
    json!({"call": ["add", json!({"x": x}).to_string()]})
}

#[tokio::test]
async fn a_turn_with_reasoning_sends_it_back_in_all_later_requests() {
    let script = json!([
        {"out": [{"reasoning": "One"}, {"text": "I add.", "phase": "commentary"}, add("1")]},
        {"out": [{"reasoning": ""}, add("2"), add("3")]},
        {"out": [{"reasoning": "Three"}, {"text": "6"}]},
    ]);
    let Some(ran) = play(script).await else { return };
    assert_eq!(
        (ran.text.as_str(), &ran.outcome, ran.answered()),
        ("6", &AgentOutcome::Completed, vec![200; 4])
    );
    assert_eq!(ran.calls, ["add 1", "add 2", "add 3"]);
    for (n, reasoning) in [0, 1, 2, 3].into_iter().enumerate() {
        let verbatim = ran.log[n].other["verbatim"].as_object().unwrap();
        assert_eq!(verbatim.values().collect::<Vec<_>>(), vec!["exact"; reasoning]);
    }
    let phases =
        ran.log[3].body["input"].as_array().unwrap().iter().filter(|item| item["phase"] == "commentary");
    assert_eq!(phases.count(), 1);
}

#[tokio::test]
async fn calls_that_are_cut_off_are_not_executed() {
    let cut = json!({"call": ["add", "{\"x\":\"2\"}"], "cut": 5});
    for (last, reason) in
        [(cut, "max_output_tokens"), (add("2"), "max_output_tokens"), (add("2"), "max_time")]
    {
        let cut =
            json!({"out": [{"reasoning": "Hm"}, add("1"), last], "end": "incomplete", "reason": reason});
        let Some(ran) = play(json!([cut, {"out": [add("3")]}, {"out": [{"text": "done"}]}])).await else {
            return;
        };
        assert_eq!((ran.text.as_str(), ran.outcome), ("done", AgentOutcome::Completed));
        assert_eq!(ran.calls, ["add 3"], "{reason}");
    }
}

#[tokio::test]
async fn a_text_that_is_cut_off_is_continued_without_ids() {
    let cut =
        json!({"out": [{"reasoning": "Hm"}, {"text": "one ", "status": "incomplete"}], "end": "incomplete"});
    let script = json!([cut, {"out": [{"reasoning": "Hm"}, {"text": "two"}]}]);
    let continuing = |agent: AgentBuilder| {
        let length = LengthPolicy::Continue { max: 1, prompt: "Go on.".into() };
        let config = agent.current_config();
        agent.config(ReactConfig { length, ..config })
    };
    let Some(ran) = play_as(script, |_| (), continuing).await else { return };
    assert_eq!((ran.text.as_str(), ran.answered()), ("one two", vec![200; 3]));
    // The joined text is not one of the server's answers.
    for line in &ran.log {
        let input = line.body["input"].as_array().unwrap();
        assert!(input.iter().all(|item| item.get("id").is_none()), "{}", line.body);
    }
}

#[tokio::test]
async fn a_withheld_answer_ends_the_turn() {
    let withheld = json!({"out": [{"text": "We"}, {"call": ["add", "{}"], "cut": 1}], "end": "incomplete", "reason": "content_filter"});
    let text = json!({"out": [{"text": "We"}], "end": "incomplete", "reason": "content_filter"});
    let Some(ran) = play(json!([text])).await else { return };
    assert_eq!((ran.outcome, ran.answered().len()), (AgentOutcome::ContentFilter, 2));
    let refused = json!({"out": [{"reasoning": "Hm"}, {"refusal": "I cannot."}]});
    let Some(ran) = play(json!([refused])).await else { return };
    assert_eq!(
        (ran.text.as_str(), ran.outcome, ran.answered().len()),
        ("I cannot.", AgentOutcome::Refused, 2)
    );
    let whole = json!({"out": [{"reasoning": "Hm"}, {"text": "We"}, add("1")], "end": "incomplete", "reason": "content_filter"});
    for answer in [withheld, whole] {
        let Some(ran) = play(json!([answer])).await else { return };
        assert_eq!((ran.text.as_str(), ran.outcome), ("We", AgentOutcome::ContentFilter));
        assert_eq!((ran.calls, ran.log.len()), (Vec::<String>::new(), 2));
    }
}

#[tokio::test]
async fn a_failed_attempt_is_discarded_and_repeated() {
    let out = json!([{"reasoning": "Hm"}, add("1")]);
    let failed = |answer: Value| json!([answer, {"out": out}, {"out": [{"text": "done"}]}]);
    let rate = json!({"code": "rate_limit_exceeded", "message": "Slow down"});
    let event = json!({"index": 6, "data": {"type": "error", "code": "server_error", "message": "Oops", "param": null}});
    for answer in [
        json!({"out": [{"text": "Well"}, add("1")], "end": "failed", "error": rate}),
        json!({"out": out, "error_at": event}),
        json!({"out": out, "eof": 13}),
        json!({"out": out, "cut": 11}),
    ] {
        let Some(ran) = play(failed(answer.clone())).await else { return };
        assert_eq!((ran.text.as_str(), &ran.outcome), ("done", &AgentOutcome::Completed), "{answer}");
        assert_eq!((ran.n("attempt_discarded"), ran.n("retry")), (1, 1), "{answer}");
        assert_eq!((ran.calls, ran.log.len()), (vec!["add 1".to_owned()], 4), "{answer}");
    }
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_reduced_once() {
    let long =
        json!({"http": 400, "body": {"error": {"message": "Long", "code": "context_length_exceeded"}}});
    let script =
        json!([{"out": [{"reasoning": "Hm"}, {"call": ["big", "{}"]}]}, long, {"out": [{"text": "done"}]}]);
    let layers = vec![ContextLayer::MicroCompact(Truncate::chars(500, "…"))];
    let context =
        ContextConfig { budget: ContextBudget::Tokens(100_000), layers, ..ContextConfig::default() };
    let reduced = |agent: AgentBuilder| {
        let config = agent.current_config();
        agent.config(ReactConfig { context, ..config })
    };
    let Some(ran) = play_as(script, |_| (), reduced).await else { return };
    assert_eq!((ran.text.as_str(), ran.answered()), ("done", vec![200, 400, 200, 200]));
    let length = |n| ran.outputs(n)[0].as_str().unwrap().len();
    assert!(length(1) == 9000 && length(2) < 1000, "{} {}", length(1), length(2));
}

#[tokio::test]
async fn three_calls_have_their_outputs_in_their_order() {
    let out =
        json!([{"reasoning": "Hm"}, {"call": ["slow", "{\"x\":\"1\"}"]}, {"call": ["send", "{}"]}, add("3")]);
    let deny = |agent: AgentBuilder| agent.permissions([PermissionRule::new("send", Permit::Deny)]);
    let script = json!([{"out": out}, {"out": [{"text": "done"}]}]);
    let Some(mut ran) = play_as(script, |_| (), deny).await else { return };
    ran.calls.sort();
    assert_eq!(ran.calls, ["add 3", "slow 1"]);
    let outputs = ran.outputs(1);
    assert_eq!((outputs.len(), outputs[0], outputs[2]), (3, &json!("slow: 1"), &json!("add: 3")));
    assert_eq!(types(&ran.log[1].body)[1], "reasoning");
}

#[tokio::test]
async fn an_image_is_in_the_output_or_described() {
    for images in [true, false] {
        let script =
            json!([{"out": [{"reasoning": "Hm"}, {"call": ["look", "{}"]}]}, {"out": [{"text": "done"}]}]);
        let change = |config: &mut ResponsesConfig| config.accepts = Accepts { images, ..Accepts::NOTHING };
        let Some(ran) = play_as(script, change, |agent| agent).await else { return };
        for n in [1, 2] {
            let output = ran.outputs(n)[0];
            assert_eq!(output[1]["type"] == "input_image", images, "{output}");
            assert!(output.to_string().contains("[image: image/gif, 14 bytes]"), "{output}");
        }
    }
}

#[tokio::test]
async fn the_reasoning_of_a_model_is_not_sent_to_its_fallback() {
    let quota = json!({"http": 429, "body": {"error": {"message": "Pay", "code": "insufficient_quota"}}});
    let script = json!([
        {"out": [{"reasoning": "Hm"}, add("1")]}, quota, {"out": [{"reasoning": "Hm"}, add("2")]}, {"out": [{"text": "done"}]},
    ]);
    let server_of = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&server_of);
    let change = move |config: &mut ResponsesConfig| told.lock().unwrap().clone_from(&config.base_url);
    let spare = |agent: AgentBuilder| {
        let config = ResponsesConfig::new(server_of.lock().unwrap().as_str(), KEY, "m2");
        agent.fallback(ResponsesModel::new(config).unwrap())
    };
    let Some(ran) = play_as(script, change, spare).await else { return };
    assert_eq!((ran.text.as_str(), ran.n("retry"), ran.n("model_fallback")), ("done", 0, 1));
    let models: Vec<_> = ran.log.iter().map(|line| line.body["model"].as_str().unwrap()).collect();
    assert_eq!(models[..3], ["m", "m", "m2"]);
    assert_eq!(types(&ran.log[2].body), ["message", "function_call", "function_call_output"]);
}

#[tokio::test]
async fn the_example_reasons_and_calls_its_tool() {
    let script = json!({"config": {"reasoning_model": true, "repeat_last": false}, "answers": [
        {"out": [{"reasoning": "Hm"}, {"call": ["days_left", "{\"day\":61,\"year\":2028}"]}]},
        {"out": [{"text": "305"}]},
        {"out": [{"text": "305 as well"}]},
    ]});
    let Some(server) = Strict::start("responses", &script) else { return };
    let config = ResponsesConfig::new(format!("{}/v1", server.origin()), "", "m");
    let agent = example::agent(config).unwrap();
    assert_eq!(example::ask(&agent, "How many days?").await.unwrap(), "305");
    assert_eq!(example::ask(&agent, "And of 2029?").await.unwrap(), "305 as well");
    let log = server.accepted();
    assert_eq!(log[0].body["reasoning"], json!({"effort": "low", "summary": "auto"}));
    assert_eq!(log[1].body["input"][3]["output"], "305");
    assert_eq!(types(&log[2].body)[1], "reasoning");
    assert_eq!(log[0].headers.get("authorization"), None);
}
