//! The program that the third-party kits of `run.py` test: jobs with two effects each, and notes.
//!
//! `KIT_EFFECTS` is the address of the service that the effects call, and `KIT_KEYS` how they get their idempotency keys: `once`
//! hands out one that is the same in every attempt, `fresh` makes one in each attempt, without `Cx::once`.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Write as _},
    net::TcpStream,
    process::ExitCode,
};

use superstep::prelude::*;

#[derive(State, Clone, Debug, Default)]
struct Jobs {
    job: String,
    note: String,
    #[channel(append)]
    receipts: Log<String>,
    #[channel(append)]
    done: Log<String>,
}

/// Calls the service, which may kill this process. It blocks, since nothing else runs.
fn call(effect: &str, job: &str, key: String) -> io::Result<String> {
    let Ok(address) = env::var("KIT_EFFECTS") else { return Ok(String::new()) };
    let mut service = BufReader::new(TcpStream::connect(address)?);
    service.get_mut().write_all(format!("{effect} {job} {key}\n").as_bytes())?;
    let mut receipt = String::new();
    match service.read_line(&mut receipt)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(receipt.trim_end().to_owned()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the key of an attempt must be another one in each")]
async fn effect(effect: &'static str, jobs: &Jobs, cx: &Cx) -> Result<String, NodeError> {
    if env::var("KIT_KEYS").is_ok_and(|keys| keys == "fresh") {
        // The system's, and not `Cx::id`, which is the same in every attempt.
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_err(NodeError::new)?;
        return Ok(call(effect, &jobs.job, now.as_nanos().to_string())?);
    }
    cx.once(effect, async |key: String| call(effect, &jobs.job, key)).await
}

async fn charge(jobs: Jobs, cx: Cx) -> Result<JobsUpdate, NodeError> {
    Ok(Jobs::update().receipts([effect("charge", &jobs, &cx).await?]))
}

async fn mail(jobs: Jobs, cx: Cx) -> Result<JobsUpdate, NodeError> {
    let receipt = effect("mail", &jobs, &cx).await?;
    Ok(Jobs::update().receipts([receipt]).done([jobs.job]))
}

fn jobs() -> Result<CompiledGraph<Jobs>, CompileError> {
    let mut graph = StateGraph::new("jobs");
    let (charge, mail) = (graph.add_node("charge", charge), graph.add_node("mail", mail));
    graph.add_edge(START, charge);
    graph.add_edge(charge, mail);
    graph.add_edge(mail, END);
    graph.compile()
}

fn main() -> ExitCode {
    superstep_cli::main(jobs())
}
