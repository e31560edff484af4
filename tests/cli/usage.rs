//! `superstep usage`, and what `threads` finds.

use serde_json::json;

use crate::support::Place;

#[tokio::test]
async fn turns_are_summed_and_threads_found_by_their_first_words() {
    let place = Place::new();
    assert_eq!(place.run(&["usage"]).await.ok().stdout, "no turns yet\n");
    for (thread, prompt) in
        [("sums", "2 + 2"), ("sums", "3 * 3"), ("files", "Which file has the word teapot?")]
    {
        place.run(&["run", prompt, "--thread", thread, "--model", "offline", "-q"]).await.ok();
    }
    let by_thread = place.run(&["usage", "--by", "thread", "--json"]).await.ok().lines();
    let turns: Vec<_> = by_thread.iter().map(|line| (&line["thread"], &line["turns"])).collect();
    assert_eq!(turns, [(&json!("files"), &json!(1)), (&json!("sums"), &json!(2))]);
    assert_eq!(by_thread[0]["usage"], json!({"input_tokens": 0, "output_tokens": 0}));
    let by_model = place.run(&["usage", "--by", "model"]).await.ok().stdout;
    assert!(by_model.contains("MODEL") && by_model.contains("offline"), "{by_model}");
    let by_day = place.run(&["usage", "--json"]).await.ok().lines();
    assert_eq!((by_day.len(), &by_day[0]["turns"]), (1, &json!(3)), "{by_day:?}");
    let long_ago = place.run(&["usage", "--since", "0s", "--json"]).await.ok().lines();
    assert!(long_ago.is_empty(), "{long_ago:?}");

    let found = place.run(&["threads", "--search", "TEAPOT", "--json"]).await.ok().lines();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["thread"], &found[0]["model"]), (&json!("files"), &json!("offline")));
    assert_eq!(found[0]["title"], "Which file has the word teapot?");
    let none = place.run(&["threads", "--search", "kettle"]).await.ok().stdout;
    assert_eq!(none, "no thread is like this\n");
    let one = place.run(&["threads", "--limit", "1"]).await.ok().stdout;
    for (flags, wanted) in [
        (&["--status", "finished"][..], 2),
        (&["--status", "stopped"], 0),
        (&["--status", "waiting"], 0),
        (&["--since", "1d"], 2),
        (&["--since", "0s"], 0),
    ] {
        let found = place.run(&[&["threads", "--json"], flags].concat()).await.ok().lines();
        assert_eq!(found.len(), wanted, "{flags:?}: {found:?}");
    }
    let db = place.database();
    let elsewhere =
        ["run", "1 + 1", "--thread", "more", "--model", "offline", "-q", "--db", db.to_str().unwrap()];
    place.run(&elsewhere).await.ok();
    let named = ["threads", "--db", db.to_str().unwrap()];
    let listed = place.run(&named).await.ok().stdout;
    let folder = place.work().canonicalize().unwrap();
    assert!(listed.contains("FOLDER") && listed.contains(folder.to_str().unwrap()), "{listed}");
    assert!(!place.run(&["threads"]).await.ok().stdout.contains("FOLDER"));
    assert!(one.contains("TITLE") && one.contains("teapot") && !one.contains("sums"), "{one}");
}
