//! The page in a browser, where there is one: see `tests/studio/page.mjs`.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use serde_json::json;
use superstep_graph::{Checkpointer, JsonUpdate, MemoryCheckpointer, State as _};
use superstep_server::Server;
use superstep_sqlite::SqliteCheckpointer;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    process::Command,
    time::timeout,
};

use super::{
    ask, begun,
    graphs::helper,
    manage::{Noted, damaged},
    studio,
};
use crate::{
    clients::{chromium, installed},
    graphs::{Count, counter},
    support::{TestServer, serve, serve_on},
};

/// The time that all steps may take.
const LIMIT: Duration = Duration::from_secs(900);

/// A server with the threads that the steps use.
async fn busy() -> TestServer {
    let store = Arc::new(MemoryCheckpointer::new());
    // The graph that the server has gives its model another prompt.
    let before = helper("polite", "You are terse.").with_checkpointer(store.clone());
    let input: JsonUpdate = serde_json::from_value(ask()).unwrap();
    before.thread("polite").run(input).await.unwrap();
    let server = studio(Server::new()).graph("polite", helper("polite", "You are kind."));
    let server = server.thread_actions("helper", Noted::default());
    let server = serve(server.checkpointer(store as Arc<dyn Checkpointer>)).await;
    begun(&server, "rename", "helper", ask()).await;
    begun(&server, "chat", "helper", ask()).await;
    begun(&server, "both", "two", json!({})).await;
    begun(&server, "sum", "fail", json!({ "n": 3 })).await;
    begun(&server, "nested", "parent", json!({ "euros": 20 })).await;
    let hostile = "<script>document.title = 'broken'</script>";
    begun(&server, "count", "counter", json!({ "n": 5, "log": [hostile] })).await;
    begun(&server, "<img src=x onerror=alert(1)>", "counter", json!({ "n": 1 })).await;
    begun(&server, "rows", "wide", json!({ "left": 1 })).await;
    let texts = vec!["a line of a long text\n".repeat(2_500); 20];
    begun(&server, "ten-thousand", "long", json!({ "left": 4_999, "log": texts })).await;
    server
}

fn open(file: &Path) -> Arc<dyn Checkpointer> {
    Arc::new(SqliteCheckpointer::open(file).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_works_in_a_browser() {
    let Some(clients) = installed("node_modules/playwright-core") else { return };
    let Some(chromium) = chromium() else {
        let mut out = std::io::stderr();
        std::io::Write::write_all(&mut out, b"\nSKIPPED: there is no chromium\n\n").unwrap();
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (stored, broken) = (folder.path().join("stored.db"), folder.path().join("broken.db"));
    damaged(&broken).await;
    let busy = busy().await;
    let broken = serve(studio(Server::new()).checkpointer(open(&broken))).await;
    let empty = serve(studio(Server::new())).await;
    let reading = {
        let store = Arc::new(MemoryCheckpointer::new());
        counter().with_checkpointer(store.clone()).thread("count").run(Count::update().n(1)).await.unwrap();
        serve(studio(Server::new()).read_only().checkpointer(store as Arc<dyn Checkpointer>)).await
    };
    let on_disk = || studio(Server::new()).checkpointer(open(&stored));
    let mut restarted = serve(on_disk()).await;
    let urls = json!({
        "busy": busy.url, "broken": broken.url, "empty": empty.url, "reading": reading.url, "stored": restarted.url,
    });
    let mut command = Command::new("node");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/studio/page.mjs"));
    command.arg(urls.to_string()).arg(chromium).env("CLIENTS", clients).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut requests = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stderr = child.stderr.take().unwrap();
    let errors = tokio::spawn(async move {
        let mut text = String::new();
        stderr.read_to_string(&mut text).await.map(|_| text)
    });
    let run = async {
        let mut out = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            match &*line {
                // Another program with the same database.
                "> outside" => {
                    let other = counter().with_checkpointer(open(&stored));
                    other.thread("outside").run(Count::update().n(1)).await.unwrap();
                }
                "> restart" => {
                    let address = restarted.url.trim_start_matches("http://").to_owned();
                    restarted.stop().await;
                    let listener = TcpListener::bind(address).await.unwrap();
                    restarted = serve_on(on_disk(), listener);
                }
                _ => {
                    out.push(line);
                    continue;
                }
            }
            requests.write_all(b"ok\n").await.unwrap();
        }
        (child.wait().await.unwrap(), out)
    };
    let (status, out) = timeout(LIMIT, run).await.unwrap();
    let shown = format!("{}\n{}", out.join("\n"), errors.await.unwrap().unwrap());
    assert!(status.success() && out.last().is_some_and(|last| last == "done"), "{shown}");
    std::io::Write::write_all(&mut std::io::stderr(), shown.as_bytes()).unwrap();
}
