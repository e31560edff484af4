//! Error responses and broken streams.

use std::time::Duration;

use superstep::llm::{
    ApiKey, ChatModel, Delta, ModelErrorKind, ModelRetry, OpenAiConfig, OpenAiModel, complete,
    retries::Retrying,
};
use superstep_testing::script::{Answer, http, txt};

use super::{KEY, drain, hi, served, served_as, texts};

async fn refused(answer: Answer) -> superstep::llm::ModelError {
    let (server, model) = served([answer]).await;
    // Bounded, because a client with its own retries backs off for minutes.
    let answer = tokio::time::timeout(Duration::from_secs(5), complete(&model, hi())).await;
    let error = answer.expect("a refusal is passed on at once").expect_err("the script has no whole answer");
    assert_eq!(server.check(), Ok(()), "one request, whatever the answer");
    error
}

#[tokio::test]
async fn a_failing_request_is_sent_once() {
    for status in [408, 409, 429, 500, 502, 503, 529] {
        let error = refused(http(status, &[("retry-after", "0")], "")).await;
        assert_eq!(error.status, Some(status));
    }
    assert_eq!(refused(Answer::NoConnection).await.kind, ModelErrorKind::Connect);
    assert_eq!(refused(Answer::stream().data("{broken")).await.kind, ModelErrorKind::Malformed);
}

#[tokio::test]
async fn a_refused_request_is_not_retried() {
    use ModelErrorKind::*;
    for (status, kind) in [(400, BadRequest), (401, Auth), (404, NotFound), (403, Auth), (422, BadRequest)] {
        let (server, model) = served([http(status, &[], r#"{"error":{"message":"no","code":1}}"#)]).await;
        let deltas = drain(&Retrying::new(model, ModelRetry::default()), hi()).await;
        let [Err(error)] = &deltas[..] else { panic!("{deltas:?}") };
        assert_eq!((error.kind, error.status), (kind, Some(status)));
        assert_eq!(server.check(), Ok(()));
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_distinguished() {
    let body = r#"{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (8 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}"#;
    let error = refused(http(400, &[], body)).await;
    assert_eq!(error.kind, ModelErrorKind::ContextOverflow);
    assert!(error.message.contains("exceeds the available context size"), "{error}");
}

#[tokio::test]
async fn retry_after_is_read_from_the_headers() {
    for (headers, wish) in [
        (vec![("retry-after", "7")], Some(7000)),
        (vec![("retry-after-ms", "1500"), ("Retry-After", "7")], Some(1500)),
        (vec![("Retry-After", "Thu, 01 Jan 1970 00:00:20 GMT")], Some(20_000)),
        (vec![("Retry-After", "soon")], None),
    ] {
        let error = refused(http(429, &headers, "")).await;
        assert_eq!(error.kind, ModelErrorKind::RateLimited);
        assert_eq!(error.retry_after, wish.map(Duration::from_millis), "{headers:?}");
    }
}

#[tokio::test]
async fn no_error_shows_the_key() {
    let echo = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}."}}}}"#);
    for answer in [
        http(401, &[], &echo),
        http(401, &[], KEY),
        Answer::stream().data(&echo),
        Answer::stream().data(KEY),
        http(307, &[("location", "/")], KEY),
    ] {
        let error = refused(answer).await;
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
        assert!(error.message.contains("[key]"), "{error:?}");
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_ends_it() {
    let answer =
        Answer::stream().text(["a"]).data(r#"{"error":{"message":"overloaded","code":503}}"#).text(["b"]);
    let (_server, model) = served([answer.end("stop")]).await;
    let deltas = drain(&model, hi()).await;
    assert_eq!(texts(&deltas), ["a"]);
    let error = deltas.last().unwrap().as_ref().unwrap_err();
    assert_eq!((error.kind, error.status, deltas.len()), (ModelErrorKind::Server, Some(503), 2));
}

#[tokio::test]
async fn a_stream_ends_with_its_first_broken_chunk() {
    let (_server, model) =
        served([Answer::stream().text(["a"]).data("{broken").text(["b"]).end("stop")]).await;
    let deltas = drain(&model, hi()).await;
    assert_eq!(texts(&deltas), ["a"]);
    assert_eq!(deltas.last().unwrap().as_ref().unwrap_err().kind, ModelErrorKind::Malformed);
}

#[tokio::test]
async fn nothing_behind_its_finish_reason_takes_an_answer_back() {
    let error = r#"{"error":{"message":"overloaded","code":503}}"#;
    for late in [error, "{broken"] {
        let (_server, model) =
            served([Answer::stream().text(["a"]).end("stop").data(late).usage(3, 1)]).await;
        let response = complete(&model, hi()).await.unwrap();
        assert_eq!((response.message.content.as_str(), response.usage.is_some()), ("a", true));
    }
    // Except if the reason is an error.
    assert_eq!(
        refused(Answer::stream().text(["a"]).end("error").data(error)).await.kind,
        ModelErrorKind::Server
    );
}

#[tokio::test]
async fn a_stream_without_a_finish_reason_is_truncated() {
    for answer in [Answer::stream().text(["a"]), Answer::stream().text(["a"]).done(), Answer::stream()] {
        assert_eq!(refused(answer).await.kind, ModelErrorKind::TruncatedStream);
    }
}

#[tokio::test]
async fn a_broken_connection_retains_the_received_text() {
    let (_server, model) = served([Answer::stream().text(["Hel", "lo wor"]).cut()]).await;
    let deltas = drain(&model, hi()).await;
    assert_eq!(texts(&deltas), ["Hel", "lo wor"]);
    let error = deltas[2].as_ref().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::TruncatedStream);
    assert!(error.message.starts_with("the connection broke in the middle of the answer: "), "{error}");
}

#[tokio::test]
async fn a_silent_server_is_a_timeout() {
    let short = |config: &mut OpenAiConfig| config.timeouts.idle = Duration::from_millis(30);
    let (_server, model) = served_as([Answer::stream().text(["a"]).stall()], short).await;
    let deltas = drain(&model, hi()).await;
    assert_eq!(texts(&deltas), ["a"]);
    let error = deltas[1].as_ref().unwrap_err();
    assert_eq!(error.message, "the server was silent for 0.03 s in the middle of the answer");
    assert_eq!(error.kind, ModelErrorKind::Timeout);
}

#[tokio::test]
async fn a_stream_may_begin_with_a_byte_order_mark() {
    let body = String::from_utf8(txt("hello").bytes()).unwrap();
    let marked = http(200, &[("content-type", "text/event-stream")], &format!("\u{feff}{body}"));
    let (_server, model) = served([marked]).await;
    let answer = complete(&model, hi()).await.unwrap();
    assert_eq!(answer.message.content, "hello");
}

#[tokio::test]
async fn a_response_that_is_not_a_stream_is_reported() {
    let error = refused(http(200, &[("content-type", "text/html")], "<html>\nWelcome")).await;
    assert_eq!(error.kind, ModelErrorKind::Malformed);
    assert_eq!(error.message, "the server answered without a stream, is the base URL right? <html> Welcome");
    let error = refused(http(200, &[], r#"{"error":{"message":"no","code":429}}"#)).await;
    assert_eq!((error.kind, error.status), (ModelErrorKind::RateLimited, Some(429)));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_connect_error_with_its_address() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let model = OpenAiModel::new(OpenAiConfig::new(&base_url, ApiKey::new(KEY), "m")).unwrap();
    let error = complete(&model, hi()).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ModelErrorKind::Connect, None));
    assert!(error.message.starts_with(&format!("`{base_url}`: no connection: ")), "{error}");
}

#[tokio::test]
async fn a_cut_answer_is_sent_again_over_the_wire() {
    let (server, model) = served([Answer::stream().text(["Hel", "lo wor"]).cut(), txt("Hello world")]).await;
    let policy = ModelRetry { base: Duration::from_millis(1), ..ModelRetry::default() };
    let model: Box<dyn ChatModel> = Box::new(Retrying::new(model, policy));
    let deltas = drain(&*model, hi()).await;
    assert_eq!(texts(&deltas), ["Hel", "lo wor", "Hello world"]);
    assert!(matches!(deltas[2], Ok(Delta::AttemptDiscarded { attempt: 1 })), "{deltas:?}");
    assert!(matches!(deltas[3], Ok(Delta::Retry { attempt: 2, .. })), "{deltas:?}");
    assert_eq!(server.check(), Ok(()));
}
