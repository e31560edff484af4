//! Processes that begin one thread.

use futures::future::join_all;

use crate::support::Place;

#[tokio::test]
async fn one_of_many_processes_begins_a_thread() {
    let place = Place::new();
    // The database is there, so that they only compete for the thread.
    place.own(&["run", "digest", "--thread", "other"]).await.ok();
    let begin = ["run", "digest", "--thread", "order-17", "--new"];
    let ended = join_all((0..6).map(|_| place.own(&begin))).await;
    let mut codes: Vec<_> = ended.iter().map(|ran| ran.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 5, 5, 5, 5, 5].map(Some), "{ended:?}");
    let exists = "SS310: thread `order-17` already exists; use another name, or delete that thread first";
    place.own(&begin).await.refused(5, exists);
    let history = place.own(&["history", "order-17", "--json"]).await.ok().lines();
    assert_eq!(history.iter().filter(|checkpoint| checkpoint["source"] == "input").count(), 1);
    // Without the flag it is the thread's next input.
    place.own(&["run", "digest", "--thread", "order-17"]).await.ok();
}

#[tokio::test]
async fn a_turn_begins_a_thread_or_is_refused() {
    let place = Place::new();
    let begin = ["run", "--model", "offline", "--thread", "support-17", "--new", "hello"];
    place.run(&begin).await.ok();
    let exists = "SS310: thread `support-17` already exists; use another name, or delete that thread first";
    place.run(&begin).await.refused(5, exists);
    let unnamed = place.run(&["run", "--model", "offline", "--new", "hello"]).await;
    assert_eq!(unnamed.code, Some(2), "{unnamed:?}");
}
