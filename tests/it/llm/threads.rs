//! Threads of models with signed or encrypted reasoning: edits, summaries, other models and back, forks, and faults at every moment.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    Checkpointer, MemoryCheckpointer, State,
    agent::{
        Agent, AgentBuilder, AgentOutcome, AgentState, ReactConfig, Reply,
        config::{ContextBudget, ContextConfig, ContextLayer},
    },
    llm::{
        AnthropicConfig, AnthropicModel, ChatModel, GeminiConfig, GeminiModel, Message, ModelRetry,
        OpenAiConfig, OpenAiModel, ResponsesConfig, ResponsesModel, Role, Thinking,
        media::{Accepts, Media},
        retries::Jitter,
    },
    state::Merge,
};
use tokio_util::sync::CancellationToken;

use super::{
    KEY,
    rounds::recording,
    strict::{Logged, Strict},
};

/// A protocol: its name, the field of an answer with its parts, and the names of reasoning and of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wire(&'static str, &'static str, &'static str, &'static str);

const ANTHROPIC: Wire = Wire("anthropic", "blocks", "thinking", "use");
const WIRES: [Wire; 4] = [
    Wire("chat", "out", "reasoning", "call"),
    Wire("responses", "out", "reasoning", "call"),
    ANTHROPIC,
    Wire("gemini", "parts", "thought", "call"),
];

impl Wire {
    fn answer(self, parts: impl IntoIterator<Item = Value>) -> Value {
        json!({self.1: parts.into_iter().collect::<Vec<_>>()})
    }

    /// Returns reasoning and a call of `add`. In the protocol `chat` it has the id that servers without ids get.
    fn adds(self, x: &str) -> Value {
        self.answer([json!({self.2: "Hm — 😀"}), self.call("add", x)])
    }

    fn call(self, tool: &str, x: &str) -> Value {
        let mut call = json!({self.3: [tool, json!({"x": x}).to_string()]});
        if self.0 == "chat" {
            call["id"] = "call_1".into();
        }
        call
    }

    /// Returns reasoning and a text.
    fn says(self, text: &str) -> Value {
        self.answer([json!({self.2: "So"}), json!({"text": text})])
    }

    /// Returns a refusal that no attempt changes.
    fn spent(self) -> Value {
        let (code, message) = ("insufficient_quota", "Pay");
        let details = json!([{"violations": [{"quotaId": "GenerateRequestsPerDay"}]}]);
        let body = match self.0 {
            "anthropic" => json!({"type": "error", "error": {"type": "billing_error", "message": message}}),
            "gemini" => {
                json!({"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}})
            }
            _ => json!({"error": {"code": code, "message": message}}),
        };
        json!({"http": if self.0 == "anthropic" { 402 } else { 429 }, "body": body})
    }

    fn serve(self, answers: Vec<Value>) -> Option<Strict> {
        self.serve_as(json!({}), answers)
    }

    fn serve_as(self, settings: Value, answers: Vec<Value>) -> Option<Strict> {
        let mut script = json!({"config": {"key": KEY, "repeat_last": false}, "answers": answers});
        script["config"].as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        Strict::start(self.0, &script)
    }

    fn model(self, server: &Strict, name: &str) -> Arc<dyn ChatModel> {
        let (origin, v1) = (server.origin(), format!("{}/v1", server.origin()));
        match self.0 {
            "chat" => Arc::new(OpenAiModel::new(OpenAiConfig::new(v1, KEY, name)).unwrap()),
            "responses" => Arc::new(ResponsesModel::new(ResponsesConfig::new(v1, KEY, name)).unwrap()),
            "anthropic" => Arc::new(AnthropicModel::new(AnthropicConfig::new(origin, KEY, name)).unwrap()),
            _ => Arc::new(GeminiModel::new(GeminiConfig::new(origin, KEY, name)).unwrap()),
        }
    }
}

/// An agent on a server, whose tools record their calls.
struct Run {
    agent: Agent,
    calls: Arc<Mutex<Vec<String>>>,
    store: Arc<MemoryCheckpointer>,
}

impl Run {
    fn new(model: Arc<dyn ChatModel>, build: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Self {
        let (calls, store) = (Arc::default(), Arc::new(MemoryCheckpointer::new()));
        let preset = ReactConfig::graph(9);
        let retry = ModelRetry { base: Duration::from_millis(1), jitter: Jitter::None, ..preset.retry };
        let agent = Agent::builder(model)
            .tools(recording(&calls))
            .config(ReactConfig { retry, loops: Vec::new(), ..preset })
            .checkpointer(store.clone() as Arc<dyn Checkpointer>);
        Self { agent: build(agent).build().unwrap(), calls, store }
    }

    async fn ask(&self, thread: &str, text: &str) -> Reply {
        let reply = self.agent.thread(thread).ask(text).await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::Completed, "{reply:?}");
        reply
    }

    async fn messages(&self) -> Vec<Message> {
        let state = self.agent.graph().thread("t").state().await.unwrap().values;
        state.messages.iter().cloned().collect()
    }

    async fn update(&self, changes: Vec<Merge<Message>>) {
        for change in changes {
            let update = AgentState::update().messages([change]);
            self.agent.graph().thread("t").update(update).await.unwrap();
        }
    }
}

/// Returns the numbers of opaque parts in accepted requests, all of which are as they were sent.
fn opaque(log: &[Logged]) -> Vec<usize> {
    let parts = |line: &Logged| {
        let parts = line.other["verbatim"].as_object().unwrap();
        assert!(parts.values().all(|same| *same == true || *same == "exact"), "{parts:?}");
        parts.len()
    };
    log.iter().map(parts).collect()
}

/// Returns the answers of a turn with two rounds of tools, and of a turn with one.
fn two_turns(wire: Wire) -> Vec<Value> {
    vec![wire.adds("1"), wire.adds("2"), wire.says("3"), wire.adds("4"), wire.says("7")]
}

#[tokio::test]
async fn after_an_edit_the_reasoning_that_is_still_valid_goes_back() {
    /// A change of the conversation, and how many parts of three go back after it, to Anthropic and to others.
    type Edit = (fn(&[Message]) -> Vec<Merge<Message>>, usize, usize);
    let edits: [Edit; 4] = [
        (|all| vec![Merge::Put(all[0].clone().with(|user| user.content = "go further".into()))], 0, 3),
        (|all| vec![Merge::Put(all[5].clone().with(|answer| answer.content = "It is 3.".into()))], 2, 2),
        // A result.
        (|all| vec![Merge::Put(all[2].clone().with(|result| result.content = "9".into()))], 1, 3),
        // The first round.
        (|all| all[1..3].iter().map(|message| Merge::remove(&*message.id)).collect(), 0, 2),
    ];
    for wire in WIRES {
        for (n, (edit, signed, others)) in edits.iter().enumerate() {
            let Some(server) = wire.serve(two_turns(wire)) else { return };
            let run = Run::new(wire.model(&server, "m"), |agent| agent);
            assert_eq!(run.ask("t", "go").await.text, "3");
            let messages = run.messages().await;
            assert_eq!((messages.len(), messages[5].role), (6, Role::Assistant));
            run.update(edit(&messages)).await;
            assert_eq!(run.ask("t", "go on").await.text, "7");
            let kept = if wire == ANTHROPIC { *signed } else { *others };
            assert_eq!(opaque(&server.accepted()), [0, 1, 2, kept, kept + 1], "{wire:?}, edit {n}");
        }
    }
}

/// Summarizes all but the newest messages if the server finds a request too long.
fn summarized(agent: AgentBuilder, keep_recent: usize) -> AgentBuilder {
    let context = ContextConfig {
        budget: ContextBudget::Tokens(100_000),
        layers: vec![ContextLayer::consolidate(keep_recent)],
        ..ContextConfig::default()
    };
    let config = agent.current_config();
    agent.config(ReactConfig { context, ..config })
}

/// Returns the accepted requests, after a check that one was refused for its length, and that they violate no rule but that
/// reasoning within a round goes back: it is bound to a conversation that is summarized now.
fn without_refusal(server: &Strict) -> Vec<Logged> {
    let mut log = server.log();
    let all = log.len();
    log.retain(|line| line.error.is_none());
    assert_eq!(all - log.len(), 1, "one request was too long");
    let rules = log.iter().flat_map(|line| &line.house).filter(|rule| !rule.contains("lacks its"));
    assert_eq!(rules.count(), 0, "{log:?}");
    log
}

#[tokio::test]
async fn after_a_summary_only_reasoning_behind_the_same_conversation_goes_back() {
    for wire in WIRES {
        let mut answers = two_turns(wire);
        answers.insert(3, wire.says("A SUMMARY"));
        let Some(server) = wire.serve_as(json!({"window": 12_500}), answers) else { return };
        let run = Run::new(wire.model(&server, "m"), |agent| summarized(agent, 3));
        run.ask("t", &"a word ".repeat(900)).await;
        assert_eq!(run.ask("t", &"another ".repeat(800)).await.text, "7", "{wire:?}");
        let log = without_refusal(&server);
        // Reasoning is not a part of the request for the summary.
        assert!(!log[3].body.to_string().contains("Hm"), "{}", log[3].body);
        let text = log[4].body.to_string();
        assert!(text.contains("A SUMMARY") && text.contains("another") && !text.contains("a word"), "{text}");
        let counts = opaque(&log);
        let kept = counts[4];
        assert!(kept == 0 || wire != ANTHROPIC && kept == 1, "{wire:?} {counts:?}");
        assert_eq!(counts, [0, 1, 2, 0, kept, kept + 1], "{wire:?}");
    }
}

#[tokio::test]
async fn a_summary_within_a_round_of_calls_leaves_a_valid_request() {
    for wire in WIRES {
        let big = |x| wire.answer([json!({wire.2: "Hm"}), wire.call("big", x)]);
        let answers =
            vec![big("1"), big("2"), big("3"), wire.says("A SUMMARY"), wire.says("done"), wire.says("ok")];
        let Some(server) = wire.serve_as(json!({"window": 24_000}), answers) else { return };
        let run = Run::new(wire.model(&server, "m"), |agent| summarized(agent, 2));
        assert_eq!(run.ask("t", "go").await.text, "done", "{wire:?}");
        assert_eq!(run.ask("t", "and?").await.text, "ok");
        let log = without_refusal(&server);
        assert!(log[4].body.to_string().contains("A SUMMARY"), "{wire:?}");
        assert_eq!(run.calls.lock().unwrap().len(), 3);
        opaque(&log);
    }
}

#[tokio::test]
async fn a_round_that_lost_its_reasoning_is_continued_without_a_budget_for_it() {
    let wire = ANTHROPIC;
    let manual = json!({"manual_only": true});
    let answers = [two_turns(wire), vec![wire.says("ok")]].concat();
    let Some(server) = wire.serve_as(manual, answers) else { return };
    let config = AnthropicConfig {
        thinking: Thinking::Budget(2000),
        ..AnthropicConfig::new(server.origin(), KEY, "m")
    };
    let run = Run::new(Arc::new(AnthropicModel::new(config).unwrap()), |agent| agent);
    let thread = run.agent.graph().thread("t");
    run.ask("t", "go").await;
    // The turn stops behind the results, and an earlier message changes.
    let stopped = thread.clone().break_before(["agent"]);
    let _ = stopped.run(run.agent.input("go on")).await.unwrap();
    let first = run.messages().await[0].clone().with(|user| user.content = "go further".into());
    run.update(vec![Merge::Put(first)]).await;
    assert_eq!(run.agent.thread("t").resume().await.unwrap().text, "7");
    run.ask("t", "more").await;
    let log = server.accepted();
    let counts = opaque(&log);
    let thinks: Vec<_> = log.iter().map(|line| line.body.get("thinking").is_some()).collect();
    assert_eq!((counts, thinks), (vec![0, 1, 2, 0, 1, 2], vec![true; 6]));
}

#[tokio::test]
async fn any_model_continues_the_round_of_another_and_hands_it_back() {
    for main in WIRES {
        for spare in WIRES {
            let answers = vec![main.adds("1"), main.spent(), main.adds("3"), main.says("back")];
            let others = vec![spare.adds("2"), spare.says("spare")];
            let (Some(server), Some(other)) = (main.serve(answers), spare.serve(others)) else { return };
            let model = spare.model(&other, "m2");
            let run = Run::new(main.model(&server, "m"), |agent| agent.fallback(model));
            assert_eq!(run.ask("t", "go").await.text, "spare", "{main:?} {spare:?}");
            assert_eq!(run.ask("t", "go on").await.text, "back", "{main:?} {spare:?}");
            assert_eq!(*run.calls.lock().unwrap(), ["add 1", "add 2", "add 3"]);
            // Each has its own answers as it made them, and no part of the other's.
            assert_eq!(opaque(&server.accepted()), [0, 1, 1, 2], "{main:?} {spare:?}");
            assert_eq!(opaque(&other.accepted()), [0, 1], "{main:?} {spare:?}");
        }
    }
}

#[tokio::test]
async fn a_fork_sends_the_requests_of_its_parent() {
    for wire in WIRES {
        let answers = [two_turns(wire), vec![wire.adds("4"), wire.says("7")]].concat();
        let Some(server) = wire.serve(answers) else { return };
        let run = Run::new(wire.model(&server, "m"), |agent| agent);
        run.ask("t", "go").await;
        run.store.copy(&"t".into(), &"fork".into()).await.unwrap();
        run.ask("t", "go on").await;
        run.ask("fork", "go on").await;
        let log = server.accepted();
        assert_eq!(opaque(&log), [0, 1, 2, 3, 4, 3, 4], "{wire:?}");
        assert_eq!(log[3].body, log[5].body, "{wire:?}");
    }
}

#[tokio::test]
async fn images_and_files_of_the_user_are_sent_or_described() {
    const PNG: &str = "iVBORw0KGgo=";
    const PDF: &str = "JVBERi0xLjcK";
    for wire in WIRES {
        let Some(server) = wire.serve(two_turns(wire)) else { return };
        let accepts = Accepts { images: true, audio: false, pdf: true };
        let v1 = format!("{}/v1", server.origin());
        let mut chat = OpenAiConfig::new(&*v1, KEY, "m");
        chat.wire.accepts = accepts;
        let model: Arc<dyn ChatModel> = match wire.0 {
            "chat" => Arc::new(OpenAiModel::new(chat).unwrap()),
            "responses" => {
                let config = ResponsesConfig { accepts, ..ResponsesConfig::new(v1, KEY, "m") };
                Arc::new(ResponsesModel::new(config).unwrap())
            }
            _ => wire.model(&server, "m"),
        };
        let run = Run::new(model, |agent| agent);
        let media = [("image/png", PNG), ("application/pdf", PDF), ("audio/mpeg", "SUQz")];
        let media = media.map(|(mime, data)| Media::new(mime, data).unwrap());
        let question = Message::user("What is it?").with_media(media);
        let input = AgentState::update().messages([question]);
        run.agent.thread("t").run(input).await.unwrap();
        run.ask("t", "go on").await;
        let log = server.accepted();
        assert_eq!(opaque(&log), [0, 1, 2, 3, 4], "{wire:?}");
        for line in &log {
            let text = line.body.to_string();
            for once in [PNG, PDF, "What is it?", "[audio: audio/mpeg, 3 bytes]"] {
                assert_eq!(text.matches(once).count(), 1, "{once} {text}");
            }
        }
    }
    // A model that takes no images, behind one that does.
    let (main, wire) = (ANTHROPIC, WIRES[0]);
    let (Some(first), Some(server)) = (main.serve(vec![main.spent()]), wire.serve(vec![wire.says("ok")]))
    else {
        return;
    };
    let spare = wire.model(&server, "m2");
    let run = Run::new(main.model(&first, "m"), |agent| agent.fallback(spare));
    let question = Message::user("What is it?").with_media([Media::new("image/png", PNG).unwrap()]);
    run.agent.thread("t").run(AgentState::update().messages([question])).await.unwrap();
    let body = server.accepted()[0].body.to_string();
    assert!(first.log()[0].body.to_string().contains(PNG));
    assert!(body.contains("What is it?\\n[image: image/png, 8 bytes]") && !body.contains(PNG), "{body}");
}

/// Returns the number of the event that completes the answer of [`an_answer_may_break_off_at_any_moment`].
fn last_event(wire: Wire) -> usize {
    match wire.0 {
        "chat" => 15,
        "responses" => 29,
        "anthropic" => 24,
        _ => 7,
    }
}

#[tokio::test]
async fn an_answer_may_break_off_at_any_moment() {
    for wire in WIRES {
        let whole = || {
            let parts = [json!({wire.2: "Hm"}), json!({"text": "Let me add."})];
            wire.answer(parts.into_iter().chain([wire.call("add", "1"), wire.call("slow", "2")].map(
                |mut call| {
                    call.as_object_mut().unwrap().remove("id");
                    call
                },
            )))
        };
        let mut answers = Vec::new();
        for at in 0..=last_event(wire) {
            let mut broken = whole();
            broken[if at % 2 == 0 { "cut" } else { "eof" }] = at.into();
            answers.extend([broken, whole(), wire.says("3"), wire.says("ok")]);
        }
        let Some(server) = wire.serve(answers) else { return };
        let run = Run::new(wire.model(&server, "m"), |agent| agent);
        for at in 0..=last_event(wire) {
            let (mut retries, mut discarded) = (0, 0);
            let thread = format!("t{at}");
            let mut turn = run.agent.thread(&*thread).ask_stream("go");
            while let Some(event) = turn.next().await {
                retries += usize::from(event.name() == "retry");
                discarded += usize::from(event.name() == "attempt_discarded");
            }
            assert!(retries == 1 && discarded <= 1, "{wire:?} {at}: {retries} {discarded}");
            assert_eq!(turn.reply().await.unwrap().text, "3", "{wire:?} {at}");
            assert_eq!(run.ask(&thread, "go on").await.text, "ok", "{wire:?} {at}");
            let mut calls = std::mem::take(&mut *run.calls.lock().unwrap());
            calls.sort();
            assert_eq!(calls, ["add 1", "slow 2"], "{wire:?} {at}");
        }
        let log = server.accepted();
        let counts = opaque(&log);
        assert!(counts.chunks(4).all(|turn| turn == [0, 0, 1, 2]), "{wire:?} {counts:?}");
    }
}

/// Returns an agent that stores what a cancelled answer has said.
fn keeping(agent: AgentBuilder) -> AgentBuilder {
    let config = agent.current_config();
    agent.config(ReactConfig { keep_interrupted: true, ..config })
}

#[tokio::test]
async fn an_answer_may_be_cancelled_at_any_moment() {
    for wire in WIRES {
        let text = json!({"text": "Let me add a few numbers."});
        let parts = [json!({wire.2: "Hm, well"}), text, wire.call("add", "1")];
        let mut slow = wire.answer(parts);
        slow["gap"] = json!(0.03);
        const MOMENTS: usize = 6;
        let turn = [slow, wire.adds("2"), wire.says("ok")];
        let Some(server) = wire.serve(vec![turn; MOMENTS].concat()) else { return };
        let run = Run::new(wire.model(&server, "m"), keeping);
        for moment in 0..MOMENTS {
            let thread = run.agent.thread(format!("t{moment}"));
            let token = CancellationToken::new();
            let mut turn = thread.cancel(token.clone()).ask_stream("go");
            let mut tokens = 0;
            while let Some(event) = turn.next().await {
                tokens += usize::from(event.name() == "llm_token");
                if tokens > moment {
                    token.cancel();
                }
            }
            assert_eq!(turn.reply().await.unwrap().outcome, AgentOutcome::Cancelled, "{wire:?} {moment}");
            run.ask(&format!("t{moment}"), "go on").await;
        }
        assert_eq!(*run.calls.lock().unwrap(), vec!["add 2"; MOMENTS], "{wire:?}");
        let log = server.log();
        assert_eq!(log.len(), 3 * MOMENTS, "{wire:?}");
        for line in &log {
            assert!(line.error.is_none(), "{wire:?} {:?}\n{}", line.error, line.body);
        }
        opaque(&log);
    }
}

#[tokio::test]
async fn a_turn_that_ends_without_an_answer_is_followed_by_another() {
    for wire in WIRES {
        let nothing = wire.answer([json!({wire.2: "Hm"})]);
        let mut withheld = wire.says("We");
        let (name, reason) = match wire.0 {
            "anthropic" => ("stop", "refusal"),
            "responses" => ("reason", "content_filter"),
            "gemini" => ("finish", "SAFETY"),
            _ => ("finish", "content_filter"),
        };
        withheld[name] = reason.into();
        if wire.0 == "responses" {
            withheld["end"] = "incomplete".into();
        }
        for (last, outcomes) in [
            (nothing, [AgentOutcome::Completed, AgentOutcome::Empty]),
            (withheld, [AgentOutcome::ContentFilter, AgentOutcome::Refused]),
        ] {
            let answers = vec![wire.adds("1"), last, wire.adds("2"), wire.says("ok")];
            let Some(server) = wire.serve(answers) else { return };
            let run = Run::new(wire.model(&server, "m"), |agent| agent);
            let first = run.agent.thread("t").ask("go").await.unwrap();
            assert!(outcomes.contains(&first.outcome), "{wire:?} {first:?}");
            assert_eq!(run.ask("t", "go on").await.text, "ok", "{wire:?}");
            let counts = opaque(&server.accepted());
            assert!(counts[2] >= 1 && counts[3] == counts[2] + 1, "{wire:?} {counts:?}");
        }
    }
}

#[tokio::test]
async fn reasoning_that_was_refused_stays_out_in_another_process_and_in_a_fork() {
    for wire in &WIRES[1..] {
        let error = match wire.0 {
            "anthropic" => {
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": "messages.1.content.0: Invalid `signature` in `thinking` block"}})
            }
            "gemini" => {
                json!({"error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}})
            }
            _ => {
                json!({"error": {"code": "invalid_encrypted_content", "message": "The encrypted content gAAA...AA== could not be verified."}})
            }
        };
        let refused = json!({"http": 400, "body": error});
        let next = [wire.adds("3"), wire.says("ok")];
        let answers = [&[wire.adds("1"), refused, wire.adds("2"), wire.says("2")][..], &next, &next].concat();
        let Some(server) = wire.serve(answers) else { return };
        let run = Run::new(wire.model(&server, "m"), |agent| agent);
        run.ask("t", "go").await;
        run.store.copy(&"t".into(), &"fork".into()).await.unwrap();
        let other = Run::new(wire.model(&server, "m"), |agent| agent.checkpointer(run.store.clone()));
        other.ask("t", "go on").await;
        other.ask("fork", "go on").await;
        assert_eq!(opaque(&server.log()), [0, 1, 0, 1, 2, 3, 2, 3], "{wire:?}");
    }
}

#[tokio::test]
async fn a_message_during_a_round_follows_its_results() {
    for wire in WIRES {
        let both = wire.answer([json!({wire.2: "Hm"}), wire.call("slow", "1")]);
        let Some(server) = wire.serve(vec![both, wire.adds("2"), wire.says("ok"), wire.says("and")]) else {
            return;
        };
        let run = Run::new(wire.model(&server, "m"), |agent| agent);
        let mut turn = run.agent.thread("t").ask_stream("go");
        let mut is_said = false;
        while let Some(event) = turn.next().await {
            if event.name() == "tool_start" && !std::mem::replace(&mut is_said, true) {
                run.agent.thread("t").steer("Hurry.").await.unwrap();
            }
        }
        assert_eq!(turn.reply().await.unwrap().text, "ok", "{wire:?}");
        run.ask("t", "go on").await;
        let log = server.accepted();
        assert!(log[1].body.to_string().contains("Hurry."), "{wire:?}");
        assert_eq!(opaque(&log), [0, 1, 2, 3], "{wire:?}");
    }
}
