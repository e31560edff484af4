//! The start and the end of a program.

use std::{
    io::Write,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    time::Duration,
};

use superstep_session::{
    error::{ErrorKind, SessionError},
    text::printable,
};

use crate::output::{exit::Exit, note::report};

/// Maximum wait for the end of MCP servers before they are killed.
const MAX_SHUTDOWN: Duration = Duration::from_secs(6);

/// Runs a program on a runtime of its own.
pub(super) fn start(program: impl AsyncFnOnce() -> Result<Exit, SessionError>) -> ExitCode {
    guard(|| {
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(cause) => {
                let message = format!("cannot start: {cause}; are there too many processes or open files?");
                return report(&SessionError::new(ErrorKind::Failed, message));
            }
        };
        let exit = runtime.block_on(program()).unwrap_or_else(|error| report(&error));
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

/// Runs the program; a panic ends it with [`Exit::Internal`].
fn guard(program: impl FnOnce() -> Exit) -> Exit {
    // Panics of tasks are caught and reported by the run; this prints their location.
    panic::set_hook(Box::new(|panic| {
        let text = printable(panic.payload_as_str().unwrap_or("without a message"));
        let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        let place = place.unwrap_or_default();
        let _ = writeln!(anstream::stderr(), "internal error: {text}{place}; please report this");
    }));
    panic::catch_unwind(AssertUnwindSafe(program)).unwrap_or(Exit::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_has_an_exit_code_of_its_own() {
        let exit = guard(|| panic!("as the test wants it"));
        drop(panic::take_hook());
        assert_eq!(exit, Exit::Internal);
    }
}
