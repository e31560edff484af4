//! The `superstep` program: a ReAct agent in the terminal.
//!
//! ```text
//! commands    the commands: run, threads, show, revert, ..
//!    │
//! session     a run of the agent: setup, run loop, questions, memory consolidation
//!    │
//! config      the configuration: a file, a thread, the environment; models, memory, trust
//!    │
//! offline     a demonstration without a language model
//!    │
//! args        the command line
//!    │
//! output      errors, exit codes, tables; a run for people or as JSON
//! ```
//!
//! Each folder uses only those below it. Its interface is documented in `docs/cli.md`. Start at [`commands::run::run`].

mod args;
mod commands;
mod config;
mod offline;
mod output;
mod session;

use std::{process::ExitCode, time::Duration};

use crate::{
    args::command_line::{self, Command},
    commands::{dream, memory, presets, replay, revert, run, show, steer, thread_admin, threads, tools},
    output::exit,
};

/// Maximum wait for the end of MCP servers before they are killed.
const LONGEST_END: Duration = Duration::from_secs(6);

fn main() -> ExitCode {
    exit::guard(|| {
        let command = match command_line::parse() {
            Ok(command) => command,
            Err(exit) => return exit,
        };
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(cause) => {
                let message = format!("cannot start: {cause}; are there too many processes or open files?");
                return exit::Failure::new(exit::Exit::Failed, message).report();
            }
        };
        let result = runtime.block_on(async {
            match command {
                Command::Run(args) => run::run(args).await,
                Command::Resume(args) => run::resume(args).await,
                Command::Steer(args) => steer::steer(args).await,
                Command::Threads(args) => threads::threads(args).await,
                Command::Delete(args) => thread_admin::delete(args).await,
                Command::Copy(args) => thread_admin::copy(args).await,
                Command::Adopt(args) => thread_admin::adopt(args).await,
                Command::Prune(args) => thread_admin::prune(args).await,
                Command::Revert(args) => revert::revert(args).await,
                Command::State(args) => show::state(args).await,
                Command::History(args) => show::history(args).await,
                Command::Replay(args) => replay::replay(args).await,
                Command::Draw(args) => show::draw(args).await,
                Command::Dream(args) => dream::dream(args).await,
                Command::Memory(command) => memory::memory(command).await,
                Command::Presets(args) => presets::presets(&args),
                Command::Tools(args) => tools::list(&args).await,
                Command::Completions { shell } => show::completions(shell),
            }
        });
        // Servers that were dropped on an early return are still shutting down.
        let _ =
            runtime.block_on(async { tokio::time::timeout(LONGEST_END, superstep::mcp::all_ended()).await });
        superstep::mcp::kill_all();
        // A read of the terminal may be pending, which cannot be interrupted.
        runtime.shutdown_background();
        result.unwrap_or_else(exit::Failure::report)
    })
    .into()
}
