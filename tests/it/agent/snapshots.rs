//! Changes of files by tools are emitted, stored, and can be undone.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    Checkpointer, Event, MemoryCheckpointer, OnUnfinished, StreamMode, ThreadId,
    agent::{
        Agent, AgentOutcome, AgentState, ReactConfig,
        config::{PermissionRule, Permit},
        deps::SubAgent,
        hooks::{Acting, Hooks},
    },
    llm::{
        ApiKey, Behaviour, ChatModel, OpenAiConfig, OpenAiModel, Tool, ToolCx, ToolError, ToolFuture,
        ToolSpec,
        calls::ToolQuestion,
        snapshots::{FileChangeKind, FileChanges, SnapshotError, SnapshotFuture, Snapshots},
        tool_fn,
    },
    tools::{self, FileSnapshots, Workspace},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
    wire::WireServer,
};
use tempfile::TempDir;

use super::{
    check,
    crash::{LEVELS, Lives, STOPS, cancelled_at, lives, model},
    preset, real,
};
use crate::support::{Backend, head, t};

/// A folder with a file, and its snapshots.
struct Place {
    dir: TempDir,
    files: Arc<FileSnapshots>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "1\n").unwrap();
        let files = Arc::new(FileSnapshots::new(&Workspace::open(dir.path()).unwrap()).unwrap());
        Self { dir, files }
    }

    fn at(&self) -> &Path {
        self.dir.path()
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.at().join(name)).ok()
    }

    /// Creates an agent with the tools of the folder, all of which may run.
    fn agent(&self, model: Arc<dyn ChatModel>, backend: &Backend) -> Agent {
        self.watched_by(self.files.clone(), model, backend)
    }

    fn watched_by(&self, by: Arc<dyn Snapshots>, model: Arc<dyn ChatModel>, backend: &Backend) -> Agent {
        self.on(by, model, backend.open())
    }

    fn on(&self, by: Arc<dyn Snapshots>, model: Arc<dyn ChatModel>, store: Arc<dyn Checkpointer>) -> Agent {
        let permissions = vec![PermissionRule::new("*", Permit::Allow)];
        let agent = Agent::builder(model).tools(tools::all(self.at(), || 0).unwrap()).snapshots(by);
        let agent = agent.config(ReactConfig { permissions, ..preset() }).checkpointer(store);
        agent.build().unwrap()
    }
}

fn scripted(answers: impl IntoIterator<Item = Answer>) -> Arc<dyn ChatModel> {
    Arc::new(ScriptedModel::new(Script::new(answers)))
}

fn shell(id: &str, command: &str) -> Answer {
    call(id, "shell", &json!({ "command": command }).to_string())
}

fn shown(changes: &FileChanges) -> Vec<(&str, FileChangeKind)> {
    changes.changes.iter().map(|change| (change.path.as_str(), change.kind)).collect()
}

/// Returns the agent's events of a turn, by name.
async fn told(agent: &Agent, name: &str) -> Vec<Value> {
    let mut stream = agent.thread("t").stream(agent.input("go"), StreamMode::Custom);
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::<AgentState>::Custom { name: is, data, .. } = event
            && is == name
        {
            told.push(data.clone());
        }
    }
    stream.outcome().await.unwrap();
    told
}

async fn state(agent: &Agent) -> AgentState {
    let state = head(agent.graph()).await.values;
    check::calls_are_answered(&state.messages.iter().cloned().collect::<Vec<_>>());
    state
}

#[test]
fn calls_changed_by_a_hook_are_included() {
    real(async {
        let (place, backend) = (Place::new(), Backend::memory());
        let mut hooks = Hooks::default();
        hooks.acting.pre(|mut acting: Acting| async move {
            acting.tool = "write_file".to_owned();
            acting.args = json!({ "path": "b", "content": "2\n" });
            Ok(Some(acting))
        });
        let model = scripted([call("c1", "read_file", r#"{"path":"a"}"#), txt("ok")]);
        let permissions = vec![PermissionRule::new("*", Permit::Allow)];
        let agent = Agent::builder(model).tools(tools::all(place.at(), || 0).unwrap()).hooks(hooks);
        let agent = agent.config(ReactConfig { permissions, ..preset() }).snapshots(place.files.clone());
        let agent = agent.checkpointer(backend.open()).build().unwrap();
        agent.thread("t").ask("go").await.unwrap();
        assert_eq!(shown(&state(&agent).await.files.unwrap()), [("b", FileChangeKind::Made)]);
    });
}

fn a_turn() -> [Answer; 4] {
    let look = call("c0", "read_file", r#"{"path":"a"}"#);
    let both = calls([
        ("c1", "write_file", r#"{"path":"new/b","content":"2\n"}"#),
        ("c2", "edit_file", r#"{"path":"a","old":"1","new":"one"}"#),
    ]);
    [look, both, shell("c3", "true"), txt("ok")]
}

#[test]
fn file_changes_of_a_round_are_reported_and_stored_at_both_levels() {
    real(async {
        let server = WireServer::start(Script::new(a_turn())).await.unwrap();
        let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
        let wired: Arc<dyn ChatModel> = Arc::new(OpenAiModel::new(config).unwrap());
        for model in [scripted(a_turn()), wired] {
            let (place, backend) = (Place::new(), Backend::memory());
            let agent = place.agent(model, &backend);
            let events = told(&agent, "files_changed").await;
            assert_eq!(events.len(), 1, "only one round changed anything");
            let changes: FileChanges = serde_json::from_value(events[0].clone()).unwrap();
            assert_eq!(shown(&changes), [("a", FileChangeKind::Changed), ("new/b", FileChangeKind::Made)]);
            assert_eq!(changes.changes[0].diff, "@@ -1 +1 @@\n-1\n+one\n");
            let files = state(&agent).await.files.unwrap();
            assert_eq!(
                (files.changes.len(), &files.before, &files.after),
                (0, &changes.after, &changes.after)
            );

            // The state of every checkpoint has the earlier files.
            place.files.restore("t", &[changes], false).unwrap();
            assert_eq!((place.read("a").unwrap(), place.read("new/b")), ("1\n".into(), None));
        }
    });
}

#[test]
fn a_cancelled_round_leaves_whole_files_and_a_usable_thread() {
    real(async {
        let (place, backend) = (Place::new(), Backend::memory());
        let agent = place.agent(scripted([shell("c1", "echo 2 > b; exec sleep 1000"), txt("ok")]), &backend);
        let config = t();
        let cancel = config.get_cancel().clone();
        let begun = async {
            while place.read("b").unwrap_or_default().is_empty() {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
            std::future::pending::<()>().await
        };
        let reply = tokio::select! {
            reply = agent.configured(config).ask("go") => reply.unwrap(),
            () = begun => unreachable!("it waits for ever"),
        };
        assert_eq!(reply.outcome, AgentOutcome::Cancelled);
        assert_eq!(shown(&state(&agent).await.files.unwrap()), [("b", FileChangeKind::Made)]);
        assert_eq!(agent.thread("t").ask("more").await.unwrap().text, "ok");
    });
}

#[test]
fn a_resumed_round_is_compared_with_its_first_snapshot() {
    // Commands take real time, so there is no paused clock here.
    for backend in [Backend::memory(), Backend::sqlite()] {
        real(async {
            // The process stops while the first, the second or the third call runs.
            for stuck in 0..3 {
                let place = Place::new();
                let command = |n: usize| match n == stuck {
                    true => format!("echo {n} > f{n}; test -e again || exec sleep 1000"),
                    false => format!("echo {n} > f{n}"),
                };
                let args: Vec<String> =
                    (0..3).map(|n| json!({ "command": command(n) }).to_string()).collect();
                let round =
                    calls([("c0", "shell", &*args[0]), ("c1", "shell", &args[1]), ("c2", "shell", &args[2])]);
                let thread = ThreadId::from(format!("t{stuck}"));
                let agent = place.agent(scripted([round]), &backend);
                let begun = async {
                    while place.read(&format!("f{stuck}")).unwrap_or_default().is_empty() {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! {
                    ended = agent.thread(&thread).ask("go") => panic!("{ended:?}"),
                    () = begun => {}
                }
                drop(agent);
                let agent = place.agent(scripted([txt("ok")]), &backend);
                assert_eq!(agent.thread(&thread).resume().await.unwrap().text, "ok");
                let files = agent.graph().thread(&thread).state().await.unwrap().values.files.unwrap();
                let made = ["f0", "f1", "f2"].map(|name| (name, FileChangeKind::Made));
                assert_eq!(shown(&files), made, "stuck in {stuck}");
                place.files.restore(thread.as_str(), &[files], false).unwrap();
                assert_eq!(
                    (place.read("f0"), place.read("f2"), place.read("a").unwrap()),
                    (None, None, "1\n".into())
                );
            }
        });
    }
}

/// The final files without interference, and their description in the state.
const DONE: (&str, &str) = ("one\n", "2\n");

/// Asserts that every file is a tool's version or the original, and that no partial file is left.
fn are_whole(place: &Place) {
    let a = place.read("a").unwrap();
    assert!(["1\n", DONE.0].contains(&&*a), "{a:?}");
    assert!(place.read("new/b").is_none_or(|b| b == DONE.1));
    let mut names: Vec<_> = fs::read_dir(place.at()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.retain(|name| name != "a" && name != "new" && name != ".superstep");
    assert_eq!(names, [""; 0]);
}

/// Restores the files to before the first watched round, and checks them.
async fn is_undone(place: &Place, agent: &Agent) {
    let history = agent.graph().thread("t").history().states().await.unwrap();
    let mut rounds: Vec<_> = history.iter().rev().filter_map(|state| state.values.files.clone()).collect();
    rounds.dedup();
    if rounds.is_empty() {
        return;
    }
    place.files.restore("t", &rounds, false).unwrap();
    assert_eq!((place.read("a").unwrap(), place.read("new/b")), ("1\n".into(), None));
}

#[test]
fn a_program_that_stops_at_any_write_leaves_whole_files_and_all_of_it_can_be_undone() {
    let answers = a_turn();
    let plain = real(async {
        let (place, backend) = (Place::new(), Backend::memory());
        let agent = place.agent(scripted(a_turn()), &backend);
        agent.thread("t").ask("go").await.unwrap();
        state(&agent).await
    });
    for (level, stops) in LEVELS.into_iter().flat_map(|level| STOPS.map(|stops| (level, stops))) {
        real(async {
            let mut doubts = 0;
            for n in 1.. {
                let place = Place::new();
                let program = async |model, store| place.on(place.files.clone(), model, store);
                let Lives { stopped, reply, agent } = lives((stops, n), level, &answers, program).await;
                assert_eq!((reply.outcome, &*reply.text), (AgentOutcome::Completed, "ok"), "{n}");
                are_whole(&place);
                let state = state(&agent).await;
                let in_doubt =
                    state.tool_result_history.iter().any(|it| it.contains("outcome of this call is unknown"));
                if in_doubt {
                    doubts += 1;
                } else {
                    let files = (place.read("a").unwrap(), place.read("new/b").unwrap());
                    assert_eq!((&*files.0, &*files.1), DONE, "{n}");
                    assert_eq!(state.files, plain.files, "{n}");
                    let said = |state: &AgentState| -> Vec<String> {
                        // The write of a file is repeated, and then finds the file.
                        let results = state.tool_result_history.iter();
                        results
                            .map(|it| {
                                it.replace("replaced 'new/b': 1 line became 1 line", "made 'new/b': 1 line")
                            })
                            .collect()
                    };
                    assert_eq!(said(&state), said(&plain), "{n}");
                }
                is_undone(&place, &agent).await;
                if !stopped {
                    break;
                }
            }
            assert_eq!(
                doubts, 2,
                "each call that may not be repeated was in doubt once, {level:?} {stops:?}"
            );
        });
    }
}

#[test]
fn a_turn_that_is_cancelled_at_any_event_leaves_whole_files_and_is_followed_by_another() {
    for level in LEVELS {
        real(async {
            let mut cancelled = 0;
            for n in 1.. {
                let place = Place::new();
                let store = Arc::new(MemoryCheckpointer::new());
                let (first, _server) = model(level, a_turn()).await;
                let agent = place.on(place.files.clone(), first, store.clone());
                let last = cancelled_at(n, &agent).await;
                are_whole(&place);
                let outcome = state(&agent).await.outcome.unwrap();
                assert!(
                    matches!(outcome, AgentOutcome::Cancelled | AgentOutcome::Completed),
                    "{n}: {outcome:?}"
                );
                cancelled += usize::from(outcome == AgentOutcome::Cancelled);
                is_undone(&place, &agent).await;
                let (next, _server) = model(level, [txt("more")]).await;
                let agent = place.on(place.files.clone(), next, store);
                assert_eq!(agent.thread("t").ask("more").await.unwrap().text, "more", "{n}");
                state(&agent).await;
                if last.is_none() {
                    assert!(n > 10 && cancelled > 5, "{n} events, {cancelled} cancelled");
                    break;
                }
            }
        });
    }
}

/// Snapshots that save nothing, or fail.
struct Broken {
    asked: AtomicUsize,
}

impl Snapshots for Broken {
    fn keep<'a>(&'a self, _: Option<&'a str>) -> SnapshotFuture<'a, String> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        // The first one succeeds the second time.
        Box::pin(async move {
            if asked == 1 { Ok("kept".into()) } else { Err(SnapshotError("the disk is full".into())) }
        })
    }

    fn compare<'a>(&'a self, _: Option<&'a str>, _: &'a str, _: &'a str) -> SnapshotFuture<'a, FileChanges> {
        Box::pin(async { Err(SnapshotError("never asked".into())) })
    }
}

#[test]
fn failed_snapshots_are_reported_and_stop_nothing() {
    real(async {
        let (place, backend) = (Place::new(), Backend::memory());
        let broken = Arc::new(Broken { asked: AtomicUsize::new(0) });
        let look = call("c0", "read_file", r#"{"path":"a"}"#);
        let model = scripted([look, shell("c1", "true"), shell("c2", "echo something else"), txt("ok")]);
        let agent = place.watched_by(broken.clone(), model, &backend);
        let failed = json!({ "reason": "the disk is full" });
        assert_eq!(told(&agent, "snapshot_failed").await, [failed.clone(), failed]);
        assert_eq!(broken.asked.load(Ordering::Relaxed), 3, "before and, if that went well, after");
        let state = state(&agent).await;
        assert_eq!((state.files, state.final_reply.as_str()), (None, "ok"));
    });
}

#[test]
fn a_discarded_round_has_the_files_of_a_sub_agent_and_of_a_tool_that_wait_for_an_answer() {
    real(async {
        let place = Place::new();
        let permissions =
            vec![PermissionRule::new("*", Permit::Allow), PermissionRule::new("shell", Permit::Ask)];
        let writes = call("w1", "write_file", r#"{"path":"b","content":"2\n"}"#);
        let digger = Agent::builder(scripted([writes, shell("w2", "true")])).approve_by_interrupt();
        let digger = digger.tools(tools::all(place.at(), || 0).unwrap());
        let digger = digger.config(ReactConfig { permissions, ..preset() }).build().unwrap();
        let path = place.at().join("b");
        let spec = ToolSpec {
            name: "digger".to_owned(),
            description: String::new(),
            parameters: json!({ "type": "object" }),
        };
        let asks = tool_fn(spec, move |_: Value, cx: ToolCx| {
            let path = path.clone();
            async move {
                fs::write(path, "2\n").unwrap();
                let (from, message) = ("me".to_owned(), "Go on?".to_owned());
                cx.ask(ToolQuestion { from, message, schema: json!({ "type": "object" }) }).await?;
                Ok("done".to_owned())
            }
        });
        let boss = || {
            let model = scripted([call("c1", "digger", r#"{"task":"dig"}"#), txt("ok")]);
            let agent = Agent::builder(model).config(preset()).snapshots(place.files.clone());
            agent.checkpointer(Backend::memory().open()).approve_by_interrupt()
        };
        for agent in [boss().sub_agent(SubAgent::new("digger", "Digs.", &digger)), boss().tool(asks)] {
            let agent = agent.build().unwrap();
            let asked = agent.thread("t").ask("go").await.unwrap();
            assert_eq!((asked.interrupts.len(), place.read("b").as_deref()), (1, Some("2\n")));
            agent.thread("t").on_unfinished(OnUnfinished::Discard).ask("never mind").await.unwrap();
            let state = state(&agent).await;
            assert_eq!(shown(&state.files.unwrap()), [("b", FileChangeKind::Made)]);
            let result = state.messages.iter().find(|message| message.tool_call_id == "c1").unwrap();
            assert!(result.content.ends_with("Check before repeating it."), "{}", result.content);
            fs::remove_file(place.at().join("b")).unwrap();
        }
    });
}

#[test]
fn a_discarded_round_has_the_files_of_a_repeatable_call_that_had_begun() {
    let in_doubt = "Error: the outcome of this call is unknown, the process stopped while it ran. Check before repeating it.";
    let interrupted = "The tool call has been interrupted by the user.";
    for (says, made, wanted) in
        [(None, true, in_doubt), (Some(true), true, in_doubt), (Some(false), false, interrupted)]
    {
        real(async {
            let (place, backend) = (Place::new(), Backend::memory());
            let path = place.at().join("b");
            let parameters = json!({ "type": "object" });
            let spec = ToolSpec { name: "own".to_owned(), description: String::new(), parameters };
            let own = tool_fn(spec, move |_: Value, _: ToolCx| {
                fs::write(&path, "2\n").unwrap();
                std::future::pending::<Result<String, ToolError>>()
            });
            let own = own.with_behaviour(Behaviour { idempotent: true, ..Behaviour::default() });
            let own: Arc<dyn Tool> = Arc::new(match says {
                Some(says) => own.with_changes_files(says),
                None => own,
            });
            let program = |answer| {
                let agent = Agent::builder(scripted([answer])).tools([own.clone()]).config(preset());
                agent.snapshots(place.files.clone()).checkpointer(backend.open()).build().unwrap()
            };
            let agent = program(call("c1", "own", "{}"));
            let begun = async {
                while place.read("b").is_none() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                ended = agent.thread("t").ask("go") => panic!("{ended:?}"),
                () = begun => {}
            }
            drop(agent);
            let agent = program(txt("ok"));
            agent.thread("t").on_unfinished(OnUnfinished::Discard).ask("never mind").await.unwrap();
            let state = state(&agent).await;
            let result = state.messages.iter().find(|message| message.tool_call_id == "c1").unwrap();
            assert_eq!((state.files.is_some(), &*result.content), (made, wanted), "{says:?}");
            if let Some(files) = &state.files {
                assert_eq!(shown(files), [("b", FileChangeKind::Made)]);
            }
            agent.graph().thread("t").replay().run().await.unwrap().assert_same();
        });
    }
}

/// A tool that declares that it changes files.
struct Writes {
    spec: ToolSpec,
    at: std::path::PathBuf,
    says: Option<bool>,
}

impl Tool for Writes {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn changes_files(&self) -> Option<bool> {
        self.says
    }

    fn call(&self, _: Value, _: ToolCx) -> ToolFuture<'_> {
        fs::write(self.at.join("b"), "2\n").unwrap();
        Box::pin(async { Ok("done".into()) })
    }
}

#[test]
fn a_round_is_compared_unless_its_tools_change_no_files() {
    real(async {
        for (says, is_watched) in [(None, true), (Some(true), true), (Some(false), false)] {
            let (place, backend) = (Place::new(), Backend::memory());
            let parameters = json!({ "type": "object", "properties": {} });
            let spec = ToolSpec { name: "own".to_owned(), description: String::new(), parameters };
            let own = Writes { spec, at: place.at().to_owned(), says };
            let agent = Agent::builder(scripted([call("c1", "own", "{}"), txt("ok")]))
                .tools([Arc::new(own) as Arc<dyn Tool>]);
            let agent = agent.config(preset()).snapshots(place.files.clone()).checkpointer(backend.open());
            let agent = agent.build().unwrap();
            agent.thread("t").ask("go").await.unwrap();
            assert_eq!(state(&agent).await.files.is_some(), is_watched, "{says:?}");
            assert_eq!(place.at().join(".superstep/files").exists(), is_watched);
        }
    });
}
