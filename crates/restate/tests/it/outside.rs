//! Programs that write threads without the service: each opening is that of a process.

use superstep_graph::{
    CheckpointId, CompiledGraph, Cx, END, Log, NodeError, START, State, StateGraph, ThreadId,
    checkpoint::CheckpointError,
};

use crate::{node::shared, service::Service};

#[derive(State, Clone, Debug, Default)]
struct Words {
    #[channel(append)]
    log: Log<String>,
}

/// Reads its inbox, and asks.
fn reading() -> CompiledGraph<Words> {
    let mut graph = StateGraph::<Words>::new("reading");
    let read = graph.add_node("read", async |_: Words, cx: Cx| {
        let posted = cx.inbox(0).await?;
        let answer: String = cx.interrupt("name", "who?").await;
        Ok::<_, NodeError>(Words::update().log([format!("{} {answer}", posted.len())]))
    });
    graph.add_edge(START, read);
    graph.add_edge(read, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn a_lease_is_there_for_another_program_as_soon_as_it_is_dropped() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(reading()));
    let openings = [(); 2].map(|()| service.restate.checkpointer().unwrap());
    let thread = ThreadId::from("t");
    for nth in 0..40 {
        let lease = openings[nth % 2].lease(&thread).await.unwrap();
        if nth == 0 {
            let error = openings[1].lease(&thread).await.unwrap_err();
            assert!(matches!(error, CheckpointError::Busy { .. }), "{error}");
        }
        drop(lease);
    }
}

#[tokio::test]
async fn a_question_of_a_thread_that_was_begun_again_has_another_id() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(reading()));
    let mut ids = Vec::new();
    for thread in ["one", "two", "one", "two"] {
        let thread = service.restate.thread("reading", thread);
        ids.push(thread.run(Words::update()).await.unwrap().interrupts.remove(0).id);
        thread.stored(&reading()).unwrap().delete().await.unwrap();
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
}

#[tokio::test]
async fn no_run_begins_a_thread_of_which_an_inbox_is_stored() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(reading()));
    let thread = service.restate.thread("reading", "t");
    thread.run(Words::update()).await.unwrap();
    let store = service.restate.checkpointer().unwrap();
    thread.stored(&reading()).unwrap().post("forged").await.unwrap();
    let inbox = store.children(&"t".into()).await.unwrap().remove(0);
    let posted = store.read_commit(&inbox, CheckpointId(1)).await.unwrap().unwrap();
    store.delete(&"t".into()).await.unwrap();
    store.commit(&inbox, None, posted).await.unwrap();
    let error = thread.run(Words::update()).await.unwrap_err().to_string();
    assert!(error.contains("inbox"), "{error}");
    store.delete(&"t".into()).await.unwrap();
    thread.run(Words::update()).await.unwrap();
}
