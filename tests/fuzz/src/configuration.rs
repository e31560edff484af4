//! The configuration of the `superstep` program.

/// A target and its name.
type Target = (&'static str, fn(&[u8]));

/// The targets.
pub(crate) const TARGETS: [Target; 1] = [("configuration", configuration)];

/// A file is rejected with a text, or its settings survive a thread that stores them.
fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(problem) = superstep_cli::configuration_problem(text) {
        assert!(!problem.is_empty());
    }
}
