//! The fragments of SS316 to SS318.

use std::{io::Cursor, sync::Arc};

use superstep::{
    CheckpointId, Checkpointer, MemoryCheckpointer, START, State,
    checkpoint::text::{self, ExportOptions},
    sealed::{KeyRing, MasterKey, SealOptions, SealedCheckpointer, SystemRandom},
};

use super::setup::{Done, Fields as Chat, empty, fails, nodes};

/// Returns a graph that is not compiled.
fn chat() -> superstep::StateGraph<Chat> {
    let mut graph = empty();
    let [agent] = nodes(&mut graph, ["agent"]);
    graph.add_edge(START, agent);
    graph
}

fn key() -> MasterKey {
    MasterKey::generate(&SystemRandom).unwrap()
}

#[tokio::test]
async fn ss316() -> Done {
    let (old, new, database) = (key(), key(), Arc::new(MemoryCheckpointer::new()));
    let sealed = SealedCheckpointer::new(database.clone(), SealOptions::encrypted(KeyRing::new(old.clone())));
    chat().compile()?.with_checkpointer(sealed).thread("support-17").run(Chat::update()).await?;
    fails("SS316", async {
        let graph = chat();
        let keys = KeyRing::new(new.clone());
        let sealed = SealedCheckpointer::new(database.clone(), SealOptions::encrypted(keys));
        let graph = graph.compile()?.with_checkpointer(sealed);
        graph.thread("support-17").resume().await?;
        Ok(())
    })
    .await;

    let keys = KeyRing::new(new.clone()).with_old(old);
    let sealed = SealedCheckpointer::new(database.clone(), SealOptions::encrypted(keys));
    sealed.rekey(&"support-17".into()).await?;
    let sealed = SealedCheckpointer::new(database, SealOptions::encrypted(KeyRing::new(new)));
    chat().compile()?.with_checkpointer(sealed).thread("support-17").resume().await?;
    Ok(())
}

#[tokio::test]
async fn ss317() -> Done {
    let (keys, database) = (KeyRing::new(key()), Arc::new(MemoryCheckpointer::new()));
    chat().compile()?.with_checkpointer(database.clone()).thread("support-17").run(Chat::update()).await?;
    fails("SS317", async {
        let graph = chat();
        let options = SealOptions { required: true, ..SealOptions::encrypted(keys.clone()) };
        let sealed = SealedCheckpointer::new(database.clone(), options);
        let graph = graph.compile()?.with_checkpointer(sealed);
        graph.thread("support-17").resume().await?;
        Ok(())
    })
    .await;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("support-17.jsonl");
    let sealed = SealedCheckpointer::new(database.clone(), SealOptions::encrypted(keys.clone()));
    let text = text::export(&sealed, &"support-17".into(), &ExportOptions::default()).await?;
    std::fs::write(&file, &text)?;
    sealed.delete(&"support-17".into()).await?;
    text::import(&sealed, &mut Cursor::new(&text)).await?;

    let options = SealOptions { required: true, ..SealOptions::encrypted(keys) };
    let sealed = SealedCheckpointer::new(database, options);
    chat().compile()?.with_checkpointer(sealed).thread("support-17").resume().await?;
    Ok(())
}

#[tokio::test]
async fn ss318() -> Done {
    let database = Arc::new(MemoryCheckpointer::new());
    let graph = chat().compile()?.with_checkpointer(database.clone());
    graph.thread("support-17").run(Chat::update()).await?;
    graph.thread("support-17").post("a forged message").await?;
    let inbox = database.children(&"support-17".into()).await?.remove(0);
    let item = database.read_commit(&inbox, CheckpointId(1)).await?.expect("it was posted");
    graph.thread("support-17").delete().await?;
    database.commit(&inbox, None, item).await?;
    fails("SS318", async {
        graph.thread("support-17").run(Chat::update()).await?;
        Ok(())
    })
    .await;

    graph.thread("support-17").delete().await?;
    graph.thread("support-17").run(Chat::update()).await?;
    Ok(())
}
