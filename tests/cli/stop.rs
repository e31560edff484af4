//! Ctrl-C.

#![cfg(unix)]

use superstep_testing::script::{Answer, call, txt};

use crate::support::{Place, received, serve};

#[tokio::test]
async fn ctrl_c_ends_cleanly_and_says_how_to_resume() {
    let place = Place::new();
    let server = serve([
        call("c1", "calculate", r#"{"expression":"2+3"}"#),
        Answer::stream().text(["half an"]).stall(),
        txt("whole"),
    ])
    .await;
    let args = ["run", "hi", "--thread", "t", "--json", "--base-url", &server.base_url(), "--model", "m"];
    let mut running = place.start(&args);
    running.line_with("half an").await;
    running.signal("INT");
    let ran = running.end().await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_eq!(
        ran.stderr,
        "\nstopping; once more to stop at once\ninterrupted; resume with: superstep resume t\n"
    );
    let last = ran.lines().pop().unwrap();
    assert_eq!((&last["event"], &last["data"]["outcome"]), (&"final".into(), &"cancelled".into()));

    let ran = place.run(&["resume", "t", "--json"]).await.ok();
    assert_eq!(ran.lines().pop().unwrap()["data"]["final_reply"], "whole");
    assert_eq!(ran.thread(), "t");
    server.check().unwrap();
    let requests = server.requests();
    assert_eq!(requests[2], requests[1], "the unanswered request, and no other, is sent again");
}

#[tokio::test]
async fn the_command_to_resume_names_the_place_if_it_is_not_the_usual_one() {
    let place = Place::new();
    let server = serve([Answer::stream().stall()]).await;
    let db = place.beside("my threads.db");
    let db = db.to_str().unwrap();
    let running = place.start(&[
        "run",
        "hi",
        "--thread",
        "t",
        "--db",
        db,
        "--base-url",
        &server.base_url(),
        "--model",
        "m",
    ]);
    received(&server, 1).await;
    running.signal("TERM");
    let ran = running.end().await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    let told = format!("interrupted; resume with: superstep resume t --db '{db}'\n");
    assert!(ran.stderr.ends_with(&told), "{}", ran.stderr);
}

#[tokio::test]
async fn a_thread_that_is_finished_has_nothing_to_resume() {
    let place = Place::new();
    let first = place.run(&["run", "1 + 1", "--thread", "t"]).await.ok();
    let steps = place.steps("t").await;
    let again = place.run(&["resume", "t"]).await.ok();
    assert_eq!(again.stdout, first.stdout);
    assert!(
        again.stderr.starts_with("thread `t` is finished, this is its last reply:\n"),
        "{}",
        again.stderr
    );
    assert_eq!(place.steps("t").await, steps);
}
