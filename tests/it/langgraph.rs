//! The Python halves of `docs/langgraph.md`; the Rust ones are doc tests.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use crate::support::blocks;

const PAGE: &str = include_str!("../../docs/langgraph.md");

#[test]
fn each_pattern_has_both_halves() {
    let patterns: Vec<_> = PAGE.split("\n## ").filter(|part| part.starts_with(char::is_numeric)).collect();
    assert_eq!(patterns.len(), 10);
    for pattern in patterns {
        let title = pattern.lines().next().unwrap();
        assert!(pattern.contains("<div class=\"pair\">\n\n```python\n"), "{title}");
        assert!(pattern.contains("```\n\n```rust\n"), "{title}");
        assert!(pattern.trim_end().ends_with("```\n\n</div>"), "{title}");
    }
    assert_eq!((blocks(PAGE, "python").len(), blocks(PAGE, "rust").len()), (10, 10));
}

/// Every half checks its results itself.
#[test]
fn the_python_halves_run_with_langgraph() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/langgraph/bin/python");
    if !python.exists() {
        superstep_testing::skipped("LangGraph is not installed, `just langgraph` does it");
        return;
    }
    let run = "import json, sys\n\
        for number, block in enumerate(json.load(sys.stdin), 1):\n    \
            exec(compile(block, f'pattern {number}', 'exec'), {'__name__': f'pattern_{number}'})\n    \
            print(number)\n";
    let mut child = Command::new(python)
        .args(["-c", run])
        // No reports to a service, whatever the environment has.
        .env("LANGSMITH_TRACING", "false")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let code = serde_json::to_vec(&blocks(PAGE, "python")).unwrap();
    child.stdin.take().unwrap().write_all(&code).unwrap();
    let output = child.wait_with_output().unwrap();
    let numbers: Vec<_> = (1..=10).map(|number| number.to_string()).collect();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(),
        numbers,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success());
}
