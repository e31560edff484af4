//! Hostile servers: each is stopped by a bound that the error names, after no more bytes than that.

use std::time::Duration;

use superstep::llm::{
    ApiKey, ModelErrorKind, ModelRetry, OpenAiConfig, OpenAiModel, complete,
    limits::AnswerLimits,
    retries::{RetryClass, Retrying},
};
use superstep_testing::hostile::{Attack, HostileServer};

use super::{KEY, hi};

/// Small limits, so that each is reached quickly.
const LIMITS: AnswerLimits = AnswerLimits {
    answer_bytes: 64 * 1024,
    received_bytes: 2 * 1024 * 1024,
    line_bytes: 1024 * 1024,
    tool_calls: 128,
    argument_bytes: 16 * 1024,
    argument_depth: 64,
    argument_values: 20_000,
    error_bytes: 1024,
    time: Duration::from_secs(120),
};

/// The size of the connection's buffers, apart from the data read.
const BUFFERS: u64 = 32 * 1024 * 1024;

async fn stopped(attack: Attack, limits: AnswerLimits) -> (ModelErrorKind, String) {
    let server = HostileServer::start(attack, 7).await.expect("a loopback port is free");
    let config = OpenAiConfig { limits, ..OpenAiConfig::new(server.base_url(), ApiKey::new(KEY), "m") };
    let model = OpenAiModel::new(config).expect("the server has a base URL");
    // An answer that exceeded a bound is not requested again.
    let policy = ModelRetry {
        max_attempts: 2,
        base: Duration::ZERO,
        retries: RetryClass::Any,
        ..ModelRetry::default()
    };
    let error = complete(&Retrying::new(model, policy), hi()).await.expect_err("it gives no answer");
    let attempts = if error.kind == ModelErrorKind::AnswerLimit { 1 } else { 2 };
    // The time may end before the request arrives.
    let least = if attack == Attack::Slow { 0 } else { attempts };
    assert!((least..=attempts).contains(&server.requests()), "{attack:?}: {error}");
    assert!(server.sent() < attempts * BUFFERS, "{attack:?}: {} bytes", server.sent());
    (error.kind, error.message)
}

#[tokio::test]
async fn every_hostile_server_is_stopped_by_a_bound_that_the_error_names() {
    for attack in Attack::ALL {
        let setting = match attack {
            Attack::Tokens | Attack::Reasoning => "answer_bytes",
            Attack::Line | Attack::Body => "line_bytes",
            // Each letter is a separate event.
            Attack::Letters | Attack::Lists | Attack::Comments | Attack::Nothing => "received_bytes",
            Attack::Calls => "tool_calls",
            Attack::Arguments => "argument_bytes",
            Attack::Depth => "argument_depth",
            Attack::Values => "argument_values",
            Attack::Slow => "time_ms",
            _ => continue,
        };
        let limits = match attack {
            Attack::Slow => AnswerLimits { time: Duration::from_millis(50), ..LIMITS },
            Attack::Depth | Attack::Values => {
                AnswerLimits { answer_bytes: 1 << 20, argument_bytes: 1 << 20, ..LIMITS }
            }
            _ => LIMITS,
        };
        let (kind, message) = stopped(attack, limits).await;
        assert_eq!(kind, ModelErrorKind::AnswerLimit, "{attack:?}: {message}");
        let named = format!("the limit `{setting}` of an answer is ");
        assert!(message.contains(&named), "{attack:?}: {message}");
        assert!(message.contains(&format!("raise `limits.{setting}` of the model")), "{attack:?}: {message}");
    }
}

#[tokio::test]
async fn an_invalid_response_is_reported_with_its_beginning() {
    let (kind, message) = stopped(Attack::Error, LIMITS).await;
    assert_eq!(kind, ModelErrorKind::Server);
    assert!(message.starts_with("the server answered 500: no such luck aaa"), "{message}");
    assert!(message.len() < 600, "{message}");
    let (kind, message) = stopped(Attack::Headers, LIMITS).await;
    assert_eq!(kind, ModelErrorKind::Connect);
    assert!(message.contains("no connection: message head is too large"), "{message}");
    for attack in [Attack::Packed, Attack::Garbage] {
        // Random bytes have lines, none of which is an event.
        let (kind, message) = stopped(attack, LIMITS).await;
        assert_eq!(kind, ModelErrorKind::AnswerLimit, "{message}");
        assert!(message.contains("`received_bytes` of an answer is 2097152"), "{message}");
    }
}

#[tokio::test]
async fn a_complete_response_is_not_revoked_by_endless_trailing_data() {
    let server = HostileServer::start(Attack::Behind, 7).await.expect("a loopback port is free");
    let config =
        OpenAiConfig { limits: LIMITS, ..OpenAiConfig::new(server.base_url(), ApiKey::new(KEY), "m") };
    let answer = complete(&OpenAiModel::new(config).expect("the server has a base URL"), hi()).await.unwrap();
    assert_eq!(answer.message.content, "whole");
    assert!(server.sent() < BUFFERS);
}
