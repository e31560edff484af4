//! The names at the roots of the crates that programs use: a subject has a module.

use std::{collections::BTreeMap, fs};

use super::{imports, root};

/// The names at the root of `superstep`, modules last. A new name belongs to the module of its subject, unless most
/// programs name it.
const SUPERSTEP: &str = "Answers CheckpointId Checkpointer Command CompileError CompiledGraph Cx Durability END Event \
    FailureKind Fatal History Input Interrupt JsonChannels JsonState JsonUpdate Log MemoryCheckpointer MemoryStore \
    NodeError NodeFailure NodeOptions NodeRef OnExisting OnUnfinished Outcome Question ReduceError Reducer Retries RetryPolicy \
    Route RoutingRef RunError RunOptions RunStream START State StateGraph Status Store StreamMode Streaming Thread \
    ThreadId View WorkerRef \
    agent call checkpoint clock convert drawing erased error functional guide llm mcp memory node postgres prelude probe replay restate sealed server sqlite state \
    store stream telemetry thread tools topology worker";

/// The names at the root of `superstep-agent`.
const AGENT: &str = "Agent AgentBuilder AgentError AgentEvent AgentOutcome AgentState AgentThread Approval \
    ExtractError HasAgent ReactConfig Reply ReplyStream SteerError \
    approval config deps facades graph guards hooks presets replay state steer";

/// The names at the root of `superstep-llm`.
const LLM: &str = "AnthropicConfig AnthropicModel ApiKey Assembler Behaviour CacheTime ChatModel Delta FinishReason FnTool GeminiConfig GeminiModel Message MessageData ModelError ModelErrorKind \
    ModelRetry Named OpenAiConfig ModelConfigError OpenAiModel Request Response ResponseStream ResponsesConfig ResponsesModel \
    Role Subject Thinking Timeouts Tool ToolCall ToolCx ToolError ToolFuture ToolRegistry ToolReply ToolSpec Usage complete tool tool_fn \
    auth calls convert http instructions limits media models retries snapshots spill telemetry text timers tokens toolset variables wire";

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// Returns the names that the lines of this indentation export, each as often as it is exported: items of `pub use`
/// and modules.
fn exported(text: &str, indentation: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut hidden = false;
    let lines: Vec<_> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(item) = line.strip_prefix(indentation).filter(|item| !item.starts_with(' ')) else {
            continue;
        };
        if let Some(module) = item.strip_prefix("pub mod ") {
            names.extend((!hidden).then(|| module.trim_end_matches([';', '{', ' ']).to_owned()));
        } else if item.starts_with("pub use ") {
            let rest = lines[at..].join("\n");
            let item = &rest[..=rest.find(';').expect("an import ends")];
            match item.rsplit_once(" as ") {
                Some((_, name)) => names.push(name.trim_end_matches(';').to_owned()),
                None => names
                    .extend(imports(item, "pub use ").into_iter().filter_map(|path| path.last().cloned())),
            }
        }
        hidden = item == "#[doc(hidden)]" || hidden && item.starts_with('#');
    }
    names
}

/// Returns the file of a module at the root of a crate.
fn file_of(krate: &str, module: &str) -> String {
    let src = format!("crates/{krate}/src/{module}");
    if root().join(&src).is_dir() && root().join(&src).join("mod.rs").exists() {
        src + "/mod.rs"
    } else {
        src + ".rs"
    }
}

fn sorted(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut names: Vec<_> = names.into_iter().filter(|name| name != "*").collect();
    // A trait and its derive have one name.
    names.sort();
    names.dedup();
    names
}

fn listed(names: &str) -> Vec<String> {
    sorted(names.split_whitespace().map(str::to_owned))
}

#[test]
fn the_roots_have_what_most_programs_name_and_nothing_else() {
    let graph = exported(&text("crates/graph/src/lib.rs"), "");
    let facade = exported(&text("crates/superstep/src/lib.rs"), "");
    assert_eq!(sorted(graph.into_iter().chain(facade)), listed(SUPERSTEP));
    assert_eq!(sorted(exported(&text("crates/agent/src/lib.rs"), "")), listed(AGENT));
    assert_eq!(sorted(exported(&text("crates/llm/src/lib.rs"), "")), listed(LLM));
}

#[test]
fn every_name_has_one_path() {
    for (krate, modules) in [
        ("graph", &["node", "stream"][..]),
        ("agent", &["approval", "config", "deps", "facades", "graph", "hooks", "presets", "state"]),
        ("state", &[]),
        ("checkpoint", &["store", "text"]),
        ("llm", &["http", "model/limits", "messages/media", "model/timers", "tokens"]),
    ] {
        let lib = text(&format!("crates/{krate}/src/lib.rs"));
        let private = lib.find("#[doc(hidden)]").unwrap_or(lib.len());
        let mut paths: BTreeMap<String, usize> = BTreeMap::new();
        let inner = modules.iter().map(|module| exported(&text(&file_of(krate, module)), ""));
        let inline = exported(&lib[..private], "    ");
        for name in inner.flatten().chain(inline).chain(sorted(exported(&lib, ""))) {
            *paths.entry(name).or_default() += 1;
        }
        paths.retain(|_, count| *count > 1);
        assert!(paths.is_empty(), "`{krate}` exports names at several paths: {paths:?}");
    }
}
