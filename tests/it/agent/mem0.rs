//! The Mem0 memory, against doubles of both forms on loopback.

#![cfg(feature = "mem0")]

mod requests;
mod troubles;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use superstep::{
    MemoryCheckpointer, State, Status,
    agent::{
        Agent, AgentState, ReactConfig,
        config::Retrieve,
        deps::{LongTermMemory, MemoryTrigger},
    },
    llm::{ApiKey, ChatModel, Message, OpenAiConfig, OpenAiModel},
    memory::{Mem0, Mem0Config, Mem0Form},
};
use superstep_testing::{
    conformance::check_memory,
    mem0::{Mem0Kind, Mem0Server},
    script::{Script, txt},
    scripted::ScriptedModel,
    wire::WireServer,
};

use super::real;

const KEY: &str = "m0-sesame";
const BOTH: [Mem0Kind; 2] = [Mem0Kind::Hosted, Mem0Kind::SelfHosted];

/// Creates a client for a server at this address, with long intervals between status requests and a short
/// time limit.
fn config(kind: Mem0Kind, base_url: String) -> Mem0Config {
    let key = ApiKey::new(KEY);
    let config = match kind {
        Mem0Kind::Hosted => Mem0Config { base_url, ..Mem0Config::hosted(key) },
        Mem0Kind::SelfHosted => Mem0Config::self_hosted(base_url, key),
    };
    Mem0Config { poll: Duration::ZERO, ..config }
}

async fn serve(kind: Mem0Kind) -> (Mem0Server, Mem0) {
    let server = Mem0Server::start(kind, KEY).await.unwrap();
    let memory = Mem0::new(config(kind, server.base_url())).unwrap();
    (server, memory)
}

fn says(text: &str) -> Vec<Message> {
    vec![Message::user(text)]
}

async fn texts(memory: &Mem0, query: &str, user_id: &str) -> Vec<String> {
    memory.search(query, user_id, 10).await.unwrap().into_iter().map(|entry| entry.text).collect()
}

#[test]
fn an_added_memory_is_found_listed_and_deleted() {
    real(async {
        for kind in BOTH {
            let (server, memory) = serve(kind).await;
            let added = memory.add(says("I like green tea"), "ada", "k1").await.unwrap();
            memory.add(says("My cat likes tea"), "ada", "k2").await.unwrap();
            assert_eq!(added[0].text, "I like green tea");
            assert_eq!(texts(&memory, "green tea", "ada").await, ["I like green tea", "My cat likes tea"]);
            assert_eq!(memory.search("green tea", "ada", 1).await.unwrap().len(), 1);
            assert_eq!(memory.search("green tea", "ada", 0).await.unwrap(), []);
            assert_eq!(texts(&memory, "weather", "ada").await, Vec::<String>::new());
            assert_eq!(memory.list("ada", 10).await.unwrap().len(), 2);
            assert!(memory.forget(&added[0].id, "ada").await.unwrap());
            assert!(!memory.forget(&added[0].id, "ada").await.unwrap());
            assert_eq!(server.memories(), [("ada".to_owned(), "My cat likes tea".to_owned())]);
        }
    });
}

#[test]
fn a_memory_on_a_mem0_server_conforms() {
    real(async {
        for kind in BOTH {
            // Its servers live as long as the test.
            let servers = Mutex::new(Vec::new());
            check_memory(async || {
                let (server, memory) = serve(kind).await;
                servers.lock().unwrap().push(server);
                Arc::new(memory) as _
            })
            .await;
        }
    });
}

#[test]
fn a_repeated_memory_request_is_stored_once() {
    real(async {
        for kind in BOTH {
            let (server, memory) = serve(kind).await;
            let first = memory.add(says("I like tea"), "ada", "k1").await.unwrap();
            let again = memory.add(says("I like tea"), "ada", "k1").await.unwrap();
            assert_eq!(server.memories().len(), 1, "{kind:?}");
            assert_eq!((&again[0].id, &again[0].text), (&first[0].id, &first[0].text));
            memory.add(says("I like tea"), "bob", "k1").await.unwrap();
            memory.add(says("I like tea"), "ada", "*").await.unwrap();
            assert_eq!(server.memories().len(), 3, "{kind:?}");
        }
    });
}

#[test]
fn users_with_any_names_have_separate_memories() {
    let names =
        ["ada", " ada", "ada ", "*", "%2A", "a/../b", "", "{\"in\":[\"ada\"]}", "Jürgen", "ada&user_id=bob"];
    real(async {
        for kind in BOTH {
            let (server, memory) = serve(kind).await;
            for name in names {
                memory.add(says(&format!("my name is [{name}]")), name, "k").await.unwrap();
            }
            for name in names {
                let mine = format!("my name is [{name}]");
                assert_eq!(texts(&memory, "name", name).await, [&*mine], "{kind:?}");
                let listed = memory.list(name, 10).await.unwrap();
                assert_eq!(listed.iter().map(|entry| &*entry.text).collect::<Vec<_>>(), [mine], "{kind:?}");
                let others = if name == "ada" { "bob" } else { "ada" };
                assert!(!memory.forget(&listed[0].id, others).await.unwrap(), "{kind:?}");
            }
            assert_eq!(server.memories().len(), names.len());
        }
    });
}

#[test]
fn a_model_that_fails_is_an_error_and_no_empty_list() {
    real(async {
        for (kind, why) in [
            (Mem0Kind::Hosted, "it could not store the messages: it gives no reason"),
            (Mem0Kind::SelfHosted, "it answered 502: {\"detail\":\"The LLM provider is not available.\"}"),
        ] {
            let (server, memory) = serve(kind).await;
            server.fail(true);
            let error = memory.add(says("I like tea"), "ada", "k1").await.unwrap_err();
            assert_eq!(error.to_string(), format!("the Mem0 server `{}`: {why}", server.base_url()));
            server.fail(false);
            memory.add(says("I like tea"), "ada", "k1").await.unwrap();
            assert_eq!(server.memories().len(), 1);
        }
    });
}

#[test]
fn a_long_list_is_read_page_by_page_up_to_its_limit() {
    real(async {
        for kind in BOTH {
            let (server, memory) = serve(kind).await;
            let many = (0..450).map(|n| Message::user(format!("fact {n}"))).collect();
            memory.add(many, "ada", "k").await.unwrap();
            for (limit, listed) in [(1, 1), (200, 200), (201, 201), (usize::MAX, 450)] {
                let before = server.received().len();
                let entries = memory.list("ada", limit).await.unwrap();
                assert_eq!(entries.len(), listed, "{kind:?} {limit}");
                assert_eq!(entries[listed - 1].text, format!("fact {}", listed - 1));
                let pages = if kind == Mem0Kind::Hosted { listed.div_ceil(200) } else { 1 };
                assert_eq!(server.received().len() - before, pages);
            }
        }
    });
}

/// Plays one turn on a thread of its own, and waits for its background work.
async fn turn(model: Arc<dyn ChatModel>, memory: &Mem0, thread: &str, text: &str) -> AgentState {
    let trigger = MemoryTrigger::new(Arc::new(memory.clone()));
    let config = ReactConfig { retrieve: Some(Retrieve::default()), ..ReactConfig::default() };
    let agent = Agent::builder(model).config(config).memory(trigger);
    let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
    let input = AgentState::update().messages(says(text)).user_id("ada");
    let outcome = agent.graph().thread(thread).run(input).await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    outcome.state
}

/// Stores a message on one thread, requests it on another one, and returns the model's view there.
async fn told_and_asked(memory: &Mem0, models: [Arc<dyn ChatModel>; 2]) -> String {
    let [told, asked] = models;
    let state = turn(told, memory, "t1", "Remember that my tea is oolong").await;
    assert_eq!(state.final_reply, "noted");
    let state = turn(asked, memory, "t2", "Which tea is my favourite?").await;
    assert_eq!(state.final_reply, "oolong");
    assert!(!format!("{state:?}").contains(KEY));
    let shown = state.messages.iter().find(|message| message.synthetic).expect("something was found");
    shown.content.clone()
}

#[test]
fn an_agent_stores_a_memory_request_and_finds_it_on_another_thread() {
    let found = "<long_term_memory>\n- Remember that my tea is oolong\n</long_term_memory>";
    let script = || Script::new([txt("noted"), txt("oolong")]);
    real(async {
        for kind in BOTH {
            let (server, memory) = serve(kind).await;
            let model: Arc<dyn ChatModel> = Arc::new(ScriptedModel::new(script()));
            let shown = told_and_asked(&memory, [model.clone(), model]).await;
            assert!(shown.ends_with(found), "{kind:?}: {shown}");
            assert_eq!(server.memories().len(), 1);

            let (server, memory) = serve(kind).await;
            let wire = WireServer::start(script()).await.unwrap();
            let config = OpenAiConfig::new(wire.base_url(), ApiKey::new("sk-test"), "m");
            let model: Arc<dyn ChatModel> = Arc::new(OpenAiModel::new(config).unwrap());
            let shown = told_and_asked(&memory, [model.clone(), model]).await;
            assert!(shown.ends_with(found), "{kind:?}: {shown}");
            assert_eq!(server.memories().len(), 1);
            wire.check().unwrap();
            assert!(wire.requests()[1].to_string().contains("- Remember that my tea is oolong"));
        }
    });
}

#[test]
fn a_server_that_is_not_there_does_not_reach_the_run() {
    real(async {
        for kind in BOTH {
            let (server, memory) = serve(kind).await;
            drop(server);
            let model = Arc::new(ScriptedModel::new(Script::new([txt("noted")])));
            let state = turn(model, &memory, "t", "Remember that my tea is oolong").await;
            assert_eq!(state.final_reply, "noted");
            assert!(state.messages.iter().all(|message| !message.synthetic));
        }
    });
}

#[test]
fn the_form_is_written_in_one_word() {
    let word = |form: Mem0Form| serde_json::to_value(form).unwrap();
    assert_eq!((word(Mem0Form::Hosted), word(Mem0Form::SelfHosted)), ("hosted".into(), "self_hosted".into()));
}
