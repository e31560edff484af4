//! Clients that others wrote, unchanged, where they are installed: the tests print a note and pass where not.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{process::Command, time::timeout};

use crate::support::start;

/// Returns the folder of the clients that `just server-clients` installed, if it has this one.
pub(crate) fn installed(client: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/server-clients");
    if !folder.join(client).exists() {
        let mut out = std::io::stderr();
        writeln!(out, "\nSKIPPED: `{client}` is not installed, `just server-clients` does it\n").unwrap();
        return None;
    }
    Some(folder.canonicalize().unwrap())
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
    let server = start().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let mut command = Command::new(program);
    command
        .arg(script)
        .arg(&server.url)
        .args(arguments)
        .env("CLIENTS", clients)
        .env("CHROMIUM", chromium().unwrap_or_default())
        .env("LANGSMITH_TRACING", "false")
        // Node 20 has WebSockets behind this option, later versions without.
        .env("NODE_OPTIONS", "--experimental-websocket")
        .kill_on_drop(true);
    let output = timeout(Duration::from_secs(120), command.output()).await.unwrap().unwrap();
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
async fn remote_graphs_for_javascript_and_the_hook_use_chat_work_unchanged() {
    let Some(clients) = installed("node_modules/@ai-sdk/langchain") else { return };
    run("node".into(), "remote.mjs", &clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hooks_of_chat_pages_work_unchanged_in_a_browser() {
    let Some(clients) = installed("node_modules/@ai-sdk/react") else { return };
    if chromium().is_none() {
        writeln!(std::io::stderr(), "\nSKIPPED: there is no `chromium`\n").unwrap();
        return;
    }
    run("node".into(), "browser.mjs", &clients).await;
}
