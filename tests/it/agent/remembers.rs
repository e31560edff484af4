//! Memories of one thread are available on another one, to their user only, after a crash at any place.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::StreamExt;
use serde_json::json;
use superstep::{
    Checkpointer, Event, MemoryCheckpointer, StreamMode,
    agent::{
        Agent, AgentOutcome, AgentState, ReactConfig,
        config::Retrieve,
        deps::{LongTermMemory, MemoryEntry, MemoryFuture, MemoryTrigger},
    },
    llm::{ApiKey, ChatModel, Message, OpenAiConfig, OpenAiModel, Role},
    memory::{MemoryFiles, StoreMemory, memory_tools},
    sqlite::SqliteStore,
};
use superstep_testing::{
    script::{Answer, Script, call, txt},
    scripted::ScriptedModel,
    wire::WireServer,
};

use super::{
    real,
    writes::{At, watched},
};
use crate::support::t;

type Memory = Arc<dyn LongTermMemory>;

fn in_store(_: &Path) -> Memory {
    Arc::new(StoreMemory::new(Arc::new(SqliteStore::in_memory().unwrap())))
}

fn in_files(folder: &Path) -> Memory {
    Arc::new(MemoryFiles::new(folder, "memory").unwrap())
}

/// Both kinds of memory.
const MEMORIES: [fn(&Path) -> Memory; 2] = [in_store, in_files];

fn agent(model: Arc<dyn ChatModel>, memory: &Memory, store: Arc<dyn Checkpointer>) -> Agent {
    let config = ReactConfig { retrieve: Some(Retrieve::default()), ..super::preset() };
    let agent = Agent::builder(model).config(config).tools(memory_tools(memory.clone()));
    agent.memory(MemoryTrigger::new(memory.clone())).checkpointer(store).build().unwrap()
}

fn scripted(answers: impl IntoIterator<Item = Answer>) -> Arc<dyn ChatModel> {
    Arc::new(ScriptedModel::new(Script::new(answers)))
}

async fn say(agent: &Agent, thread: &str, user: &str, text: &str) -> AgentState {
    let input = agent.input(text).user_id(user);
    agent.thread(thread).run(input).await.unwrap().state
}

async fn remembered(memory: &Memory, user: &str) -> Vec<String> {
    let mut texts: Vec<_> =
        memory.list(user, 100).await.unwrap().into_iter().map(|entry| entry.text).collect();
    texts.sort();
    texts
}

/// Returns the memory entries for the messages of a thread.
fn looked_up(state: &AgentState) -> Vec<&str> {
    let found = state.messages.iter().filter(|message| message.synthetic);
    found.map(|message| message.content.lines().nth(2).unwrap()).collect()
}

fn record(text: &str) -> Answer {
    call("c1", "record_to_memory", &format!(r#"{{"thinking":"it matters","content":["{text}"]}}"#))
}

/// Ada requests a memory on one thread, and uses it on another; Bob sends the same message.
async fn three_threads(memory: &Memory, make: impl AsyncFn(Vec<Answer>) -> Arc<dyn ChatModel>) {
    let look = call("c2", "retrieve_from_memory", r#"{"keywords":["cat","tea"]}"#);
    let answers =
        vec![record("My cat is called Mia"), txt("noted"), look.clone(), txt("Mia"), look, txt("?")];
    let agent = agent(make(answers).await, memory, Arc::new(MemoryCheckpointer::new()));
    let first = say(&agent, "one", "ada", "Remember that I like tea").await;
    assert!(looked_up(&first).is_empty());
    assert_eq!(first.tool_result_history[0], "Remembered:\n- My cat is called Mia");
    let second = say(&agent, "two", "ada", "What do I like?").await;
    assert_eq!(looked_up(&second), ["- Remember that I like tea"]);
    assert_eq!(second.tool_result_history[0], "- My cat is called Mia\n- Remember that I like tea");
    let third = say(&agent, "three", "bob", "What do I like?").await;
    assert!(looked_up(&third).is_empty());
    assert_eq!(third.tool_result_history[0], "Nothing like it is remembered.");
    assert_eq!(remembered(memory, "ada").await, ["My cat is called Mia", "Remember that I like tea"]);
    assert!(remembered(memory, "bob").await.is_empty());
}

#[test]
fn memories_of_one_thread_are_found_on_another_for_the_same_user_only() {
    for memory in MEMORIES {
        let folder = tempfile::tempdir().unwrap();
        real(three_threads(&memory(folder.path()), async |answers| scripted(answers)));
        let folder = tempfile::tempdir().unwrap();
        real(async {
            let servers = std::sync::Mutex::new(Vec::new());
            let wired = async |answers: Vec<Answer>| {
                let server = WireServer::start(Script::new(answers)).await.unwrap();
                let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
                servers.lock().unwrap().push(server);
                Arc::new(OpenAiModel::new(config).unwrap()) as Arc<dyn ChatModel>
            };
            three_threads(&memory(folder.path()), wired).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_current_message_is_never_retrieved() {
    for memory in MEMORIES {
        let folder = tempfile::tempdir().unwrap();
        let memory = memory(folder.path());
        let answers = (0..30).map(|_| txt("noted"));
        let agent = agent(scripted(answers), &memory, Arc::new(MemoryCheckpointer::new()));
        for nth in 0..30 {
            let user = format!("user {nth}");
            let state = say(&agent, &user, &user, "Remember that I like tea").await;
            assert!(looked_up(&state).is_empty(), "{nth}");
        }
    }
}

#[tokio::test]
async fn without_a_user_a_thread_has_its_own_memory_and_without_a_thread_none() {
    let memory = in_store(Path::new(""));
    let answers = [record("a"), txt("noted"), txt("noted")];
    let agent = agent(scripted(answers), &memory, Arc::new(MemoryCheckpointer::new()));
    agent.thread("one").ask("remember this: tea").await.unwrap();
    agent.thread("two").ask("remember this: tea").await.unwrap();
    assert_eq!(remembered(&memory, "one").await, ["a", "remember this: tea"]);
    assert_eq!(remembered(&memory, "two").await, ["remember this: tea"]);
    let (memories, model) = (memory_tools(memory.clone()), scripted([record("b"), txt("noted")]));
    let config = ReactConfig { retrieve: Some(Retrieve::default()), ..super::preset() };
    let agent = Agent::builder(model).tools(memories).memory(MemoryTrigger::new(memory.clone()));
    let agent = agent.config(config).build().unwrap();
    let end = agent.without_thread().run(agent.input("remember this: tea")).await.unwrap();
    let nobody = "no user to store the memory for; give the run a thread, or the input a `user_id`";
    assert_eq!(end.state.tool_result_history[0], format!("Error executing 'record_to_memory': {nobody}"));
    assert!(remembered(&memory, "").await.is_empty());
}

#[tokio::test]
async fn calls_without_content_are_rejected() {
    let memory = in_store(Path::new(""));
    let many = json!({ "keywords": vec!["x"; 21] }).to_string();
    let long = json!({ "content": ["x".repeat(8_001)] }).to_string();
    let answers = [
        call("c1", "record_to_memory", r#"{"content":[" "]}"#),
        call("c2", "retrieve_from_memory", &many),
        call("c3", "record_to_memory", &long),
        call("c4", "record_to_memory", r#"{"content":"tea"}"#),
        txt("ok"),
    ];
    let agent = agent(scripted(answers), &memory, Arc::new(MemoryCheckpointer::new()));
    let state = say(&agent, "t", "ada", "go").await;
    let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
    assert_eq!(
        results[..3],
        [
            "Error: invalid args for 'record_to_memory': `content` has no text in it",
            "Error: invalid args for 'retrieve_from_memory': `keywords` has at most 20 texts, got 21",
            "Error executing 'record_to_memory': a memory of 8001 characters is too long; use at most 8000",
        ]
    );
    assert!(results[3].starts_with("Error: invalid args for 'record_to_memory'"), "{}", results[3]);
    assert!(remembered(&memory, "ada").await.is_empty());
}

/// Returns the remaining answers of a model that continues a turn.
fn rest(state: Option<&AgentState>) -> Vec<Answer> {
    let has_called =
        state.is_some_and(|state| state.messages.iter().any(|said| said.role == Role::Assistant));
    let call = (!has_called).then(|| record("My cat is called Mia"));
    call.into_iter().chain([txt("ok")]).collect()
}

/// A counter of memory searches.
struct Counted {
    memory: Memory,
    searches: AtomicUsize,
}

impl LongTermMemory for Counted {
    fn add<'a>(
        &'a self,
        messages: Vec<Message>,
        user_id: &'a str,
        key: &'a str,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        self.memory.add(messages, user_id, key)
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        user_id: &'a str,
        limit: usize,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        self.searches.fetch_add(1, Ordering::SeqCst);
        self.memory.search(query, user_id, limit)
    }

    fn list<'a>(&'a self, user_id: &'a str, limit: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        self.memory.list(user_id, limit)
    }

    fn forget<'a>(&'a self, id: &'a str, user_id: &'a str) -> MemoryFuture<'a, bool> {
        self.memory.forget(id, user_id)
    }
}

#[test]
fn a_crash_at_any_write_stores_each_entry_once_and_retrieves_nothing_twice() {
    for (memory, at) in
        MEMORIES.into_iter().flat_map(|memory| [At::HangsBefore, At::HangsAfter].map(|at| (memory, at)))
    {
        for n in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let memory = memory(folder.path());
            let is_over = real(async {
                memory.add(vec![Message::user("I like green tea")], "t", "before").await.unwrap();
                let store = Arc::new(MemoryCheckpointer::new());
                let (stops, now) = watched(store.clone(), at, n);
                let first = agent(scripted(rest(None)), &memory, stops);
                let ended = tokio::select! {
                    reply = first.thread("t").ask("remember that I like tea") => Some(reply.unwrap()),
                    () = now.notified() => None,
                };
                drop(first);
                let is_over = ended.is_some();
                let counted = Arc::new(Counted { memory: memory.clone(), searches: 0.into() });
                let counts: Memory = counted.clone();
                let seen = agent(scripted([]), &counts, store.clone());
                let before = match store.load(&"t".into(), None).await.unwrap() {
                    Some(_) => Some(seen.graph().thread("t").state().await.unwrap().values),
                    None => None,
                };
                let had_looked = before.as_ref().is_some_and(|state| !looked_up(state).is_empty());
                let second = agent(scripted(rest(before.as_ref())), &counts, store.clone());
                let reply = match (ended, &before) {
                    (Some(reply), _) => reply,
                    (None, None) => second.thread("t").ask("remember that I like tea").await.unwrap(),
                    (None, Some(_)) => second.thread("t").resume().await.unwrap(),
                };
                assert_eq!(reply.outcome, AgentOutcome::Completed, "{at:?} {n}");
                let end = second.graph().thread("t").state().await.unwrap().values;
                let mut texts = remembered(&memory, "t").await;
                // After the end of a turn the memory is not checked again.
                let had_ended = before.as_ref().is_some_and(|state| state.outcome.is_some());
                if had_ended && !texts.iter().any(|text| text.starts_with("remember")) {
                    texts.push("remember that I like tea".to_owned());
                }
                let all = ["I like green tea", "My cat is called Mia", "remember that I like tea"];
                assert_eq!(texts, all, "{at:?} {n}");
                assert_eq!(looked_up(&end).len(), 1, "{at:?} {n}");
                let searches = counted.searches.load(Ordering::SeqCst);
                assert_eq!(searches, usize::from(!had_looked), "{at:?} {n}");
                is_over
            });
            if is_over {
                assert!(n > 8, "there were writes of every node: {n}");
                break;
            }
        }
    }
}

#[test]
fn a_cancel_at_any_event_leaves_each_entry_once() {
    for memory in MEMORIES {
        for nth in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let memory = memory(folder.path());
            let more = real(async {
                let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
                let first = agent(scripted(rest(None)), &memory, store.clone());
                let config = t();
                let token = config.get_cancel().clone();
                let mut stream = first
                    .configured(config)
                    .stream(first.input("remember that I like tea"), StreamMode::Custom);
                let mut seen = 0;
                while let Some(event) = stream.next().await {
                    if matches!(event, Event::Custom { .. }) {
                        if seen == nth {
                            token.cancel();
                        }
                        seen += 1;
                    }
                }
                let state = stream.outcome().await.unwrap().state;
                let second = agent(scripted(rest(Some(&state))), &memory, store);
                let reply = second.thread("t").resume().await.unwrap();
                assert_eq!(reply.outcome, AgentOutcome::Completed, "{nth}");
                let texts = remembered(&memory, "t").await;
                assert!(texts.is_sorted_by(|a, b| a < b), "{nth}: {texts:?}");
                assert!(texts.contains(&"remember that I like tea".to_owned()), "{nth}: {texts:?}");
                seen > nth
            });
            if !more {
                assert!(nth >= 8, "there were events of every node: {nth}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_replay_is_not_taken_for_the_turn_that_remembers() {
    let memory = in_store(Path::new(""));
    let store = Arc::new(MemoryCheckpointer::new());
    // A process that ends before the memory is stored, simulated by an unreachable memory.
    let gone = agent(scripted([]), &in_store(Path::new("")), store.clone());
    gone.thread("t")
        .break_before(["agent"])
        .run(gone.input("Remember that I like tea").user_id("ada"))
        .await
        .unwrap();

    let next = agent(scripted([txt("noted")]), &memory, store);
    next.graph().thread("t").replay().run().await.unwrap().assert_same();
    next.thread("t").resume().await.unwrap();
    assert_eq!(remembered(&memory, "ada").await, ["Remember that I like tea"]);
}
