//! Real servers, where they are installed: the tests print a note and pass where not.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    Event, StreamMode,
    agent::{Agent, AgentState, ReactConfig},
    llm::{ToolCx, ToolError},
    mcp::{Endpoint, McpConfig, McpServer},
};
use superstep_testing::{
    script::{Script, call as call_of, txt},
    scripted::ScriptedModel,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::Notify,
};

use super::{call, notices::allowed};
use crate::support::reserved_port;

/// Finds a program that `just mcp` installed, or that is in one of the folders of `SUPERSTEP_MCP_SERVERS` or
/// on the `PATH`.
pub(super) fn found(program: &str) -> Option<PathBuf> {
    let installed = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mcp"));
    let installed = ["node_modules/.bin", "venv/bin"].map(|folder| installed.join(folder));
    let named = ["SUPERSTEP_MCP_SERVERS", "PATH"].map(|name| env::var(name).unwrap_or_default());
    let folders = installed.into_iter().chain(named.iter().flat_map(env::split_paths));
    let found = folders.map(|folder| folder.join(program)).find(|file| file.is_file());
    if found.is_none() {
        superstep_testing::skipped(&format!("`{program}` is not installed, `just mcp` does it"));
    }
    found
}

/// Returns the configuration that starts such a program.
fn program(program: &str, args: &[&str]) -> Option<McpConfig> {
    let found = found(program)?.into_os_string().into_string().unwrap();
    Some(McpConfig::program(found, args.iter().map(|arg| (*arg).to_owned())))
}

async fn real(name: &str, of: &str, args: &[&str]) -> Option<McpServer> {
    Some(McpServer::connect(name, program(of, args)?).await.unwrap())
}

fn names(server: &McpServer) -> Vec<String> {
    server.tools().iter().map(|tool| tool.spec().name.clone()).collect()
}

#[tokio::test]
async fn the_server_of_everything() {
    let Some(server) = real("every", "mcp-server-everything", &["stdio"]).await else { return };
    assert!(names(&server).contains(&"every_echo".to_owned()), "{:?}", names(&server));
    assert_eq!(call(&server, "every_echo", json!({"message": "añ😀b"})).await.unwrap(), "Echo: añ😀b");
    let sum = call(&server, "every_get-sum", json!({"a": 2, "b": 3})).await.unwrap();
    assert!(sum.contains('5'), "{sum}");
    let image = call(&server, "every_get-tiny-image", json!({})).await.unwrap();
    assert!(image.contains("[image: image/png, "), "{image}");
    let structured = call(&server, "every_get-structured-content", json!({"location": "New York"})).await;
    assert!(structured.unwrap().contains("temperature"));
    let wrong = call(&server, "every_echo", json!({"massage": 1})).await.unwrap_err();
    assert!(wrong.to_string().contains("message"), "{wrong}");
    server.close().await;
}

#[tokio::test]
async fn the_server_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::write(root.join("a.txt"), "one\ntwo\n").unwrap();
    let Some(server) = real("fs", "mcp-server-filesystem", &[root.to_str().unwrap()]).await else { return };
    let file = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let read = call(&server, "fs_read_text_file", json!({"path": file("a.txt")})).await.unwrap();
    assert_eq!(read, "one\ntwo\n");
    call(&server, "fs_write_file", json!({"path": file("b.txt"), "content": "three"})).await.unwrap();
    assert_eq!(fs::read_to_string(root.join("b.txt")).unwrap(), "three");
    let outside = call(&server, "fs_read_text_file", json!({"path": "/etc/hostname"})).await.unwrap_err();
    assert!(outside.to_string().contains("denied"), "{outside}");
    let asks = |name: &str| super::tool(&server, name).approval(&json!({})).is_some();
    assert_eq!([asks("fs_read_text_file"), asks("fs_write_file")], [false, true]);
}

#[tokio::test]
async fn the_memory_server() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut config) = program("mcp-server-memory", &[]) else { return };
    let Endpoint::Program { env, .. } = &mut config.endpoint else { unreachable!("it is a program") };
    let file = folder.path().join("memory.json");
    env.insert("MEMORY_FILE_PATH".to_owned(), file.to_str().unwrap().to_owned());
    let server = McpServer::connect("memory", config.clone()).await.unwrap();
    let ada = json!({"name": "Ada", "entityType": "person", "observations": ["likes engines"]});
    call(&server, "memory_create_entities", json!({ "entities": [ada] })).await.unwrap();
    server.close().await;
    let server = McpServer::connect("memory", config).await.unwrap();
    let found = call(&server, "memory_search_nodes", json!({"query": "engines"})).await.unwrap();
    assert!(found.contains("Ada"), "{found}");
    // The schemas have nested objects.
    let wrong = json!({"entities": [{"name": "Bob"}]});
    let create = super::tool(&server, "memory_create_entities");
    assert_eq!(create.spec().parameters["properties"]["entities"]["items"]["required"][1], "entityType");
    assert!(call(&server, "memory_create_entities", wrong).await.is_err());
}

#[tokio::test]
async fn the_server_of_the_time() {
    let Some(server) = real("time", "mcp-server-time", &[]).await else { return };
    assert_eq!(names(&server), ["time_get_current_time", "time_convert_time"]);
    let noon = json!({"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let there = call(&server, "time_convert_time", noon).await.unwrap();
    assert!(there.contains("19:00") || there.contains("20:00"), "{there}");
    let nowhere = call(&server, "time_get_current_time", json!({"timezone": "Mars/Olympus"})).await;
    assert!(nowhere.unwrap_err().to_string().contains("Mars/Olympus"));
}

#[tokio::test]
async fn the_server_of_a_repository() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let git =
        |args: &[&str]| assert!(Command::new("git").current_dir(at).args(args).status().unwrap().success());
    git(&["init", "-q"]);
    let Some(server) = real("git", "mcp-server-git", &["--repository", at]).await else { return };
    git(&["config", "user.name", "Ada"]);
    git(&["config", "user.email", "ada@example.org"]);
    fs::write(folder.path().join("a.txt"), "one\n").unwrap();
    let on = |more: Value| {
        let mut args = json!({ "repo_path": at });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        args
    };
    call(&server, "git_git_add", on(json!({"files": ["a.txt"]}))).await.unwrap();
    call(&server, "git_git_commit", on(json!({"message": "Begin"}))).await.unwrap();
    let log = call(&server, "git_git_log", on(json!({}))).await.unwrap();
    assert!(log.contains("Begin") && log.contains("Ada"), "{log}");
    let asks = |name: &str| super::tool(&server, name).approval(&json!({})).is_some();
    assert_eq!([asks("git_git_log"), asks("git_git_commit")], [false, true]);
    assert!(!super::tool(&server, "git_git_commit").behaviour().idempotent);
}

const SLOW: &str = r#"{"duration":60,"steps":600}"#;

/// Makes a call that takes a minute, and runs a function while it is running.
async fn at_work(server: &McpServer, then: impl FnOnce(&ToolCx)) -> Result<String, ToolError> {
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let cx = ToolCx::new("c1").with_output(move |chunk| {
        assert!(chunk.starts_with('[') && chunk.contains("/600]"), "{chunk}");
        begins.notify_one();
    });
    let slow = super::tool(server, &format!("{}_trigger-long-running-operation", server.name()));
    let call = slow.call(serde_json::from_str(SLOW).unwrap(), cx.clone());
    let (ended, ()) = tokio::join!(call, async {
        begun.notified().await;
        then(&cx);
    });
    ended.map(|reply| reply.text)
}

#[tokio::test]
async fn a_real_server_reports_progress_and_is_cancelled_during_a_call() {
    let Some(server) = real("every", "mcp-server-everything", &["stdio"]).await else { return };
    let ended = at_work(&server, |cx| cx.cancel.cancel()).await;
    assert_eq!(ended.unwrap_err(), ToolError::failed("cancelled"));
    assert_eq!(
        call(&server, "every_echo", json!({"message": "still here"})).await.unwrap(),
        "Echo: still here"
    );
}

#[tokio::test]
async fn a_killed_server_is_restarted() {
    let Some(server) = real("every", "mcp-server-everything", &["stdio", "to-be-killed"]).await else {
        return;
    };
    let lost = at_work(&server, |_| kill_child("to-be-killed")).await.unwrap_err();
    assert!(lost.to_string().contains("was lost during this call"), "{lost}");
    assert_eq!(call(&server, "every_echo", json!({"message": "back"})).await.unwrap(), "Echo: back");
}

#[tokio::test]
async fn a_model_reads_that_a_real_server_was_killed_and_calls_it_again() {
    let Some(server) = real("every", "mcp-server-everything", &["stdio", "agents"]).await else { return };
    let slow = call_of("c1", "every_trigger-long-running-operation", SLOW);
    let again = call_of("c2", "every_echo", r#"{"message":"back"}"#);
    let model = ScriptedModel::new(Script::new([slow, again, txt("done")]));
    let agent = Agent::builder(Arc::new(model)).tool_source(Arc::new(server));
    let agent =
        agent.config(ReactConfig { permissions: allowed(), ..ReactConfig::graph(5) }).build().unwrap();
    let mut stream = agent.without_thread().stream(agent.input("go"), StreamMode::Custom);
    while let Some(event) = stream.next().await {
        if let Event::<AgentState>::Custom { name: "tool_output", data, .. } = event
            && data["chunk"].as_str().unwrap().starts_with("[1/600]")
        {
            kill_child("agents");
        }
    }
    let results = stream.outcome().await.unwrap().state.tool_result_history;
    assert!(results[0].contains("was lost during this call"), "{}", results[0]);
    assert_eq!(results[1], "Echo: back");
}

/// Kills the program that this process started with this argument.
fn kill_child(arg: &str) {
    let us = std::process::id().to_string();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let of = |file: &str| fs::read_to_string(process.path().join(file)).unwrap_or_default();
        let (stat, line) = (of("stat"), of("cmdline"));
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent == Some(&*us) && line.split('\0').any(|part| part == arg) {
            let pid = process.file_name().into_string().unwrap();
            assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        }
    }
}

/// The server of all features at an address of this machine. Dropping it ends it.
struct Address {
    url: String,
    port: u16,
    server: tokio::process::Child,
}

impl Address {
    /// Starts it at a reserved port, or at the next one if another program has taken that.
    async fn serve() -> Option<Self> {
        let found = found("mcp-server-everything")?;
        for _ in 0..20 {
            if let Some(serving) = Self::serve_at(&found, reserved_port()).await {
                return Some(serving);
            }
        }
        panic!("the server does not listen at any port");
    }

    /// Starts it at this port. Returns `None` if it ends before it listens.
    async fn serve_at(program: &Path, port: u16) -> Option<Self> {
        let mut command = tokio::process::Command::new(program);
        command.arg("streamableHttp").env("PORT", port.to_string()).kill_on_drop(true);
        let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(server.stderr.as_mut().unwrap()).lines();
        while !said.next_line().await.unwrap()?.contains("listening") {}
        Some(Self { url: format!("http://127.0.0.1:{port}/mcp"), port, server })
    }
}

#[tokio::test]
async fn the_server_of_everything_at_an_address() {
    let Some(mut address) = Address::serve().await else { return };
    let server = McpServer::connect("every", McpConfig::http(&address.url)).await.unwrap();
    assert_eq!(call(&server, "every_echo", json!({"message": "añ😀b"})).await.unwrap(), "Echo: añ😀b");
    let image = call(&server, "every_get-tiny-image", json!({})).await.unwrap();
    assert!(image.contains("[image: image/png, "), "{image}");
    assert!(
        super::tool(&server, "every_echo").approval(&json!({})).is_some(),
        "the arguments leave the machine"
    );

    let ended = at_work(&server, |cx| cx.cancel.cancel()).await;
    assert_eq!(ended.unwrap_err(), ToolError::failed("cancelled"));

    let killed = at_work(&server, |_| address.server.start_kill().unwrap()).await.unwrap_err();
    assert!(killed.to_string().contains("was lost during this call"), "{killed}");
    let nobody = call(&server, "every_echo", json!({"message": "x"})).await.unwrap_err();
    assert!(nobody.to_string().contains("the MCP server `every`"), "{nobody}");
    address.server.wait().await.unwrap();
    let _back = Address::serve_at(&found("mcp-server-everything").unwrap(), address.port).await.unwrap();
    assert_eq!(call(&server, "every_echo", json!({"message": "back"})).await.unwrap(), "Echo: back");
}
