#!/bin/sh
# Fuzzes a target for some minutes: `tests/fuzz/run.sh thread_text 10`. New inputs stay in `target/fuzz/corpus`; one that ends the
# program is stored beside it, and belongs into `tests/fuzz/corpus`, which the tests read.
# The flags are those of cargo-fuzz without a sanitizer (the workspace forbids unsafe code), so that stable Rust is enough.
set -eu
target=$1 minutes=${2:-10}
shift; [ $# -eq 0 ] || shift
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
[ -d "corpus/$target" ] || { echo "there is no target $target; there are:" $(ls corpus) >&2; exit 2; }
[ -e Cargo.lock ] || cp "$root/Cargo.lock" .
features=
[ "$target" != configuration ] || features="--features configuration"
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/fuzz"
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" cargo build --profile fuzz --target "$host" $features
new="$CARGO_TARGET_DIR/corpus/$target"
mkdir -p "$new"
FUZZ_TARGET=$target exec "$CARGO_TARGET_DIR/$host/fuzz/superstep-fuzz" "$new" "corpus/$target" \
    -artifact_prefix="$CARGO_TARGET_DIR/$target-" -max_total_time=$((minutes * 60)) -timeout=30 -rss_limit_mb=2048 "$@"
