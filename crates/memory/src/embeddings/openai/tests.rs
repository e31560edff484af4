use std::sync::{Mutex, PoisonError};

use superstep_graph::{
    MemoryStore, Store as _,
    store::{Namespace, Search, StoreOptions},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

const KEY: &str = "sk-sesame-1234";

/// A server that gives each request the next answer: a status with headers, and a body.
struct Server {
    base_url: String,
    received: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answers: Vec<(&'static str, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<String>>> = Arc::default();
        let requests = received.clone();
        tokio::spawn(async move {
            for (head, body) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    stream.read_buf(&mut request).await.unwrap();
                }
                let request = String::from_utf8(request).unwrap();
                requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                // A client that has read enough closes the connection.
                let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
            }
        });
        Self { base_url, received }
    }

    fn config(&self) -> EmbeddingsConfig {
        let retry = ModelRetry { base: Duration::ZERO, ..ModelRetry::default() };
        EmbeddingsConfig { retry, ..EmbeddingsConfig::new(&self.base_url, KEY, "small") }
    }

    fn requests(&self) -> Vec<String> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn ok(body: &str) -> (&'static str, String) {
    ("200 OK", body.to_owned())
}

/// Returns the vectors of two texts, or the error.
async fn embed(config: EmbeddingsConfig) -> Result<Vec<Vec<f32>>, ModelError> {
    let texts = ["sea".to_owned(), "tree".to_owned()];
    let embedded = OpenAiEmbeddings::new(config).unwrap().embed(&texts).await;
    embedded.map_err(|error| *error.downcast::<ModelError>().unwrap())
}

/// Returns the error for a server with these answers, without its address.
async fn error(answers: Vec<(&'static str, String)>) -> (ModelError, usize) {
    let server = Server::start(answers).await;
    let mut error = embed(server.config()).await.unwrap_err();
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    let message = error.message.strip_prefix(&format!("`{}`: ", server.base_url));
    error.message = message.unwrap().to_owned();
    (error, server.requests().len())
}

#[tokio::test]
async fn vectors_are_read_as_numbers_and_as_base64_in_the_order_of_the_texts() {
    let base64 = r#"{"data":[{"index":1,"embedding":"AACAPwAAAAA="},{"index":0,"embedding":[0,-0.5]}]}"#;
    let plain = r#"{"data":[{"embedding":[1,2]},{"embedding":[3,4]}],"usage":{"total_tokens":2}}"#;
    let server = Server::start(vec![ok(base64), ok(plain)]).await;
    assert_eq!(embed(server.config()).await.unwrap(), [[0.0, -0.5], [1.0, 0.0]]);
    let config = EmbeddingsConfig { dimensions: Some(2), api_key: ApiKey::default(), ..server.config() };
    assert_eq!(embed(config).await.unwrap(), [[1.0, 2.0], [3.0, 4.0]]);
    let requests = server.requests();
    assert!(requests[0].starts_with("POST /v1/embeddings HTTP/1.1\r\n"), "{requests:?}");
    assert!(requests[0].contains(&format!("authorization: Bearer {KEY}\r\n")), "{requests:?}");
    let body = r#"{"encoding_format":"float","input":["sea","tree"],"model":"small"}"#;
    assert!(requests[0].ends_with(body), "{requests:?}");
    assert!(
        !requests[1].contains("authorization") && requests[1].contains(r#""dimensions":2,"#),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_request_that_may_succeed_later_is_repeated_and_others_are_not() {
    let limited =
        || ("429 Too Many Requests\r\nretry-after-ms: 20", r#"{"error":{"message":"slow down"}}"#.into());
    let right = r#"{"data":[{"embedding":[1]},{"embedding":[2]}]}"#;
    let server = Server::start(vec![limited(), ok(right)]).await;
    // Longer than the policy waits in all: only the server's wish is short.
    let retry = ModelRetry { base: Duration::from_secs(3600), cap: Duration::MAX, ..ModelRetry::default() };
    assert_eq!(embed(EmbeddingsConfig { retry, ..server.config() }).await.unwrap(), [[1.0], [2.0]]);
    let server = Server::start(vec![("503 Unavailable", String::new()), ok(right)]).await;
    assert_eq!(embed(server.config()).await.unwrap(), [[1.0], [2.0]]);

    let (last, requests) = error(vec![limited(), limited(), limited(), limited()]).await;
    assert_eq!((last.status, last.kind), (Some(429), ModelErrorKind::RateLimited));
    assert_eq!(last.retry_after, Some(Duration::from_millis(20)));
    assert_eq!((&*last.message, requests), ("the server answered 429: slow down", 4));

    let refused = ("401 Unauthorized", format!(r#"{{"error":{{"message":"invalid key {KEY}"}}}}"#));
    let (refused, requests) = error(vec![refused]).await;
    assert_eq!((refused.kind, requests), (ModelErrorKind::Auth, 1));
    assert_eq!(refused.message, "the server answered 401: invalid key [key]");
    let (missing, _) = error(vec![("404 Not Found", "no".into())]).await;
    assert_eq!(
        missing.message,
        "the server answered 404: no; does the server have this model, and embeddings?"
    );
}

#[tokio::test]
async fn an_answer_that_does_not_fit_the_request_is_an_error() {
    let huge = format!(r#"{{"data":[{{"embedding":[{}1]}}]}}"#, "1,".repeat(MAX_READ_BYTES / 2));
    for (body, kind, wanted) in [
        (
            r#"{"data":[{"embedding":[1]}]}"#,
            ModelErrorKind::Malformed,
            "expected a vector for each text, 2 in all, got 1",
        ),
        (
            r#"{"data":[{"index":1,"embedding":[1]},{"index":1,"embedding":[1]}]}"#,
            ModelErrorKind::Malformed,
            "two vectors have the index 1, or it is not below 2",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"index":2,"embedding":[1]}]}"#,
            ModelErrorKind::Malformed,
            "two vectors have the index 2, or it is not below 2",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":[1,2]}]}"#,
            ModelErrorKind::Malformed,
            "expected vectors of 1 numbers, got one of 2; correct `dimensions`",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":[null]}]}"#,
            ModelErrorKind::Malformed,
            "a vector contains a value that is not a finite number",
        ),
        (
            r#"{"data":[{"embedding":"AADAfw=="},{"embedding":[1]}]}"#,
            ModelErrorKind::Malformed,
            "a vector contains a value that is not a finite number",
        ),
        (r#"{"data":[{"embedding":[]},{"embedding":[]}]}"#, ModelErrorKind::Malformed, "a vector is empty"),
        (
            r#"{"data":[{"embedding":"AAA="},{"embedding":[]}]}"#,
            ModelErrorKind::Malformed,
            "a vector is not made of floats",
        ),
        (
            r#"{"data":[{"embedding":"*"},{"embedding":[]}]}"#,
            ModelErrorKind::Malformed,
            "a vector is not Base64: ",
        ),
        (
            &huge,
            ModelErrorKind::AnswerLimit,
            "the answer is longer than 33554432 bytes; send fewer texts at once",
        ),
    ] {
        let (error, requests) = error(vec![ok(body)]).await;
        assert!(error.message.starts_with(wanted), "{wanted}: {error}");
        assert_eq!((error.kind, requests), (kind, 1), "{wanted}");
    }
    // An answer that is cut off may be complete the next time.
    let (broken, requests) = error(vec![ok("<html>"), ok("{}"), ok(r#"{"data":[NaN]}"#), ok("<html>")]).await;
    assert_eq!((broken.kind, requests), (ModelErrorKind::Malformed, 4));
    assert!(broken.message.starts_with("the answer has no list of embeddings ("), "{broken}");
    let (overflow, _) =
        error(vec![ok(r#"{"error":{"message":"input is too long","code":"context_length_exceeded"}}"#)])
            .await;
    assert_eq!(overflow.kind, ModelErrorKind::ContextOverflow);
}

#[tokio::test]
async fn vectors_of_another_length_than_before_are_an_error() {
    let vectors = |vector: &str| ok(&format!(r#"{{"data":[{{"embedding":{vector}}}]}}"#));
    let server = Server::start(vec![vectors("[1,2]"), vectors("[1,2,3]")]).await;
    let embeddings = OpenAiEmbeddings::new(server.config()).unwrap();
    let store = MemoryStore::with(StoreOptions::new().embed(embeddings));
    let namespace = Namespace::new(["a"]).unwrap();
    store.put(&namespace, "k", "sea".into()).await.unwrap();
    let error = store.search(Search::within(&namespace).meaning("sea")).await.unwrap_err().to_string();
    let wanted = format!(
        "SS308: the embedding of model `small` failed: `{}`: expected vectors of 2 numbers, got one of 3; correct",
        server.base_url
    );
    assert!(error.starts_with(&wanted), "{error}");
}

#[test]
fn requests_are_bounded_in_texts_and_bytes() {
    let lengths = |texts: &[usize], most| {
        let texts: Vec<_> = texts.iter().map(|bytes| "x".repeat(*bytes)).collect();
        batches(&texts, most).map(<[String]>::len).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&[1, 1, 1, 1, 1], 2), [2, 2, 1]);
    assert_eq!(lengths(&[MAX_SENT_BYTES, 1, MAX_SENT_BYTES + 1, 1, 1], 64), [1, 1, 1, 2]);
    assert_eq!(lengths(&[], 2), [0; 0]);
}

#[test]
fn a_key_is_never_shown() {
    let config = EmbeddingsConfig::new("https://h/v1/", KEY, "m");
    let embeddings = OpenAiEmbeddings::new(config.clone()).unwrap();
    assert!(!format!("{config:?} {embeddings:?}").contains("sesame"));
    let broken = EmbeddingsConfig { api_key: ApiKey::new("sk-\nsesame"), ..config.clone() };
    assert!(!OpenAiEmbeddings::new(broken).unwrap_err().to_string().contains("sesame"));
    let nowhere = EmbeddingsConfig { base_url: "localhost".into(), ..config };
    let error = OpenAiEmbeddings::new(nowhere).unwrap_err().to_string();
    assert!(error.starts_with("the base URL `localhost` cannot be read"), "{error}");
}
