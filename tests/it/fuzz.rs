//! The fuzz targets on their corpora, and on a few thousand changed inputs: see `tests/fuzz`.

#[path = "../fuzz/src/seeded.rs"]
mod seeded;
#[path = "../fuzz/src/targets.rs"]
mod targets;

/// Runs a target of this name.
fn run(name: &str, count: usize) {
    let (_, target) = targets::TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    seeded::seeded(name, *target, count);
}

#[test]
fn stored_rows_are_read_or_rejected() {
    run("stored_rows", 4_000);
}

#[test]
fn texts_of_threads_are_read_or_rejected() {
    run("thread_text", 400);
}

#[test]
fn streams_of_models_are_read_or_rejected() {
    run("sse", 2_000);
}

#[test]
fn rules_decide_every_call() {
    run("permission_rules", 2_000);
}
