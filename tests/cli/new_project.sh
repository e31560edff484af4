#!/usr/bin/env bash
# Creates a project with `superstep new`, and does with it what its README says.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
# Outside of the workspace, whose `rustfmt.toml` is not that of the project.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cargo build --workspace --all-features --bin superstep
cd "$place"
export SUPERSTEP_STATE_DIR=$place/state CARGO_TARGET_DIR=$root/target INSTA_UPDATE=no
"$root/target/debug/superstep" new my-shop --path "$root"
cd my-shop
cp "$root/Cargo.lock" .
cargo fmt --check
cargo test --offline
run() { cargo run --quiet --offline -- "$@"; }
run run --input '{"purpose": "chairs", "euros": 240}' --thread chairs || [ $? = 6 ]
run answer chairs approve true
run history chairs
run draw
run export chairs > threads/again.thread.jsonl
run replay chairs --strict
cargo clippy --offline --all-targets -- -D warnings
cargo test --offline
cp threads/again.thread.jsonl "$root/target/chairs.thread.jsonl"
