//! Threads of a program with graphs of its own as text: `export` and `import`.

use std::fs;

use serde_json::json;

use crate::support::{Place, ended};

const LARGE: &str = r#"{"items": [{"name": "tea", "euros": 120}]}"#;

/// Creates a place with the order `o`, which waits for approval.
async fn with_an_order() -> Place {
    let place = Place::new();
    assert_eq!(place.own(&["run", "orders", "--input", LARGE, "--thread", "o"]).await.code, Some(6));
    place
}

#[tokio::test]
async fn an_exported_thread_is_imported_elsewhere_and_runs_only_if_it_is_trusted() {
    let here = with_an_order().await;
    let text = here.own(&["export", "o"]).await.ok().stdout;
    assert!(
        text.starts_with(r#"{"superstep":"thread","format":1,"thread":"o","mark":{"graph":"orders""#),
        "{text}"
    );
    let there = Place::new();
    there.file("o.thread.jsonl", &text);
    let said = there.own(&["import", "o.thread.jsonl"]).await.ok().stdout;
    assert_eq!(said, "imported thread `o` with 3 checkpoints\n");
    assert_eq!(there.own(&["export", "o"]).await.ok().stdout, text);
    let said = there.own(&["import", "o.thread.jsonl", "--as", "case", "--json"]).await.ok().lines();
    assert_eq!(said, [json!({"thread": "case", "threads": 1, "checkpoints": 3})]);

    for args in [&["answer", "o", "approve", "true"][..], &["replay", "case"]] {
        let refused = format!(
            "thread `{}` was imported from a file, so it may come from someone else; inspect it with `own_program state {0}`, \
             and repeat the command with `--trust` to run it",
            args[1]
        );
        there.own(args).await.refused(2, &refused);
    }
    there.own(&["answer", "o", "approve", "true", "--trust"]).await.ok();
    assert!(there.own(&["replay", "o", "--strict"]).await.ok().stdout.contains("no divergence"));
    // The import made the database, so new threads in it are the user's own.
    assert_eq!(there.own(&["run", "orders", "--input", LARGE, "--thread", "mine"]).await.code, Some(6));
    there.own(&["answer", "mine", "approve", "false"]).await.ok();
    there
        .own(&["import", "o.thread.jsonl", "--as", "mine"])
        .await
        .refused(5, "SS310: thread `mine` already exists; use another name, or delete that thread first");
}

#[tokio::test]
async fn values_are_replaced_and_the_rest_can_be_read() {
    let here = with_an_order().await;
    let hidden = here.own(&["export", "o", "--redact", "items.*.name"]).await.ok().stdout;
    assert!(hidden.contains(r#"{"$redacted":"path items.*.name"}"#) && !hidden.contains("tea"), "{hidden}");
    let mut command = here.own_command(&["export", "o", "--redact-env", "SECRET"]);
    let hidden = ended(command.env("SECRET", "tea")).await.ok().stdout;
    assert!(hidden.contains("[redacted]") && !hidden.contains("tea"), "{hidden}");
    here.own(&["export", "o", "--redact-env", "NO_SUCH"])
        .await
        .refused(2, "the environment variable `NO_SUCH` is not set");
    here.file("hidden.jsonl", &hidden);
    here.own(&["import", "hidden.jsonl", "--as", "hidden"]).await.ok();
    assert!(here.own(&["state", "hidden"]).await.ok().stdout.contains("[redacted]"));
    let replay = here.own(&["replay", "hidden", "--trust"]).await;
    assert!(replay.code == Some(5) && replay.stderr.contains("SS199"), "{replay:?}");
}

#[tokio::test]
async fn a_thread_of_another_graph_is_neither_exported_nor_imported() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--no-memory", "--thread", "t"]).await.ok();
    let foreign = place.own(&["export", "t"]).await;
    assert!(foreign.code == Some(5) && foreign.stderr.contains("belongs to graph"), "{foreign:?}");
    place.file("t.jsonl", &place.run(&["export", "t"]).await.ok().stdout);
    let there = Place::new();
    fs::copy(place.work().join("t.jsonl"), there.work().join("t.jsonl")).unwrap();
    let foreign = there.own(&["import", "t.jsonl", "--as", "u"]).await;
    let wanted = "thread `u` belongs to graph `";
    assert!(foreign.code == Some(5) && foreign.stderr.contains(wanted), "{foreign:?}");
    assert!(foreign.stderr.contains("and this program has `orders`, `digest`"), "{foreign:?}");
    assert!(!there.database().exists(), "nothing is made");
    let unknown = place.own(&["export", "none"]).await;
    assert!(unknown.code == Some(5) && unknown.stderr.contains("does not exist in"), "{unknown:?}");
}
