//! Servers that break the protocol, and those that do not end.

use std::{fs, path::Path, sync::Arc, time::Duration};

use serde_json::json;
use superstep::{
    Checkpointer, MemoryCheckpointer,
    agent::{
        Agent, AgentBuilder, ReactConfig,
        replay::{ReplayTools, ToolDifference},
    },
    mcp::{Endpoint, McpConfig, McpServer},
    replay::{At, Replayed},
};
use superstep_testing::{
    script::{Script, call as call_of, txt},
    scripted::ScriptedModel,
};
use tempfile::TempDir;

use super::{
    call,
    notices::{allowed, told},
    tool,
};

const TOOLS: &str = r#"[{"name":"odd","inputSchema":{"type":"object"}}]"#;

/// A server with a configured behaviour, and its folder.
pub(super) struct Odd(TempDir);

impl Odd {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn config(&self, env: &[(&str, &str)]) -> McpConfig {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/mcp/odd.sh");
        let mut config = McpConfig::program("sh", [script]);
        let Endpoint::Program { env: given, .. } = &mut config.endpoint else {
            unreachable!("it is a program")
        };
        let seen = self.seen();
        let all = [("SEEN", seen.to_str().unwrap()), ("TOOLS", TOOLS)];
        given.extend(all.iter().chain(env).map(|(name, value)| (name.to_string(), value.replace('$', "$$"))));
        config
    }

    fn seen(&self) -> std::path::PathBuf {
        self.0.path().join("seen")
    }

    /// Waits until the server has started, and returns the id of its process.
    async fn begun(&self) -> String {
        loop {
            match fs::read_to_string(self.seen()) {
                Ok(id) if id.ends_with('\n') => return id.trim().to_owned(),
                _ => tokio::task::yield_now().await,
            }
        }
    }
}

/// Returns whether a process exists that has not ended.
fn is_there(id: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(id).join("stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
}

/// Returns the result of a call with this answer.
async fn answered(answer: &str) -> Result<String, String> {
    let odd = Odd::new();
    let server = McpServer::connect("odd", odd.config(&[("ANSWER", answer)])).await.unwrap();
    call(&server, "odd_odd", json!({})).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_server_is_the_leader_of_a_session_without_a_terminal() {
    let odd = Odd::new();
    let server = McpServer::connect("odd", odd.config(&[])).await.unwrap();
    let id = odd.begun().await;
    let stat = fs::read_to_string(Path::new("/proc").join(&id).join("stat")).unwrap();
    // After the name: the state, the parent, the group, the session, the terminal.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!(fields[2..5], [&*id, &*id, "0"], "{stat}");
    drop(server);
}

#[tokio::test]
async fn one_tool_that_cannot_be_used_does_not_cost_the_others() {
    let odd = Odd::new();
    let tools = r#"[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":null},7,
        {"name":"c","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"maybe"},"icons":3}]"#;
    let tools = tools.replace('\n', " ");
    let config = odd.config(&[("TOOLS", &tools)]);
    let server = McpServer::connect("odd", config.clone()).await.unwrap();
    let names: Vec<String> = server.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["odd_a", "odd_c"]);
    assert!(tool(&server, "odd_c").approval(&json!({})).is_some(), "it does not say that it only reads");
    let wanted = [
        "[warning] tool `b` cannot be used: its `inputSchema` is not an object\n",
        "[warning] tool `null` cannot be used: its `name` is not a text\n",
    ];
    assert_eq!(server.logged(), wanted);
    // A configuration that names it requires it; one that names others ignores it.
    let naming = |name: &str| McpConfig { tools: Some(vec![name.to_owned()]), ..config.clone() };
    let error = McpServer::connect("odd", naming("b")).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "MCP server `odd` does not list its tools: tool `b` cannot be used: its `inputSchema` is not an object"
    );
    let server = McpServer::connect("odd", naming("c")).await.unwrap();
    assert_eq!((server.tools().len(), server.logged().len()), (1, 0));
}

#[tokio::test]
async fn an_invalid_response_is_an_error_result_at_once() {
    let unreadable = |why: &str| {
        Err(format!(
            "the answer of the MCP server `odd` cannot be read ({why}); the outcome of this call is unknown, check before \
             repeating it"
        ))
    };
    let results = [
        ("{}", Ok("[the server returned no content]")),
        (r#"{"content":null}"#, Ok("[the server returned no content]")),
        (
            r#"{"content":[{"type":"hologram","data":"x"}]}"#,
            Ok("[content of kind `hologram` that cannot be read, 30 bytes of JSON, not shown]"),
        ),
        (r#"{"content":"x"}"#, Ok("x")),
        (r#"{"content":7}"#, Err("the server returned what is not a result of a tool: {\"content\":7}")),
        ("null", Err("the server returned what is not a result of a tool: null")),
        (r#"{"tools":[],"messages":[],"action":"accept"}"#, Ok("[the server returned no content]")),
    ];
    for (result, wanted) in results {
        let said = answered(&format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{result}}}"#)).await;
        assert_eq!(said.as_ref().map(String::as_str).map_err(String::as_str), wanted, "{result}");
    }
    let text =
        answered(r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\377!"}]}}"#).await;
    let wanted = "\u{fffd}!\n[the server sent bytes that are not UTF-8; \u{fffd} stands in their place]";
    assert_eq!(text.unwrap(), wanted);
    assert_eq!(
        answered(r#"{"jsonrpc":"2.0","id":ID}"#).await,
        unreadable("it has neither a result nor an error")
    );
    let cut = answered(r#"{"jsonrpc":"2.0","id":ID,"result":{"content":["#).await;
    assert_eq!(cut, unreadable("EOF while parsing a list at line 2 column 0"));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{}{}}}"#, "[".repeat(300), "]".repeat(300));
    let said = answered(&deep).await.unwrap_err();
    assert!(said.contains("cannot be read (recursion limit exceeded at line 1 column "), "{said}");
}

#[tokio::test]
async fn a_too_large_response_is_dropped_and_the_next_one_is_read() {
    let odd = Odd::new();
    let flood = [("FLOOD", "9000000"), ("ANSWER", r#""}]},"id":ID}"#)];
    let server = McpServer::connect("odd", odd.config(&flood)).await.unwrap();
    for _ in 0..2 {
        let said = call(&server, "odd_odd", json!({})).await.unwrap_err().to_string();
        assert!(said.contains("cannot be read (it has more than 8388608 bytes)"), "{said}");
    }
}

#[tokio::test]
async fn a_program_that_ignores_the_end_of_its_input_is_killed_on_every_exit() {
    let stubborn = async |start: &str, tools: &str| {
        let odd = Odd::new();
        let config = odd.config(&[("STUBBORN", "1"), ("START", start), ("TOOLS", tools)]);
        // The limit is short only for a program that never answers, but long enough for it to begin.
        let limit = if start == "mute" { Duration::from_secs(5) } else { config.start_timeout };
        let config = McpConfig { start_timeout: limit, ..config };
        let served = McpServer::connect("odd", config).await;
        (served, odd.begun().await, odd)
    };
    let refused = async |start: &str, tools: &str| {
        let (served, id, _odd) = stubborn(start, tools).await;
        let error = served.unwrap_err();
        assert!(!is_there(&id), "{error}");
    };
    let closed = async {
        let (served, id, _odd) = stubborn("", TOOLS).await;
        served.unwrap().close().await;
        assert!(!is_there(&id));
    };
    let dropped = async {
        let (served, id, _odd) = stubborn("", TOOLS).await;
        drop(served.unwrap());
        while is_there(&id) {
            tokio::task::yield_now().await;
        }
    };
    let left = async {
        let odd = Odd::new();
        let config = odd.config(&[("STUBBORN", "1"), ("START", "mute")]);
        let id = tokio::select! {
            _ = McpServer::connect("odd", config) => panic!("it says nothing"),
            id = odd.begun() => id,
        };
        while is_there(&id) {
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(refused("mute", TOOLS), refused("broken", TOOLS), refused("", "7"), closed, dropped, left);
}

#[test]
fn a_program_dies_with_the_runtime_that_it_was_started_in() {
    let odd = Arc::new(Odd::new());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let id = runtime.block_on(async {
        let server = McpServer::connect("odd", odd.config(&[("STUBBORN", "1")])).await.unwrap();
        drop(server);
        odd.begun().await
    });
    drop(runtime);
    while is_there(&id) {
        std::thread::yield_now();
    }
}

/// Returns a list of tools in a server's form.
fn list_of(tools: &[(&str, &str)]) -> String {
    let tool = |(name, about): &(&str, &str)| {
        format!(r#"{{"name":"{name}","description":"{about}","inputSchema":{{"type":"object"}}}}"#)
    };
    format!("[{}]", tools.iter().map(tool).collect::<Vec<_>>().join(","))
}

const DONE: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"done"}]}}"#;

/// Agents with one store, whose server has different lists.
struct Agents {
    odd: Odd,
    store: Arc<MemoryCheckpointer>,
}

impl Agents {
    fn new() -> Self {
        Self { odd: Odd::new(), store: Arc::default() }
    }

    async fn server(&self, tools: &[(&str, &str)]) -> Arc<McpServer> {
        let config = self.odd.config(&[("ANSWER", DONE), ("TOOLS", &list_of(tools))]);
        Arc::new(McpServer::connect("odd", config).await.unwrap())
    }

    fn bare(&self) -> AgentBuilder {
        let model = ScriptedModel::new(Script::new([call_of("c1", "odd_a", "{}"), txt("ok")]));
        let config = ReactConfig { permissions: allowed(), ..ReactConfig::graph(5) };
        Agent::builder(Arc::new(model)).checkpointer(self.store.clone()).config(config)
    }

    async fn having(&self, tools: &[(&str, &str)]) -> AgentBuilder {
        self.bare().tool_source(self.server(tools).await)
    }
}

const THEN: [(&str, &str); 3] = [("a", "one"), ("b", "two"), ("c", "three")];
const NOW: [(&str, &str); 3] = [("a", "one"), ("b", "second"), ("d", "four")];

async fn replayed(agent: AgentBuilder) -> Replayed {
    agent.build().unwrap().graph().thread("t").replay().run().await.unwrap()
}

#[tokio::test]
async fn a_replay_has_the_tools_that_were_recorded_or_names_those_that_are_others_now() {
    let agents = Agents::new();
    let first = agents.having(&THEN).await.build().unwrap();
    for _ in 0..2 {
        first.thread("t").ask("go").await.unwrap();
    }
    let current = async |tools| replayed(agents.having(tools).await.replay_tools(ReplayTools::Current)).await;
    current(&THEN).await.assert_same();
    replayed(agents.having(&NOW).await).await.assert_same();
    // First without the called tool, and then without a server.
    replayed(agents.having(&[]).await).await.assert_same();
    replayed(agents.bare()).await.assert_same();

    let found = current(&NOW).await.divergence.expect("the tools are others");
    assert_eq!((found.node.as_str(), found.at), ("agent", At::Effect("tools".to_owned())));
    let wanted = json!({"added": ["odd_d"], "changed": ["odd_b"], "removed": ["odd_c"]});
    assert_eq!((found.expected, found.got), (json!(null), wanted));
    let state = first.graph().thread("t").state().await.unwrap().values;
    let difference = ToolDifference::of(&state, &agents.server(&NOW).await.tools()).unwrap();
    assert_eq!(difference.to_string(), "added `odd_d`; changed `odd_b`; removed `odd_c`");
    assert_eq!(ToolDifference::of(&state, &agents.server(&THEN).await.tools()), None);
}

#[tokio::test]
async fn a_thread_that_is_recorded_again_with_the_tools_of_now_has_them() {
    let agents = Agents::new();
    agents.having(&THEN).await.build().unwrap().thread("t").ask("go").await.unwrap();
    let now = agents.having(&NOW).await.replay_tools(ReplayTools::Current).build().unwrap();
    let target = Arc::new(MemoryCheckpointer::new());
    now.graph().thread("t").replay().rerecord(target.clone()).await.unwrap();
    // Also for a program that does not ask for the tools of now.
    replayed(agents.having(&[]).await.checkpointer(target.clone())).await.assert_same();
    let current = agents.having(&NOW).await.replay_tools(ReplayTools::Current);
    replayed(current.checkpointer(target)).await.assert_same();
}

#[tokio::test]
async fn a_list_of_tools_is_stored_once_for_each_change() {
    let agents = Agents::new();
    for tools in [&THEN, &THEN, &NOW] {
        let agent = agents.having(tools).await.build().unwrap();
        agent.thread("t").ask("go").await.unwrap();
    }
    let head = agents.store.load(&"t".into(), None).await.unwrap().unwrap();
    let stored: String = head.commits.iter().flatten().map(|update| update.to_string()).collect();
    let times = |text: &str| stored.matches(text).count();
    assert_eq!((times("three"), times("four"), times("second")), (1, 1, 1), "{stored}");
    // The lists of both are offered again.
    replayed(agents.having(&[]).await).await.assert_same();
}

#[tokio::test]
async fn a_thread_that_recorded_no_list_is_replayed_with_the_tools_of_now() {
    let agents = Agents::new();
    // Like threads of older programs, it has none.
    let recorded = agents.bare().tools(agents.server(&THEN).await.tools()).build().unwrap();
    recorded.thread("t").ask("go").await.unwrap();
    let state = recorded.graph().thread("t").state().await.unwrap().values;
    assert_eq!(ToolDifference::of(&state, &agents.server(&NOW).await.tools()), None);
    replayed(agents.having(&THEN).await).await.assert_same();
    let found = replayed(agents.having(&NOW).await).await.divergence.expect("the tools are others");
    assert_eq!((found.node.as_str(), found.at), ("agent", At::Effect("model".to_owned())));
}

#[tokio::test]
async fn a_servers_questions_to_the_user_are_declined_and_reported() {
    let odd = Odd::new();
    let server = McpServer::connect("odd", odd.config(&[("ASKS", "Which account?")])).await.unwrap();
    let (text, told) = told(&server, "odd_odd").await;
    let wanted =
        ["[warning] the server asks the user, which is declined (there is no user to answer it): $ASKS\n"];
    assert_eq!((text.as_str(), told.as_slice()), ("declined", &wanted.map(str::to_owned)[..]));
}
