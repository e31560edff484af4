//! The memory usage of checkpoints. A separate program, because it counts allocations.

use std::sync::Arc;

use superstep_graph::{Cx, END, Log, MemoryCheckpointer, Route, START, State, StateGraph};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    #[channel(append)]
    messages: Log<String>,
    left: i64,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

fn message(number: i64) -> String {
    format!("{number:0190}")
}

#[test]
fn a_hundred_checkpoints_of_a_long_chat_take_little_memory() {
    let mut graph = StateGraph::<Chat>::new("chat");
    let append = graph.add_node("append", async |chat: Chat, _: Cx| {
        Chat::update().messages([message(chat.left)]).left(chat.left - 1)
    });
    graph.add_edge(START, append);
    graph.add_conditional_edges(
        append,
        |chat: &Chat| if chat.left > 0 { Next::Again } else { Next::Done },
        |next| match next {
            Next::Again => append,
            Next::Done => END,
        },
    );
    let graph = graph.compile().unwrap().with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let said = Chat::update().messages((0..4_999).map(message).collect::<Vec<_>>()).left(1);
    runtime.block_on(graph.thread("chat").run(said)).unwrap();

    let kept = allocation_counter::measure(|| {
        let ended = runtime.block_on(graph.thread("chat").run(Chat::update().left(98))).unwrap();
        assert_eq!(ended.state.messages.len(), 5_098);
    });
    let history = runtime.block_on(graph.thread("chat").history().checkpoints()).unwrap();
    assert_eq!(history.len(), 3 + 100, "an input, what starts, and a superstep each");
    // The conversation alone is 18 KiB; the whole state would be 0.9 MiB each time.
    assert!((18 << 10..300 << 10).contains(&kept.bytes_current), "{kept:?}");
}
