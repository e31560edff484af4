//! The fragments of SS190 to SS200.

use std::{io::Cursor, sync::Arc};

use serde::Serialize;
use superstep::{
    Answers, CheckpointId, Checkpointer, CompileError, CompiledGraph, Cx, MemoryCheckpointer, START, State,
    checkpoint::text::{self, ExportOptions, Redaction},
    node::Persistence,
};

use super::setup::{
    Done, Fields, Fields as Chat, Fields as Reviews, FieldsUpdate as ReviewsUpdate, assert_fails, empty,
    fails, nodes, single, stored,
};

#[tokio::test]
async fn ss190() -> Done {
    let mut graph = empty();
    for node in nodes(&mut graph, ["left", "right"]) {
        graph.add_edge(START, node);
    }
    let graph = stored(graph);
    graph.thread("support-17").run(Chat::update()).await?;
    fails("SS190", async {
        // `left` and `right` ran side by side before this checkpoint.
        graph.thread("support-17").update(Chat::update().note("checked by hand")).await?;
        Ok(())
    })
    .await;

    graph.thread("support-17").update_as("left", Chat::update().note("checked by hand")).await?;
    Ok(())
}

#[tokio::test]
async fn ss191() -> Done {
    let graph = single("tools");
    graph.thread("support-17").run(Chat::update()).await?;
    fails("SS191", async {
        graph.thread("support-17").bulk_update(vec![vec![]]).await?;
        Ok(())
    })
    .await;

    graph.thread("support-17").bulk_update(vec![vec![(Chat::update(), "tools".into())]]).await?;
    Ok(())
}

#[tokio::test]
async fn ss192() -> Done {
    #[derive(Serialize)]
    struct Payment {
        amount: Option<f64>,
        why: &'static str,
    }

    let mut graph = empty();
    let pay = graph.add_node("pay", async |_: Chat, cx: Cx| {
        let approved: bool = cx.interrupt("pay", f64::NAN).await; // the person would read `null`
    });
    graph.add_edge(START, pay);
    assert_fails("SS192", stored(graph).thread("t").run(Chat::update()).await);

    let mut graph = empty();
    let pay = graph.add_node("pay", async |_: Chat, cx: Cx| {
        let approved: bool = cx.interrupt("pay", Payment { amount: None, why: "no rate" }).await;
    });
    graph.add_edge(START, pay);
    assert_eq!(stored(graph).thread("t").run(Chat::update()).await?.interrupts.len(), 1);
    Ok(())
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn ss193() -> Done {
    use superstep::sqlite::SqliteCheckpointer;

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("threads.db");
    let chat = || {
        let mut chat = empty();
        let [agent] = nodes(&mut chat, ["agent"]);
        chat.add_edge(START, agent);
        chat
    };
    let before = chat().compile()?.with_checkpointer(SqliteCheckpointer::open(&path)?);
    before.thread("support-17").run(Chat::update()).await?;
    drop(before);
    fails("SS193", async {
        let chat = chat();
        let graph = chat.compile()?.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
        // Another process stored the thread elsewhere.
        let replayed = graph.thread("support-17").replay().run().await?;
        Ok(())
    })
    .await;

    let chat = chat();
    let graph = chat.compile()?.with_checkpointer(SqliteCheckpointer::open(path)?);
    let replayed = graph.thread("support-17").replay().run().await?;
    Ok(())
}

/// Returns the checkpoint before the last superstep of a thread.
async fn before_the_end(graph: &CompiledGraph<Fields>) -> CheckpointId {
    graph.thread("t").history().checkpoints().await.unwrap()[1].id
}

#[tokio::test]
async fn ss194() -> Done {
    let graph = single("agent");
    graph.thread("t").run(Chat::update()).await?;
    let before = before_the_end(&graph).await;
    let first = graph.thread("t").history().checkpoints().await?[0].id;
    fails("SS194", async {
        let old = graph.thread("t").history().checkpoints().await?[0].id;
        graph.thread("t").at(before).resume().await?; // A fork: `old` is on another branch now.
        let replayed = graph.thread("t").replay().from(old).run().await?;
        Ok(())
    })
    .await;

    let old = first;
    let replayed = graph.thread("t").replay().from(before).to(old).run().await?;
    Ok(())
}

#[tokio::test]
async fn ss195() -> Done {
    let mut graph = empty();
    let agent = graph.add_node("agent", async |_: Chat, cx: Cx| {
        let ok: bool = cx.interrupt("ok", "?").await;
    });
    graph.add_edge(START, agent);
    let (graph, input) = (stored(graph), Chat::update());
    fails("SS195", async {
        let end = graph.thread("t").run(input).await?; // It ends with `Status::Interrupted`.
        let replayed = graph.thread("t").replay().live(["agent"]).run().await?;
        Ok(())
    })
    .await;

    let answers = Answers::new().answer("ok", true);
    graph.thread("t").answers(answers).resume().await?;
    let replayed = graph.thread("t").replay().live(["agent"]).run().await?;
    Ok(())
}

#[tokio::test]
async fn ss196() -> Done {
    /// `START → agent → save`, where `save` calls a graph.
    fn chat_that_calls(notes: CompiledGraph<Fields>) -> Result<CompiledGraph<Fields>, CompileError> {
        let mut chat = empty();
        let [agent] = nodes(&mut chat, ["agent"]);
        let save =
            chat.add_node_with("save", notes, async |notes: CompiledGraph<Fields>, _: Fields, cx: Cx| {
                cx.call(&notes, Fields::update()).await.map(|_| ())
            });
        chat.add_edge(START, agent);
        chat.add_edge(agent, save);
        Ok(chat.compile()?.with_checkpointer(MemoryCheckpointer::new()))
    }

    let notes = || {
        let mut notes = empty();
        let [note] = nodes(&mut notes, ["note"]);
        notes.add_edge(START, note);
        notes
    };
    fails("SS196", async {
        let (notes, input) = (notes(), Chat::update());
        let notes = notes.compile()?.with_persistence(Persistence::PerNode);
        let chat = chat_that_calls(notes)?;
        chat.thread("t").run(input).await?;
        let replayed = chat.thread("t").replay().live(["agent"]).run().await?;
        Ok(())
    })
    .await;

    let notes = notes().compile()?.with_persistence(Persistence::PerNode);
    let chat = chat_that_calls(notes)?;
    chat.thread("t").run(Chat::update()).await?;
    let before = before_the_end(&chat).await;
    let replayed = chat.thread("t").replay().live(["agent"]).to(before).run().await?;
    Ok(())
}

#[tokio::test]
async fn ss197() -> Done {
    let graph = single("agent");
    graph.thread("t").run(Chat::update()).await?;
    fails("SS197", async {
        let replayed = graph.thread("t").replay().live(["agnet"]).run().await?;
        Ok(())
    })
    .await;

    let replayed = graph.thread("t").replay().live(["agent"]).run().await?;
    Ok(())
}

#[tokio::test]
async fn ss198() -> Done {
    fn accepted(ok: bool) -> ReviewsUpdate {
        Reviews::update().accepted([ok])
    }

    let mut graph = empty();
    let review = graph.add_worker("review", async |text: String, _: Reviews, cx: Cx| {
        let ok: bool = cx.interrupt("ok", &text).await;
        accepted(ok)
    });
    let [split] = nodes(&mut graph, ["split"]);
    graph.add_edge(START, split);
    graph.add_fan_out(split, |_: &Reviews| ["one".to_owned(), "two".to_owned()], review);
    let graph = stored(graph);
    graph.thread("support-17").run(Reviews::update()).await?;
    fails("SS198", async {
        // Two items of `review` wait for an answer.
        graph.thread("support-17").update_as("review", Reviews::update().accepted([true])).await?;
        Ok(())
    })
    .await;

    let both = vec![vec![(accepted(true), "review".into()), (accepted(false), "review".into())]];
    graph.thread("support-17").bulk_update(both).await?;
    graph.thread("support-17").update(Reviews::update().note("checked")).await?;
    Ok(())
}

#[tokio::test]
async fn ss199() -> Done {
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let elsewhere: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    let graph = graph.compile()?;
    let original = graph.clone().with_checkpointer(store.clone());
    original.thread("support-17").run(Chat::update().note("secret")).await?;
    let options = ExportOptions::new().redaction(Redaction::new().secret("secret"));
    let redacted = text::export(&*store, &"support-17".into(), &options).await?;
    text::import(&*elsewhere, &mut Cursor::new(redacted)).await?;
    let graph = graph.with_checkpointer(elsewhere.clone());
    fails("SS199", async {
        let replayed = graph.thread("support-17").replay().run().await?;
        Ok(())
    })
    .await;

    let text = text::export(&*store, &"support-17".into(), &ExportOptions::default()).await?;
    elsewhere.delete(&"support-17".into()).await?;
    text::import(&*elsewhere, &mut Cursor::new(text)).await?;
    graph.thread("support-17").replay().run().await?.assert_same();
    Ok(())
}

#[tokio::test]
async fn ss200() -> Done {
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let mailing = |mails: bool| {
        let mut graph = empty();
        let agent = graph.add_node("agent", move |_: Chat, cx: Cx| async move {
            if mails {
                let _sent: bool = cx.recorded("mail", async || true).await;
            }
            Chat::update().note("done")
        });
        graph.add_edge(START, agent);
        graph.compile()
    };
    mailing(false)?.with_checkpointer(store.clone()).thread("case").run(Chat::update().note("Hi.")).await?;
    let graph = mailing(true)?.with_checkpointer(store.clone());
    let target = Arc::new(MemoryCheckpointer::new());
    fails("SS200", async {
        graph.thread("case").replay().rerecord(target).await?;
        Ok(())
    })
    .await;

    graph.thread("case-2").run(Chat::update().note("Hi.")).await?;
    let text = text::export(&*store, &"case-2".into(), &ExportOptions::default()).await?;
    Ok(())
}
