//! The loop of the example `mini_swe_agent` with a scripted model, for `mini_swe_agent.py`.
//!
//! The arguments are a number of steps and where the thread is stored: `none`, `sqlite` or `sqlite-async`. Prints the milliseconds a
//! step, and the size of the database in bytes.

use std::{env, error::Error, fs, sync::Arc};

use example::Task;
use superstep::{Durability, RunOptions, prelude::*};
use superstep_testing::{script::txt, scripted::ScriptedModel};
use tokio::time::Instant;

#[path = "../../../examples/mini_swe_agent.rs"]
#[expect(dead_code, reason = "its main function is another program")]
mod example;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the numbers are the output")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
    let steps: usize = args.next().map_or(Ok(20), |steps| steps.parse())?;
    let store = args.next().unwrap_or_default();
    // Two messages begin, and each step adds two.
    let model = ScriptedModel::from_fn(move |request| {
        let is_last = request.messages.len() == 2 * steps;
        txt(&format!("Next:\n```bash\n{}\n```", if is_last { "echo DONE; echo 1" } else { "true" }))
    });
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("threads.db");
    let mut graph = example::graph(Arc::new(model), folder.path().to_owned())?;
    let durability = if store == "sqlite-async" { Durability::Async } else { Durability::Sync };
    let mut options = RunOptions::new().step_limit(10_000).durability(durability);
    if store.starts_with("sqlite") {
        graph = graph.with_checkpointer(SqliteCheckpointer::open(&file)?);
        options = options.thread("count");
    }
    let begin = [Message::system("s"), Message::user("count")];
    let started = Instant::now();
    let end = graph.configured(options).run(Task::update().messages(begin)).await?;
    let took = started.elapsed().as_secs_f64() * 1000.0 / steps as f64;
    assert_eq!((end.state.result.as_deref(), end.state.messages.len()), (Some("1\n"), 2 + 2 * steps));
    drop(graph);
    println!("{took:.3} {}", fs::metadata(&file).map_or(0, |file| file.len()));
    Ok(())
}
