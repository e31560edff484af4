//! Followers of a thread that another process writes.

use std::time::Duration;

use futures::{StreamExt as _, stream::BoxStream};
use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{Prune, TaskKey, TaskRecord},
    state::ChannelValue,
};
use superstep_postgres::PostgresCheckpointer;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::{
    proxy::Proxy,
    server::shared,
    support::{fresh, line, load, open, superstep, through},
};

/// Waits for an item of a stream.
async fn item(changes: &mut BoxStream<'static, ()>) {
    let item = tokio::time::timeout(Duration::from_secs(120), changes.next()).await;
    assert_eq!(item.expect("a change is reported"), Some(()));
}

/// Reads a thread after each item until it has this head.
async fn until_head(store: &PostgresCheckpointer, changes: &mut BoxStream<'static, ()>, head: u64) {
    while store.load(&"t".into(), None).await.unwrap().is_none_or(|loaded| loaded.head != CheckpointId(head))
    {
        item(changes).await;
    }
}

#[tokio::test]
async fn a_follower_is_woken_by_the_writes_of_another_opening() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let (one, two, thread) = (open(&options), open(&options), ThreadId::from("t"));
    let mut first = two.changes(&thread).unwrap();
    item(&mut first).await;
    let mut second = two.changes(&thread).unwrap();
    item(&mut second).await;
    let lease = one.lease(&thread).await.unwrap();
    line(&one, &thread, 3).await;
    for changes in [&mut first, &mut second] {
        until_head(&two, changes, 3).await;
    }
    let task = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(3), slot: 0 };
    one.record(&task, TaskRecord::Cancelled { once: Default::default() }).await.unwrap();
    while load(&two, &thread).await.tasks.is_empty() {
        item(&mut first).await;
    }
    drop(lease);
    // Items of earlier writes may come first.
    while two.lease(&thread).await.is_err() {
        item(&mut first).await;
    }
    drop((one, two));
    let is_over = async { while first.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(120), is_over).await.expect("the stream ends with its opening");
}

#[tokio::test]
async fn a_follower_of_a_thread_that_is_pruned_reads_what_is_left_and_what_follows() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let (one, two, thread) = (open(&options), open(&options), ThreadId::from("t"));
    let mut changes = two.changes(&thread).unwrap();
    item(&mut changes).await;
    line(&one, &thread, 5).await;
    until_head(&two, &mut changes, 5).await;
    let head = CheckpointId(5);
    let state = vec![ChannelValue { channel: "c".into(), json: "5".into() }];
    let (keep, snapshots) = ([head].into(), [(head, state)].into());
    assert_eq!(one.prune(&thread, head, Prune { keep, snapshots, ..Prune::default() }).await.unwrap(), 4);
    // What the follower read before is not there any more.
    assert_eq!(two.read_commit(&thread, CheckpointId(4)).await.unwrap(), None);
    one.commit(&thread, Some(head), superstep(Some(head), "6")).await.unwrap();
    until_head(&two, &mut changes, 6).await;
    let left = two.history(&thread, History::default()).await.unwrap();
    assert_eq!(
        left.iter().map(|meta| (meta.id.0, meta.parent_pruned)).collect::<Vec<_>>(),
        [(6, false), (5, true)]
    );
}

#[tokio::test]
async fn writes_to_threads_without_a_follower_send_nothing() {
    let Some(server) = shared() else { return };
    let options = fresh(server);
    let store = open(&options);
    let (client, mut connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification.payload().to_owned());
            }
        }
    });
    let channel = &options.schema;
    client.batch_execute(&format!("LISTEN superstep; LISTEN {channel}")).await.unwrap();
    let mut changes = store.changes(&"followed".into()).unwrap();
    item(&mut changes).await;
    let lease = store.lease(&"t".into()).await.unwrap();
    line(&store, &"t".into(), 3).await;
    drop(lease);
    line(&store, &"followed".into(), 1).await;
    client.batch_execute(&format!("NOTIFY {channel}, 'end'")).await.unwrap();
    // Other tests send theirs meanwhile, to threads of other schemas.
    let mut payloads = std::collections::BTreeSet::new();
    while let Some(payload) = heard.recv().await
        && payload != "end"
    {
        payloads.insert(payload);
    }
    item(&mut changes).await;
    let keys = follow_keys(channel);
    assert!(!payloads.contains(&keys[0]) && payloads.contains(&keys[1]), "{payloads:?} {keys:?}");
}

/// Returns the payloads of the threads `t` and `followed` of a schema.
fn follow_keys(schema: &str) -> [String; 2] {
    use superstep_checkpoint::internal::{Cell, row_sum};
    ["t", "followed"].map(|thread| {
        row_sum(&[Cell::Text(b"follow"), Cell::Text(schema.as_bytes()), Cell::Bytes(thread.as_bytes())])
            .to_string()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_connection_is_cut_polls_until_it_has_another_one() {
    let Some(server) = shared() else { return };
    let proxy = Proxy::start(server.folder());
    let options = fresh(server);
    let (one, two) = (open(&options), open(&through(proxy.folder(), options.clone())));
    let mut changes = two.changes(&"t".into()).unwrap();
    item(&mut changes).await;
    line(&one, &"t".into(), 1).await;
    until_head(&two, &mut changes, 1).await;
    for head in 1..4 {
        proxy.cut();
        one.commit(&"t".into(), Some(CheckpointId(head)), superstep(Some(CheckpointId(head)), "2"))
            .await
            .unwrap();
        until_head(&two, &mut changes, head + 1).await;
    }
}
