//! The fragments of SS301 to SS314.

use std::{fs::File, io::BufReader, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::json;
use superstep::{
    Checkpointer, Cx, MemoryCheckpointer, MemoryStore, OnExisting, START, State, Store, ThreadId,
    checkpoint::{
        AppliedTask, Commit, Source,
        text::{self, ExportOptions},
    },
    store::{Embed, EmbedError, Filter, Namespace, Operation, PutOptions, Search, StoreOptions},
    topology::Control,
};

use super::setup::{Done, Fields as Chat, assert_fails, empty, fails, nodes, single, stored};

#[tokio::test(start_paused = true)]
async fn ss301() -> Done {
    let mut graph = empty();
    let agent = graph.add_node("agent", async |_: Chat, cx: Cx| cx.sleep(Duration::from_secs(1)).await);
    graph.add_edge(START, agent);
    let graph = stored(graph);
    let [question, other_question] = [(); 2].map(|()| Chat::update());
    let (first, second) = tokio::join!(
        graph.thread("support-17").run(question),
        graph.thread("support-17").run(other_question),
    );
    first?;
    assert_fails("SS301", second);

    let [question, other_question] = [(); 2].map(|()| Chat::update());
    graph.thread("support-17").run(question).await?;
    graph.thread("support-17").run(other_question).await?;
    Ok(())
}

/// Returns a checkpoint with one update.
fn commit(update: &str) -> Commit {
    let applied = AppliedTask { slot: 0, recorded: false, node: "agent".into(), update: update.into() };
    Commit {
        parent: None,
        source: Source::Loop,
        control: Control::new(0, Vec::new()),
        created_ms: 0,
        metadata: Arc::default(),
        applied: vec![applied],
        snapshot: None,
        records: Vec::new(),
        fingerprints: None,
    }
}

#[tokio::test]
async fn ss302() -> Done {
    let (store, thread, commit) = (MemoryCheckpointer::new(), ThreadId::from("t"), commit("{}"));
    fails("SS302", async {
        let commit = commit.clone();
        let first = store.commit(&thread, None, commit.clone()).await?;
        store.commit(&thread, None, commit).await?; // expects a new thread again
        Ok(())
    })
    .await;

    let lease = store.lease(&thread).await?;
    let head = store.load(&thread, None).await?.map(|loaded| loaded.head);
    store.commit(&thread, head, commit).await?;
    Ok(())
}

#[cfg(feature = "sqlite")]
#[test]
fn ss303() -> Done {
    use superstep::sqlite::SqliteCheckpointer;

    let parent = tempfile::tempdir()?;
    let folder = parent.path().join("data");
    let wrong = || -> Done {
        let store = SqliteCheckpointer::open(folder.join("threads.db"))?; // The folder does not exist.
        Ok(())
    };
    assert_fails("SS303", wrong());

    std::fs::create_dir_all(&folder)?;
    let store = SqliteCheckpointer::open(folder.join("threads.db"))?;
    Ok(())
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn ss304() -> Done {
    use superstep::{CheckpointId, sqlite::SqliteCheckpointer};

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("threads.db");
    let chat = || {
        let mut graph = empty();
        let names = ["one", "two", "three", "four"];
        names.iter().zip(nodes(&mut graph, names)).fold(START, |last, (_, node)| {
            graph.add_edge(last, node);
            node
        });
        graph
    };
    let before = chat().compile()?.with_checkpointer(SqliteCheckpointer::open(&path)?);
    before.thread("support-17").run(Chat::update()).await?;
    drop(before);
    let damage = "UPDATE checkpoints SET control = 'oops' WHERE id = (SELECT max(id) FROM checkpoints)";
    rusqlite::Connection::open(&path)?.execute_batch(damage)?;
    fails("SS304", async {
        let graph = chat();
        // sqlite3 threads.db "UPDATE checkpoints SET control = 'oops' WHERE ..."
        let graph = graph.compile()?.with_checkpointer(SqliteCheckpointer::open(&path)?);
        graph.thread("support-17").resume().await?;
        Ok(())
    })
    .await;

    let graph = chat().compile()?.with_checkpointer(SqliteCheckpointer::open(&path)?);
    graph.thread("support-17").at(CheckpointId(3)).resume().await?;
    Ok(())
}

#[test]
fn ss305() -> Done {
    let wrong = || -> Done {
        let facts = Namespace::new(["users", "ada@example.org"])?;
        Ok(())
    };
    assert_fails("SS305", wrong());

    let facts = Namespace::new(["users", &"ada@example.org".replace('.', "_")])?;
    Ok(())
}

#[test]
fn ss306() -> Done {
    let wrong = || -> Done {
        let filter = Filter::parse(&json!({"age": {"$greater": 17}}))?;
        Ok(())
    };
    assert_fails("SS306", wrong());

    let filter = Filter::parse(&json!({"age": {"$gt": 17}}))?;
    let filter = vec![Filter::gt("age", 17)];
    assert_eq!(filter, Filter::parse(&json!({"age": {"$gt": 17}}))?);
    Ok(())
}

#[tokio::test]
async fn ss307() -> Done {
    let (facts, model) = (Namespace::new(["facts"])?, ss308_model());
    fails("SS307", async {
        let store = MemoryStore::new();
        let near = store.search(Search::within(&facts).meaning("what does she drink?")).await?;
        Ok(())
    })
    .await;

    let store = MemoryStore::with(StoreOptions::new().embed(model));
    let near = store.search(Search::within(&facts).meaning("what does she drink?")).await?;
    let with_words = store.search(Search::within(&facts).words("tea coffee")).await?;
    Ok(())
}

/// Stores two items with their embeddings.
async fn ss308_put(model: impl Embed) -> Done {
    let store = MemoryStore::with(StoreOptions::new().embed(model));
    let namespace = Namespace::new(["facts"])?;
    let puts = ["tea", "coffee"].map(|drink| Operation::Put {
        namespace: namespace.clone(),
        key: drink.to_owned(),
        value: json!(drink),
        options: PutOptions::default(),
    });
    store.batch(puts.into()).await?;
    Ok(())
}

/// Returns a model that embeds all texts.
fn ss308_model() -> impl Embed {
    struct Model;

    impl Model {
        async fn embed_all(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
            Ok(vec![vec![1.0, 0.0]; texts.len()])
        }
    }

    impl Embed for Model {
        fn model(&self) -> &str {
            "all"
        }

        fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
            Box::pin(self.embed_all(texts))
        }
    }

    Model
}

#[tokio::test]
async fn ss308() -> Done {
    struct Model;

    impl Model {
        async fn embed_one(&self, _: &str) -> Result<Vec<f32>, EmbedError> {
            Ok(vec![1.0, 0.0])
        }
    }

    impl Embed for Model {
        fn model(&self) -> &str {
            "first"
        }

        fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
            Box::pin(async { Ok(vec![self.embed_one(&texts[0]).await?]) })
        }
    }

    assert_fails("SS308", ss308_put(Model).await);
    ss308_put(ss308_model()).await
}

#[tokio::test]
async fn ss309() -> Done {
    let (store, notes) = (MemoryStore::new(), Namespace::new(["notes"])?);
    let very_deep = (0..200).fold(json!(0), |inside, _| json!([inside]));
    fails("SS309", async {
        store.put(&notes, "tree", very_deep).await?;
        Ok(())
    })
    .await;

    let nodes = json!([{ "children": [1] }, { "children": [] }]);
    store.put(&notes, "tree", json!({ "nodes": nodes, "root": 0 })).await?;
    Ok(())
}

#[tokio::test]
async fn ss310() -> Done {
    let graph = single("agent");
    for thread in ["support-17", "support-18"] {
        graph.thread(thread).run(Chat::update()).await?;
    }
    fails("SS310", async {
        graph.thread("support-17").copy_to("support-18").await?;
        Ok(())
    })
    .await;
    fails("SS310", async {
        graph.thread("support-17").on_existing(OnExisting::Refuse).run(Chat::update()).await?;
        Ok(())
    })
    .await;

    graph.thread("support-18").delete().await?;
    graph.thread("support-17").copy_to("support-18").await?;
    graph.thread("support-17").on_existing(OnExisting::Resume).run(Chat::update()).await?;
    Ok(())
}

#[tokio::test]
async fn ss311() -> Done {
    let graph = single("agent");
    graph.thread("support-17").run(Chat::update()).await?;
    fails("SS311", async {
        graph.thread("suport-17").copy_to("backup").await?;
        Ok(())
    })
    .await;

    graph.thread("support-17").copy_to("backup").await?;
    Ok(())
}

/// Returns a store with the thread `support-17`.
async fn support_17() -> Result<Arc<MemoryCheckpointer>, Box<dyn std::error::Error>> {
    let store = Arc::new(MemoryCheckpointer::new());
    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    let graph = graph.compile()?.with_checkpointer(store.clone());
    graph.thread("support-17").run(Chat::update()).await?;
    Ok(store)
}

#[tokio::test]
async fn ss312() -> Done {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("case.thread.jsonl");
    let store = support_17().await?;
    let text = text::export(&*store, &"support-17".into(), &ExportOptions::default()).await?;
    let (all_but_the_last, _) = text.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(&path, format!("{all_but_the_last}\n"))?;
    fails("SS312", async {
        let store = Arc::new(MemoryCheckpointer::new());
        // The last line is missing.
        text::import(&*store, &mut BufReader::new(File::open(&path)?)).await?;
        Ok(())
    })
    .await;

    let mut file = File::create(&path)?;
    text::export_to(&*store, &"support-17".into(), &ExportOptions::default(), &mut file).await?;
    let elsewhere = MemoryCheckpointer::new();
    text::import(&elsewhere, &mut BufReader::new(File::open(path)?)).await?;
    Ok(())
}

#[tokio::test]
async fn ss313() -> Done {
    let store = Arc::new(MemoryCheckpointer::new());
    store.commit(&"support-17".into(), None, commit("oops")).await?;
    fails("SS313", async {
        text::export(&*store, &"support-17".into(), &ExportOptions::default()).await?;
        Ok(())
    })
    .await;

    let store = support_17().await?;
    let text = text::export(&*store, &"support-17".into(), &ExportOptions::default()).await?;
    Ok(())
}

#[tokio::test]
async fn ss314() -> Done {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("case.thread.jsonl");
    std::fs::write(&path, "")?;
    let store = support_17().await?;
    fails("SS314", async {
        let mut file = File::open(&path)?; // It cannot be written.
        text::export_to(&*store, &"support-17".into(), &ExportOptions::default(), &mut file).await?;
        Ok(())
    })
    .await;

    let mut file = File::create(&path)?;
    text::export_to(&*store, &"support-17".into(), &ExportOptions::default(), &mut file).await?;
    Ok(())
}
