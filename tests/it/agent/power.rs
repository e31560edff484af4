//! Power failures: data that was not synced is lost. A command runs twice only if the model was notified that
//! its result is unknown.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use futures::future::BoxFuture;
use superstep::{
    Checkpointer,
    agent::{Agent, ReactConfig, config::ToolMode},
    checkpoint::CheckpointError,
    llm::{Role, Tool, ToolCx, ToolError, ToolSpec, tool_fn},
    sqlite::SqliteCheckpointer,
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
    wrapped::{Wrapped, Wrapper},
};
use tempfile::TempDir;

const ROUNDS: usize = 24;

/// A disk that retains only synced data.
#[derive(Clone)]
struct Disk {
    database: PathBuf,
    /// The synced length of the log, and the number of syncs.
    synced: Arc<Mutex<(u64, usize)>>,
    /// The commands, each with the remaining database at that time.
    run: Arc<Mutex<Vec<(String, TempDir)>>>,
}

impl Disk {
    fn new(database: PathBuf) -> Self {
        Self { database, synced: Arc::default(), run: Arc::default() }
    }

    fn log(&self) -> PathBuf {
        beside(&self.database, "-wal")
    }

    /// Returns the remaining data after a power failure at this time.
    fn cut(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("threads.db");
        fs::copy(&self.database, &copy).unwrap();
        let mut log = fs::read(self.log()).unwrap_or_default();
        log.truncate(usize::try_from(self.synced.lock().unwrap().0).unwrap());
        fs::write(beside(&copy, "-wal"), log).unwrap();
        folder
    }

    /// Creates a command that must not run twice.
    fn tool(&self) -> Arc<dyn Tool> {
        let disk = self.clone();
        let spec = ToolSpec::of::<Args>("command", "Runs a command.");
        let tool = tool_fn(spec, move |args: Args, _: ToolCx| {
            let cut = disk.cut();
            let done = format!("done {}", args.x);
            disk.run.lock().unwrap().push((args.x, cut));
            async { Ok::<_, ToolError>(done) }
        });
        Arc::new(tool)
    }

    fn ran(&self) -> Vec<String> {
        self.run.lock().unwrap().iter().map(|(command, _)| command.clone()).collect()
    }
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

#[derive(schemars::JsonSchema, serde::Deserialize)]
struct Args {
    x: String,
}

struct Synced {
    store: SqliteCheckpointer,
    disk: Disk,
}

impl Wrapper for Synced {
    fn store(&self) -> &dyn Checkpointer {
        &self.store
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(async {
            self.store.sync().await?;
            let length = fs::metadata(self.disk.log()).map_or(0, |log| log.len());
            let mut synced = self.disk.synced.lock().unwrap();
            *synced = (length, synced.1 + 1);
            Ok(())
        })
    }
}

fn program(database: &Path, answers: Vec<Answer>) -> (Agent, Disk) {
    let disk = Disk::new(database.to_owned());
    let store = Wrapped(Synced { store: SqliteCheckpointer::open(database).unwrap(), disk: disk.clone() });
    let agent = Agent::builder(Arc::new(ScriptedModel::new(Script::new(answers))))
        .config(ReactConfig { tool_mode: ToolMode::Parallel { max: 16 }, ..ReactConfig::graph(40) })
        .tools([disk.tool()])
        .checkpointer(Arc::new(store))
        .build()
        .unwrap();
    (agent, disk)
}

fn round(n: usize) -> Answer {
    call(&format!("c{n}"), "command", &format!(r#"{{"x":"{n}"}}"#))
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_power_failure_no_command_is_repeated_without_notice() {
    let folder = tempfile::tempdir().unwrap();
    let answers = (0..ROUNDS).map(round).chain([txt("all done")]).collect();
    let (agent, disk) = program(&folder.path().join("threads.db"), answers);
    agent.thread("t").ask("go").await.unwrap();
    assert_eq!(disk.ran().len(), ROUNDS);
    let cuts = std::mem::take(&mut *disk.run.lock().unwrap());
    for (nth, (command, cut)) in cuts.into_iter().enumerate() {
        assert_eq!(command, nth.to_string());
        // The model is called for the answers after the interrupted command.
        let answers = (nth + 1..ROUNDS).map(round).chain([txt("all done")]).collect();
        let (agent, after) = program(&cut.path().join("threads.db"), answers);
        agent.thread("t").resume().await.unwrap();
        let expected: Vec<_> = (nth + 1..ROUNDS).map(|n| n.to_string()).collect();
        assert_eq!(after.ran(), expected, "the power failed at {nth}");
        let state = agent.graph().thread("t").state().await.unwrap().values;
        let told: Vec<_> = state.messages.iter().filter(|message| message.role == Role::Tool).collect();
        assert_eq!(told.len(), ROUNDS);
        assert!(told[nth].content.contains("the outcome of this call is unknown"), "{}", told[nth].content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_run_side_by_side_are_synced_together() {
    let folder = tempfile::tempdir().unwrap();
    let many: Vec<_> = (0..16).map(|n| (format!("c{n}"), format!(r#"{{"x":"{n}"}}"#))).collect();
    let many = calls(many.iter().map(|(id, args)| (id.as_str(), "command", args.as_str())));
    let (agent, disk) = program(&folder.path().join("threads.db"), vec![many, txt("all done")]);
    agent.thread("t").ask("go").await.unwrap();
    assert_eq!(disk.ran().len(), 16);
    let syncs = disk.synced.lock().unwrap().1;
    assert!(syncs <= 3, "{syncs} syncs for one batch");
}
