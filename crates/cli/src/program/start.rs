//! The start and the end of a program.

use std::{process::ExitCode, time::Duration};

use crate::output::exit::{Exit, Failure, guard};

/// Maximum wait for the end of MCP servers before they are killed.
const MAX_SHUTDOWN: Duration = Duration::from_secs(6);

/// Runs a program on a runtime of its own.
pub(super) fn start(program: impl AsyncFnOnce() -> Result<Exit, Failure>) -> ExitCode {
    guard(|| {
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(cause) => {
                let message = format!("cannot start: {cause}; are there too many processes or open files?");
                return Failure::new(Exit::Failed, message).report();
            }
        };
        let exit = runtime.block_on(program()).unwrap_or_else(Failure::report);
        // Servers that were dropped on an early return are still shutting down.
        let _ =
            runtime.block_on(async { tokio::time::timeout(MAX_SHUTDOWN, superstep::mcp::all_ended()).await });
        superstep::mcp::kill_all();
        // A read of the terminal may be pending, which cannot be interrupted.
        runtime.shutdown_background();
        exit
    })
    .into()
}
