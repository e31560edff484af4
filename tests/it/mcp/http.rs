//! Servers that are an address.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use superstep::mcp::{McpConfig, McpServer, Place};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use super::{call, tool};

/// What was asked of a server: the method, and the key that came along.
type Asked = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// A server on a free port of loopback, until the test ends.
async fn serve() -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let asked = Asked::default();
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, seen.clone()));
        }
    });
    (url, asked)
}

/// A schema with what gets lost most easily.
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
            // There are no events beside the answers to listen for.
            let _ = stream.write_all(b"HTTP/1.1 405 no\r\ncontent-length: 0\r\n\r\n").await;
            continue;
        };
        let method = body["method"].as_str().unwrap_or_default().to_owned();
        asked.lock().unwrap().push((method.clone(), head.get("x-key").cloned()));
        let result = match &*method {
            "initialize" => json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            }),
            "tools/list" => json!({"tools": [{"name": "look", "inputSchema": schema()}]}),
            "tools/call" => json!({"content": [{"type": "text", "text": "far away"}]}),
            _ => Value::Null,
        };
        let response = if result.is_null() {
            "HTTP/1.1 202 yes\r\ncontent-length: 0\r\n\r\n".to_owned()
        } else {
            let body = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
            let length = body.len();
            format!(
                "HTTP/1.1 200 yes\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )
        };
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The head of a request by name, and its body.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<(BTreeMap<String, String>, Vec<u8>)> {
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
async fn an_address_is_asked_with_its_headers_and_each_of_its_tools_is_asked_about() {
    let (url, asked) = serve().await;
    let mut config = McpConfig::http(url);
    let Place::Http { headers, .. } = &mut config.place else { unreachable!("it is an address") };
    headers.insert("x-key".into(), "secret of ${HOME}".into());
    let server = McpServer::connect("far", config).await.unwrap();
    assert_eq!(call(&server, "far_look", json!({})).await.unwrap(), "far away");
    assert_eq!(tool(&server, "far_look").spec().parameters.to_string(), schema().to_string());
    let question = tool(&server, "far_look").approval(&json!({})).unwrap();
    assert_eq!(question, "Call look of the MCP server `far` with {}?");
    let secret = format!("secret of {}", std::env::var("HOME").unwrap());
    let asked = asked.lock().unwrap().clone();
    let methods: Vec<&str> = asked.iter().map(|(method, _)| &**method).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "tools/list", "tools/call"]);
    assert!(asked.iter().all(|(_, key)| key.as_ref() == Some(&secret)), "{asked:?}");
}

#[tokio::test]
async fn a_header_that_is_none_is_refused_without_its_value() {
    let mut config = McpConfig::http("http://127.0.0.1:1/mcp");
    let Place::Http { headers, .. } = &mut config.place else { unreachable!("it is an address") };
    headers.insert("x-key".into(), "two\nlines".into());
    let error = McpServer::connect("far", config).await.unwrap_err().to_string();
    assert_eq!(error, "MCP server `far`: header `x-key` has a name or a value that HTTP does not allow");
}
