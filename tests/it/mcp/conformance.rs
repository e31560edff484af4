//! The protocol's own suite for clients, where it is installed: the tests print a note and pass where not.
//!
//! It starts a server for each scenario, and runs a client, which is this binary: `a_client` with the address
//! in its environment.

use std::{env, fs, process::Stdio};

use serde_json::json;
use superstep::mcp::{McpConfig, McpServer};
use tokio::process::Command;

use super::{call, real::found};

/// The variable with the address of the server for `a_client`.
const ADDRESS: &str = "SUPERSTEP_CONFORMANCE_ADDRESS";

/// The client that the suite runs. Does nothing as a test.
#[tokio::test]
async fn a_client() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let server = McpServer::connect("suite", McpConfig::http(address)).await.unwrap();
    for tool in server.tools() {
        let args = match tool.spec().name.as_str() {
            "suite_add_numbers" => json!({"a": 5, "b": 3}),
            _ => json!({}),
        };
        let said = call(&server, &tool.spec().name, args).await;
        assert!(said.is_ok(), "{said:?}");
    }
    server.close().await;
}

#[tokio::test]
async fn our_client_conforms() {
    let Some(suite) = found("conformance") else { return };
    let folder = tempfile::tempdir().unwrap();
    // The suite appends the address to the command.
    let client = folder.path().join("client.sh");
    let this = env::current_exe().unwrap();
    let run = format!("{ADDRESS}=\"$1\" exec '{}' --exact mcp::conformance::a_client\n", this.display());
    fs::write(&client, run).unwrap();
    for scenario in ["initialize", "tools_call", "sse-retry"] {
        let mut command = Command::new(suite.parent().unwrap().join("node"));
        let ran = command
            .arg(&suite)
            .args(["client", "--scenario", scenario, "--command", &format!("sh {}", client.display())])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{scenario}: {said}");
    }
}
