//! Tools of MCP servers: a program connected through its stdin and stdout, and an address.

mod conformance;
mod crash;
mod elicit;
mod http;
mod media;
mod notices;
mod odd;
mod order;
mod real;

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep::{
    MemoryCheckpointer,
    agent::{Agent, ReactConfig},
    llm::{Tool, ToolCx, ToolError},
    mcp::{Ask, Endpoint, McpConfig, McpError, McpServer},
};
use superstep_testing::{
    script::{Script, call as call_of, txt},
    scripted::ScriptedModel,
};
use tempfile::TempDir;
use tokio::time::timeout;

/// A small server program, and the file in which it records its requests.
struct Small {
    folder: TempDir,
}

impl Small {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn seen_file(&self) -> PathBuf {
        self.folder.path().join("seen")
    }

    fn seen(&self) -> String {
        fs::read_to_string(self.seen_file()).unwrap_or_default().lines().collect::<Vec<_>>().join(" ")
    }

    fn config(&self) -> McpConfig {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/mcp/server.sh");
        let mut config = McpConfig::program("sh", [script]);
        let Endpoint::Program { env, .. } = &mut config.endpoint else { unreachable!("it is a program") };
        env.insert("SEEN".into(), self.seen_file().to_str().unwrap().into());
        config
    }

    /// Adds a variable of its environment.
    fn with(&self, name: &str, value: &str) -> McpConfig {
        let mut config = self.config();
        let Endpoint::Program { env, .. } = &mut config.endpoint else { unreachable!("it is a program") };
        env.insert(name.into(), value.into());
        config
    }

    async fn connect(&self) -> McpServer {
        McpServer::connect("small", self.config()).await.unwrap()
    }

    /// Waits until the server has recorded this.
    async fn sees(&self, wanted: &str) {
        let seen = async {
            while !self.seen().ends_with(wanted) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), seen).await.unwrap_or_else(|_| panic!("it saw: {}", self.seen()));
    }
}

fn tool(server: &McpServer, name: &str) -> Arc<dyn Tool> {
    server.tools().into_iter().find(|tool| tool.spec().name == name).unwrap()
}

async fn call(server: &McpServer, name: &str, args: Value) -> Result<String, ToolError> {
    tool(server, name).call(args, ToolCx::new("c1")).await.map(|reply| reply.text)
}

#[tokio::test]
async fn tools_retain_their_schemas_and_get_the_name_of_their_server() {
    let small = Small::new();
    let server = small.connect().await;
    let names: Vec<String> = server.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(
        names,
        ["small_say", "small_fail", "small_die", "small_sleep", "small_note", "small_count", "small_grow"]
    );
    let say = tool(&server, "small_say");
    assert_eq!(say.spec().description, "Says it again.");
    let wanted = json!({"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]});
    assert_eq!(say.spec().parameters, wanted);
    assert!(say.behaviour().idempotent, "it only reads");
    assert!(tool(&server, "small_fail").behaviour().idempotent, "it says so");
    assert!(!tool(&server, "small_die").behaviour().idempotent);
    // The limits of a start and a call are those of the configuration.
    assert_eq!(say.behaviour().timeout, Some(Duration::MAX));
}

#[tokio::test]
async fn read_only_tools_need_no_approval_unless_configured() {
    let small = Small::new();
    for (ask, asked) in
        [(Ask::Writes, [false, true]), (Ask::Always, [true, true]), (Ask::Never, [false, false])]
    {
        let server = McpServer::connect("small", McpConfig { ask, ..small.config() }).await.unwrap();
        let asks = |name| tool(&server, name).approval(&json!({"what": "x"})).is_some();
        assert_eq!([asks("small_say"), asks("small_die")], asked, "{ask:?}");
    }
    let server = small.connect().await;
    let question = tool(&server, "small_die").approval(&json!({})).unwrap();
    assert_eq!(question, "Call `die` of the MCP server `small` with {}?");
}

#[tokio::test]
async fn results_are_texts_and_errors_of_the_server_are_errors_of_the_tool() {
    let small = Small::new();
    let server = small.connect().await;
    assert_eq!(call(&server, "small_say", json!({"what": "hi"})).await.unwrap(), "hi no key no greeting");
    let failed = call(&server, "small_fail", json!({})).await.unwrap_err();
    assert_eq!(failed, ToolError::failed("it went wrong"));
    let flood = call(&server, "small_fail", json!({"with": "a flood"})).await.unwrap_err().to_string();
    assert!(flood.starts_with("00000") && flood.ends_with("0\n[truncated 51424 bytes]"), "{}", flood.len());
}

#[tokio::test]
async fn a_program_gets_the_variables_that_are_handed_to_it_and_no_others() {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the server says `no key` for want of it");
    let small = Small::new();
    let server = McpServer::connect("small", small.with("GREETING", "home is ${HOME}")).await.unwrap();
    let home = std::env::var("HOME").unwrap();
    let said = call(&server, "small_say", json!({"what": "hi"})).await.unwrap();
    assert_eq!(said, format!("hi no key home is {home}"));
    let server = McpServer::connect("small", small.with("GREETING", "pa$$word")).await.unwrap();
    assert_eq!(call(&server, "small_say", json!({"what": "hi"})).await.unwrap(), "hi no key pa$word");
    let error = McpServer::connect("small", small.with("GREETING", "$SUPERSTEP_NO_SUCH")).await.unwrap_err();
    let wanted = "MCP server `small`: `GREETING` needs the environment variable `SUPERSTEP_NO_SUCH`";
    assert_eq!(error.to_string(), wanted);
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_fails_it_and_is_there_for_the_next() {
    let small = Small::new();
    let server = small.connect().await;
    let lost = call(&server, "small_die", json!({})).await.unwrap_err();
    let wanted = "the MCP server `small` was lost during this call, so its result is unknown; the next call \
        starts it again";
    assert_eq!(lost.to_string(), wanted);
    assert_eq!(
        call(&server, "small_say", json!({"what": "again"})).await.unwrap(),
        "again no key no greeting"
    );
    assert_eq!(small.seen(), "started called started called");
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_cancelled_at_the_server() {
    let small = Small::new();
    let server = small.connect().await;
    let cx = ToolCx::new("c1");
    let cancel = cx.cancel.clone();
    let sleep = tool(&server, "small_sleep");
    let (ended, ()) = tokio::join!(sleep.call(json!({}), cx), async {
        small.sees("called").await;
        cancel.cancel();
    });
    assert_eq!(ended.unwrap_err(), ToolError::failed("cancelled"));
    small.sees("called cancelled").await;
}

#[tokio::test]
async fn a_timed_out_call_is_cancelled_on_the_server() {
    let small = Small::new();
    let config = McpConfig { call_timeout: Duration::from_millis(50), ..small.config() };
    let server = McpServer::connect("small", config).await.unwrap();
    let late = call(&server, "small_sleep", json!({})).await.unwrap_err();
    assert_eq!(
        late.to_string(),
        "the MCP server `small` did not answer in 50 ms; the outcome of this call is unknown, check before repeating it"
    );
    small.sees("called cancelled").await;
}

#[tokio::test]
async fn a_closed_server_restarts_when_it_is_called() {
    let small = Small::new();
    let server = small.connect().await;
    server.close().await;
    assert_eq!(small.seen(), "started ended");
    call(&server, "small_say", json!({"what": "x"})).await.unwrap();
    drop(server);
    small.sees("started ended started called ended").await;
}

#[tokio::test]
async fn only_wanted_tools_are_taken_and_must_be_there() {
    let small = Small::new();
    let wanting = |names: &[&str]| {
        let tools = Some(names.iter().map(|name| (*name).to_owned()).collect());
        McpServer::connect("small", McpConfig { tools, ..small.config() })
    };
    let server = wanting(&["die", "say"]).await.unwrap();
    let names: Vec<String> = server.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["small_die", "small_say"]);
    let error = wanting(&["say", "shout"]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "MCP server `small` has no tool `shout`; it has say, fail, die, sleep, note, count, grow"
    );
}

#[tokio::test]
async fn an_unusable_server_is_an_error_with_the_reason() {
    let refused = async |config| McpServer::connect("x", config).await.unwrap_err().to_string();
    let none = McpConfig::program("superstep-no-such-program", []);
    assert_eq!(refused(none).await, "MCP server `x`: program `superstep-no-such-program` not found");
    let dies = McpConfig::program("sh", ["-c", "echo no licence >&2; exec >&-; sleep 0; exit 3"]);
    let died = refused(dies).await;
    assert!(died.starts_with("MCP server `x`: ") && died.ends_with("; its output was: no licence"), "{died}");
    let small = Small::new();
    let mute = McpConfig { start_timeout: Duration::from_millis(300), ..small.with("MUTE", "1") };
    let silent = refused(mute).await;
    assert!(silent.starts_with("MCP server `x`: it did not answer for 300 ms"), "{silent}");
    let error = McpServer::connect("x", McpConfig::http("http://127.0.0.1:1/mcp")).await.unwrap_err();
    assert!(matches!(error, McpError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn the_last_output_of_a_server_is_masked() {
    let variable = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let refused = async |script: &str| {
        let mut config = McpConfig::program("sh", ["-c", script]);
        let Endpoint::Program { env, .. } = &mut config.endpoint else { unreachable!("it is a program") };
        env.insert("TOKEN".into(), "ghp_5ecret".into());
        env.insert("KEY".into(), "key ${CARGO_MANIFEST_DIR}".into());
        McpServer::connect("x", config).await.unwrap_err().to_string()
    };
    let said = refused(r#"echo "bad $TOKEN, $KEY, ${KEY#key }" >&2; exit 3"#).await;
    assert!(said.ends_with("; its output was: bad $TOKEN, $KEY, $CARGO_MANIFEST_DIR"), "{said}");
    let small = Small::new();
    fs::write(small.seen_file().with_extension("unlisted"), "").unwrap();
    let unlisted = McpServer::connect("x", small.with("GREETING", "ghp_5ecret")).await.unwrap_err();
    assert!(unlisted.to_string().ends_with("not now, $GREETING"), "{unlisted}");
    // Also if only its end is in the captured output.
    let end = &variable[variable.len() - 4..];
    for surplus in 1980..2020 {
        let said = refused(&format!(r#"echo "$KEY$TOKEN" >&2; printf %0{surplus}d 0 >&2; exit 3"#)).await;
        let (_, words) = said.split_once("; its output was: ").unwrap();
        let has_secret = words.contains("cret") || words.contains(end);
        assert!(words.ends_with("0000") && !has_secret, "{surplus}: {words}");
    }
}

#[tokio::test]
async fn a_secret_is_hidden_in_every_form_in_which_a_server_prints_it() {
    let secret = "-----BEGIN KEY-----\nMIIabc\"def/ghi=\n-----END KEY-----";
    let small = Small::new();
    let with_secret = |script: &str| {
        let mut config = small.with("GREETING", secret);
        let Endpoint::Program { command, args, .. } = &mut config.endpoint else {
            unreachable!("it is a program")
        };
        let program = std::mem::replace(command, "sh".into());
        *args = [&["-c".to_owned(), script.to_owned(), program], &args[..]].concat();
        config
    };
    let shows = |text: &str| ["MIIabc", "BEGIN", "END"].iter().any(|part| text.contains(part));
    for script in [
        r#"printf '%s' "$GREETING" >&2; exit 3"#,
        // Line by line with a prefix, as JSON, and with a trace.
        r#"echo "$GREETING" | sed 's/^/env: /' >&2; exit 3"#,
        r#"printf '%s\n' '{"key":"-----BEGIN KEY-----\nMIIabc\"def/ghi=\n-----END KEY-----"}' >&2; exit 3"#,
        r#"set -x; TOKEN="$GREETING"; exit 3"#,
        r#"export -p; exit 3"#,
    ] {
        let error = McpServer::connect("x", with_secret(script)).await.unwrap_err();
        let (shown, debug) = (error.to_string(), superstep::error::chain(&error));
        assert!(!shows(&shown) && !shows(&debug), "{script}: {shown}");
    }
    // A server that works nevertheless: lines on its stdout that are no messages are reported.
    let noisy = with_secret(r#"echo "debug: $GREETING"; exec "$0" "$@""#);
    let server = McpServer::connect("small", noisy).await.unwrap();
    let logged = server.logged().join("\n");
    assert!(logged.contains("debug: $GREETING") && !shows(&logged), "{logged}");
}

#[tokio::test]
async fn an_agent_calls_them_like_any_other_tool() {
    let small = Small::new();
    let server = small.connect().await;
    let script = Script::new([
        call_of("c1", "small_say", r#"{"what":"hello"}"#),
        call_of("c2", "small_say", "{}"),
        txt("done"),
    ]);
    let model = ScriptedModel::new(script);
    let agent = Agent::builder(Arc::new(model.clone()))
        .tools(server.tools())
        .config(ReactConfig::graph(5))
        .checkpointer(Arc::new(MemoryCheckpointer::new()))
        .build()
        .unwrap();
    let reply = agent.thread("t").ask("go").await.unwrap();
    assert_eq!(reply.text, "done");
    let state = agent.graph().thread("t").state().await.unwrap().values;
    let results: Vec<String> = state.tool_result_history.iter().cloned().collect();
    assert_eq!(
        results,
        ["hello no key no greeting", "Error: invalid args for 'small_say': `what` is missing"]
    );
    model.check().unwrap();
}
