//! Servers at an address.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use superstep::{
    llm::{ToolCx, ToolError},
    mcp::{Endpoint, McpConfig, McpServer},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{call, tool};

/// The requests to a server: the method, and the key.
pub(super) type Asked = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// Starts a server on a free loopback port, until the test ends.
pub(super) async fn serve() -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let asked = Asked::default();
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            seen.lock().unwrap().push(("connected".to_owned(), None));
            tokio::spawn(answer(stream, seen.clone()));
        }
    });
    (url, asked)
}

/// Returns a schema with the parts that are lost most easily.
fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Größe 😀",
        "additionalProperties": false,
        "$defs": {"to": {"anyOf": [{"const": null}, {"type": "string", "pattern": "^\\p{L}+$"}]}},
        "properties": {
            "to": {"$ref": "#/$defs/to", "default": null},
            "many": {"type": "integer", "minimum": -9_007_199_254_740_993_i64, "maximum": u64::MAX},
            "share": {"type": "number", "multipleOf": 0.1, "exclusiveMaximum": 1.0},
        },
        "x-of-theirs": [[], {}, "", null, 1.0, 1],
    })
}

async fn answer(stream: TcpStream, asked: Asked) {
    let mut stream = BufReader::new(stream);
    while let Some((head, body)) = request(&mut stream).await {
        let Ok(body) = serde_json::from_slice::<Value>(&body) else {
            // There are no events outside of the answers.
            let _ = stream.write_all(b"HTTP/1.1 405 no\r\ncontent-length: 0\r\n\r\n").await;
            continue;
        };
        let method = body["method"].as_str().unwrap_or_default().to_owned();
        let arguments = &body["params"]["arguments"];
        let noted = arguments["what"].as_str().map(|what| format!("noted:{what}"));
        asked.lock().unwrap().push((noted.unwrap_or(method.clone()), head.get("x-key").cloned()));
        let result = match &*method {
            "tools/call"
                if arguments["session"].as_str() == head.get("mcp-session-id").map(String::as_str) =>
            {
                let gone = b"HTTP/1.1 404 gone\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(gone).await;
                continue;
            }
            "tools/call" if !arguments["answer"].is_null() => {
                let answer = arguments["answer"].as_str().unwrap_or_default();
                let _ = stream.write_all(answer.as_bytes()).await;
                if answer.is_empty() { continue } else { return }
            }
            "initialize" => json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            }),
            "tools/list" => json!({"tools": [
                {"name": "look", "inputSchema": schema()},
                {"name": "note", "inputSchema": {"type": "object"}},
                {"name": "say", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
            ]}),
            "tools/call" => json!({"content": [{"type": "text", "text": "far away"}]}),
            _ => Value::Null,
        };
        let response = if result.is_null() {
            "HTTP/1.1 202 yes\r\ncontent-length: 0\r\n\r\n".to_owned()
        } else {
            let body = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
            let length = body.len();
            let sessions = asked.lock().unwrap().iter().filter(|(method, _)| method == "initialize").count();
            format!(
                "HTTP/1.1 200 yes\r\ncontent-type: application/json\r\nmcp-session-id: s{sessions}\r\n\
                 content-length: {length}\r\n\r\n{body}"
            )
        };
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads a request: its headers by name, and its body.
pub(super) async fn request(
    stream: &mut BufReader<TcpStream>,
) -> Option<(BTreeMap<String, String>, Vec<u8>)> {
    let (mut head, mut line) = (BTreeMap::new(), String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim().split_once(':') {
            Some((name, value)) => drop(head.insert(name.to_lowercase(), value.trim().to_owned())),
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let length = head.get("content-length").map_or(Ok(0), |length| length.parse()).ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

#[tokio::test]
async fn requests_to_a_url_have_its_headers_and_each_tool_needs_approval() {
    let (url, asked) = serve().await;
    let mut config = McpConfig::http(url);
    let Endpoint::Http { headers, .. } = &mut config.endpoint else { unreachable!("it is an address") };
    headers.insert("x-key".into(), "secret of ${HOME}".into());
    let server = McpServer::connect("far", config).await.unwrap();
    assert_eq!(call(&server, "far_look", json!({})).await.unwrap(), "far away");
    assert_eq!(tool(&server, "far_look").spec().parameters.to_string(), schema().to_string());
    let question = tool(&server, "far_look").approval(&json!({})).unwrap();
    assert_eq!(question, "Call `look` of the MCP server `far` with {}?");
    let secret = format!("secret of {}", std::env::var("HOME").unwrap());
    let mut asked = asked.lock().unwrap().clone();
    asked.retain(|(method, _)| method != "connected");
    let methods: Vec<&str> = asked.iter().map(|(method, _)| &**method).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "tools/list", "tools/call"]);
    assert!(asked.iter().all(|(_, key)| key.as_ref() == Some(&secret)), "{asked:?}");
}

#[tokio::test]
async fn calls_share_connections() {
    let (url, asked) = serve().await;
    let server = McpServer::connect("far", McpConfig::http(url)).await.unwrap();
    for _ in 0..12 {
        call(&server, "far_look", json!({})).await.unwrap();
    }
    let connections = methods(&asked).iter().filter(|method| *method == "connected").count();
    // One for the calls, and one for the server's notifications.
    assert!(connections <= 2, "{connections}");
}

#[tokio::test]
async fn an_invalid_header_is_rejected_without_its_value() {
    let mut config = McpConfig::http("http://127.0.0.1:1/mcp");
    let Endpoint::Http { headers, .. } = &mut config.endpoint else { unreachable!("it is an address") };
    headers.insert("x-key".into(), "two\nlines".into());
    let error = McpServer::connect("far", config).await.unwrap_err().to_string();
    assert_eq!(error, "MCP server `far`: header `x-key` has a name or a value that HTTP does not allow");
}

/// Makes a call that gets this answer, after which the connection is closed; without one, it is not answered
/// at all.
fn answered(answer: &str) -> Value {
    json!({ "answer": answer })
}

pub(super) fn methods(asked: &Asked) -> Vec<String> {
    asked.lock().unwrap().iter().map(|(method, _)| method.clone()).collect()
}

/// Waits until this is the last request to the server.
async fn sees(asked: &Asked, wanted: &str) {
    let seen = async {
        while methods(asked).last().is_none_or(|last| last != wanted) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), seen).await.unwrap_or_else(|_| panic!("it saw: {:?}", methods(asked)));
}

#[tokio::test]
async fn a_rejected_call_is_reported_without_the_servers_text_and_the_connection_stays() {
    let (url, asked) = serve().await;
    let server = McpServer::connect("far", McpConfig::http(url)).await.unwrap();
    for status in
        ["401 no", "403 no", "413 large", "429 often", "401 no\r\nwww-authenticate: Bearer realm=\"sk-1\""]
    {
        let answer =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 15\r\n\r\nthe key is sk-1");
        let refused = call(&server, "far_look", answered(&answer)).await.unwrap_err().to_string();
        let token =
            "put a token into `headers`, from an environment variable: Authorization = \"Bearer ${NAME}\"";
        let why = match (&status[..3], status.len() > 8) {
            ("401", false) => format!("401: it does not know who asks; {token}"),
            ("401", true) => {
                format!("401: it does not know who asks; {token}; OAuth, which it offers, is not supported")
            }
            ("403", _) => format!("403: it does not permit that; {token}"),
            (status, _) => status.to_owned(),
        };
        assert_eq!(refused, format!("the MCP server `far` refused this call: HTTP {why}"));
    }
    assert_eq!(call(&server, "far_look", json!({})).await.unwrap(), "far away");
    assert_eq!(methods(&asked).iter().filter(|method| *method == "initialize").count(), 1);
}

#[tokio::test]
async fn a_call_is_in_doubt_if_the_answer_breaks_and_the_next_one_connects_again() {
    let (url, asked) = serve().await;
    let server = McpServer::connect("far", McpConfig::http(url)).await.unwrap();
    let broken = [
        ("HTTP/1.1 502 gone\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", "HTTP 502"),
        (
            "HTTP/1.1 200 yes\r\nconnection: close\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\nsk-1",
            "its answer is neither JSON",
        ),
        (
            "HTTP/1.1 200 yes\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nsk-1",
            "does not follow the protocol",
        ),
        ("HTTP/1.1 200 yes\r\ncontent-le", "connection closed"),
    ];
    for (connections, (answer, cause)) in broken.into_iter().enumerate() {
        let lost = call(&server, "far_look", answered(answer)).await.unwrap_err().to_string();
        assert!(
            lost.starts_with("the MCP server `far` was lost during this call (") && lost.contains(cause),
            "{lost}"
        );
        assert!(lost.ends_with("), so its result is unknown; the next call starts it again"), "{lost}");
        assert!(!lost.contains("sk-1") && !lost.contains("127.0.0.1"), "{lost}");
        assert_eq!(call(&server, "far_look", json!({})).await.unwrap(), "far away");
        let connected = methods(&asked).iter().filter(|method| *method == "initialize").count();
        assert_eq!(connected, connections + 2, "{answer}");
    }
}

#[tokio::test]
async fn an_answer_with_too_many_values_is_refused_before_it_takes_memory() {
    let (url, asked) = serve().await;
    let server = McpServer::connect("far", McpConfig::http(url)).await.unwrap();
    let many = format!("[0{}]", ",0".repeat(150_000));
    let body = format!(r#"{{"jsonrpc":"2.0","result":{{"content":{many}}}}}"#);
    let head = "HTTP/1.1 200 yes\r\nconnection: close\r\ncontent-type:";
    let whole = format!("{head} application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    // It is the third request, whose id is 2, and then the fourth.
    let event = format!("{head} text/event-stream\r\n\r\ndata: {{\"id\":3,\"result\":{many}}}\n\n");
    for answer in [whole, event] {
        let refused = call(&server, "far_look", answered(&answer)).await.unwrap_err().to_string();
        let wanted = "the answer of the MCP server `far` cannot be read (it has more than 100000 values); the outcome of this call is \
                      unknown, check before repeating it";
        assert_eq!(refused, wanted);
    }
    assert_eq!(call(&server, "far_look", json!({})).await.unwrap(), "far away");
    assert_eq!(methods(&asked).iter().filter(|method| *method == "initialize").count(), 1);
}

#[tokio::test]
async fn a_session_that_is_gone_is_begun_again() {
    let (url, asked) = serve().await;
    let server = McpServer::connect("far", McpConfig::http(url)).await.unwrap();
    assert_eq!(call(&server, "far_look", json!({ "session": "s1" })).await.unwrap(), "far away");
    assert_eq!(methods(&asked).iter().filter(|method| *method == "initialize").count(), 2);
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_takes_too_long_is_cancelled_at_the_address() {
    let (url, asked) = serve().await;
    let config = McpConfig { call_timeout: Duration::from_secs(2), ..McpConfig::http(url.clone()) };
    let server = McpServer::connect("far", config).await.unwrap();
    let late = call(&server, "far_look", answered("")).await.unwrap_err();
    assert_eq!(
        late.to_string(),
        "the MCP server `far` did not answer in 2000 ms; the outcome of this call is unknown, check before repeating it"
    );
    sees(&asked, "notifications/cancelled").await;
    // It may be another server by now.
    assert_eq!(call(&server, "far_look", json!({})).await.unwrap(), "far away");
    assert_eq!(methods(&asked).iter().filter(|method| *method == "initialize").count(), 2);
    let server = McpServer::connect("far", McpConfig::http(url)).await.unwrap();
    let cx = ToolCx::new("c1");
    let cancel = cx.cancel.clone();
    let before = methods(&asked).len();
    let look = tool(&server, "far_look");
    let (ended, ()) = tokio::join!(look.call(answered(""), cx), async {
        while methods(&asked).len() == before {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    });
    assert_eq!(ended.unwrap_err(), ToolError::failed("cancelled"));
    sees(&asked, "notifications/cancelled").await;
}

#[tokio::test]
async fn a_key_that_is_refused_ends_the_beginning() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            if request(&mut stream).await.is_some() {
                let _ = stream.write_all(b"HTTP/1.1 401 no\r\ncontent-length: 4\r\n\r\nsk-1").await;
            }
        }
    });
    let error = McpServer::connect("far", McpConfig::http(url)).await.unwrap_err().to_string();
    assert!(error.starts_with("MCP server `far`: ") && error.contains("HTTP 401"), "{error}");
    assert!(!error.contains("sk-1") && !error.contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_server_that_requires_oauth_is_an_error_with_advice_and_the_token_is_masked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let sent = Arc::new(Mutex::new(Vec::new()));
    let sends = sent.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let Some((head, _)) = request(&mut stream).await else { continue };
            let token = head.get("authorization").cloned().unwrap_or_default();
            // A server that repeats the given values wherever it can.
            let wants = format!(
                "HTTP/1.1 401 no\r\nconnection: close\r\nwww-authenticate: Bearer resource_metadata=\"https://{token}/.well-known\", \
                 error=\"{token}\"\r\ncontent-length: {}\r\n\r\n{token}",
                token.len()
            );
            sends.lock().unwrap().push(token);
            let _ = stream.write_all(wants.as_bytes()).await;
        }
    });
    let mut config = McpConfig::http(url);
    let Endpoint::Http { headers, .. } = &mut config.endpoint else { unreachable!("it is an address") };
    // The only variable that always exists in a test replaces the token.
    headers.insert("Authorization".into(), "Bearer ${CARGO_MANIFEST_DIR}".into());
    let secret = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let shown = format!("{config:?}");
    let error = McpServer::connect("far", config).await.unwrap_err();
    assert_eq!(sent.lock().unwrap().first(), Some(&format!("Bearer {secret}")), "the token is sent");
    let wanted = "HTTP 401: it does not know who asks; put a token into `headers`, from an environment variable: \
                  Authorization = \"Bearer ${NAME}\"; OAuth, which it offers, is not supported";
    assert!(error.to_string().contains(wanted), "{error}");
    for text in [error.to_string(), format!("{error:?}"), shown] {
        assert!(!text.contains(&secret) && !text.contains("well-known"), "{text}");
    }
}
