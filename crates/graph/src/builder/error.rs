//! The error of a graph that does not compile.
//!
//! Start at [`CompileError`].

use std::{error::Error, fmt};

use superstep_engine::Problem;

/// A graph with errors, with all of its problems.
pub struct CompileError {
    /// The graph's name.
    pub graph: String,
    /// The problems, each with its place in the user's code.
    pub problems: Vec<Problem>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph `{}` cannot be compiled:", self.graph)?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl Error for CompileError {}

superstep_state::debug_by_chain!(CompileError);
