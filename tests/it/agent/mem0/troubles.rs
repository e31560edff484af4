//! Servers that reject requests, break off, stall or return nonsense.

use std::time::Duration;

use serde_json::json;
use superstep::{agent::deps::LongTermMemory, memory::Mem0Config};
use superstep_testing::{
    mem0::Mem0Kind,
    script::{Answer, http},
};

use super::{
    BOTH, KEY,
    requests::{ok, scripted, scripted_with},
    says,
};
use crate::agent::real;

/// Returns the error of a search and an addition for the same response, which must be equal, without the
/// server's address.
async fn error(kind: Mem0Kind, answer: Answer) -> String {
    error_within(Duration::from_secs(30), kind, answer).await
}

async fn error_within(timeout: Duration, kind: Mem0Kind, answer: Answer) -> String {
    let patient = |config| Mem0Config { timeout, ..config };
    let (server, memory) = scripted_with(kind, [answer.clone(), answer.clone(), answer], patient).await;
    let search = memory.search("tea", "ada", 5).await.unwrap_err().to_string();
    let add = memory.add(says("I like tea"), "ada", "k").await.unwrap_err().to_string();
    let list = memory.list("ada", 5).await.unwrap_err().to_string();
    assert_eq!((&add, &list), (&search, &search));
    // No request is repeated; one that ran out of time may not have arrived.
    assert!(server.received().len() <= 3);
    let base = server.base_url().trim_end_matches("/v1").to_owned();
    let problem = search.strip_prefix(&format!("the Mem0 server `{base}`: ")).expect("it says which server");
    problem.to_owned()
}

#[test]
fn a_rejection_is_reported_with_advice() {
    let detail = |text: &str| json!({"detail": text}).to_string();
    real(async {
        for kind in BOTH {
            for (status, body, expected) in [
                (400, detail("no user"), r#"it answered 400: {"detail":"no user"}"#),
                (
                    401,
                    detail("Invalid API key."),
                    r#"it answered 401: {"detail":"Invalid API key."}; is the key the one of this server?"#,
                ),
                (403, String::new(), "it answered 403; is the key the one of this server?"),
                (
                    404,
                    "<h1>Not\n found</h1>".to_owned(),
                    "it answered 404: <h1>Not found</h1>; is the base URL right, and the form that of this server?",
                ),
                (429, detail("slow down"), r#"it answered 429: {"detail":"slow down"}"#),
                (500, "oops".to_owned(), "it answered 500: oops"),
            ] {
                assert_eq!(error(kind, http(status, &[], &body)).await, expected);
            }
        }
    });
}

#[test]
fn a_redirect_is_not_followed() {
    real(async {
        let answer = http(307, &[("location", "http://127.0.0.1:9/search")], "");
        assert_eq!(
            error(Mem0Kind::SelfHosted, answer).await,
            "it answered 307; it redirects elsewhere, which a request with a key does not follow: correct the base URL"
        );
    });
}

#[test]
fn an_invalid_response_is_reported_with_its_beginning() {
    real(async {
        for kind in BOTH {
            for (body, expected) in [
                ("", "its answer is not valid JSON: "),
                ("<html> hi", "its answer is not valid JSON: <html> hi"),
                ("null", "its answer cannot be understood: null"),
                (r#"{"message":"ok"}"#, r#"its answer cannot be understood: {"message":"ok"}"#),
                (
                    r#"{"results":[{"id":7,"metadata":{"superstep_key":"k"}}]}"#,
                    r#"its answer cannot be understood: {"id":7,"metadata":{"superstep_key":"k"}}"#,
                ),
            ] {
                assert_eq!(error(kind, http(200, &[], body)).await, expected);
            }
            let long = error(kind, http(200, &[], &"é".repeat(9_000))).await;
            assert!(long.chars().count() < 600 && long.ends_with("é…"), "{long}");
            let bobs = json!({"id": "m-1", "memory": "secret", "user_id": "bob", "metadata": {"superstep_key": "k"}});
            let foreign = json!({ "results": [bobs] });
            let told = error(kind, ok(&foreign)).await;
            assert!(
                told.starts_with("it answered with a memory of another user") && !told.contains("secret"),
                "{told}"
            );
        }
    });
}

#[test]
fn a_connection_that_breaks_or_stalls_ends() {
    real(async {
        for kind in BOTH {
            let told = error(kind, Answer::NoConnection).await;
            assert!(told.starts_with("no connection: "), "{told}");
            let told = error(kind, Answer::stream().data("{").cut()).await;
            assert!(told.starts_with("the connection broke in its answer: "), "{told}");
            let stalls = Answer::stream().data("{").stall();
            let told = error_within(Duration::from_millis(60), kind, stalls).await;
            assert_eq!(told, "it sent no whole answer within 60 ms");
        }
    });
}

#[test]
fn an_endless_answer_is_read_to_its_bound() {
    let endless = (0..80).fold(Answer::stream(), |answer, _| answer.data(&"x".repeat(64 << 10))).stall();
    real(async {
        let (_server, memory) = scripted(Mem0Kind::SelfHosted, [endless]).await;
        let error = memory.search("tea", "ada", 5).await.unwrap_err().to_string();
        assert!(error.ends_with("its answer is longer than 4194304 bytes"), "{error}");
    });
}

#[test]
fn a_key_repeated_by_the_server_is_masked() {
    let around = |text: &str| format!("{}{KEY}{text}", "x".repeat(495));
    real(async {
        for kind in BOTH {
            for answer in [
                http(401, &[], &format!("wrong: {KEY}")),
                // The end of the excerpt.
                http(500, &[], &around("")),
                http(200, &[], &around("y")),
                ok(&json!({"detail": KEY})),
            ] {
                let told = error(kind, answer).await;
                assert!(!told.contains("m0-se"), "{told}");
            }
        }
    });
}

#[test]
fn a_failed_queued_memory_is_an_error() {
    let nothing = || ok(&json!({"results": []}));
    let queued = || ok(&json!({"status": "PENDING", "event_id": "evt-1"}));
    let event = |event: serde_json::Value| ok(&event);
    let unknown = "it received the messages, but the result is unknown: ";
    real(async {
        for (answer, expected) in [
            (
                event(json!({"status": "FAILED", "metadata": {"error": "no quota"}})),
                r#"it could not store the messages: {"error":"no quota"}"#.to_owned(),
            ),
            (
                event(json!({"status": "LOST"})),
                format!(r#"{unknown}its answer cannot be understood: {{"status":"LOST"}}"#),
            ),
            (http(500, &[], "oops"), format!("{unknown}it answered 500: oops")),
            (
                event(json!({"status": "RUNNING"})),
                format!("{unknown}its event `evt-1` has not ended after 0 ms"),
            ),
        ] {
            let once =
                |config| Mem0Config { settle: Duration::ZERO, poll: Duration::from_millis(1), ..config };
            let (server, memory) = scripted_with(Mem0Kind::Hosted, [nothing(), queued(), answer], once).await;
            let told = memory.add(says("I like tea"), "ada", "k").await.unwrap_err().to_string();
            assert!(told.ends_with(&format!("`: {expected}")), "{told}");
            server.check().unwrap();
        }
        let outside = ok(&json!({"status": "PENDING", "event_id": "../../v1/memories"}));
        let (server, memory) = scripted(Mem0Kind::Hosted, [nothing(), outside]).await;
        let told = memory.add(says("I like tea"), "ada", "k").await.unwrap_err().to_string();
        assert!(told.contains("its answer cannot be understood"), "{told}");
        server.check().unwrap();
    });
}
