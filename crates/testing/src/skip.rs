//! Tests that cannot run on a machine.

use std::io::{self, Write as _};

/// Reports that a test tests nothing, with the reason. Prints past the capture of the test harness, because the
/// test passes.
pub fn skipped(reason: &str) {
    let _ = writeln!(io::stderr(), "\nSKIPPED: {reason}\n");
}
