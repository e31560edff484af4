//! The loop of [mini-swe-agent](https://mini-swe-agent.com) as a graph of one's own: a model writes one command, the shell runs it.
//!
//! Shows: a command that a kill does not repeat, since its output is stored under a key; a fork at the second command with another
//! output; and a replay, which calls neither the model nor the shell.
//!
//! `cargo run -p superstep --example mini_swe_agent`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, io, path::PathBuf, sync::Arc};

use superstep::llm::{Request, Role, complete};
use superstep::prelude::*;
use superstep_testing::{script::txt, scripted::ScriptedModel};
use tokio::process::Command;

const PROMPT: &str = "Solve the task with one command in a block ```bash at a time. At last print DONE and, in further lines, the result.";

#[derive(State, Clone, Debug, Default)]
pub(crate) struct Task {
    #[channel(append)]
    pub(crate) messages: Log<Message>,
    pub(crate) result: Option<String>,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Query,
    End,
}

/// Calls the model.
async fn query(model: Arc<dyn ChatModel>, task: Task, cx: Cx) -> Result<TaskUpdate, NodeError> {
    let messages: Vec<_> = task.messages.iter().cloned().collect();
    let call = async |_| complete(&model, Request::new(messages)).await.map(|answer| answer.message);
    Ok(Task::update().messages([cx.once("query", call).await?]))
}

/// Runs the command of the last message.
async fn execute(folder: PathBuf, task: Task, cx: Cx) -> Result<TaskUpdate, NodeError> {
    let message = task.messages.last().map_or("", |message| &message.content);
    let mut blocks = message.split("```bash\n").skip(1).filter_map(|block| block.split("```").next());
    let (Some(command), None) = (blocks.next(), blocks.next()) else {
        return Ok(Task::update().messages([Message::user("Answer with one block ```bash.")]));
    };
    let run = cx.once("execute", async |_| {
        let output = Command::new("sh").args(["-c", command]).current_dir(folder).output().await?;
        let text = [output.stdout, output.stderr].concat();
        Ok::<_, io::Error>((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
    });
    let (code, output) = run.await?;
    let done = output.trim_start().strip_prefix("DONE\n").filter(|_| code == Some(0));
    let observed = Message::user(format!("code {}\n{output}", code.unwrap_or(-1)));
    Ok(Task::update().messages([observed]).result(done.map(str::to_owned)))
}

pub(crate) fn graph(model: Arc<dyn ChatModel>, at: PathBuf) -> Result<CompiledGraph<Task>, Box<dyn Error>> {
    let mut graph = StateGraph::<Task>::new("mini");
    let query = graph.add_node_with("query", model, query);
    let execute = graph.add_node_with("execute", at, execute);
    graph.add_edge(START, query);
    graph.add_edge(query, execute);
    let next = |task: &Task| if task.result.is_some() { Next::End } else { Next::Query };
    graph.add_conditional_edges(execute, next, move |next| match next {
        Next::Query => query,
        Next::End => END,
    });
    Ok(graph.compile()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let commands = ["ls", "wc -l < notes.txt", "echo DONE; wc -l < notes.txt"];
    // A real model is `superstep::llm::OpenAiModel`.
    let model = ScriptedModel::from_fn(move |request| {
        let answered = request.messages.iter().filter(|message| message.role == Role::Assistant).count();
        txt(&format!("Next:\n```bash\n{}\n```", commands[answered.min(2)]))
    });
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("notes.txt"), "one\ntwo\n")?;
    let store = SqliteCheckpointer::open(folder.path().join("threads.db"))?;
    let graph = graph(Arc::new(model), folder.path().to_owned())?.with_checkpointer(store);

    let thread = graph.thread("count");
    let task = [Message::system(PROMPT), Message::user("How many lines has notes.txt?")];
    let end = thread.run(Task::update().messages(task)).await?;
    println!("{:?} in {} messages", end.state.result, end.state.messages.len());

    // Another output of the second command, in place of running it.
    let before = thread.history().pending("execute").checkpoints().await?[1].id;
    thread
        .at(before)
        .update_as("execute", Task::update().messages([Message::user("code 1\nno shell")]))
        .await?;
    let fork = thread.resume().await?;
    println!("forked: {:?}", fork.state.messages.last().map(|message| &message.content));
    assert_eq!(fork.state.messages.len(), end.state.messages.len());
    println!("{}", thread.replay().run().await?);
    Ok(())
}
