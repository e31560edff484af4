//! The `superstep` program: a ReAct agent in the terminal.
//!
//! ```text
//! args ─▶ place (folder, database) ─▶ model (which one) ─▶ run ─▶ output
//!                      │                                   └─▶ follow ─▶ approve (who decides) ─▶ follow
//!                      ├─▶ threads, show (state, history, draw)
//!                      ├─▶ keep (delete, copy, prune)
//!                      ├─▶ replay
//!                      ├─▶ revert (files)
//!                      ├─▶ memory (long-term memory), dream (memory consolidation)
//!                      └─▶ steer
//! ```
//!
//! Its interface is documented in `docs/cli.md`. Start at [`run`].

mod args;
mod exit;
mod place;
mod private;

mod discover;
mod model;
mod offline;
mod profile;

mod approve;
mod dream;
mod follow;
mod keep;
mod mcp;
mod memory;
mod output;
mod replay;
mod results;
mod revert;
mod run;
mod settings;
mod show;
mod signals;
mod steer;
mod threads;
mod tools;
mod trust;

use std::{process::ExitCode, time::Duration};

/// Maximum wait for the end of MCP servers before they are killed.
const LONGEST_END: Duration = Duration::from_secs(6);

fn main() -> ExitCode {
    exit::guard(|| {
        let command = match args::parse() {
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
                args::Command::Run(args) => run::run(args).await,
                args::Command::Resume(args) => run::resume(args).await,
                args::Command::Steer(args) => steer::steer(args).await,
                args::Command::Threads(args) => threads::threads(args).await,
                args::Command::Delete(args) => keep::delete(args).await,
                args::Command::Copy(args) => keep::copy(args).await,
                args::Command::Adopt(args) => keep::adopt(args).await,
                args::Command::Prune(args) => keep::prune(args).await,
                args::Command::Revert(args) => revert::revert(args).await,
                args::Command::State(args) => show::state(args).await,
                args::Command::History(args) => show::history(args).await,
                args::Command::Replay(args) => replay::replay(args).await,
                args::Command::Draw(args) => show::draw(args).await,
                args::Command::Dream(args) => dream::dream(args).await,
                args::Command::Memory(command) => memory::commands::memory(command).await,
                args::Command::Presets(args) => settings::presets(&args),
                args::Command::Tools(args) => tools::list(&args).await,
                args::Command::Completions { shell } => show::completions(shell),
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
