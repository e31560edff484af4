//! `kill -9` at many moments, then `superstep resume`.

use std::time::Duration;

use serde_json::Value;
use superstep_testing::script::{Answer, Piece, call, calls};

use crate::support::{Place, received, serve};

const THREAD: &str = "t";

/// Creates a turn with three rounds of tools.
fn turn() -> Vec<Answer> {
    vec![
        calls([
            ("c1", "calculate", r#"{"expression":"2+3"}"#),
            ("c2", "search_files", r#"{"pattern":"needle"}"#),
        ]),
        Answer::stream()
            .text(["I will ", "look."])
            .call(0, "c3", "read_file", [r#"{"path":"#, r#""notes.txt"}"#])
            .end("tool_calls")
            .usage(9, 4)
            .done(),
        call("c4", "calculate", r#"{"expression":"37*91+5"}"#),
        Answer::stream().text(["It is ", "3372, ", "see ", "notes.txt:2."]).end("stop").usage(20, 5).done(),
    ]
}

/// Returns the first `pieces` pieces of an answer, followed by a stall.
fn stalled(answer: Answer, pieces: usize) -> Answer {
    match answer {
        Answer::Stream { pieces: mut all, reads } => {
            all.truncate(pieces);
            Answer::Stream { pieces: all, reads }.stall()
        }
        other => other,
    }
}

/// Slows the answer, so that a kill meets the run at the place where the kill was decided.
fn slow(answer: Answer) -> Answer {
    match answer {
        Answer::Stream { pieces, reads } => {
            let wait = || Piece::Delay(Duration::from_millis(10));
            let pieces = pieces.into_iter().flat_map(|piece| [wait(), piece]).collect();
            Answer::Stream { pieces, reads }
        }
        other => other,
    }
}

/// An uninterrupted turn, for comparison.
struct Whole {
    requests: Vec<Value>,
    values: Value,
    steps: Vec<Value>,
    lines: usize,
}

fn args(url: &str) -> [&str; 9] {
    ["run", "What is it?", "--json", "--thread", THREAD, "--base-url", url, "--model", "m"]
}

async fn whole() -> Whole {
    let (place, server) = (Place::new(), serve(turn()).await);
    let ran = place.run(&args(&server.base_url())).await.ok();
    server.check().unwrap();
    let (values, steps) = (place.state(THREAD).await["values"].take(), place.steps(THREAD).await);
    Whole { requests: server.requests(), values, steps, lines: ran.stdout.lines().count() }
}

/// Resumes a killed program, with a server that has only the answers which are not stored yet. Returns
/// whether a part was left to run.
async fn resumes_to(whole: &Whole, place: &Place, moment: &str) -> bool {
    let killed = place.state(THREAD).await;
    let stored = killed["values"]["llm_calls"].as_u64().unwrap() as usize;
    let server = serve(turn().into_iter().skip(stored)).await;
    let ran = place.run(&["resume", THREAD, "--json", "--base-url", &server.base_url()]).await;
    assert_eq!(ran.code, Some(0), "{moment}: {ran:?}");
    assert_eq!(server.check(), Ok(()), "{moment}: an answered request is not sent again");
    assert_eq!(server.requests(), whole.requests[stored..], "{moment}");
    assert_eq!(place.state(THREAD).await["values"], whole.values, "{moment}");
    assert_eq!(place.steps(THREAD).await, whole.steps, "{moment}: every superstep is there once");
    let last = ran.lines().pop().unwrap();
    assert_eq!(last["data"]["final_reply"], "It is 3372, see notes.txt:2.", "{moment}");
    !killed["next"].as_array().unwrap().is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_killed_while_it_waits_for_the_model_is_resumed_to_the_same_end() {
    let whole = whole().await;
    for (k, answer) in turn().into_iter().enumerate() {
        // Before the answer, in its middle, and when only its end is missing.
        let Answer::Stream { pieces, .. } = &answer else { panic!("all are streams") };
        for cut in [0, pieces.len() / 2, pieces.len() - 1] {
            let place = Place::new();
            let mut script: Vec<_> = turn().into_iter().take(k).collect();
            script.push(stalled(answer.clone(), cut));
            let server = serve(script).await;
            let mut running = place.start(&args(&server.base_url()));
            received(&server, k + 1).await;
            running.child.kill().await.unwrap();
            assert!(resumes_to(&whole, &place, &format!("request {k}, after piece {cut}")).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_killed_at_any_event_is_resumed_to_the_same_end() {
    let whole = whole().await;
    assert!(whole.lines >= 20, "{}", whole.lines);
    let mut interrupted = 0;
    for line in 1..whole.lines {
        let (place, server) = (Place::new(), serve(turn().into_iter().map(slow)).await);
        let mut running = place.start(&args(&server.base_url()));
        for _ in 0..line {
            running.line().await.expect("there are more lines");
        }
        running.child.kill().await.unwrap();
        interrupted += usize::from(resumes_to(&whole, &place, &format!("line {line}")).await);
    }
    assert!(interrupted >= 20, "only {interrupted} of {} kills met a run", whole.lines - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_run_can_be_killed_and_resumed_again() {
    let whole = whole().await;
    let place = Place::new();
    for round in 0..turn().len() {
        let mut script: Vec<_> =
            turn().into_iter().skip(round.saturating_sub(1)).take(round.min(1)).collect();
        script.push(stalled(turn().remove(round), 1));
        let server = serve(script.clone()).await;
        let url = server.base_url();
        let first = args(&url);
        let again = ["resume", THREAD, "--json", "--base-url", &url];
        let mut running = place.start(if round == 0 { &first } else { &again });
        received(&server, script.len()).await;
        running.child.kill().await.unwrap();
    }
    assert!(resumes_to(&whole, &place, "the last kill").await);
}
