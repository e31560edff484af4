//! Agents on the Messages API: the faults of a turn, and the turn after it.

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
        config::{
            AfterEmpty, AtLimit, ContextBudget, ContextConfig, ContextLayer, EmptyPolicy, LengthPolicy,
            Limit, LimitUnit, PermissionRule, Permit, Truncate,
        },
    },
    llm::{AnthropicConfig, AnthropicModel, ModelRetry, ResponsesConfig, ResponsesModel, retries::Jitter},
};

use super::{
    super::{
        rounds::recording,
        strict::{Logged, Strict},
    },
    KEY, served_as, types,
};

#[expect(dead_code, reason = "its `main` reads the environment")]
#[path = "../../../../examples/anthropic.rs"]
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

    /// Returns the last content of the n-th request.
    fn last(&self, n: usize) -> &Value {
        &self.log[n].body["messages"].as_array().unwrap().last().unwrap()["content"]
    }
}

async fn play(answers: Value) -> Option<Ran> {
    play_as(answers, json!({}), |_| (), |agent| agent).await
}

/// Runs two turns. The second one has the answer `ok`.
async fn play_as(
    answers: Value,
    settings: Value,
    change: impl FnOnce(&mut AnthropicConfig),
    build: impl FnOnce(AgentBuilder) -> AgentBuilder,
) -> Option<Ran> {
    let Value::Array(mut answers) = answers else { panic!("a script is a list") };
    answers.push(json!({"blocks": [{"thinking": "Hm"}, {"text": "ok"}]}));
    let (server, model) = served_as(answers.into(), settings, change)?;
    let calls = Arc::default();
    let agent = builder(model, &calls).checkpointer(MemoryCheckpointer::new());
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

fn builder(model: AnthropicModel, calls: &Arc<Mutex<Vec<String>>>) -> AgentBuilder {
    let preset = ReactConfig::graph(9);
    let retry = ModelRetry { base: Duration::from_millis(1), jitter: Jitter::None, ..preset.retry };
    Agent::builder(model).tools(recording(calls)).config(ReactConfig { retry, loops: Vec::new(), ..preset })
}

fn add(x: &str) -> Value {
    json!({"use": ["add", json!({"x": x}).to_string()]})
}

/// Returns the numbers of signed blocks in each request, after a check that all are as they were sent.
fn signed(log: &[Logged]) -> Vec<usize> {
    let blocks = |line: &Logged| {
        let verbatim = line.other["verbatim"].as_object().unwrap();
        assert!(verbatim.values().all(|same| same == true), "{verbatim:?}");
        assert_eq!(line.other["transformations"], json!([]));
        verbatim.len()
    };
    log.iter().map(blocks).collect()
}

#[tokio::test]
async fn a_turn_with_reasoning_sends_it_back_in_all_later_requests() {
    let script = json!([
        {"blocks": [{"thinking": "One"}, {"redacted": true}, {"text": "I add."}, add("1")]},
        {"blocks": [{"thinking": ""}, add("2"), add("3")]},
        {"blocks": [{"thinking": "Three"}, {"text": "6"}]},
    ]);
    let Some(ran) = play(script).await else { return };
    assert_eq!((ran.text.as_str(), &ran.outcome), ("6", &AgentOutcome::Completed));
    assert_eq!((ran.calls, ran.log.len()), (vec!["add 1".into(), "add 2".into(), "add 3".into()], 4));
    assert_eq!(signed(&ran.log), [0, 2, 3, 4]);
}

#[tokio::test]
async fn hints_and_tools_stay_in_place_while_the_model_reasons() {
    let script = json!([
        {"blocks": [{"thinking": "One"}, add("1")]},
        {"blocks": [{"thinking": "Two"}, add("2")]},
        {"blocks": [{"thinking": "Three"}, {"text": "enough"}]},
    ]);
    let limited = |agent: AgentBuilder| {
        let config = agent.current_config();
        let at = AtLimit::NoToolsCall { hint: Some("Answer now.".into()) };
        let limit = Limit { max: 2, unit: LimitUnit::ModelCalls, at };
        agent.config(ReactConfig { limit, remaining_hint: Some("{left} of {max} left".into()), ..config })
    };
    let Some(ran) = play_as(script, json!({}), |_| (), limited).await else { return };
    assert_eq!((ran.text.as_str(), ran.outcome), ("enough", AgentOutcome::Limit));
    assert_eq!(signed(&ran.log), [0, 1, 2, 3]);
    let last = &ran.log[2].body;
    assert_eq!((&last["tool_choice"]["type"], &last["tools"]), (&json!("none"), &ran.log[0].body["tools"]));
    let text = last.to_string();
    assert!(text.contains("Answer now.") && text.contains("of 2 left"), "{text}");
    // The next turn has them too.
    assert!(ran.log[3].body.to_string().contains("Answer now."));
}

#[tokio::test]
async fn calls_that_are_cut_off_or_withheld_are_not_executed() {
    for (stop, done) in [("max_tokens", "done"), ("refusal", "")] {
        let cut = json!({"blocks": [{"thinking": "Hm"}, {"use": ["add", "{\"x\":\"1\"}"], "open": true}], "stop": stop});
        let script = if done.is_empty() { json!([cut]) } else { json!([cut, {"blocks": [{"text": done}]}]) };
        let Some(ran) = play(script).await else { return };
        assert_eq!((ran.calls.len(), ran.text.contains(done)), (0, true), "{stop}");
    }
}

#[tokio::test]
async fn a_refusal_ends_the_turn_and_is_not_sent_again() {
    let text = json!({"text": "I can"});
    for blocks in [
        json!([text]),
        json!([{"thinking": "Hm"}, text, add("1")]),
        json!([text, {"use": ["add", "{}"], "open": true}]),
        json!([text, {"thinking": "Hm", "open": true}]),
    ] {
        let refusal = json!({"blocks": blocks, "stop": "refusal", "stop_details": {"category": "cyber"}});
        let Some(ran) = play(json!([refusal])).await else { return };
        assert_eq!((ran.outcome, ran.text.as_str()), (AgentOutcome::Refused, "I can"));
        assert_eq!((ran.calls, ran.log.len()), (Vec::<String>::new(), 2));
        assert!(!ran.log[1].body.to_string().contains("I can"), "{}", ran.log[1].body);
    }
}

#[tokio::test]
async fn an_empty_answer_after_results_is_not_stored() {
    let script =
        json!([{"blocks": [{"thinking": "Hm"}, add("1")]}, {"blocks": []}, {"blocks": [{"text": "done"}]}]);
    let retrying = |agent: AgentBuilder| {
        let empty = EmptyPolicy::Retry { max: 2, nudge: None, then: AfterEmpty::Stop };
        let config = agent.current_config();
        agent.config(ReactConfig { empty, ..config })
    };
    let Some(ran) = play_as(script, json!({}), |_| (), retrying).await else { return };
    assert_eq!((ran.text.as_str(), ran.answered()), ("done", vec![200; 4]));
    assert_eq!(signed(&ran.log)[2..], [1, 1]);
}

#[tokio::test]
async fn a_failed_attempt_is_discarded_and_repeated() {
    let blocks = json!([{"thinking": "Hm"}, {"text": "Well"}, add("1")]);
    let overloaded = json!({"type": "overloaded_error", "message": "Overloaded"});
    for answer in [
        json!({"blocks": blocks, "error_at": {"index": 9, "error": overloaded}}),
        json!({"blocks": blocks, "eof": 9}),
        json!({"blocks": blocks, "cut": 9}),
    ] {
        let script = json!([answer, {"blocks": blocks}, {"blocks": [{"text": "done"}]}]);
        let Some(ran) = play(script).await else { return };
        assert_eq!((ran.text.as_str(), &ran.outcome), ("done", &AgentOutcome::Completed), "{answer}");
        assert_eq!((ran.n("attempt_discarded"), ran.n("retry")), (1, 1), "{answer}");
        assert_eq!((ran.calls.len(), ran.log.len()), (1, 4), "{answer}");
    }
    let body = json!({"type": "error", "error": overloaded});
    let busy = json!({"http": 529, "body": body});
    let Some(ran) = play(json!([busy, busy, {"blocks": [{"text": "done"}]}])).await else { return };
    assert_eq!((ran.text.as_str(), ran.n("retry")), ("done", 2));
    let final_word = json!({"http": 529, "headers": {"x-should-retry": "false"}, "body": body});
    let Some(ran) = play(json!([final_word])).await else { return };
    assert_eq!((ran.outcome, ran.n("retry"), ran.log.len()), (AgentOutcome::LlmError, 0, 2));
}

fn reduced(agent: AgentBuilder) -> AgentBuilder {
    let layers = vec![ContextLayer::MicroCompact(Truncate::chars(500, "…"))];
    let context =
        ContextConfig { budget: ContextBudget::Tokens(100_000), layers, ..ContextConfig::default() };
    let config = agent.current_config();
    agent.config(ReactConfig { context, ..config })
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_reduced_once() {
    let refused = |status: u16, kind: &str, message: &str| json!({"http": status, "body": {"type": "error", "error": {"type": kind, "message": message}}});
    for long in [
        refused(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
        refused(413, "request_too_large", "Request exceeds the maximum size"),
    ] {
        is_reduced(long).await;
    }
}

async fn is_reduced(long: Value) {
    let status = long["http"].as_u64().unwrap() as u16;
    let script = json!([{"blocks": [{"thinking": "Hm"}, {"use": ["big", "{}"]}]}, long, {"blocks": [{"text": "done"}]}]);
    let Some(ran) = play_as(script, json!({}), |_| (), reduced).await else { return };
    assert_eq!((ran.text.as_str(), ran.answered()), ("done", vec![200, status, 200, 200]));
    let length = |n| ran.last(n)[0].to_string().len();
    assert!(length(1) > 9000 && length(2) < 1000, "{} {}", length(1), length(2));
}

#[tokio::test]
async fn a_full_window_makes_later_requests_smaller() {
    let full = json!({"blocks": [{"text": "Some"}], "stop": "model_context_window_exceeded"});
    let script = json!([{"blocks": [{"use": ["big", "{}"]}]}, full, {"blocks": [{"text": " more"}]}]);
    let Some(ran) = play_as(
        script,
        json!({}),
        |_| (),
        |agent| {
            let agent = reduced(agent);
            let config = agent.current_config();
            agent.config(ReactConfig {
                length: LengthPolicy::Continue { max: 3, prompt: "Continue.".into() },
                ..config
            })
        },
    )
    .await
    else {
        return;
    };
    assert_eq!(ran.text, "Some more");
    let size = |n: usize| ran.log[n].body.to_string().len();
    assert!(size(2) + 5000 < size(1), "{} {}", size(1), size(2));
}

#[tokio::test]
async fn three_calls_have_their_results_first_and_in_their_order() {
    let blocks =
        json!([{"thinking": "Hm"}, {"use": ["slow", "{\"x\":\"1\"}"]}, {"use": ["send", "{}"]}, add("3")]);
    let deny = |agent: AgentBuilder| agent.permissions([PermissionRule::new("send", Permit::Deny)]);
    let script = json!([{"blocks": blocks}, {"blocks": [{"text": "done"}]}]);
    let Some(mut ran) = play_as(script, json!({}), |_| (), deny).await else { return };
    ran.calls.sort();
    assert_eq!(ran.calls, ["add 3", "slow 1"]);
    let results = ran.last(1);
    assert_eq!(types(results), ["tool_result"; 3]);
    let texts: Vec<_> = [0, 2].map(|n: usize| results[n]["content"][0]["text"].clone()).into();
    assert_eq!(texts, ["slow: 1", "add: 3"]);
}

#[tokio::test]
async fn broken_arguments_are_answered_and_go_back_as_a_text() {
    let script = json!([{"blocks": [{"thinking": "Hm"}, {"use": ["add", "{\"x\": "]}]}, {"blocks": [{"text": "done"}]}]);
    let Some(ran) = play(script).await else { return };
    assert_eq!((ran.text.as_str(), ran.calls.len()), ("done", 0));
    assert_eq!(signed(&ran.log), [0, 1, 1]);
    assert_eq!(ran.log[1].body["messages"][1]["content"][1]["input"], json!({"_raw": "{\"x\": "}));
    assert!(ran.last(1)[0]["content"][0]["text"].as_str().unwrap().contains("Error"), "{}", ran.last(1));
}

#[tokio::test]
async fn a_call_without_an_end_is_not_executed_for_an_unknown_reason() {
    let open = json!({"blocks": [{"thinking": "Hm"}, {"use": ["add", "{\"x\":\"1\"}"], "open": true}], "stop": "new_reason"});
    let Some(ran) = play(json!([open, {"blocks": [{"text": "done"}]}])).await else { return };
    assert_eq!((ran.text.as_str(), ran.calls.len()), ("done", 0));
}

#[tokio::test]
async fn reasoning_that_is_cut_off_ends_the_turn_and_is_not_stored() {
    let cut = json!({"blocks": [{"text": "Well."}, {"thinking": "Hm", "open": true}], "stop": "max_tokens"});
    let Some(ran) = play(json!([cut])).await else { return };
    assert_eq!((ran.text.as_str(), signed(&ran.log)), ("Well.", vec![0, 0]));
}

#[tokio::test]
async fn a_paused_turn_is_continued_and_then_calls_its_tools() {
    let search =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}});
    let paused = json!({"blocks": [{"thinking": "Hm"}, {"block": search}], "stop": "pause_turn"});
    let script = json!([paused, {"blocks": [{"text": "I add."}, add("1")]}, {"blocks": [{"text": "done"}]}]);
    let Some(ran) = play_as(script, json!({"prefill": true}), |_| (), |agent| agent).await else { return };
    assert_eq!((ran.text.as_str(), ran.calls, ran.log.len()), ("done", vec!["add 1".to_owned()], 4));
    assert_eq!(
        types(&ran.log[3].body["messages"][1]["content"]),
        ["thinking", "server_tool_use", "text", "tool_use"]
    );
}

#[tokio::test]
async fn a_message_during_a_round_follows_all_of_its_results() {
    let blocks =
        json!([{"thinking": "Hm"}, {"use": ["slow", "{\"x\":\"1\"}"]}, {"use": ["send", "{}"]}, add("3")]);
    let script = json!([{"blocks": blocks}, {"blocks": [{"thinking": "So"}, {"text": "done"}]}, {"blocks": [{"text": "ok"}]}]);
    let Some((server, model)) = served_as(script, json!({}), |_| ()) else { return };
    let calls = Arc::default();
    let agent = builder(model, &calls).checkpointer(MemoryCheckpointer::new());
    let agent = agent.permissions([PermissionRule::new("send", Permit::Deny)]).build().unwrap();
    let mut turn = agent.thread("t").ask_stream("go");
    let mut is_said = false;
    while let Some(event) = turn.next().await {
        if event.name() == "tool_start" && !std::mem::replace(&mut is_said, true) {
            agent.thread("t").steer("Hurry.").await.unwrap();
        }
    }
    assert_eq!(turn.reply().await.unwrap().text, "done");
    agent.thread("t").ask("go on").await.unwrap();
    let log = server.accepted();
    assert_eq!(signed(&log), [0, 1, 2]);
    let behind = &log[1].body["messages"][2]["content"];
    assert_eq!(types(behind), ["tool_result", "tool_result", "tool_result", "text"]);
    assert_eq!(behind[3]["text"], "Hurry.");
}

#[tokio::test]
async fn an_image_is_in_the_result() {
    let script =
        json!([{"blocks": [{"thinking": "Hm"}, {"use": ["look", "{}"]}]}, {"blocks": [{"text": "done"}]}]);
    let Some(ran) = play(script).await else { return };
    assert_eq!(types(&ran.last(1)[0]["content"]), ["text", "image"]);
}

#[tokio::test]
async fn refused_reasoning_is_never_sent_again() {
    // The server forgets what it signed: as if the account had another key.
    let blocks = json!([{"thinking": "Hm"}, add("1")]);
    let invalid = json!({"http": 400, "body": {"type": "error", "error": {"type": "invalid_request_error",
        "message": "messages.1.content.0: Invalid `signature` in `thinking` block"}}});
    let script = json!([{"blocks": blocks}, invalid, {"blocks": [{"thinking": "New"}, add("2")]}, {"blocks": [{"text": "done"}]}]);
    let calls = Arc::default();
    let mut answers = script.as_array().unwrap().clone();
    answers.push(json!({"blocks": [{"text": "ok"}]}));
    let Some((server, model)) = served_as(answers.into(), json!({}), |_| ()) else { return };
    let agent = builder(model, &calls).checkpointer(MemoryCheckpointer::new()).build().unwrap();
    let mut turn = agent.thread("t").ask_stream("go");
    let mut dropped = 0;
    while let Some(event) = turn.next().await {
        dropped += usize::from(event.name() == "reasoning_dropped");
    }
    assert_eq!((turn.reply().await.unwrap().text.as_str(), dropped), ("done", 1));
    agent.thread("t").ask("go on").await.unwrap();
    let log = server.log();
    let statuses: Vec<_> = log.iter().map(|line| line.status).collect();
    assert_eq!(statuses, [200, 400, 200, 200, 200]);
    let thoughts = |line: &Logged| line.body.to_string().matches("\"type\":\"thinking\"").count();
    assert_eq!(log[2..].iter().map(thoughts).collect::<Vec<_>>(), [0, 1, 1]);
}

#[tokio::test]
async fn a_thread_goes_on_after_a_copy_and_another_provider() {
    let spare =
        json!({"config": {"key": KEY}, "answers": [{"out": [{"reasoning": "Hm"}, {"text": "spare"}]}]});
    let Some(other) = Strict::start("responses", &spare) else { return };
    let paid =
        json!({"http": 402, "body": {"type": "error", "error": {"type": "billing_error", "message": "Pay"}}});
    let script = json!([
        {"blocks": [{"thinking": "One"}, add("1")]}, {"blocks": [{"thinking": "Two"}, {"text": "two"}]},
        {"blocks": [{"thinking": "Three"}, {"text": "fork"}]},
        paid,
        {"blocks": [{"thinking": "Back"}, {"text": "back"}]},
    ]);
    let Some((server, model)) = served_as(script, json!({}), |_| ()) else { return };
    let config = ResponsesConfig::new(format!("{}/v1", other.origin()), KEY, "m2");
    let store = Arc::new(MemoryCheckpointer::new());
    let calls = Arc::default();
    let agent = |model: AnthropicModel| {
        let spare = ResponsesModel::new(config.clone()).unwrap();
        builder(model, &calls)
            .fallback(spare)
            .checkpointer(store.clone() as Arc<dyn Checkpointer>)
            .build()
            .unwrap()
    };
    let agent = agent(model);
    let thread = agent.thread("t");
    assert_eq!(thread.ask("go").await.unwrap().text, "two");
    // A fork has the requests of its parent.
    store.copy(&"t".into(), &"fork".into()).await.unwrap();
    assert_eq!(agent.thread("fork").ask("on").await.unwrap().text, "fork");
    // Another provider, and back.
    assert_eq!(thread.ask("on").await.unwrap().text, "spare");
    assert_eq!(thread.ask("again").await.unwrap().text, "back");
    let log = server.accepted();
    let bodies: Vec<_> = log.iter().map(|line| line.body.to_string()).collect();
    assert_eq!(signed(&log[..3]), [0, 1, 2]);
    let thoughts = |n: usize| bodies[n].matches("\"type\":\"thinking\"").count();
    assert_eq!([thoughts(3), thoughts(4)], [2, 2]);
    assert!(!other.accepted()[0].body.to_string().contains("signature"));
}

#[tokio::test]
async fn the_example_reasons_and_calls_its_tool() {
    let script = json!({"config": {"repeat_last": false}, "answers": [
        {"blocks": [{"thinking": "Hm"}, {"use": ["days_left", "{\"day\":61,\"year\":2028}"]}]},
        {"blocks": [{"text": "305"}]},
        {"blocks": [{"text": "305 as well"}]},
    ]});
    let Some(server) = Strict::start("anthropic", &script) else { return };
    let agent = example::agent(AnthropicConfig::new(server.origin(), "", "m")).unwrap();
    assert_eq!(example::ask(&agent, "How many days?").await.unwrap(), "305");
    assert_eq!(example::ask(&agent, "And of 2029?").await.unwrap(), "305 as well");
    assert_eq!(signed(&server.accepted()), [0, 1, 1]);
}
