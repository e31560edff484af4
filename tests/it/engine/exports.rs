//! Threads as text, by the handle of a thread.

use std::{io::Cursor, sync::Arc};

use futures::future::BoxFuture;
use superstep::{
    CheckpointId, History, ThreadId,
    checkpoint::{
        CheckpointError, CheckpointMeta, Commit, Retention,
        text::{self, ExportOptions, Redaction},
    },
    prelude::*,
};
use superstep_testing::wrapped::{Wrapped, Wrapper};

#[derive(State, Clone, Debug, Default)]
struct Trip {
    city: String,
    weather: String,
}

fn trip(name: &str) -> CompiledGraph<Trip> {
    let mut graph = StateGraph::<Trip>::new(name);
    let look_up = graph
        .add_node("look_up", async |trip: Trip, _| Trip::update().weather(format!("rain in {}", trip.city)));
    graph.add_edge(START, look_up);
    graph.add_edge(look_up, END);
    graph.compile().unwrap().with_checkpointer(MemoryCheckpointer::new())
}

async fn stored() -> CompiledGraph<Trip> {
    let graph = trip("trip");
    graph.thread("t").run(Trip::update().city("Bonn")).await.unwrap();
    graph
}

#[tokio::test]
async fn a_thread_is_exported_and_imported_under_the_name_of_the_handle() {
    let (here, there) = (stored().await, trip("trip"));
    let text = here.thread("t").export().await.unwrap();
    let imported = there.thread("case").import(&text).await.unwrap();
    assert_eq!((imported.thread.as_str(), imported.threads, imported.checkpoints), ("case", 1, 3));
    let [one, other] = [here.thread("t"), there.thread("case")];
    assert_eq!(one.state().await.unwrap().values.weather, other.state().await.unwrap().values.weather);
    other.replay().run().await.unwrap().assert_same();
    assert_eq!(other.export().await.unwrap(), text.replacen(r#""thread":"t""#, r#""thread":"case""#, 1));

    let again = there.thread("case").import(&text).await.unwrap_err();
    insta::assert_snapshot!(again, @"SS310: thread `case` already exists; use another name, or delete that thread first");
}

#[tokio::test]
async fn values_are_replaced_in_an_export() {
    let options = ExportOptions::new().redaction(Redaction::new().channel("city"));
    let text = stored().await.thread("t").export_with(&options).await.unwrap();
    assert!(text.contains(r#""city":{"$redacted":"channel city"}"#), "{text}");
}

#[derive(State, Clone, Debug, Default)]
struct Journey {
    #[channel(was = "city")]
    town: String,
}

fn journey(store: Arc<MemoryCheckpointer>) -> CompiledGraph<Journey> {
    let mut graph = StateGraph::<Journey>::new("trip");
    let look_up = graph.add_node("look_up", async |_: Journey, _| Journey::update().town("Cologne"));
    graph.add_edge(START, look_up);
    graph.add_edge(look_up, END);
    graph.compile().unwrap().with_checkpointer(store)
}

#[tokio::test]
async fn a_rule_for_a_channel_applies_under_its_former_names_and_to_values_of_other_programs() {
    let store = Arc::new(MemoryCheckpointer::new().keeping_values(false));
    let before = trip("trip").with_checkpointer(store.clone());
    before.thread("t").run(Trip::update().city("Bonn")).await.unwrap();
    let after = journey(store);
    // A snapshot has the channels that this program does not know.
    let thread = after.thread("t");
    thread.run(Journey::update()).await.unwrap();
    thread.prune(Retention::Last(2)).await.unwrap();
    let text = thread.export().await.unwrap();
    assert!(text.contains(r#""channel":"$kept""#), "{text}");
    let towns = [r#""Bonn""#, r#""Cologne""#];
    for (rule, hidden) in [("town", towns), ("city", towns), ("weather", ["rain"; 2])] {
        let options = ExportOptions::new().redaction(Redaction::new().channel(rule)).snapshots();
        let text = thread.export_with(&options).await.unwrap();
        assert!(text.contains(&format!(r#"{{"$redacted":"channel {rule}"}}"#)), "{text}");
        assert!(hidden.iter().all(|hidden| !text.contains(hidden)), "{rule}: {text}");
    }
}

#[tokio::test]
async fn a_rule_for_a_channel_replaces_the_items_of_the_inbox() {
    let graph = stored().await;
    graph.thread("t").post("my card is 4711").await.unwrap();
    let exported =
        async |rules| graph.thread("t").export_with(&ExportOptions::new().redaction(rules)).await.unwrap();
    let text = exported(Redaction::new().channel("city")).await;
    assert!(text.contains(r#""metadata":{"item":{"$redacted":"item"}}"#) && !text.contains("4711"), "{text}");
    let text = exported(Redaction::new().secret("4711")).await;
    assert!(text.contains(r#""metadata":{"item":"my card is [redacted]"}"#), "{text}");
}

#[tokio::test]
async fn a_thread_of_another_graph_is_neither_exported_nor_imported() {
    let store = Arc::new(MemoryCheckpointer::new());
    let (one, other) = (trip("trip").with_checkpointer(store.clone()), trip("walk").with_checkpointer(store));
    one.thread("t").run(Trip::update()).await.unwrap();
    let text = one.thread("t").export().await.unwrap();
    let wanted = "belongs to graph `trip`, and this is graph `walk`";
    let error = other.thread("t").export().await.unwrap_err();
    assert!(matches!(error, RunError::OtherGraph { .. }) && error.to_string().contains(wanted), "{error}");
    let error = other.thread("u").import(&text).await.unwrap_err();
    assert!(matches!(error, RunError::OtherGraph { .. }) && error.to_string().contains(wanted), "{error}");
    assert!(other.thread("u").history().checkpoints().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_wrong_text_and_an_unknown_thread_are_refused() {
    let graph = trip("trip");
    let error = graph.thread("u").import("hello\n").await.unwrap_err();
    insta::assert_snapshot!(
        error,
        @r#"SS312: line 1 of the thread file: it is not the first line of a thread's text, which begins with `{"superstep":"thread",`"#
    );
    let error = graph.thread("none").export().await.unwrap_err();
    insta::assert_snapshot!(error, @"SS311: thread `none` does not exist; check its name, `threads` lists the existing threads");
}

/// A store in which another process deletes the threads of subgraphs as soon as an export reads the first checkpoint.
struct Pruned(MemoryCheckpointer);

impl Wrapper for Pruned {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            for child in self.0.children(&thread).await? {
                self.0.delete(&child).await?;
            }
            self.0.read_commit(&thread, at).await
        })
    }
}

#[tokio::test]
async fn a_thread_of_a_subgraph_that_is_deleted_during_an_export_is_an_error() {
    let store = Arc::new(Wrapped(Pruned(MemoryCheckpointer::new())));
    let mut graph = StateGraph::<Trip>::new("outer");
    let sub = graph.add_subgraph("sub", &trip("trip"));
    graph.add_edge(START, sub);
    graph.add_edge(sub, END);
    let thread = graph.compile().unwrap().with_checkpointer(store).thread("t");
    thread.run(Trip::update().city("Bonn")).await.unwrap();
    let error = thread.export().await.unwrap_err();
    insta::assert_snapshot!(error, @"SS313: checkpoint 1 of thread `t/sub:0@2` cannot be exported: it was deleted meanwhile; export the thread again");
}

/// A store with a thread of which this number of checkpoints was pruned.
struct Long(Arc<MemoryCheckpointer>, u64);

impl Wrapper for Long {
    fn store(&self) -> &dyn Checkpointer {
        &*self.0
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let listed = self.0.history(thread, range);
        Box::pin(async move {
            let mut listed = listed.await?;
            listed.iter_mut().for_each(|meta| meta.id.0 += self.1);
            Ok(listed)
        })
    }
}

#[tokio::test]
async fn a_thread_that_could_not_be_imported_is_not_exported() {
    let store = Arc::new(MemoryCheckpointer::new());
    trip("trip").with_checkpointer(store.clone()).thread("t").run(Trip::update()).await.unwrap();
    let exported = async |pruned| {
        text::export(&Wrapped(Long(store.clone(), pruned)), &"t".into(), &ExportOptions::default())
            .await
            .unwrap_err()
    };
    let wanted = "SS313: checkpoint 1000004 of thread `t` cannot be exported: 1000001 checkpoints were pruned, and a thread \
                  with more than 1000000 of them cannot be imported";
    assert_eq!(exported(text::MAX_PRUNED + 1).await.to_string(), wanted);
    // The number alone is accepted; the store lies about the ids.
    let missing = exported(text::MAX_PRUNED).await.to_string();
    assert!(missing.ends_with("it was deleted meanwhile; export the thread again"), "{missing}");
}

/// A store that deletes nothing.
struct Full(MemoryCheckpointer);

impl Wrapper for Full {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let error = CheckpointError::Busy { thread: thread.clone() };
        Box::pin(std::future::ready(Err(error)))
    }
}

#[tokio::test]
async fn an_import_that_cannot_delete_its_temporary_thread_has_stored_the_thread() {
    let text = stored().await.thread("t").export().await.unwrap();
    let store = Wrapped(Full(MemoryCheckpointer::new()));
    let imported = text::import(&store, &mut Cursor::new(&text)).await.unwrap();
    assert_eq!((imported.thread, imported.checkpoints), ("t".into(), 3));
    assert_eq!(text::export(&store, &"t".into(), &ExportOptions::default()).await.unwrap(), text);
    let names = store.names().await.unwrap();
    let left: Vec<bool> = names.iter().map(text::is_unfinished).collect();
    assert_eq!(left, [false, true], "{names:?}");
}
