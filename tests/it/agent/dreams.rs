//! Conversations become memory.

mod ends;
mod everywhere;
mod reach;
mod triggers;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use superstep::{
    Checkpointer, MemoryCheckpointer, RunOptions, State,
    agent::{Agent, AgentOutcome, AgentState},
    clock::TokioClock,
    llm::{ChatModel, Delta, FinishReason, Message, Request, ResponseStream, Role, Usage},
    memory::{Dream, DreamConfig, DreamCursor, DreamEnd, DreamResult, Dreams, HistoryFiles, MemoryFiles},
};
use superstep_testing::{
    script::{Answer, Script, txt},
    scripted::ScriptedModel,
};
use tempfile::TempDir;

use super::preset;

/// Folders with histories and memories, and a store of threads.
struct Bed {
    dir: TempDir,
    history: HistoryFiles,
    memory: MemoryFiles,
    store: Arc<dyn Checkpointer>,
}

impl Bed {
    fn new() -> Self {
        Self::on(Arc::new(MemoryCheckpointer::new()))
    }

    fn on(store: Arc<dyn Checkpointer>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let history = HistoryFiles::new(dir.path(), "history").unwrap();
        let memory = MemoryFiles::new(dir.path(), "memory").unwrap();
        Self { dir, history, memory, store }
    }

    /// Runs a turn of a user for each text, all ending at this time.
    async fn say(&self, user: &str, at_ms: i64, texts: &[&str]) {
        let model = ScriptedModel::new(Script::new(texts.iter().map(|_| txt("I see."))));
        let agent = Agent::builder(Arc::new(model)).config(preset()).history(self.history.clone());
        let agent = agent.build().unwrap();
        for text in texts {
            let input = AgentState::update().messages([Message::user(*text)]).user_id(user);
            agent.without_thread().clock(TokioClock::starting_at(at_ms)).run(input).await.unwrap();
        }
    }

    fn dreams(&self, model: impl ChatModel + 'static) -> Dreams {
        self.dreams_on(self.store.clone(), model, DreamConfig::default())
    }

    fn dreams_on(
        &self,
        store: Arc<dyn Checkpointer>,
        model: impl ChatModel + 'static,
        config: DreamConfig,
    ) -> Dreams {
        let agent = Agent::builder(Arc::new(model)).config(preset()).checkpointer(store);
        Dreams::new(agent, self.history.clone(), self.memory.clone(), config).unwrap()
    }

    /// Returns the path of a user's file.
    fn path(&self, folder: &str, user: &str, name: &str) -> PathBuf {
        self.dir.path().join(folder).join(user).join(name)
    }

    fn read(&self, user: &str) -> String {
        fs::read_to_string(self.memory.file_of(user).unwrap()).unwrap_or_default()
    }

    fn cursor(&self, user: &str) -> DreamCursor {
        match fs::read(self.path("history", user, "dream.json")) {
            Ok(json) => serde_json::from_slice(&json).unwrap(),
            Err(_) => DreamCursor::default(),
        }
    }

    /// Returns the size in bytes of a user's history.
    fn length(&self, user: &str) -> u64 {
        fs::metadata(self.path("history", user, "history.jsonl")).unwrap().len()
    }
}

/// Creates a run at this time.
fn at(ms: i64) -> RunOptions {
    RunOptions::new().clock(TokioClock::starting_at(ms))
}

fn dreamt(dreamt: DreamResult) -> Dream {
    match dreamt {
        DreamResult::Ended(dream) => dream,
        other => panic!("there was no dream: {other:?}"),
    }
}

fn scripted(answers: impl IntoIterator<Item = Answer>) -> ScriptedModel {
    ScriptedModel::new(Script::new(answers))
}

/// A model that reads the memory, adds a line for each missing message, one edit at a time, and reports
/// completion. Its answers depend only on its requests, so that a request may be repeated. A repeated edit
/// makes two lines.
#[derive(Clone, Default)]
struct Dreamer {
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Dreamer {
    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl ChatModel for Dreamer {
    fn name(&self) -> &str {
        "dreamer"
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        self.requests.lock().unwrap().push(request.clone());
        let told = request.messages.iter().find(|message| message.role == Role::User).unwrap();
        let lines = told.content.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let said: Vec<_> = lines.map(|line| line["user"].as_str().unwrap().to_owned()).collect();
        let results: Vec<_> = request.messages.iter().filter(|message| message.role == Role::Tool).collect();
        let wanted = |memory: &Message| {
            let is_new = |fact: &&String| !memory.content.contains(&format!("- {fact}"));
            said.iter().filter(is_new).cloned().collect::<Vec<_>>()
        };
        let call = match results.split_first() {
            None => Some(("read_file", json!({ "path": "MEMORY.md" }))),
            Some((memory, edits)) => wanted(memory).get(edits.len()).map(|fact| {
                let new = format!("# Memory\n- {fact}");
                ("edit_file", json!({ "path": "MEMORY.md", "old": "# Memory", "new": new }))
            }),
        };
        let usage = Delta::Usage(Usage::new(40, 10));
        let deltas = match call {
            Some((name, args)) => vec![
                Delta::ToolCall {
                    index: 0,
                    id: Some("call".into()),
                    name: Some(name.to_owned()),
                    arguments: args.to_string(),
                },
                usage,
                Delta::Finish(FinishReason::ToolCalls),
            ],
            None => vec![Delta::Text("Done.".into()), usage, Delta::Finish(FinishReason::Stop)],
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

#[test]
fn the_graph_of_dreams_can_be_drawn() {
    let graph = Bed::new().dreams(Dreamer::default()).graph("ada").unwrap();
    assert!(graph.warnings().is_empty());
    assert_eq!(Dreams::inspection_graph().topology().mermaid(), graph.topology().mermaid());
    insta::assert_snapshot!(graph.topology().mermaid());
}

#[tokio::test(start_paused = true)]
async fn a_dream_consolidates_recorded_turns() {
    let (bed, model) = (Bed::new(), Dreamer::default());
    bed.say("ada", 10, &["I like tea", "My cat is called Bob", "I moved to Lisbon"]).await;
    let dream = dreamt(bed.dreams(model.clone()).dream_if_due("ada", at(20)).await.unwrap());
    let usage = Usage::new(200, 50);
    let checkpoint = dream.checkpoint;
    assert_eq!(
        dream,
        Dream {
            outcome: Some(AgentOutcome::Completed),
            end: DreamEnd::Outcome(AgentOutcome::Completed),
            turns: 3,
            settled: true,
            reply: "Done.".into(),
            error: None,
            usage,
            checkpoint
        }
    );
    assert_eq!(bed.read("ada"), "# Memory\n- I moved to Lisbon\n- My cat is called Bob\n- I like tea\n");
    assert_eq!(bed.cursor("ada").read.offset, bed.length("ada"));
    let stored = serde_json::to_value(bed.cursor("ada").last.unwrap()).unwrap();
    assert_eq!(stored, json!({ "at_ms": 20, "end": "completed" }));
    let requests = model.requests();
    let system = &requests[0].messages[0];
    assert_eq!(system.role, Role::System);
    assert!(system.content.starts_with("You keep the long-term memory of one user"), "{}", system.content);
    // Each dream is a separate conversation, on one thread.
    bed.say("ada", 30, &["a", "b", "c"]).await;
    dreamt(bed.dreams(model.clone()).dream_if_due("ada", at(40)).await.unwrap());
    let first = &model.requests()[requests.len()];
    assert_eq!(first.messages.len(), 2);
    assert!(!first.messages[1].content.contains("Lisbon"));
    let threads: Vec<_> = bed.store.threads().await.unwrap().into_iter().map(|(thread, _)| thread).collect();
    assert_eq!(threads, ["dream:ada".into()]);
}
