//! Secrets in recorded HTTP traffic.

use std::{fs, path::Path};

use superstep_testing::{
    cassette::{Cassette, CassetteServer},
    script::{Answer, Script, http},
    wire::WireServer,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::panic_of;

/// Sends a request and returns the body of the reply.
async fn send(base_url: &str, line: &str, headers: &[(&str, &str)], body: &str) -> String {
    let address = base_url.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("{line} HTTP/1.1\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len());
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).await.unwrap();
    reply.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Starts the recording of a server with these replies.
async fn recording(path: &Path, replies: impl IntoIterator<Item = Answer>) -> (WireServer, CassetteServer) {
    let real = WireServer::start(Script::new(replies)).await.unwrap();
    let cassette = Cassette::new(path).upstream(real.base_url()).record().await.unwrap();
    (real, cassette)
}

fn path() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.jsonl");
    (folder, path)
}

#[tokio::test]
async fn a_key_that_is_split_over_the_pieces_of_a_stream_is_refused() {
    let (_folder, path) = path();
    let split =
        Answer::stream().text(["the key is sk-ve", "ry-sec", "ret-17, ", "keep it"]).end("stop").done();
    let (_real, cassette) = recording(&path, [split]).await;
    let headers = [("authorization", "Bearer sk-very-secret-17")];
    let body = r#"{"model":"m","messages":[{"role":"user","content":"u"}],"stream":true}"#;
    let reply = send(&cassette.base_url(), "POST /chat/completions", &headers, body).await;
    assert_eq!(
        panic_of(|| cassette.assert_done()),
        "the recording of `POST /chat/completions` is refused: there is a secret in the body of the reply\n"
    );
    let text = fs::read_to_string(&path).unwrap();
    for part in ["sk-ve", "ry-sec", "ret-17"] {
        assert!(!text.contains(part) && !reply.contains(part), "`{part}` is in\n{text}");
    }
}

#[tokio::test]
async fn what_a_server_repeats_is_removed() {
    let (_folder, path) = path();
    // Basic authentication, cookies and keys of the query, as a server that is asked to may show them.
    let shown = r#"{"headers":{"Authorization":"Basic YWRhOmh1bnRlci9cdTAw","Cookie":"sid=c0okie-valué"},
"user":"ada","url":"https://x?key=q/uery-key","arguments":"{\"key\":\"q/uery-key\"}"}"#;
    let (_real, cassette) = recording(
        &path,
        [
            http(200, &[("set-cookie", "next=cookie-two-22; Path=/")], shown),
            http(200, &[], "it was cookie-two-22"),
        ],
    )
    .await;
    let url = cassette.base_url();
    let headers = [
        ("authorization", "Basic YWRhOmh1bnRlci9cdTAw"),
        ("cookie", "sid=c0okie-valué"),
        ("cookie", "other=an0ther-cookie"),
    ];
    let line = "POST /echo?key=q/uery-key&page=2";
    send(&url, line, &headers, r#"{"text":"an0ther-cookie, q/uery-key","api_key":"b0dy-key-1"}"#).await;
    send(&url, "GET /again", &[], "").await;
    cassette.assert_done();
    let text = fs::read_to_string(&path).unwrap();
    for secret in ["YWRhOm", "c0okie", "an0ther", "uery-key", "b0dy", "cookie-two"] {
        assert!(!text.contains(secret), "`{secret}` is in\n{text}");
    }
    assert!(text.contains(r#"\"user\":\"ada\""#) && text.contains("it was [removed]"), "{text}");

    // A request with another key is the same request.
    let server = Cassette::new(&path).replay().await.unwrap();
    let url = server.base_url();
    let headers = [("cookie", "sid=c0okie-tw0"), ("cookie", "other=y3t-another")];
    let line = "POST /echo?key=another-key&page=3";
    send(&url, line, &headers, r#"{"text":"y3t-another, another-key","api_key":"b0dy-key-2"}"#).await;
    assert_eq!(send(&url, "GET /again", &[], "").await, "it was [removed]");
    server.assert_done();
}

#[tokio::test]
async fn a_key_that_a_later_request_shows_is_removed_from_earlier_replies() {
    let (_folder, path) = path();
    let (_real, cassette) =
        recording(&path, [http(200, &[], r#"{"session":"s3ssion-key"}"#), http(200, &[], "in")]).await;
    let url = cassette.base_url();
    assert_eq!(send(&url, "GET /login", &[], "").await, r#"{"session":"s3ssion-key"}"#);
    send(&url, "GET /", &[("x-session-token", "s3ssion-key")], "").await;
    cassette.assert_done();
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("s3ssion") && text.contains(r#"{"session":"[removed]"}"#), "{text}");
}

#[tokio::test]
async fn an_exchange_with_a_secret_that_stays_is_refused_with_its_place() {
    let (_folder, path) = path();
    let hidden = r"sk-very-secret-\u0031\u0037";
    let stream = format!("data: {{\"ok\":1}}\n\ndata: {{\"blob\":\"{hidden}\"}}\n\n");
    let (_real, cassette) = recording(
        &path,
        [
            http(200, &[], "fine"),
            http(200, &[("content-type", "text/event-stream")], &stream),
            http(200, &[("content-encoding", "gzip")], "x"),
        ],
    )
    .await;
    let url = cassette.base_url();
    let headers = [("x-api-key", "sk-very-secret-17")];
    send(&url, "GET /one", &headers, "").await;
    let reply = send(&url, "GET /two", &headers, "").await;
    assert!(!reply.contains(hidden), "{reply}");
    let packed = send(&url, "GET /three", &headers, "").await;
    assert!(packed.contains("the reply is encoded as `gzip`, so that it cannot be searched"), "{packed}");
    assert_eq!(
        panic_of(|| cassette.assert_done()),
        "the recording of `GET /two` is refused: there is a secret in event 2 of the reply\n"
    );
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, "{\"cassette\":1}\n{\"request\":\"GET /one\"}\n{\"status\":200}\n{\"text\":\"fine\"}\n");
}
