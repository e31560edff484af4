//! Conversations whose summaries forget everything: a kit from PyPI grades the texts that stay.

use std::{path::Path, process::Command};

use serde_json::Value;

/// Returns the grade of each session; `None` without the kit.
fn graded(share: &str) -> Option<Vec<Value>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = top.join("target/compaction/bin/python");
    if !python.exists() {
        superstep_testing::skipped("the kit for compactions is not installed, `just compaction` does it");
        return None;
    }
    let folder = std::env::current_exe().unwrap().parent().unwrap().join("../examples/compaction_probe");
    let script = top.join("tests/it/compaction/superstep.py");
    let mut command = Command::new(python);
    let output = command.arg(script).arg(folder).arg(share).env_remove("OPENAI_MODEL").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn what_is_pinned_stays_and_is_up_to_date_over_five_compactions() {
    let Some(sessions) = graded("0.02") else { return };
    assert_eq!(sessions.len(), 13);
    for session in sessions {
        for kind in ["safety_rule", "hard_constraint", "goal_state"] {
            assert_eq!(session["kept"][kind], 1.0, "{session}");
        }
        assert_eq!(session["stale"], 0, "{session}");
    }
}

#[test]
fn all_that_the_user_said_stays_if_there_is_room() {
    let Some(sessions) = graded("1.0") else { return };
    for session in sessions {
        let kept = session["kept"].as_object().unwrap();
        assert!(kept.len() == 5 && kept.values().all(|part| *part == 1.0), "{session}");
    }
}
