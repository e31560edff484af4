//! Real servers, where they are installed: the tests say so and pass where not.

use std::{
    env, fs,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use serde_json::json;
use superstep::mcp::{McpConfig, McpServer};

use super::call;

/// A server that is on the `PATH`, or in the folder that `SUPERSTEP_MCP_SERVERS` names.
async fn real(name: &str, program: &str, args: &[&str]) -> Option<McpServer> {
    let extra = env::var("SUPERSTEP_MCP_SERVERS").unwrap_or_default();
    let path = env::var("PATH").unwrap_or_default();
    let folders = env::split_paths(&extra).chain(env::split_paths(&path)).collect::<Vec<_>>();
    let Some(found) = folders.iter().map(|folder| folder.join(program)).find(|file| file.is_file()) else {
        let _ = writeln!(
            io::stderr(),
            "\nSKIPPED: there is no `{program}` on the PATH or in SUPERSTEP_MCP_SERVERS\n"
        );
        return None;
    };
    let args = args.iter().map(|arg| (*arg).to_owned());
    let config = McpConfig::program(found.to_str().unwrap().to_owned(), args);
    Some(McpServer::connect(name, config).await.unwrap())
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
async fn a_killed_server_comes_back() {
    let Some(server) = real("every", "mcp-server-everything", &["stdio"]).await else { return };
    let slow = json!({"duration": 60, "steps": 60});
    let ((), lost) = tokio::join!(kill_children(), async {
        call(&server, "every_trigger-long-running-operation", slow).await.unwrap_err()
    });
    assert!(lost.to_string().contains("was lost during this call"), "{lost}");
    assert_eq!(call(&server, "every_echo", json!({"message": "back"})).await.unwrap(), "Echo: back");
}

/// Kills the programs of this kind that this process started, once the call has had time to reach it.
async fn kill_children() {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let us = std::process::id().to_string();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let of = |file: &str| fs::read_to_string(process.path().join(file)).unwrap_or_default();
        let (stat, line) = (of("stat"), of("cmdline"));
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).map(str::to_owned);
        if parent.as_deref() == Some(&*us) && line.contains("mcp-server-everything") && line.contains("stdio")
        {
            let pid = process.file_name().into_string().unwrap();
            assert!(Path::new("/proc").join(&pid).exists());
            std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
        }
    }
}
