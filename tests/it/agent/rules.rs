//! Rules about calls are compared with the real targets of the calls.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};
use superstep::{
    agent::{
        Agent, ReactConfig,
        config::{PermissionRule, Permit},
    },
    llm::{Subject, Tool, ToolCx, ToolFuture, ToolSpec, tool},
    tools,
};
use superstep_testing::{
    script::{Script, calls, txt},
    scripted::ScriptedModel,
};

use super::{preset, real};
use crate::support::{Backend, head};

const ASKED: &str = "Error: Permission denied: nobody is there to approve it";
const DENIED: &str = "Error: Permission denied: a rule forbids it";

fn rule(tool: &str, argument: &str, pattern: &str, then: Permit) -> PermissionRule {
    PermissionRule {
        arguments: [(argument.to_owned(), pattern.to_owned())].into(),
        ..PermissionRule::new(tool, then)
    }
}

/// Returns the model's view of these calls.
async fn results(at: &Path, permissions: Vec<PermissionRule>, made: &[(&str, Value)]) -> Vec<String> {
    results_of(tools::all(at, || 0).unwrap(), permissions, made).await
}

async fn results_of(
    tools: Vec<Arc<dyn Tool>>,
    permissions: Vec<PermissionRule>,
    made: &[(&str, Value)],
) -> Vec<String> {
    let ids: Vec<String> = (0..made.len()).map(|number| format!("c{number}")).collect();
    let args: Vec<String> = made.iter().map(|(_, args)| args.to_string()).collect();
    let round = ids.iter().zip(made).zip(&args).map(|((id, (tool, _)), args)| (&**id, *tool, &**args));
    let model = ScriptedModel::new(Script::new([calls(round.collect::<Vec<_>>()), txt("ok")]));
    let agent = Agent::builder(Arc::new(model)).tools(tools);
    let agent = agent.config(ReactConfig { permissions, ..preset() }).checkpointer(Backend::memory().open());
    let agent = agent.build().unwrap();
    agent.thread("t").ask("go").await.unwrap();
    let messages = head(agent.graph()).await.values.messages;
    let result = |id: &String| {
        let answers = messages.iter().find(|message| message.tool_call_id == *id);
        answers.unwrap().content.clone()
    };
    ids.iter().map(result).collect()
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for path in ["docs/deep/a.md", "src/main.rs", "secrets/key"] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "old\n").unwrap();
    }
    dir
}

/// Publishes a page.
#[tool(subject = "path(page in folder)")]
async fn publish(page: String, #[dep] folder: PathBuf) -> String {
    format!("published {page} of {}", folder.display())
}

#[cfg(unix)]
#[test]
fn a_rule_matches_the_subjects_that_a_custom_tool_reports() {
    real(async {
        let dir = place();
        std::os::unix::fs::symlink("secrets", dir.path().join("pages")).unwrap();
        let rules = vec![
            rule("publish", "page", "*/*", Permit::Allow),
            rule("publish", "page", "secrets/*", Permit::Deny),
        ];
        let made = ["pages/key", "./docs/../pages/key", "docs/deep/a.md", "../x/y", "docs/a.md"];
        let made = made.map(|page| ("publish", json!({ "page": page })));
        let results = results_of(vec![publish(dir.path().to_owned())], rules, &made).await;
        assert_eq!(results[..2], [DENIED, DENIED]);
        assert!(results[2].starts_with("published "), "no rule is about it: {}", results[2]);
        assert_eq!(results[3], DENIED, "nobody knows what it is");
        assert!(results[4].starts_with("published "), "{}", results[4]);
    });
}

#[cfg(unix)]
#[test]
fn a_rule_about_paths_is_about_where_they_lead() {
    real(async {
        let dir = place();
        std::os::unix::fs::symlink("../src", dir.path().join("docs/link")).unwrap();
        std::os::unix::fs::symlink("docs", dir.path().join("pages")).unwrap();
        let write = |path: &str| ("write_file", json!({ "path": path, "content": "new\n" }));
        let allow = vec![rule("write_file", "path", "docs/*", Permit::Allow)];
        let made = ["docs/new.md", "pages/other.md", "./docs/x/../third.md"].map(write);
        for result in results(dir.path(), allow.clone(), &made).await {
            assert!(result.starts_with("made 'docs/"), "{result}");
        }
        let absolute = dir.path().join("src/main.rs");
        let paths = [
            "docs/../src/main.rs",
            "docs/link/main.rs",
            "docs/link/new",
            "docs/deep/a.md",
            absolute.to_str().unwrap(),
        ];
        assert_eq!(results(dir.path(), allow.clone(), &paths.map(write)).await, [ASKED; 5]);
        let outside = results(dir.path(), allow, &[write("docs/../../x")]).await;
        assert_eq!(outside, [ASKED]);
        assert_eq!(fs::read_to_string(absolute).unwrap(), "old\n");
    });
}

#[cfg(unix)]
#[test]
fn a_rule_that_denies_is_not_passed_by() {
    real(async {
        let dir = place();
        std::os::unix::fs::symlink("../secrets", dir.path().join("docs/link")).unwrap();
        std::os::unix::fs::symlink("secrets/key", dir.path().join("key")).unwrap();
        let deny = vec![rule("*", "path", "secrets/*", Permit::Deny)];
        let absolute = dir.path().join("secrets/key");
        let paths = [
            "secrets/key",
            "./secrets/key",
            "docs/../secrets/key",
            "docs/link/key",
            "key",
            "secrets//key",
            "secrets/./key",
            absolute.to_str().unwrap(),
        ];
        let read = |path: &str| ("read_file", json!({ "path": path }));
        assert_eq!(results(dir.path(), deny.clone(), &paths.map(read)).await, [DENIED; 8]);
        // Access to a folder includes access to its contents.
        let through = [
            ("search_files", json!({ "pattern": "old" })),
            ("search_files", json!({ "pattern": "old", "path": "secrets" })),
            ("list_files", json!({ "path": "." })),
        ];
        assert_eq!(results(dir.path(), deny.clone(), &through).await, [DENIED; 3]);
        let others = [
            read("src/main.rs"),
            ("search_files", json!({ "pattern": "old", "path": "src" })),
            ("calculate", json!({ "expression": "1+1" })),
        ];
        assert_eq!(results(dir.path(), deny, &others).await, ["1\told", "src/main.rs:1: old", "2"]);
    });
}

#[cfg(unix)]
#[test]
fn a_rule_about_commands_is_about_one_command_if_it_allows_and_about_each_if_it_denies() {
    real(async {
        let dir = place();
        let run = |command: &str| ("shell", json!({ "command": command }));
        let allow = vec![rule("shell", "command", "echo *", Permit::Allow)];
        let ran = results(dir.path(), allow.clone(), &[run("echo a 'b; c'"), run("echo")]).await;
        assert_eq!(ran, ["a b; c\n[exit code 0]", "[no output, exit code 0]"]);
        let more = [
            "echo a; touch x",
            "echo a && touch x",
            "echo $(touch x)",
            "echo `touch x`",
            "echo a > x",
            "echo a\ntouch x",
            "echo a | tee x",
        ];
        assert_eq!(results(dir.path(), allow, &more.map(run)).await, [ASKED; 7]);
        assert!(!dir.path().join("x").exists());
        let deny =
            vec![PermissionRule::new("shell", Permit::Allow), rule("shell", "command", "rm *", Permit::Deny)];
        let hidden = [
            "rm src/main.rs",
            "true; rm src/main.rs",
            "echo $(rm src/main.rs)",
            "/bin/rm src/main.rs",
            "sh -c 'rm src/main.rs'",
        ];
        assert_eq!(results(dir.path(), deny.clone(), &hidden.map(run)).await, [DENIED; 5]);
        assert!(dir.path().join("src/main.rs").exists());
        assert_eq!(results(dir.path(), deny, &[run("printf ok")]).await, ["ok\n[exit code 0]"]);
    });
}

#[test]
fn a_rule_about_addresses_is_about_their_parts() {
    real(async {
        let dir = place();
        let fetch = |url: &str| ("fetch_url", json!({ "url": url }));
        let allow = vec![rule("fetch_url", "url", "http://example.org/*", Permit::Allow)];
        let others = [
            "http://example.org.evil.invalid/",
            "http://127.0.0.1:1/?http://example.org/",
            "https://example.org/",
            "http://example.org:81/",
        ];
        assert_eq!(results(dir.path(), allow, &others.map(fetch)).await, [ASKED; 4]);
        let deny = vec![
            PermissionRule::new("*", Permit::Allow),
            rule("fetch_url", "url", "http://localhost/*", Permit::Deny),
        ];
        let same = ["http://LOCALHOST:1/", "http://localhost./a", "http://loc%61lhost/"];
        assert_eq!(results(dir.path(), deny, &same.map(fetch)).await, [DENIED; 3]);
    });
}

/// A tool that changes a link's target after the check, as another program may.
#[cfg(unix)]
struct Swapping {
    inner: Arc<dyn Tool>,
    at: PathBuf,
}

#[cfg(unix)]
impl Tool for Swapping {
    fn spec(&self) -> &ToolSpec {
        self.inner.spec()
    }

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        self.inner.subject(argument, args)
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        fs::remove_file(&self.at).unwrap();
        std::os::unix::fs::symlink("secrets", &self.at).unwrap();
        self.inner.call(args, cx)
    }
}

#[cfg(unix)]
#[test]
fn the_accessed_resource_is_the_matched_one() {
    real(async {
        for rules in [
            vec![rule("*", "path", "secrets/**", Permit::Deny)],
            vec![PermissionRule::new("*", Permit::Ask), rule("*", "path", "docs/**", Permit::Allow)],
        ] {
            let dir = place();
            let at = dir.path().join("link");
            for (tool, mut args) in [
                ("read_file", json!({})),
                ("write_file", json!({ "content": "new\n" })),
                ("edit_file", json!({ "old": "old", "new": "new" })),
                ("search_files", json!({ "pattern": "old" })),
            ] {
                let name = if tool == "search_files" { "link" } else { "link/key" };
                args["path"] = name.into();
                let _ = fs::remove_file(&at);
                std::os::unix::fs::symlink("docs", &at).unwrap();
                fs::write(dir.path().join("docs/key"), "old\n").unwrap();
                let inner = tools::all(dir.path(), || 0).unwrap();
                let inner = inner.into_iter().find(|known| known.spec().name == tool).unwrap();
                let swapping: Vec<Arc<dyn Tool>> = vec![Arc::new(Swapping { inner, at: at.clone() })];
                let result = results_of(swapping, rules.clone(), &[(tool, args)]).await;
                assert!(result[0].contains("was replaced while it was in use"), "{tool}: {}", result[0]);
            }
            assert_eq!(fs::read_to_string(dir.path().join("secrets/key")).unwrap(), "old\n");
        }
    });
}
