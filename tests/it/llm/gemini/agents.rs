//! Agents on the API of Gemini: the faults of a turn, and the turn after it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    Checkpointer, MemoryCheckpointer,
    agent::{
        Agent, AgentBuilder, AgentOutcome, ReactConfig,
        config::{AtLimit, Limit, LimitUnit, PermissionRule, Permit},
    },
    llm::{GeminiConfig, GeminiModel, ModelRetry, ResponsesConfig, ResponsesModel, retries::Jitter},
};

use super::{
    super::{
        rounds::recording,
        strict::{Logged, Strict},
    },
    KEY, served_as,
};

#[expect(dead_code, reason = "its `main` reads the environment")]
#[path = "../../../../examples/gemini.rs"]
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
    fn n(&self, event: &str) -> usize {
        self.events.iter().filter(|name| **name == event).count()
    }

    /// Returns the numbers of signatures in each request, after a check that none is missing.
    fn signed(&self) -> Vec<u64> {
        signed(&self.log)
    }
}

fn signed(log: &[Logged]) -> Vec<u64> {
    let count = |line: &Logged| {
        let [sent, made] = [0, 1].map(|n: usize| line.other["signed"][n].as_u64().unwrap());
        assert_eq!(sent, made, "{}", line.body);
        sent
    };
    log.iter().map(count).collect()
}

async fn play(answers: Value) -> Option<Ran> {
    play_as(answers, |agent| agent).await
}

/// Runs two turns. The second one has the answer `ok`.
async fn play_as(answers: Value, build: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Option<Ran> {
    let Value::Array(mut answers) = answers else { panic!("a script is a list") };
    answers.push(json!({"parts": [{"text": "ok"}]}));
    let (server, model) = served_as(answers.into(), json!({}), |_| ())?;
    let calls = Arc::default();
    let agent = build(builder(model, &calls).checkpointer(MemoryCheckpointer::new())).build().unwrap();
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

fn builder(model: GeminiModel, calls: &Arc<Mutex<Vec<String>>>) -> AgentBuilder {
    let preset = ReactConfig::graph(9);
    let retry = ModelRetry { base: Duration::from_millis(1), jitter: Jitter::None, ..preset.retry };
    Agent::builder(model).tools(recording(calls)).config(ReactConfig { retry, loops: Vec::new(), ..preset })
}

fn add(x: &str) -> Value {
    json!({"call": ["add", {"x": x}]})
}

#[tokio::test]
async fn a_turn_with_calls_sends_their_signatures_in_all_later_requests() {
    let script = json!([
        {"parts": [{"thought": "One"}, {"text": "I add."}, add("1")]},
        {"parts": [add("2"), add("3")]},
        {"parts": [{"thought": "Three"}, {"text": "6"}]},
    ]);
    let Some(ran) = play(script).await else { return };
    assert_eq!((ran.text.as_str(), &ran.outcome), ("6", &AgentOutcome::Completed));
    assert_eq!(ran.calls, ["add 1", "add 2", "add 3"]);
    assert_eq!(ran.signed(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_failed_attempt_is_discarded_and_repeated() {
    let parts = json!([{"thought": "Hm"}, {"text": "Well"}, add("1")]);
    let busy = json!({"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"});
    for (answer, is_begun) in [
        (json!({"parts": parts, "error_at": {"index": 5, "error": busy}}), true),
        (json!({"parts": parts, "eof": 5}), true),
        (json!({"parts": parts, "cut": 5}), true),
        (json!({"parts": [{"text": "print("}], "finish": "MALFORMED_FUNCTION_CALL"}), true),
        (json!({"empty": true}), true),
        (json!({"http": 503, "body": {"error": busy}}), false),
    ] {
        let script = json!([answer, {"parts": parts}, {"parts": [{"text": "done"}]}]);
        let Some(ran) = play(script).await else { return };
        assert_eq!((ran.text.as_str(), &ran.outcome), ("done", &AgentOutcome::Completed), "{answer}");
        assert_eq!((ran.n("attempt_discarded") > 0, ran.n("retry")), (is_begun, 1), "{answer}");
        assert_eq!((ran.calls.len(), ran.log.len()), (1, 4), "{answer}");
    }
}

#[tokio::test]
async fn a_model_that_cannot_call_is_replaced() {
    let spare =
        json!({"config": {"key": KEY}, "answers": [{"out": [{"reasoning": "Hm"}, {"text": "spare"}]}]});
    let Some(other) = Strict::start("responses", &spare) else { return };
    let malformed = json!({"parts": [{"text": "x"}], "finish": "MALFORMED_FUNCTION_CALL"});
    let spare =
        ResponsesModel::new(ResponsesConfig::new(format!("{}/v1", other.origin()), KEY, "m2")).unwrap();
    let with_spare = |agent: AgentBuilder| agent.fallback(spare);
    let retries = ReactConfig::graph(9).retry.max_attempts as usize;
    let Some(ran) = play_as(json!(vec![malformed; retries]), with_spare).await else { return };
    assert_eq!((ran.text.as_str(), ran.n("model_fallback"), ran.log.len()), ("spare", 1, retries + 1));
}

#[tokio::test]
async fn withheld_answers_end_the_turn() {
    for answer in [
        json!({"parts": [{"text": "I can"}], "finish": "SAFETY"}),
        json!({"parts": [{"text": "I can"}, add("1"), add("2")], "finish": "SPII"}),
        json!({"parts": [add("1")], "finish": "RECITATION"}),
        json!({"block": "PROHIBITED_CONTENT"}),
    ] {
        let Some(ran) = play(json!([answer])).await else { return };
        assert_eq!(ran.outcome, AgentOutcome::ContentFilter, "{answer}");
        assert_eq!((ran.calls, ran.log.len()), (Vec::<String>::new(), 2), "{answer}");
    }
}

#[tokio::test]
async fn the_last_step_has_the_same_tools_and_may_not_call_them() {
    let script = json!([{"parts": [add("1")]}, {"parts": [{"text": "enough"}]}]);
    let limited = |agent: AgentBuilder| {
        let config = agent.current_config();
        let at = AtLimit::NoToolsCall { hint: Some("Answer now.".into()) };
        agent.config(ReactConfig { limit: Limit { max: 1, unit: LimitUnit::ModelCalls, at }, ..config })
    };
    let Some(ran) = play_as(script, limited).await else { return };
    assert_eq!((ran.text.as_str(), &ran.outcome), ("enough", &AgentOutcome::Limit));
    let last = &ran.log[1].body;
    assert_eq!(last["tools"], ran.log[0].body["tools"]);
    assert_eq!(last["toolConfig"]["functionCallingConfig"]["mode"], "NONE");
    assert_eq!(ran.signed(), [0, 1, 2]);
}

#[tokio::test]
async fn three_calls_have_their_results_in_their_order() {
    let calls = json!([{"call": ["slow", {"x": "1"}]}, {"call": ["send", {}]}, add("3")]);
    let deny = |agent: AgentBuilder| agent.permissions([PermissionRule::new("send", Permit::Deny)]);
    let script = json!([{"parts": calls}, {"parts": [{"text": "done"}]}]);
    let Some(mut ran) = play_as(script, deny).await else { return };
    ran.calls.sort();
    assert_eq!(ran.calls, ["add 3", "slow 1"]);
    let results = ran.log[1].body["contents"][2]["parts"].as_array().unwrap();
    let result = |n: usize| &results[n]["functionResponse"];
    let names: Vec<_> = (0..3).map(|n| &result(n)["name"]).collect();
    assert_eq!(names, ["slow", "send", "add"]);
    assert_eq!([0, 2].map(|n| &result(n)["response"]["output"]), ["slow: 1", "add: 3"]);
}

#[tokio::test]
async fn a_thread_goes_on_after_a_copy_and_another_provider() {
    let spare = json!({"config": {"key": KEY}, "answers": [
        {"out": [{"reasoning": "Hm"}, {"call": ["add", "{\"x\":\"9\"}"]}]}, {"out": [{"text": "spare"}]},
    ]});
    let Some(other) = Strict::start("responses", &spare) else { return };
    let spent = json!({"http": 429, "body": {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED",
        "details": [{"violations": [{"quotaId": "GenerateRequestsPerDay"}]}]}}});
    let script = json!([
        {"parts": [add("1")]}, {"parts": [{"text": "two"}]},
        {"parts": [{"text": "fork"}]},
        spent,
        {"parts": [add("2")]}, {"parts": [{"text": "back"}]},
    ]);
    let Some((server, model)) = served_as(script, json!({}), |_| ()) else { return };
    let store = Arc::new(MemoryCheckpointer::new());
    let calls = Arc::default();
    let config = ResponsesConfig::new(format!("{}/v1", other.origin()), KEY, "m2");
    let agent = builder(model, &calls)
        .fallback(ResponsesModel::new(config).unwrap())
        .checkpointer(store.clone() as Arc<dyn Checkpointer>)
        .build()
        .unwrap();
    let thread = agent.thread("t");
    assert_eq!(thread.ask("go").await.unwrap().text, "two");
    // A fork has the requests of its parent.
    store.copy(&"t".into(), &"fork".into()).await.unwrap();
    assert_eq!(agent.thread("fork").ask("on").await.unwrap().text, "fork");
    assert_eq!(signed(&server.accepted()), [0, 1, 2]);
    // Another provider, and back: its call has the signature that is defined for such calls.
    assert_eq!(thread.ask("on").await.unwrap().text, "spare");
    assert_eq!(thread.ask("again").await.unwrap().text, "back");
    let log = server.accepted();
    let last = log.last().unwrap().body.to_string();
    assert_eq!(last.matches("skip_thought_signature_validator").count(), 1);
    // Those of the fork's answer and of other requests are not of this thread.
    assert_eq!(log.last().unwrap().other["signed"][0], 3);
    assert!(!other.accepted().iter().any(|line| line.body.to_string().contains("thoughtSignature")));
}

#[tokio::test]
async fn the_example_reasons_and_calls_its_tool() {
    let script = json!({"config": {"repeat_last": false}, "answers": [
        {"parts": [{"thought": "Hm"}, {"call": ["days_left", {"day": 61, "year": 2028}]}]},
        {"parts": [{"text": "305"}]},
        {"parts": [{"text": "305 as well"}]},
    ]});
    let Some(server) = Strict::start("gemini", &script) else { return };
    let agent = example::agent(GeminiConfig::new(server.origin(), "", "m")).unwrap();
    assert_eq!(example::ask(&agent, "How many days?").await.unwrap(), "305");
    assert_eq!(example::ask(&agent, "And of 2029?").await.unwrap(), "305 as well");
    assert_eq!(signed(&server.accepted()), [0, 1, 2]);
}
