//! Runs in text files: the inputs of a thread, and what the world around it answers.
//!
//! ```text
//! # Reads a file.                                    a comment
//! user What is in a.txt?                             an input: `{"messages":[…]}`
//! model call read_file {"path":"a.txt"}              the replies of the model, in order
//! tool read_file returns hello                       the results of a tool, in order
//! model text It says hello.
//! ```
//!
//! Start at [`run`].

mod parse;

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, sync::Arc};

use futures::StreamExt;
use superstep_graph::{
    Answers, CompiledGraph, Event, Interrupt, MemoryCheckpointer, RunOptions, RunStream, State, Status,
    StreamMode, error::chain,
};
use superstep_llm::Tool;
use tokio::runtime::Builder;

use self::parse::{Fixture, Step};
use crate::{
    clock::{FixedClock, NOW_MS},
    scripted::{ScriptedModel, ScriptedTool},
    transcript::transcript,
};

/// The world of a fixture, for the graph: the model and the tools that its file describes.
#[derive(Debug)]
pub struct World {
    model: ScriptedModel,
    tools: BTreeMap<String, ScriptedTool>,
}

impl World {
    /// Returns the model, which gives the replies of the file.
    pub fn model(&self) -> ScriptedModel {
        self.model.clone()
    }

    /// Returns the tools with results in the file, in the order of their names. They accept any arguments.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.values().map(ScriptedTool::tool).collect()
    }

    /// Returns the tool with this name; without results in the file it fails when it is called.
    pub fn tool(&self, name: &str) -> Arc<dyn Tool> {
        self.tools.get(name).map_or_else(|| ScriptedTool::named(name).tool(), ScriptedTool::tool)
    }

    /// Checks that everything was used.
    fn check(&self) -> Result<(), String> {
        self.model.check()?;
        self.tools.values().try_for_each(ScriptedTool::check)
    }
}

/// Runs the fixture in a file, and returns its transcript: each line of the file that begins or continues a run, the events and
/// updates of that run, and how it ended.
///
/// `make` builds the graph around the world of the file. The thread is in memory, its time stands still, and waits take no time.
///
/// | line | meaning |
/// |---|---|
/// | `input JSON` | runs the graph with this update of its state |
/// | `user TEXT` | the same, with a message of the user in the channel `messages` |
/// | `answer KEY JSON` | continues with the answer to a question, by its key or id |
/// | `resume` | continues after a failure or at a breakpoint |
/// | `model text TEXT` | a reply of the model |
/// | `model call TOOL JSON` | a reply with a tool call |
/// | `model` | a reply whose parts, `text` and `call`, are the indented lines that follow |
/// | `model http STATUS BODY` | another status in place of a reply |
/// | `model cut TEXT` | a reply that breaks after this text |
/// | `tool NAME returns TEXT`, `tool NAME fails TEXT` | the next result of a tool |
/// | `# …` | a comment |
///
/// An indented line continues the text of the line before.
///
/// # Example
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("count.run");
/// use superstep_graph::{END, START, State, StateGraph};
/// use superstep_testing::fixture;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Count {
///     n: u32,
/// }
///
/// std::fs::write(&path, "# Counts from 1.\ninput {\"n\": 1}\n")?;
/// let transcript = fixture::run(&path, |_| {
///     let mut graph = StateGraph::<Count>::new("count");
///     let more = graph.add_node("more", async |state: Count, _| Count::update().n(state.n + 1));
///     graph.add_edge(START, more);
///     graph.add_edge(more, END);
///     graph.compile().expect("the graph is complete")
/// });
/// assert_eq!(transcript, "> input {\"n\":1}\n1 more → {\"n\":2}\ncompleted\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If the file cannot be read or has an invalid line; or if replies or results of the file were not used, or there were too few: with
/// the transcript. Inside a tokio runtime, because it creates one.
#[track_caller]
pub fn run<S: State>(path: impl AsRef<Path>, make: impl FnOnce(&World) -> CompiledGraph<S>) -> String {
    let shown = path.as_ref().display().to_string();
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let fixture = Fixture::parse(&text).unwrap_or_else(|problem| panic!("{shown}: {problem}"));
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("{shown}: no runtime: {error}"));
    let (transcript, checked) = runtime.block_on(async {
        let world = World {
            model: ScriptedModel::new(fixture.script),
            tools: fixture
                .results
                .into_iter()
                .map(|(name, results)| (name.clone(), tool(name, results)))
                .collect(),
        };
        let graph = make(&world);
        let transcript = play(graph, fixture.steps).await;
        let checked = world.check();
        world.tools.into_values().for_each(ScriptedTool::end);
        (transcript, checked)
    });
    if let Err(problem) = checked {
        panic!("{shown}: {problem}\n{transcript}");
    }
    transcript
}

fn tool(name: String, results: Vec<Result<String, String>>) -> ScriptedTool {
    results.into_iter().fold(ScriptedTool::named(name), |tool, result| match result {
        Ok(text) => tool.expect_any().returns(text),
        Err(message) => tool.expect_any().fails(message),
    })
}

/// Runs the steps one after the other.
async fn play<S: State>(graph: CompiledGraph<S>, steps: Vec<Step>) -> String {
    let graph = graph.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    let options = RunOptions::new().thread("fixture").clock(FixedClock(NOW_MS));
    let modes = [StreamMode::Updates, StreamMode::Custom];
    let mut out = String::new();
    for step in steps {
        writeln!(out, "> {step}").expect("a string takes any text");
        let run = match step {
            Step::Input(json) | Step::User { input: json, .. } => {
                match graph.initial().read_update(json.to_string().as_bytes()) {
                    Ok(input) => graph.configured(options.clone()).stream(input, modes),
                    Err(error) => {
                        writeln!(out, "not an update of the state: {error}")
                            .expect("a string takes any text");
                        continue;
                    }
                }
            }
            Step::Answer(key, answer) => {
                let answers = Answers::new().answer(key, answer);
                graph.configured(options.clone().answers(answers)).resume_stream(modes)
            }
            Step::Resume => graph.configured(options.clone()).resume_stream(modes),
        };
        out.push_str(&ended(run).await);
    }
    out
}

/// Returns the transcript of a run, and how it ended.
async fn ended<S: State>(mut run: RunStream<S>) -> String {
    let mut events: Vec<Event<S>> = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event);
    }
    let mut out = transcript(&events);
    let asks = |asked: &Interrupt| format!("{} asks {}", asked.node, asked.key);
    let end = match run.outcome().await {
        Ok(outcome) => match outcome.status {
            Status::Completed => "completed".to_owned(),
            Status::Interrupted if outcome.interrupts.is_empty() => "stopped at a breakpoint".to_owned(),
            Status::Interrupted => {
                let open: Vec<_> = outcome.interrupts.iter().map(asks).collect();
                format!("waits: {}", open.join(", "))
            }
            status => status.to_string(),
        },
        Err(error) => format!("failed: {}", chain(&error)),
    };
    writeln!(out, "{end}").expect("a string takes any text");
    out
}
