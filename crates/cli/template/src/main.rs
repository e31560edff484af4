//! A program for expense claims: `cargo run -- --help` lists its commands.

mod expenses;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

fn main() -> ExitCode {
    superstep_cli::main(expenses::expenses())
}
