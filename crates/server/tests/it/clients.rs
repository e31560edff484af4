//! Clients that others wrote, unchanged, where they are installed: the tests print a note and pass where not.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

use crate::support::start;

/// Returns the folder of the clients that `just server-clients` installed, if it has this one.
pub(crate) fn installed(client: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/server-clients");
    if !folder.join(client).exists() {
        skipped(&format!("`{client}` is not installed, `just server-clients` does it"));
        return None;
    }
    Some(folder.canonicalize().unwrap())
}

fn skipped(reason: &str) {
    let mut out = std::io::stderr();
    writeln!(out, "\nSKIPPED: {reason}\n").unwrap();
}

/// Returns the clients with a browser, if they have this one.
fn in_browser(client: &str) -> Option<PathBuf> {
    let clients = installed(client)?;
    if chromium().is_none() {
        skipped("there is no `chromium`");
        return None;
    }
    Some(clients)
}

/// Returns the browser of this machine.
pub(crate) fn chromium() -> Option<PathBuf> {
    let folders = std::env::split_paths(&std::env::var_os("PATH")?).collect::<Vec<_>>();
    folders.iter().map(|folder| folder.join("chromium")).find(|program| program.exists())
}

/// Runs a script against a new server, which succeeds.
async fn run(program: PathBuf, script: &str, clients: &Path) {
    run_with(program, script, clients, &[]).await;
}

async fn run_with(program: PathBuf, script: &str, clients: &Path, arguments: &[&str]) {
    run_at(&start().await.url, program, script, clients, arguments).await;
}

/// Runs a script against the server at an address, which succeeds.
pub(crate) async fn run_at(url: &str, program: PathBuf, script: &str, clients: &Path, arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let mut command = Command::new(program);
    command
        .arg(script)
        .arg(url)
        .args(arguments)
        .env("CLIENTS", clients)
        .env("CHROMIUM", chromium().unwrap_or_default())
        .env("LANGSMITH_TRACING", "false")
        // Node 20 has WebSockets behind this option, later versions without.
        .env("NODE_OPTIONS", "--experimental-websocket")
        .kill_on_drop(true);
    let output = timeout(Duration::from_secs(240), command.output()).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("done\n"), "{out}\n{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_for_python_and_remote_graphs_work_unchanged() {
    let Some(clients) = installed("venv/bin/python") else { return };
    run(clients.join("venv/bin/python"), "sdk.py", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_for_javascript_works_unchanged() {
    let Some(clients) = installed("node_modules/@langchain/langgraph-sdk") else { return };
    run("node".into(), "sdk.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_of_the_sdk_for_javascript_work_by_server_sent_events_and_by_websockets() {
    let Some(clients) = installed("node_modules/@langchain/langgraph-sdk") else { return };
    for transport in ["sse", "websocket"] {
        run_with("node".into(), "thread.mjs", &clients, &[transport]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_of_the_sdk_for_python_work_by_server_sent_events_and_by_websockets() {
    let Some(clients) = installed("venv/bin/python") else { return };
    run(clients.join("venv/bin/python"), "thread.py", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_for_react_works_by_server_sent_events_and_by_websockets() {
    let Some(clients) = installed("node_modules/@langchain/react") else { return };
    for transport in ["sse", "websocket"] {
        run_with("node".into(), "react.mjs", &clients, &[transport]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_ag_ui_works_unchanged() {
    let Some(clients) = installed("node_modules/@ag-ui/client") else { return };
    run("node".into(), "agui.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_ag_ui_for_langgraph_works_unchanged() {
    let Some(clients) = installed("node_modules/@ag-ui/langgraph") else { return };
    run("node".into(), "agui_langgraph.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_of_the_model_context_protocol_works_unchanged() {
    let Some(clients) = installed("node_modules/@modelcontextprotocol/sdk") else { return };
    run("node".into(), "mcp.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdks_of_a2a_and_of_the_model_context_protocol_for_python_work_unchanged() {
    let Some(clients) = installed("venv/bin/mcp") else { return };
    for script in ["a2a_sdk.py", "mcp_sdk.py"] {
        run(clients.join("venv/bin/python"), script, &clients).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn assistant_ui_works_unchanged() {
    let Some(clients) = installed("node_modules/@assistant-ui/react-langgraph") else { return };
    run("node".into(), "assistant_ui.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_graphs_for_javascript_and_the_hook_use_chat_work_unchanged() {
    let Some(clients) = installed("node_modules/@ai-sdk/langchain") else { return };
    run("node".into(), "remote.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hooks_of_chat_pages_work_unchanged_in_a_browser() {
    let Some(clients) = in_browser("node_modules/@ai-sdk/react") else { return };
    run("node".into(), "browser.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chat_page_of_langgraph_works_unchanged() {
    let Some(clients) = in_browser("agent-chat-ui/dist") else { return };
    run("node".into(), "chat_page.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_example_works_in_a_browser() {
    let Some(clients) = in_browser("node_modules/vite") else { return };
    let example = std::env::current_exe().unwrap().parent().unwrap().join("../examples/server");
    if !example.exists() {
        skipped(
            "the example is not built; `cargo build -p superstep --features server --example server` does it",
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut server = Command::new(example);
    server.arg("127.0.0.1:0").current_dir(folder.path()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut server = server.spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let line = timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap().unwrap();
    let url = line.strip_prefix("serving on ").unwrap();
    run_at(url, "node".into(), "example.mjs", &clients, &[]).await;
}
