//! Rules of the whole repository that no compiler checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use serde::Deserialize;

mod book;
mod circles;
mod impls;
mod lists;
mod packages;
mod roots;
mod words;

/// The crates of this workspace that each crate may depend on: the table of `docs/architecture.md`.
const ROOMS: [(&str, &[&str]); 22] = [
    ("superstep-engine", &[]),
    ("superstep-macros", &[]),
    ("superstep-state", &["superstep-engine"]),
    ("superstep-checkpoint", &["superstep-engine", "superstep-state"]),
    ("superstep-sqlite", &["superstep-checkpoint", "superstep-state"]),
    ("superstep-postgres", &["superstep-checkpoint", "superstep-state"]),
    ("superstep-sealed", &["superstep-checkpoint", "superstep-state", "superstep-engine"]),
    ("superstep-graph", &["superstep-engine", "superstep-state", "superstep-checkpoint", "superstep-macros"]),
    ("superstep-llm", &["superstep-macros"]),
    ("superstep-tools", &["superstep-llm"]),
    ("superstep-agent", &["superstep-graph", "superstep-llm"]),
    (
        "superstep-memory",
        &["superstep-agent", "superstep-graph", "superstep-checkpoint", "superstep-llm", "superstep-tools"],
    ),
    ("superstep-mcp", &["superstep-llm"]),
    ("superstep-acp", &[]),
    ("superstep-worker", &["superstep-graph", "superstep-postgres"]),
    ("superstep-restate", &["superstep-graph", "superstep-checkpoint", "superstep-state"]),
    ("superstep-server", &["superstep-graph", "superstep-llm", "superstep-worker"]),
    ("superstep-telemetry", &["superstep-llm"]),
    ("superstep-testing", &["superstep-graph", "superstep-llm", "superstep-agent"]),
    (
        "superstep",
        &[
            "superstep-graph",
            "superstep-llm",
            "superstep-macros",
            "superstep-tools",
            "superstep-agent",
            "superstep-memory",
            "superstep-mcp",
            "superstep-sqlite",
            "superstep-postgres",
            "superstep-sealed",
            "superstep-worker",
            "superstep-restate",
            "superstep-server",
            "superstep-telemetry",
        ],
    ),
    ("superstep-session", &["superstep"]),
    ("superstep-cli", &["superstep", "superstep-session", "superstep-acp", "superstep-server"]),
];

/// The dependencies that only certain crates may have.
const SECRETS: [(&str, &[&str]); 11] = [
    ("async-openai", &["superstep-llm"]),
    ("rusqlite", &["superstep-sqlite"]),
    ("tokio-postgres", &["superstep-postgres"]),
    ("graphile_worker", &["superstep-worker"]),
    ("restate-sdk", &["superstep-restate"]),
    ("chacha20poly1305", &["superstep-sealed"]),
    ("petgraph", &["superstep-engine"]),
    ("rpds", &["superstep-state"]),
    ("rmcp", &["superstep-mcp"]),
    ("tokenizers", &["superstep-memory"]),
    ("opentelemetry_sdk", &["superstep-telemetry"]),
];

/// The folders of a crate, lowest first: each uses those before it. Files next to the folders are below all of
/// them, unless they are listed.
const FOLDERS: [(&str, &[&str]); 16] = [
    ("graph", &["stream", "journal", "node", "compiled", "run", "builder", "api"]),
    (
        "agent",
        &[
            "permissions",
            "config",
            "state",
            "repair",
            "approval",
            "events",
            "hooks",
            "guards",
            "deps",
            "context",
            "nodes",
            "graph",
            "agent",
            "presets",
            "facades",
        ],
    ),
    (
        "llm",
        &[
            "texts",
            "http",
            "messages",
            "models",
            "tools",
            "tokens",
            "model",
            "text_calls",
            "exchange",
            "openai",
            "responses",
            "anthropic",
            "gemini",
        ],
    ),
    ("memory", &["said", "stored", "memory_tools", "embeddings", "files", "mem0", "history", "dream"]),
    ("tools", &["folders", "calculate", "web", "workspace", "shell", "snapshots", "instructions", "all"]),
    (
        "testing",
        &[
            "expectations",
            "script",
            "provider",
            "progress",
            "expect",
            "scripted",
            "wire",
            "cassette",
            "nodes",
            "transcript",
            "fixture",
            "property",
            "sim",
            "conformance",
            "proof",
            "replays",
            "hostile",
            "mem0",
        ],
    ),
    ("checkpoint", &["store", "memory", "text"]),
    ("sqlite", &["locks", "open", "store", "sqlite"]),
    ("postgres", &["store"]),
    ("restate", &["storage", "remote", "wire", "journaled", "service", "endpoint", "client"]),
    ("sealed", &["values", "checkpointer", "store"]),
    ("worker", &["queue", "jobs", "new_job", "schedule", "stored_schedules", "attempt", "worker", "running"]),
    (
        "server",
        &["wire", "access", "rows", "events", "agui", "thread", "runs", "api", "studio", "door", "server"],
    ),
    ("session", &["offline", "config", "turn", "live"]),
    (
        "acp",
        &["wire", "stream", "transport", "message", "client", "requests", "turns", "handler", "connection"],
    ),
    ("cli", &["output", "graphs", "session", "inspect", "acp", "chat", "args", "commands", "program"]),
];

const MAX_FILE_LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap()
}

/// Returns the metadata with all dependencies of this machine's platform.
fn metadata_of_all() -> Metadata {
    let version = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let options = ["--locked", "--filter-platform", host].map(str::to_owned);
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).other_options(options).exec().unwrap()
}

#[test]
fn every_crate_depends_only_on_the_crates_of_its_table_row() {
    let metadata = metadata();
    let rows: BTreeMap<_, _> = ROOMS.into_iter().collect();
    let mut found = BTreeSet::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let allowed = rows.get(name).unwrap_or_else(|| panic!("`{name}` has no row in the table of crates"));
        found.insert(name);
        assert_eq!(
            package.manifest_path.parent().and_then(|folder| folder.file_name()),
            Some(name.rsplit('-').next().unwrap()),
            "a folder is named by the last word of its package"
        );
        let ours = package.dependencies.iter().filter(|dependency| {
            dependency.kind == DependencyKind::Normal && dependency.name.starts_with("superstep")
        });
        for dependency in ours {
            assert!(
                allowed.contains(&dependency.name.as_str()),
                "`{name}` may not depend on `{}`",
                dependency.name
            );
        }
        for (secret, keepers) in SECRETS {
            let knows = package
                .dependencies
                .iter()
                .any(|dependency| dependency.kind == DependencyKind::Normal && dependency.name == secret);
            assert!(!knows || keepers.contains(&name), "`{name}` may not know `{secret}`");
        }
    }
    assert_eq!(found, rows.keys().copied().collect(), "the table has a row for a crate that is not there");
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    for (name, allowed) in ROOMS {
        let short = |name: &str| name.strip_prefix("superstep-").unwrap_or(name).to_owned();
        let cells = allowed.iter().map(|name| short(name)).collect::<Vec<_>>().join(", ");
        let cells = if cells.is_empty() { "—".to_owned() } else { cells };
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", short(name))));
        let row = row.unwrap_or_else(|| panic!("docs/architecture.md has no row for `{name}`"));
        assert!(
            row.ends_with(&format!("| {cells} |")),
            "docs/architecture.md says otherwise of `{name}`: {row}"
        );
    }
}

#[test]
fn every_folder_of_a_crate_uses_only_the_folders_below_it() {
    for (name, folders) in FOLDERS {
        let src = format!("crates/{name}/src");
        let height = |folder: &str| folders.iter().position(|known| *known == folder);
        let roots = ["lib.rs", "main.rs"];
        let lib =
            roots.iter().find_map(|file| fs::read_to_string(root().join(&src).join(file)).ok()).unwrap();
        // The modules of the names that the crate exports: `pub use node::cx::Cx;` is of `node`.
        let mut exported = BTreeMap::new();
        for path in imports(&lib, "pub use ") {
            if let [folder, .., item] = &path[..]
                && let Some(height) = height(folder)
            {
                exported.insert(item.clone(), height);
            }
        }
        // The modules that only group names for users.
        let groups: Vec<_> = lib
            .lines()
            .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(" {"))
            .filter(|group| !group.starts_with('_'))
            .collect();
        let mut upward = Vec::new();
        for (file, text) in sources(&src) {
            let inside = file.strip_prefix(root().join(&src)).unwrap();
            let own = inside.iter().next().and_then(|name| height(name.to_str()?.trim_end_matches(".rs")));
            let code = without_tests(&text);
            let paths = imports(&code, "use crate::").into_iter().chain(inline(&code));
            for path in paths.filter(|_| !roots.iter().any(|root| inside == Path::new(root))) {
                let used = height(&path[0]).or_else(|| exported.get(&path[0]).copied());
                if used > own || groups.contains(&path[0].as_str()) {
                    upward.push(format!("{} uses {}", inside.display(), path.join("::")));
                }
            }
        }
        assert!(upward.is_empty(), "a folder uses one above it:\n{}", upward.join("\n"));
    }
}

/// Returns the code without the items of tests.
fn without_tests(code: &str) -> String {
    let (mut kept, mut lines) = (String::new(), code.lines());
    while let Some(line) = lines.next() {
        let indentation = &line[..line.len() - line.trim_start().len()];
        if !["#[cfg(test)]", "#[cfg(all(test,"].iter().any(|begin| line.trim_start().starts_with(begin)) {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let end = format!("{indentation}}}");
        let item = lines.by_ref().find(|line| !line.trim_start().starts_with("#["));
        if item.is_some_and(|item| !item.ends_with([';', ',', '}'])) {
            lines.by_ref().find(|line| line.starts_with(&end));
        }
    }
    kept
}

/// Returns the paths of the `use` items with this beginning, with groups expanded.
fn imports(code: &str, begin: &str) -> Vec<Vec<String>> {
    fn flatten(before: &[String], tree: &str, into: &mut Vec<Vec<String>>) {
        let Some((path, group)) = tree.split_once('{') else {
            let names = tree.split("::").map(|name| name.split(" as ").next().unwrap().trim().to_owned());
            return into.push(before.iter().cloned().chain(names).collect());
        };
        let group = group.trim_end().strip_suffix('}').expect("a group is closed");
        let path = path.trim_end_matches("::").split("::").filter(|name| !name.is_empty());
        let before: Vec<_> = before.iter().cloned().chain(path.map(|name| name.trim().to_owned())).collect();
        let (mut depth, mut start) = (0, 0);
        for (at, sign) in group.char_indices().chain([(group.len(), ',')]) {
            match sign {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    let one = group[start..at].trim();
                    if !one.is_empty() {
                        flatten(&before, one, into);
                    }
                    start = (at + 1).min(group.len());
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    let starts = code.match_indices(begin).filter(|(at, _)| *at == 0 || code[..*at].ends_with(['\n', ' ']));
    for (at, _) in starts {
        let item = &code[at + begin.len()..];
        flatten(&[], &item[..item.find(';').expect("an import ends")], &mut found);
    }
    found
}

/// Returns the paths `crate::…` in code, except the groups of `use` items.
fn inline(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for (at, begin) in line.match_indices("crate::").filter(|(at, _)| !line[..*at].ends_with('$')) {
            let rest = &line[at + begin.len()..];
            let end = rest.find(|sign: char| !sign.is_alphanumeric() && !matches!(sign, '_' | ':'));
            let path = rest[..end.unwrap_or(rest.len())].split("::").filter(|name| !name.is_empty());
            let path: Vec<_> = path.map(str::to_owned).collect();
            found.extend(Some(path).filter(|path| !path.is_empty()));
        }
    }
    found
}

#[test]
fn the_engine_knows_no_runtime_no_json_no_clock_and_no_randomness() {
    let metadata = metadata();
    let engine =
        metadata.workspace_packages().into_iter().find(|package| package.name == "superstep-engine").unwrap();
    let names: BTreeSet<_> = engine
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .map(|dependency| dependency.name.as_str())
        .collect();
    assert_eq!(names, BTreeSet::from(["petgraph", "serde", "thiserror"]));
    for (path, text) in sources("crates/engine/src") {
        for word in
            ["async ", "std::time::Instant", "SystemTime", "HashMap", "HashSet", "std::fs", "std::net"]
        {
            assert!(!text.contains(word), "{} has `{word}`", path.display());
        }
    }
}

#[test]
fn no_source_file_is_longer_than_a_reader_can_hold() {
    for folder in ["crates", "tests", "examples"] {
        for (path, text) in sources(folder) {
            let lines = text.lines().count();
            assert!(
                lines <= MAX_FILE_LINES,
                "{} has {lines} lines; what is its second idea?",
                path.display()
            );
        }
    }
}

/// Callers that match error kinds must expect more of them: see `docs/DESIGN.md`.
#[test]
fn every_error_may_gain_kinds() {
    for (path, text) in sources("crates") {
        let lines: Vec<_> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let name = line.strip_prefix("pub enum ").and_then(|rest| rest.split([' ', '<']).next());
            let is_error = name.is_some_and(|name| name.ends_with("Error") || name.ends_with("ErrorKind"));
            let may_grow = lines[..at]
                .iter()
                .rev()
                .take_while(|line| line.starts_with("#["))
                .any(|line| *line == "#[non_exhaustive]");
            assert!(!is_error || may_grow, "{}: `{line}` has to be `#[non_exhaustive]`", path.display());
        }
    }
}

/// An example's first page contains its command; cargo rejects one without a required feature.
#[test]
fn every_example_declares_its_features() {
    let words = |value: Option<&toml::Value>| -> BTreeSet<String> {
        let words = value.and_then(toml::Value::as_array).into_iter().flatten();
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut listed = BTreeSet::new();
    for package in ["superstep", "cli"] {
        let text = fs::read_to_string(root().join(format!("crates/{package}/Cargo.toml"))).unwrap();
        let manifest: toml::Table = toml::from_str(&text).unwrap();
        let default = words(manifest.get("features").and_then(|features| features.get("default")));
        for example in manifest["example"].as_array().unwrap() {
            let name = example["name"].as_str().unwrap();
            let needs: Vec<_> =
                words(example.get("required-features")).difference(&default).cloned().collect();
            let features =
                if needs.is_empty() { String::new() } else { format!("--features {} ", needs.join(",")) };
            let package = manifest["package"]["name"].as_str().unwrap();
            let command = format!("cargo run -p {package} {features}--example {name}`\n");
            let file = root().join(format!("examples/{name}.rs"));
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains(&command), "{} does not say `{command}", file.display());
            listed.insert(file);
        }
    }
    assert_eq!(sources("examples").into_iter().map(|(file, _)| file).collect::<BTreeSet<_>>(), listed);
}

#[test]
fn the_top_level_has_only_the_listed_entries() {
    let known: BTreeSet<_> = [
        "Cargo.lock",
        "Cargo.toml",
        "CHANGELOG.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "clippy.toml",
        "crates",
        "deny.toml",
        "docs",
        "examples",
        "justfile",
        "rustfmt.toml",
        "target",
        "tests",
    ]
    .into();
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name.starts_with('.') || known.contains(name.as_str()),
            "`{name}` does not belong at the top level"
        );
    }
}

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
}

#[test]
fn every_linked_crate_has_an_allowed_licence_and_is_from_the_registry() {
    let deny: Deny = toml::from_str(&fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap();
    let allowed: Vec<spdx::Licensee> =
        deny.licenses.allow.iter().map(|name| spdx::Licensee::parse(name).unwrap()).collect();
    for package in metadata_of_all().packages {
        let (name, source) =
            (package.name.as_str(), package.source.as_ref().map(|source| source.repr.as_str()));
        assert!(!deny.bans.deny.iter().any(|ban| ban.name == name), "`{name}` is banned, see deny.toml");
        let registry = source.is_none_or(|source| source.starts_with("registry+"));
        assert!(registry, "`{name}` comes from {source:?}, not from the registry");
        let text = package.license.as_deref().unwrap_or_else(|| panic!("`{name}` states no licence"));
        let expression = spdx::Expression::parse_mode(text, spdx::ParseMode::LAX).unwrap();
        let fits =
            expression.evaluate(|required| allowed.iter().any(|licensee| licensee.satisfies(required)));
        assert!(fits, "the licence of `{name}`, {text}, is not among those of deny.toml");
    }
}

pub(crate) fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // Links of crates to the guides and examples are for their tarballs.
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// An option that an agent's handle lacks would return the handle of its graph, which runs turns differently.
#[test]
fn handles_of_agents_have_all_options_of_threads() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let names = |code: &str| -> BTreeSet<String> {
        let starts = code.split("pub fn ").skip(1);
        starts.map(|rest| rest.split(['(', '<']).next().unwrap_or_default().to_owned()).collect()
    };
    let options = read("crates/graph/src/node/run_options.rs");
    let options = options.split_once("macro_rules! run_options").expect("the options are a macro").1;
    let options = names(options.split_once("\n}\n").expect("a macro ends").0);
    let agents = read("crates/agent/src/agent/thread.rs");
    let agents = agents.split_once("    options_of_thread! {").expect("the agent's options are a list").1;
    let agents = agents.split_once("\n    }").expect("a list ends").0.lines();
    let agents: BTreeSet<String> =
        agents.filter_map(|line| Some(line.trim().split_once(['(', '<'])?.0.to_owned())).collect();
    assert!(options.len() > 15 && options.contains("input_id"), "{options:?}");
    assert_eq!(options.difference(&agents).collect::<Vec<_>>(), [] as [&String; 0]);
}

/// `main` prints the `Debug` form of the error that it returns.
#[test]
fn the_debug_form_of_a_public_error_is_its_message() {
    // What is wrong with a graph, and the stored failure of a hook: parts of other data.
    let parts = ["ProblemKind", "HookFailure"];
    let mut problems = Vec::new();
    for (path, text) in sources("crates") {
        let lines: Vec<_> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let item = line.strip_prefix("pub enum ").or_else(|| line.strip_prefix("pub struct "));
            let name = item.and_then(|rest| rest.split(|sign: char| !sign.is_alphanumeric()).next());
            let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
            let derives: String = attributes.filter(|line| line.starts_with("#[derive(")).copied().collect();
            let Some(name) =
                name.filter(|name| name.ends_with("Error") || derives.contains("thiserror::Error"))
            else {
                continue;
            };
            let own = ["debug_by_chain!(", "fmt::Debug for "].iter().any(|begin| {
                let found = text.match_indices(begin).map(|(at, begin)| &text[at + begin.len()..]);
                found.filter_map(|rest| rest.strip_prefix(name)).any(|rest| rest.starts_with([')', ' ']))
            });
            if !parts.contains(&name) && (derives.contains("Debug") || !own) {
                problems.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(problems.is_empty(), "use `debug_by_chain!`: {problems:#?}");
}
