//! The `superstep` program. The library has its code.

use std::process::ExitCode;

fn main() -> ExitCode {
    superstep_cli::agent()
}
