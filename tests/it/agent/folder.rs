//! The folder of a turn, shared by its tools, rules, questions, snapshots and long results.

use std::{
    fs,
    future::ready,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use superstep::{
    Answers, RunOptions, State, ThreadId,
    agent::{
        Agent, AgentBuilder, AgentOutcome, AgentState, Approval, ReactConfig,
        approval::{ApprovalRequest, StoredDecision, Trust},
        config::{PermissionRule, Permit, Truncate},
        deps::SubAgent,
        facades::{
            FacadeError,
            harness::{AgentLoop, TurnResult},
        },
    },
    error::chain,
    llm::{Tool, ToolCx, ToolSpec, tool_fn},
    thread::AsNode,
    tools::{self, FileSnapshots, RESULTS, SpillFiles, Workspace},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};
use tempfile::TempDir;

use super::preset;
use crate::support::{Backend, head, t};

/// Several folders, and an agent whose tools were made for `home`.
struct Places {
    dir: TempDir,
    backend: Backend,
}

impl Places {
    fn new(backend: Backend) -> Self {
        let places = Self { dir: tempfile::tempdir().unwrap(), backend };
        for (folder, name) in [("home", "home"), ("one", "one"), ("two", "two")] {
            fs::create_dir_all(places.at(folder).join("docs")).unwrap();
            fs::write(places.at(folder).join("name"), name).unwrap();
        }
        places
    }

    /// Returns a folder's canonical path.
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }

    /// Creates an agent as in a new process.
    fn agent(&self, answers: impl IntoIterator<Item = Answer>, rules: &[PermissionRule]) -> AgentBuilder {
        let home = Workspace::open(&self.at("home")).unwrap();
        let config = ReactConfig { permissions: rules.to_vec(), ..preset() };
        Agent::builder(Arc::new(ScriptedModel::new(Script::new(answers))))
            .tools(tools::all(home.root(), || 0).unwrap())
            .snapshots(Arc::new(FileSnapshots::new(&home).unwrap()))
            .config(config)
            .checkpointer(self.backend.open())
            .approve_by_interrupt()
    }

    fn both() -> [Self; 2] {
        [Self::new(Backend::memory()), Self::new(Backend::sqlite())]
    }
}

/// Creates the loop of the preset `harness` around an agent.
fn harness(agent: AgentBuilder) -> AgentLoop<String> {
    let context = |msg: &String, history: &[Value]| {
        ready(Ok([history, &[json!({"role": "user", "content": msg})]].concat()))
    };
    AgentLoop::new(agent, context, |_| ready(Ok(())), |_, _| {}).unwrap()
}

async fn run_in(
    agent: &AgentLoop<String>,
    folder: &Path,
    config: RunOptions,
) -> Result<TurnResult, FacadeError> {
    agent.run_with(&"go".to_owned(), &[], config.context(json!({ "cwd": folder }))).await
}

fn allow(tool: &str) -> PermissionRule {
    PermissionRule::new(tool, Permit::Allow)
}

fn about(tool: &str, path: &str, then: Permit) -> PermissionRule {
    let arguments = [("path".to_owned(), path.to_owned())].into();
    PermissionRule { arguments, ..PermissionRule::new(tool, then) }
}

fn write(id: &str, path: &str) -> Answer {
    call(id, "write_file", &json!({ "path": path, "content": "new\n" }).to_string())
}

/// Returns the model's text of each call.
fn results(turn: &TurnResult) -> Vec<String> {
    let tools = turn.messages.iter().filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_tool_works_in_the_folder_of_the_turn() {
    #[derive(schemars::JsonSchema, serde::Deserialize)]
    struct Nothing {}
    let places = Places::new(Backend::memory());
    let own = tool_fn(ToolSpec::of::<Nothing>("own", ""), |Nothing {}: Nothing, cx: ToolCx| async move {
        Ok(cx.extension::<Value>()?["cwd"].to_string())
    });
    let all = calls([
        ("c1", "read_file", r#"{"path":"name"}"#),
        ("c2", "list_files", "{}"),
        ("c3", "search_files", r#"{"pattern":"o"}"#),
        ("c4", "write_file", r#"{"path":"docs/new","content":"x"}"#),
        ("c5", "edit_file", r#"{"path":"name","old":"one","new":"edited"}"#),
        ("c6", "shell", r#"{"command":"pwd -P; cat name"}"#),
        ("c7", "shell", r#"{"command":"pwd -P","cwd":"docs"}"#),
        ("c8", "read_file", r#"{"path":"../home/name"}"#),
        ("c9", "own", "{}"),
    ]);
    let again = call("d1", "read_file", r#"{"path":"name"}"#);
    let builder = places.agent([all, txt("ok"), again, txt("ok")], &[allow("*")]);
    let agent = harness(builder.tools([Arc::new(own) as Arc<dyn Tool>]));
    let one = places.at("one");
    let turn = run_in(&agent, &one, t()).await.unwrap();
    let (one, outside) = (one.display(), "outside the workspace root; use a path below it");
    assert_eq!(
        results(&turn),
        [
            "1\tone".to_owned(),
            "name".to_owned(),
            "name:1: one".to_owned(),
            "made 'docs/new': 1 line".to_owned(),
            "edited 'name' at line 1: 1 line became 1 line".to_owned(),
            format!("{one}\nedited\n[exit code 0]"),
            format!("{one}/docs\n[exit code 0]"),
            format!("Error: Permission denied: path '../home/name' is {outside}"),
            format!("\"{one}\""),
        ]
    );
    assert_eq!((places.read("home/name").as_deref(), places.read("home/docs/new")), (Some("home"), None));
    // The folder applies to that turn only.
    let turn = agent.run_with(&"more".to_owned(), &[], t()).await.unwrap();
    assert_eq!(results(&turn), ["1\thome"]);
}

#[cfg(unix)]
#[tokio::test]
async fn rules_about_paths_are_about_those_of_the_folder() {
    let places = Places::new(Backend::memory());
    fs::create_dir(places.at("one/secrets")).unwrap();
    // At home this is a plain file in `docs`; in the folder of the turn it is a link to a place that no rule
    // allows.
    fs::write(places.at("home/docs/link"), "").unwrap();
    std::os::unix::fs::symlink("../secrets", places.at("one/docs/link")).unwrap();
    let one = places.at("one").display().to_string();
    let rules = [
        about("write_file", "docs/**", Permit::Allow),
        about("write_file", &format!("{one}/absolute"), Permit::Allow),
        about("write_file", "docs/deny", Permit::Deny),
        about("write_file", &format!("{}/**", places.at("home").display()), Permit::Deny),
    ];
    let round = calls([
        ("c1", "write_file", r#"{"path":"docs/a","content":""}"#),
        ("c2", "write_file", r#"{"path":"docs/../docs/deny","content":""}"#),
        ("c3", "write_file", r#"{"path":"docs/link/x","content":""}"#),
        ("c4", "write_file", r#"{"path":"absolute","content":""}"#),
        ("c5", "write_file", r#"{"path":"name","content":""}"#),
    ]);
    let agent = harness(places.agent([round, txt("ok")], &rules));
    let ended = run_in(&agent, &places.at("one"), t()).await.unwrap_err();
    let FacadeError::Unfinished { interrupts } = ended else { panic!("{ended:?}") };
    let mut asked: Vec<_> = interrupts.iter().map(|asked| asked.key.as_str()).collect();
    asked.sort_unstable();
    assert_eq!(asked, ["c3", "c5"]);
    let no = || Approval::Deny("no".to_owned());
    let answers = Answers::new().answer("c3", no()).answer("c5", no());
    agent.agent().thread("t").answers(answers).resume().await.unwrap();
    assert!(places.at("one/docs/a").exists() && places.at("one/absolute").exists());
    assert_eq!(fs::read_dir(places.at("one/secrets")).unwrap().count(), 0);
    assert!(!places.at("one/docs/deny").exists() && !places.at("home/docs/a").exists());
}

#[tokio::test]
async fn a_question_names_the_folder_and_its_answer_counts_there_only() {
    for places in Places::both() {
        let agent = harness(places.agent([write("c1", "name")], &[]));
        let one = places.at("one");
        let ended = run_in(&agent, &one, t()).await.unwrap_err();
        let FacadeError::Unfinished { interrupts } = ended else { panic!("{ended:?}") };
        let request: ApprovalRequest = serde_json::from_value(interrupts[0].question.clone()).unwrap();
        let question = format!("replace name, 1 line\n-one\n+new\n+\nin the folder {}", one.display());
        assert_eq!(request.question, question);
        drop(agent);

        // Another process, with another folder, or with a folder that no longer exists.
        let agent = places.agent([txt("ok")], &[]).build().unwrap();
        let answers = Answers::new().answer("c1", Approval::Approve);
        let named = |folder: &str, config: RunOptions| config.context(json!({ "cwd": places.at(folder) }));
        let refused = agent.configured(named("two", t().answers(answers))).resume().await.unwrap_err();
        let says = format!(
            "the turn works in the folder `{}`, but this run names `{}` as `cwd`; name the same one, or none",
            one.display(),
            places.at("two").display()
        );
        assert!(chain(&refused).ends_with(&says), "{}", chain(&refused));
        let refused = agent.configured(named("gone", t())).resume().await.unwrap_err();
        assert!(chain(&refused).contains("gone`; name another one as `cwd`"), "{}", chain(&refused));
        assert_eq!(places.read("one/name").as_deref(), Some("one"));

        // The answer was for another run, so the question still waits.
        let waiting = head(agent.graph()).await;
        assert_eq!(waiting.tasks[0].interrupts, interrupts);
        let again = agent.thread("t").resume().await.unwrap();
        assert_eq!((again.outcome, &again.interrupts), (AgentOutcome::AwaitingApproval, &interrupts));
        assert_eq!(places.read("one/name").as_deref(), Some("one"));

        // One that names none goes on where the turn began, with the answer that was for that folder.
        let reply = agent.thread("t").answer("c1", Approval::Approve).resume().await.unwrap();
        assert_eq!(reply.text, "ok");
        let read = ["home/name", "one/name", "two/name"].map(|path| places.read(path).unwrap());
        assert_eq!(read, ["home", "new\n", "two"]);
        let state = head(agent.graph()).await.values;
        let changed: Vec<_> = state.files.unwrap().changes.into_iter().map(|change| change.path).collect();
        assert_eq!((state.cwd, changed), (Some(one), vec!["name".to_owned()]));
    }
}

#[tokio::test]
async fn an_answer_is_refused_when_the_folder_was_changed_after_the_question() {
    for to in [Some("two"), None] {
        let places = Places::new(Backend::memory());
        let agent = harness(places.agent([write("c1", "name"), txt("ok")], &[]));
        run_in(&agent, &places.at("one"), t()).await.unwrap_err();
        let graph = agent.agent().graph();
        let update = AgentState::update().cwd(to.map(|to| places.at(to)));
        graph.thread("t").update_as(AsNode::Named("agent".into()), update).await.unwrap();
        let asked = graph.thread("t").resume().await.unwrap().interrupts.remove(0);
        let ended = graph.thread("t").answer("c1", Approval::Approve).resume().await.unwrap();
        // By its key the answer is for what waits now, which was asked about the folder that is there now.
        let question = asked.question["question"].as_str().unwrap().to_owned();
        assert_eq!(question.contains("in the folder"), to.is_some(), "{question}");
        assert_eq!(ended.interrupts.len(), 0);
        assert_eq!(places.read("one/name").as_deref(), Some("one"));
    }
}

#[tokio::test]
async fn a_permanent_grant_of_one_folder_needs_approval_in_another() {
    for places in Places::both() {
        let rounds = || [write("c1", "docs/x"), txt("ok")];
        let agent = harness(places.agent(rounds().into_iter().chain(rounds()).chain(rounds()), &[]));
        run_in(&agent, &places.at("one"), t()).await.unwrap_err();
        let graph = agent.agent().graph();
        let always = |to: &str| {
            let answers = Answers::new().answer("c1", Approval::always_for([("path", to)]));
            t().answers(answers)
        };
        graph.configured(always("docs/*")).resume().await.unwrap();
        assert!(places.at("one/docs/x").exists());
        run_in(&agent, &places.at("one"), t()).await.expect("it was permitted for good");
        let ended = run_in(&agent, &places.at("two"), t()).await.unwrap_err();
        assert!(
            matches!(&ended, FacadeError::Unfinished { interrupts } if interrupts.len() == 1),
            "{ended:?}"
        );
        // What is permitted there takes the place of it.
        graph.configured(always("docs/**")).resume().await.unwrap();
        let state = head(graph).await.values;
        let rules: Vec<_> = state.permissions.iter().map(|rule| rule.arguments["path"].clone()).collect();
        assert_eq!((rules, state.permitted_in), (vec!["docs/**".to_owned()], Some(places.at("two"))));
        assert!(places.at("two/docs/x").exists());
    }
}

#[tokio::test]
async fn files_are_stored_and_restored_in_the_folder_of_the_turn() {
    let places = Places::new(Backend::memory());
    let shell = call("c1", "shell", r#"{"command":"echo changed > name; echo made > docs/new"}"#);
    let agent = harness(places.agent([shell, txt("ok")], &[allow("*")]));
    run_in(&agent, &places.at("one"), t()).await.unwrap();
    let files = head(agent.agent().graph()).await.values.files.unwrap();
    let changed: Vec<_> = files.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(changed, ["docs/new", "name"]);
    let kept = |folder: &str| FileSnapshots::new(&Workspace::open(&places.at(folder)).unwrap()).unwrap();
    assert!(kept("one").has("t", &files.before) && !kept("home").has("t", &files.before));
    assert!(!places.at("home/.superstep").exists());
    kept("one").restore("t", &[files], false).unwrap();
    assert_eq!((places.read("one/name").as_deref(), places.read("one/docs/new")), (Some("one"), None));
}

#[tokio::test]
async fn long_results_are_stored_where_the_tools_find_them() {
    let places = Places::new(Backend::memory());
    let config = ReactConfig {
        permissions: vec![allow("*")],
        truncate: Some(Truncate {
            max_chars: Some(200),
            spill: Some("{path}".to_owned()),
            ..Truncate::default()
        }),
        ..preset()
    };
    let long = call("c1", "shell", r#"{"command":"yes line | head -n 500"}"#);
    let builder = places.agent([long, txt("ok")], &[]).config(config);
    let agent = harness(builder.spill(Arc::new(SpillFiles::new(&places.at("home"), RESULTS).unwrap())));
    run_in(&agent, &places.at("two"), t()).await.unwrap();
    let is_there = |folder: &str| places.at(folder).join(RESULTS).join("t/c1.txt").exists();
    assert_eq!((is_there("home"), is_there("two")), (false, true));
}

#[tokio::test]
async fn turns_at_the_same_time_do_not_share_a_folder() {
    let places = Places::new(Backend::memory());
    let both = || {
        let cat = r#"{"command":"cat name"}"#;
        calls([("c1", "read_file", r#"{"path":"name"}"#), ("c2", "shell", cat)])
    };
    let script: Vec<_> = (0..4).map(|_| both()).chain((0..4).map(|_| txt("ok"))).collect();
    let agent = harness(places.agent(script, &[allow("*")]));
    let (msg, thread) = ("go".to_owned(), |name: &str| RunOptions::new().thread(name));
    let folders = ["one", "two"].map(|name| places.at(name));
    let (one, two, home, other) = tokio::join!(
        run_in(&agent, &folders[0], thread("a")),
        run_in(&agent, &folders[1], thread("b")),
        agent.run_with(&msg, &[], thread("c")),
        run_in(&agent, &folders[0], thread("d")),
    );
    let read = [one, two, home, other].map(|turn| results(&turn.unwrap()));
    for (read, name) in read.iter().zip(["one", "two", "home", "one"]) {
        assert_eq!(*read, [format!("1\t{name}"), format!("{name}\n[exit code 0]")]);
    }
}

#[tokio::test]
async fn a_sub_agent_works_in_the_folder_of_its_caller() {
    for places in Places::both() {
        let helper = places.agent([write("h1", "name"), txt("done")], &[]).build().unwrap();
        let helper = SubAgent::new("helper", "", &helper);
        let ask = call("c1", "helper", r#"{"task":"help"}"#);
        let agent = harness(places.agent([ask, txt("ok")], &[]).sub_agent(helper.clone()));
        let ended = run_in(&agent, &places.at("one"), t()).await.unwrap_err();
        let FacadeError::Unfinished { interrupts } = ended else { panic!("{ended:?}") };
        let question = interrupts[0].question["question"].as_str().unwrap();
        assert!(question.ends_with(&format!("in the folder {}", places.at("one").display())), "{question}");
        let id = interrupts[0].id.clone();
        drop(agent);
        let agent = places.agent([txt("ok")], &[]).sub_agent(helper).build().unwrap();
        let answers = Answers::new().answer(id, Approval::Approve);
        agent.thread("t").answers(answers).resume().await.unwrap();
        assert_eq!(["home/name", "one/name"].map(|path| places.read(path).unwrap()), ["home", "new\n"]);
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_an_error_before_anything_runs() {
    let places = Places::new(Backend::memory());
    let model = ScriptedModel::new(Script::new([txt("ok")]));
    let told = Arc::new(Mutex::new(Vec::new()));
    let context = |_: &String, _: &[Value]| -> std::future::Ready<_> { panic!("nothing is built") };
    let hears = told.clone();
    let agent = AgentLoop::new(
        Agent::builder(Arc::new(model.clone())).checkpointer(places.backend.open()),
        context,
        |_| ready(Ok(())),
        move |error, context| hears.lock().unwrap().push(format!("{context}: {error}")),
    )
    .unwrap();
    for (name, why) in [("missing", "No such file"), ("home/name", "it is not a folder")] {
        let folder = places.at(name);
        let error = agent.run(&"go".to_owned(), &[], Some(&folder)).await.unwrap_err();
        let says = format!("cannot work in the folder `{}`; name another one as `cwd`", folder.display());
        assert!(matches!(error, FacadeError::Folder { .. }), "{error:?}");
        assert!(chain(&error).starts_with(&says) && chain(&error).contains(why), "{}", chain(&error));
        assert_eq!(told.lock().unwrap().drain(..).collect::<Vec<_>>(), [format!("run: {says}")]);
        // Any agent accepts it with its input.
        let agent = agent.agent();
        let input = agent.input("go").cwd(folder);
        let error = agent.thread(name).run(input).await.unwrap_err();
        assert!(
            chain(&error).contains(&says) && chain(&error).contains("node `init_state`"),
            "{}",
            chain(&error)
        );
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_folder_with_dots_and_links_in_its_path_is_resolved_once() {
    let places = Places::new(Backend::memory());
    let read = || call("c1", "read_file", r#"{"path":"name"}"#);
    let agent = places.agent([read(), txt("ok"), write("c2", "name")], &[]).build().unwrap();
    let link = places.at("link");
    #[cfg(unix)]
    std::os::unix::fs::symlink("one", &link).unwrap();
    #[cfg(not(unix))]
    fs::create_dir(&link).unwrap();
    let folder = places.at("two").join("..").join("link");
    agent.thread("t").run(agent.input("go").cwd(folder.clone())).await.unwrap();
    let state = head(agent.graph()).await.values;
    assert_eq!(state.cwd, Some(link.canonicalize().unwrap()));
    // While a question waits, another program puts a link in the place of the folder.
    agent.thread("t").run(agent.input("go").cwd(folder)).await.unwrap();
    #[cfg(unix)]
    {
        fs::rename(places.at("one"), places.at("moved")).unwrap();
        std::os::unix::fs::symlink("two", places.at("one")).unwrap();
        let answers = Answers::new().answer("c2", Approval::Approve);
        let error = agent.thread("t").answers(answers).resume().await.unwrap_err();
        let says = format!(
            "the folder `{}` of the turn leads to `{}` now; put it back, or begin the turn again",
            places.at("one").display(),
            places.at("two").display()
        );
        assert!(chain(&error).ends_with(&says), "{}", chain(&error));
        assert_eq!(places.read("two/name").as_deref(), Some("two"));
    }
}

/// A trust without decisions, for this folder.
struct Knows(Option<PathBuf>);

impl Trust for Knows {
    fn is_granted(&self, _: Option<&ThreadId>, _: &PermissionRule) -> bool {
        false
    }

    fn is_decided(&self, _: &StoredDecision<'_>) -> bool {
        true
    }

    fn is_folder(&self, thread: Option<&ThreadId>, folder: &Path) -> bool {
        assert_eq!(thread.map(ThreadId::as_str), Some("t"));
        self.0.as_deref() == Some(folder)
    }
}

#[tokio::test]
async fn a_folder_that_only_the_thread_names_is_named_again_or_trusted() {
    for places in Places::both() {
        let one = places.at("one");
        let begun = harness(places.agent([write("c1", "name")], &[]));
        run_in(&begun, &one, t()).await.unwrap_err();
        drop(begun);
        let agent = |knows| places.agent([txt("ok")], &[]).trust(Arc::new(Knows(knows))).build().unwrap();
        let error = agent(None).thread("t").answer("c1", Approval::Approve).resume().await.unwrap_err();
        let says = format!(
            "the folder `{0}` of this turn is named by the stored thread only; to work there, name `{0}` as \
             `cwd` in the context of the run",
            one.display()
        );
        assert!(chain(&error).ends_with(&says), "{}", chain(&error));
        assert_eq!(places.read("one/name").as_deref(), Some("one"));
        match &places.backend {
            Backend::Memory(_) => agent(Some(one)).thread("t"),
            _ => agent(None).thread("t").context(json!({ "cwd": one })),
        }
        .answer("c1", Approval::Approve)
        .resume()
        .await
        .unwrap();
        assert_eq!(places.read("one/name").as_deref(), Some("new\n"));
    }
}

#[tokio::test]
async fn a_turn_is_replayed_although_its_folder_is_gone() {
    let places = Places::new(Backend::memory());
    let agent = harness(places.agent([write("c1", "docs/x"), txt("ok")], &[allow("*")]));
    run_in(&agent, &places.at("one"), t()).await.unwrap();
    let state = head(agent.agent().graph()).await.values;
    assert_eq!(state.outcome, Some(AgentOutcome::Completed));
    fs::remove_dir_all(places.at("one")).unwrap();
    agent.agent().graph().thread("t").replay().run().await.unwrap().assert_same();
    assert!(!places.at("home/docs/x").exists());
}
