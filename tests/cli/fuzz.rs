//! The fuzz target of configurations on its corpus: see `tests/fuzz`.

#[path = "../fuzz/src/configuration.rs"]
mod configuration;
#[path = "../fuzz/src/seeded.rs"]
mod seeded;

#[test]
fn configurations_are_read_or_rejected() {
    let (name, target) = configuration::TARGETS[0];
    seeded::seeded(name, target, 0);
}
