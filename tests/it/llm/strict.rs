//! Strict servers: they answer by a script, refuse what their providers refuse, and log every request.
//!
//! The files beside this one are the servers. The docstring of each describes its scripts and its log.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde::Deserialize;
use serde_json::Value;
use superstep_testing::skipped;
use tempfile::TempDir;

/// A running server, until it is dropped.
pub(crate) struct Strict {
    child: Child,
    folder: TempDir,
    origin: String,
}

/// A logged request.
#[derive(Debug, Deserialize)]
pub(crate) struct Logged {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
    pub(crate) status: u16,
    /// The reason of a refusal.
    pub(crate) error: Option<Value>,
    /// Violated rules of superstep itself.
    pub(crate) house: Vec<String>,
    /// The other fields, which only one of the servers has.
    #[serde(flatten)]
    pub(crate) other: BTreeMap<String, Value>,
}

impl Strict {
    /// Starts the server of a protocol, `responses`, `anthropic` or `gemini`, with a script. `None` without Python.
    pub(crate) fn start(protocol: &str, script: &Value) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("script.json"), script.to_string()).unwrap();
        let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/llm/strict");
        let child = Command::new("python3")
            // Without a folder of compiled files beside the servers.
            .arg("-B")
            .arg(servers.join(format!("{protocol}_server.py")))
            .args(["script.json", "log.jsonl"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            skipped("there is no python3, which runs the strict servers");
            return None;
        };
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let port: u16 = port.trim().parse().expect("the server prints its port");
        Some(Self { child, folder, origin: format!("http://127.0.0.1:{port}") })
    }

    /// Returns the address, as `scheme://host:port`.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the requests so far.
    pub(crate) fn log(&self) -> Vec<Logged> {
        let text = fs::read_to_string(self.folder.path().join("log.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the requests so far, after a check that the server refused only as scripted, and that they violate no rule.
    pub(crate) fn accepted(&self) -> Vec<Logged> {
        let log = self.log();
        for line in &log {
            assert!(line.error.is_none(), "{:?}\n{}", line.error, line.body);
            assert!(line.house.is_empty(), "{:?}\n{}", line.house, line.body);
        }
        log
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        // A server that has ended by itself needs no signal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
