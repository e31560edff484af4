//! The stored size of a long chat.

use std::{fs, sync::Arc};

use serde::{Deserialize, Serialize};
use superstep_graph::{CompiledGraph, Cx, END, Log, START, State, StateGraph};
use superstep_sqlite::SqliteCheckpointer;

use crate::support::Folder;

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Message {
    id: String,
    role: String,
    content: String,
}

#[derive(State, Clone, Debug, Default)]
struct Chat {
    #[channel(append)]
    messages: Log<Message>,
    turns: i64,
}

/// Creates a message of 1 KB.
fn message(role: &str, turn: i64) -> Message {
    let text = format!("In turn {turn} the {role} said what there was to be said. ");
    let content = text.chars().cycle().take(1_000).collect();
    Message { id: format!("{role}-{turn}"), role: role.to_owned(), content }
}

/// Creates a graph with one node that answers.
fn short() -> StateGraph<Chat> {
    let mut graph = StateGraph::<Chat>::new("chat");
    let answer = graph.add_node("answer", async |chat: Chat, _: Cx| {
        Chat::update().messages([message("assistant", chat.turns)]).turns(chat.turns + 1)
    });
    graph.add_edge(START, answer);
    graph.add_edge(answer, END);
    graph
}

/// Creates a graph with one node that reads the input and another one that answers.
fn long() -> StateGraph<Chat> {
    let mut graph = StateGraph::<Chat>::new("chat");
    let listen = graph.add_node("listen", async |chat: Chat, _: Cx| Chat::update().turns(chat.turns + 1));
    let answer = graph.add_node("answer", async |chat: Chat, _: Cx| {
        Chat::update().messages([message("assistant", chat.turns)])
    });
    graph.add_edge(START, listen);
    graph.add_edge(listen, answer);
    graph.add_edge(answer, END);
    graph
}

/// Returns the bytes of all files of a database after this number of turns, each a separate run.
async fn stored(graph: CompiledGraph<Chat>, turns: i64) -> u64 {
    let folder = Folder::new();
    let store = Arc::new(SqliteCheckpointer::open(folder.db()).unwrap());
    let graph = graph.with_checkpointer(store.clone());
    for turn in 0..turns {
        let input = Chat::update().messages([message("user", turn)]);
        graph.thread("chat").run(input).await.unwrap();
    }
    let ended = graph.thread("chat").state().await.unwrap();
    assert_eq!(ended.values.messages.len(), 2 * usize::try_from(turns).unwrap());
    drop((graph, store));
    let files = fs::read_dir(folder.path()).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test]
async fn a_chat_of_400_messages_takes_little_more_than_its_text() {
    for graph in [short(), long()] {
        let bytes = stored(graph.compile().unwrap(), 200).await;
        assert!(bytes < 800_000, "{bytes}");
    }
}
