//! Each finished turn is a line of its user's history.

use std::{fs, sync::Arc};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    CheckpointId, Checkpointer, Durability, Event, MemoryCheckpointer, RunOptions, State, StreamMode,
    agent::{Agent, AgentOutcome, AgentState, deps::TurnRecord},
    clock::TokioClock,
    llm::{ApiKey, ChatModel, Message, OpenAiConfig, OpenAiModel},
    memory::{HistoryFiles, HistoryPlace},
};
use superstep_testing::{
    script::{Answer, Script, call, http, txt},
    scripted::ScriptedModel,
    wire::WireServer,
};
use tempfile::TempDir;

use super::{
    kit::Kit,
    paused, preset, real,
    writes::{At, watched},
};
use crate::support::t;

struct Place {
    dir: TempDir,
    history: HistoryFiles,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let history = HistoryFiles::new(dir.path(), "history").unwrap();
        Self { dir, history }
    }

    fn agent(&self, model: Arc<dyn ChatModel>, store: Arc<dyn Checkpointer>) -> Agent {
        let agent = Agent::builder(model).tools(Kit::default().tools(&["echo"])).config(preset());
        agent.history(self.history.clone()).checkpointer(store).build().unwrap()
    }

    async fn lines(&self, user: &str) -> Vec<TurnRecord> {
        self.history.read(user, HistoryPlace::default(), 100, u64::MAX).await.unwrap().turns
    }
}

fn scripted(answers: impl IntoIterator<Item = Answer>) -> Arc<dyn ChatModel> {
    Arc::new(ScriptedModel::new(Script::new(answers)))
}

fn at(ms: i64) -> RunOptions {
    t().clock(TokioClock::starting_at(ms))
}

fn a_turn() -> [Answer; 2] {
    [call("c1", "echo", r#"{"x":"1"}"#), txt("ok")]
}

/// Returns the agent's events of a turn, by name.
async fn told(agent: &Agent, text: &str, config: RunOptions, name: &str) -> Vec<Value> {
    let mut stream = agent.configured(config).stream(agent.input(text), StreamMode::Custom);
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::<AgentState>::Custom { name: is, data, .. } = event
            && is == name
        {
            told.push(data.clone());
        }
    }
    stream.outcome().await.unwrap();
    told
}

#[test]
fn a_turn_that_ended_is_a_line_at_both_levels() {
    let mut lines = Vec::new();
    paused(async {
        let place = Place::new();
        let agent = place.agent(scripted(a_turn()), Arc::new(MemoryCheckpointer::new()));
        let events = told(&agent, "go", at(7), "turn_recorded").await;
        let turns = place.lines("t").await;
        assert_eq!(events, [json!({ "id": turns[0].id })]);
        let text = fs::read_to_string(place.dir.path().join("history/t/history.jsonl")).unwrap();
        let id = &turns[0].id;
        assert_eq!(
            text,
            format!(
                r#"{{"id":"{id}","thread":"t","at_ms":7,"user":"go","reply":"ok","outcome":"completed","tools_used":["echo"]}}"#
            ) + "\n"
        );
        lines.push(turns);
    });
    real(async {
        let place = Place::new();
        let server = WireServer::start(Script::new(a_turn())).await.unwrap();
        let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
        let agent =
            place.agent(Arc::new(OpenAiModel::new(config).unwrap()), Arc::new(MemoryCheckpointer::new()));
        agent.thread("t").clock(TokioClock::starting_at(7)).ask("go").await.unwrap();
        lines.push(place.lines("t").await);
    });
    let nameless = |turns: &[TurnRecord]| TurnRecord { id: String::new(), at_ms: 0, ..turns[0].clone() };
    assert_eq!(nameless(&lines[0]), nameless(&lines[1]), "the levels differ");
}

#[tokio::test(start_paused = true)]
async fn each_turn_is_there_with_how_it_ended_and_in_its_users_file_only() {
    let place = Place::new();
    let busy = || http(503, &[], "{}");
    let model = scripted([txt("one"), txt("two"), busy(), busy(), busy()]);
    let agent = place.agent(model, Arc::new(MemoryCheckpointer::new()));
    let input = |text: &str, user: &str| AgentState::update().messages([Message::user(text)]).user_id(user);
    agent.thread("t").run(input("a", "../ada")).await.unwrap();
    agent.thread("t").run(input("b", "bob")).await.unwrap();
    agent.thread("t").run(input("c", "../ada")).await.unwrap();
    let shown = |turns: Vec<TurnRecord>| -> Vec<String> {
        turns.iter().map(|turn| format!("{} {:?} {}", turn.user, turn.outcome, turn.user_id)).collect()
    };
    assert_eq!(shown(place.lines("../ada").await), ["a Completed ../ada", "c LlmError ../ada"]);
    assert_eq!(shown(place.lines("bob").await), ["b Completed bob"]);
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 1, "nothing is outside of the folder");
    place.history.delete("bob").await.unwrap();
    place.history.delete("nobody").await.unwrap();
    assert_eq!(
        fs::read_dir(place.dir.path().join("history")).unwrap().count(),
        2,
        "nothing was made for nobody"
    );
    assert!(place.lines("bob").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_steering_message_belongs_to_its_turn_and_long_texts_are_truncated() {
    let place = Place::new();
    let (store, long) = (Arc::new(MemoryCheckpointer::new()), "é".repeat(20_000));
    let agent = place.agent(scripted([txt(&long), txt("ok")]), store);
    let steered = Message::user("and this").with_id("steered.1");
    let input = AgentState::update().messages([Message::user("before"), Message::user("do it"), steered]);
    agent.thread("t").run(input).await.unwrap();
    agent.thread("t").ask("thanks").await.unwrap();
    let turns = place.lines("t").await;
    assert_eq!((turns[0].user.as_str(), turns[1].user.as_str()), ("do it\nand this", "thanks"));
    assert_eq!(turns[0].reply, format!("{}… [7232 more bytes]", "é".repeat(16_384)));
}

#[tokio::test(start_paused = true)]
async fn a_history_that_cannot_be_written_is_reported_and_stops_nothing() {
    let place = Place::new();
    fs::write(place.dir.path().join("history"), "no folder").unwrap();
    let agent = place.agent(scripted([txt("ok"), txt("ok")]), Arc::new(MemoryCheckpointer::new()));
    let failed = told(&agent, "go", t(), "turn_not_recorded").await;
    assert_eq!(failed.len(), 1);
    assert!(failed[0]["reason"].as_str().is_some_and(|reason| reason.contains("directory")), "{failed:?}");

    // Another process has locked the file.
    let place = Place::new();
    let agent = place.agent(scripted([txt("ok"), txt("ok")]), Arc::new(MemoryCheckpointer::new()));
    agent.thread("t").ask("go").await.unwrap();
    let file = fs::File::open(place.dir.path().join("history/t/history.jsonl")).unwrap();
    file.lock().unwrap();
    let failed = told(&agent, "go", t(), "turn_not_recorded").await;
    assert_eq!(failed, [json!({ "reason": "another process has had it for 5000 ms" })]);
    file.unlock().unwrap();
    assert_eq!(place.lines("t").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_one_line_with_any_durability() {
    let place = Place::new();
    let agent = place.agent(scripted([txt("ok"), txt("ok"), txt("ok")]), Arc::new(MemoryCheckpointer::new()));
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        agent.thread("t").durability(durability).ask("go").await.unwrap();
    }
    let mut ids: Vec<_> = place.lines("t").await.into_iter().map(|turn| turn.id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn turns_without_a_thread_that_run_at_the_same_time_are_lines_each() {
    let place = Place::new();
    let model = scripted((0..8).map(|_| txt("ok")));
    let agent = Agent::builder(model).config(preset()).history(place.history.clone()).build().unwrap();
    let ask = |n: usize| {
        let input = AgentState::update().messages([Message::user(n.to_string())]).user_id("ada");
        agent.without_thread().clock(TokioClock::starting_at(7)).run(input)
    };
    for end in futures::future::join_all((0..8).map(ask)).await {
        end.unwrap();
    }
    let mut said: Vec<_> = place.lines("ada").await.into_iter().map(|turn| turn.user).collect();
    said.sort();
    assert_eq!(said, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

async fn head(store: &dyn Checkpointer) -> CheckpointId {
    store.load(&"t".into(), None).await.unwrap().unwrap().head
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_leaves_one_line_for_each_turn() {
    for at in [At::HangsBefore, At::HangsAfter] {
        for n in 1.. {
            let (place, store) = (Place::new(), Arc::new(MemoryCheckpointer::new()));
            place.agent(scripted([txt("hi")]), store.clone()).thread("t").ask("hello").await.unwrap();
            let before = head(&*store).await;
            let (stops, now) = watched(store.clone(), at, n);
            let first = place.agent(scripted(a_turn()), stops);
            let ended = tokio::select! {
                reply = first.thread("t").ask("go") => Some(reply.unwrap()),
                () = now.notified() => None,
            };
            drop(first);
            let is_over = ended.is_some();
            let agent = place.agent(scripted([txt("ok"), txt("ok")]), store.clone());
            // Somebody else's turn comes in between.
            let input = AgentState::update().messages([Message::user("me too")]).user_id("t");
            agent.thread("u").run(input).await.unwrap();
            let reply = match ended {
                Some(reply) => reply,
                None if head(&*store).await == before => agent.thread("t").ask("go").await.unwrap(),
                None => agent.thread("t").resume().await.unwrap(),
            };
            assert_eq!(reply.outcome, AgentOutcome::Completed, "{at:?} {n}");
            let said: Vec<String> = place.lines("t").await.iter().map(|turn| turn.user.clone()).collect();
            let mut sorted = said.clone();
            sorted.sort();
            assert_eq!(sorted, ["go", "hello", "me too"], "{at:?} {n}: {said:?}");
            if is_over {
                assert!(n > 8, "there were writes of every node: {n}");
                break;
            }
        }
    }
}
