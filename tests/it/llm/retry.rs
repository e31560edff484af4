//! The retry layer, on tokio's paused clock.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use superstep::llm::{
    ChatModel, Delta, FinishReason, Message, ModelError, ModelErrorKind, ModelRetry, complete,
    retries::{Jitter, JitterSource, RetryClass, Retrying},
};
use superstep_testing::{
    script::{Answer, Script, http, txt},
    scripted::ScriptedModel,
};
use tokio::time::Instant;

use super::{drain, hi, texts};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Creates a jitter source with the values of a list; it fails the test if the list is too short.
fn scripted_jitter(values: impl IntoIterator<Item = u64>) -> JitterSource {
    let values = Mutex::new(values.into_iter().collect::<Vec<_>>().into_iter());
    Arc::new(move |_| values.lock().expect("no draw panicked").next().expect("a scripted jitter is left"))
}

fn no_jitter() -> JitterSource {
    Arc::new(|_| 0)
}

/// Returns the delays of opencode: `min(1000·2^(n-1), 10000)`, plus up to a second after the cap.
fn opencode() -> ModelRetry {
    ModelRetry { cap: ms(10_000), jitter: Jitter::UpTo(ms(1000)), ..ModelRetry::default() }
}

/// Returns the delays of cococat: 1000, 2000, no jitter.
fn cococat() -> ModelRetry {
    ModelRetry { max_attempts: 3, jitter: Jitter::None, ..ModelRetry::default() }
}

fn played(
    policy: ModelRetry,
    jitter: JitterSource,
    answers: impl IntoIterator<Item = Answer>,
) -> (ScriptedModel, Retrying<Arc<dyn ChatModel>>) {
    let script = ScriptedModel::new(Script::new(answers));
    let model: Arc<dyn ChatModel> = Arc::new(script.clone());
    (script, Retrying::new(model, policy).with_jitter(jitter))
}

async fn times(policy: ModelRetry, jitter: JitterSource, answers: Vec<Answer>) -> Vec<u64> {
    let (script, model) = played(policy, jitter, answers);
    let _ = complete(&model, hi()).await;
    assert_eq!(script.check(), Ok(()));
    script.times()
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_exactly() {
    for (headers, wait) in [
        (&[("retry-after", "7")][..], 7000),
        (&[("retry-after-ms", "1500"), ("retry-after", "7")], 1500),
        (&[("retry-after", "0.5")], 500),
        (&[("retry-after", "Thu, 01 Jan 1970 00:00:20 GMT")], 20_000),
        (&[("retry-after", "Wed, 31 Dec 1969 23:59:59 GMT")], 1000),
        (&[("retry-after", "tomorrow")], 1000),
        (&[], 1000),
        (&[("retry-after", "60")], 60_000),
    ] {
        let (script, model) = played(ModelRetry::default(), no_jitter(), [http(429, headers, ""), txt("ok")]);
        let deltas = drain(&model, hi()).await;
        assert_eq!(script.times(), [0, wait], "{headers:?}");
        let reason = "the server answered 429".to_owned();
        assert_eq!(
            deltas.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
            [
                Delta::Retry { attempt: 2, delay_ms: wait, status: Some(429), reason },
                Delta::Text("ok".into()),
                Delta::Finish(FinishReason::Stop)
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_left_to_the_caller() {
    let (script, model) =
        played(ModelRetry::default(), no_jitter(), [http(429, &[("retry-after", "600")], "")]);
    let error = complete(&model, hi()).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after), (ModelErrorKind::RateLimited, Some(ms(600_000))));
    assert_eq!(
        error.message,
        "the server answered 429; it asks to wait 600 s, more than the 60 s this policy waits: try again later"
    );
    assert_eq!(script.times(), [0]);
}

#[tokio::test(start_paused = true)]
async fn the_header_can_be_ignored() {
    let policy = ModelRetry { longest_retry_after: None, ..ModelRetry::default() };
    let answers = vec![http(429, &[("retry-after", "600")], ""), txt("ok")];
    assert_eq!(times(policy, no_jitter(), answers).await, [0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_quota_is_not_waited_for() {
    let body = r#"{"error":{"message":"quota","code":"insufficient_quota"}}"#;
    assert_eq!(times(ModelRetry::default(), no_jitter(), vec![http(429, &[], body)]).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_ends_the_wait() {
    let (script, model) =
        played(ModelRetry::default(), no_jitter(), [http(429, &[("retry-after", "7")], "")]);
    let mut deltas = model.stream(hi());
    assert!(matches!(deltas.next().await, Some(Ok(Delta::Retry { delay_ms: 7000, .. }))));
    let started = Instant::now();
    assert!(tokio::time::timeout(ms(50), deltas.next()).await.is_err());
    drop(deltas);
    assert_eq!((started.elapsed(), script.times().len()), (ms(50), 1));
}

#[tokio::test(start_paused = true)]
async fn a_wait_continues_when_its_poll_is_interrupted() {
    let (script, model) = played(cococat(), no_jitter(), [http(500, &[], ""), txt("ok")]);
    let mut deltas = model.stream(hi());
    deltas.next().await.unwrap().unwrap();
    for _ in 0..3 {
        assert!(tokio::time::timeout(ms(300), deltas.next()).await.is_err());
    }
    assert_eq!(deltas.next().await.unwrap().unwrap(), Delta::Text("ok".into()));
    assert_eq!(script.times(), [0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn waits_grow_and_jitter_is_added_after_the_cap() {
    let answers = || vec![http(500, &[], ""), http(500, &[], ""), txt("ok")];
    assert_eq!(times(opencode(), scripted_jitter([0, 0]), answers()).await, [0, 1000, 3000]);
    assert_eq!(times(opencode(), scripted_jitter([1000, 1000]), answers()).await, [0, 2000, 5000]);
    for (failed, shortest) in [(1, 1000), (2, 2000), (3, 4000), (4, 8000), (5, 10_000), (9, 10_000)] {
        assert_eq!(opencode().backoff(failed), ms(shortest));
        assert_eq!(opencode().most_jitter(failed), ms(1000));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_failure_is_followed_by_no_wait() {
    let (script, model) = played(cococat(), no_jitter(), (0..3).map(|_| http(503, &[], "")));
    let started = Instant::now();
    let error = complete(&model, hi()).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ModelErrorKind::Server, Some(503)));
    assert_eq!(script.times(), [0, 1000, 3000]);
    assert_eq!(started.elapsed(), ms(3000));
}

#[tokio::test(start_paused = true)]
async fn every_transient_failure_is_retried() {
    let statuses = [502, 503, 504, 529, 408, 409, 425].map(|status| http(status, &[], ""));
    let malformed = Answer::stream().data("{broken");
    for failure in statuses.into_iter().chain([Answer::NoConnection, Answer::stream(), malformed]) {
        let (script, model) = played(cococat(), no_jitter(), [failure, txt("ok")]);
        let response = complete(&model, hi()).await.unwrap();
        assert_eq!((response.message, response.attempts), (Message::assistant("ok"), 2));
        assert_eq!(script.check(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_determines_retried_failures() {
    let any = ModelRetry { retries: RetryClass::Any, ..cococat() };
    assert_eq!(times(any, no_jitter(), vec![http(404, &[], ""), txt("ok")]).await, [0, 1000]);
    let overload = ModelRetry { retries: RetryClass::Overload, ..cococat() };
    assert_eq!(times(overload, no_jitter(), vec![http(500, &[], ""), txt("ok")]).await, [0, 1000]);
    assert_eq!(times(overload, no_jitter(), vec![Answer::NoConnection, txt("ok")]).await, [0, 1000]);
    // 409 and 425 are no overload.
    for status in [404, 409, 425] {
        assert_eq!(times(overload, no_jitter(), vec![http(status, &[], "")]).await, [0]);
    }
    assert_eq!(times(ModelRetry::never(), no_jitter(), vec![http(500, &[], "")]).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_attempt_is_discarded_before_the_next_is_announced() {
    let whole = Answer::stream().text(["Hello", " world"]).end("stop");
    let answers = [Answer::stream().text(["Hel", "lo wor"]).cut(), whole];
    let (_, model) = played(ModelRetry::default(), no_jitter(), answers.clone());
    let deltas = drain(&model, hi()).await;
    let reason = "the connection broke in the middle of the answer: as scripted".to_owned();
    assert_eq!(
        deltas.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        [
            Delta::Text("Hel".into()),
            Delta::Text("lo wor".into()),
            Delta::AttemptDiscarded { attempt: 1 },
            Delta::Retry { attempt: 2, delay_ms: 1000, status: None, reason },
            Delta::Text("Hello".into()),
            Delta::Text(" world".into()),
            Delta::Finish(FinishReason::Stop),
        ]
    );
    let (_, model) = played(ModelRetry::default(), no_jitter(), answers);
    let response = complete(&model, hi()).await.unwrap();
    assert_eq!((response.message, response.attempts), (Message::assistant("Hello world"), 2));
}

#[tokio::test(start_paused = true)]
async fn the_last_failure_retains_its_streamed_text() {
    let (_, model) = played(ModelRetry::never(), no_jitter(), [Answer::stream().text(["Hel"]).cut()]);
    let deltas = drain(&model, hi()).await;
    assert_eq!(texts(&deltas), ["Hel"]);
    let [Ok(_), Err(ModelError { kind: ModelErrorKind::TruncatedStream, .. })] = &deltas[..] else {
        panic!("{deltas:?}");
    };
}
