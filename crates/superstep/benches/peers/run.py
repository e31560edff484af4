#!/usr/bin/env python3
"""Measures superstep, the reference and the Rust peers on this machine, and prints tables of ratios.

usage: run.py [--only WORD] [--without ours|reference|rust|floor|growth]...

The peers are installed into `.peers/` at the top of the repository, which git ignores; the first time takes some ten
minutes. Needs python3 with venv, cargo, and the package registries. A peer that cannot be installed is said to be
missing, and the others are measured. Everything that was measured is left in `.peers/results.jsonl`, of which
`plots.py` draws the pictures.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[3]
HOME = TOP / ".peers"
REFERENCE = ["langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2"]
RUST = ["graphflow", "cognis", "weavegraph", "adk", "juncture", "rusty"]

BENCH = ["cargo", "bench", "-p", "superstep", "--bench"]

SIDES = ["ours", "reference", "rust", "floor", "growth"]
SAVERS = ["none", "memory", "sqlite"]
# Those of superstep, each with the reference's that does the same.
MODES = [("none", "none"), ("memory", "memory"), ("sqlite", "sqlite"), ("sqlite-async", "sqlite")]
SMALL = ["sequential_10", "sequential_1000", "loop_1000"]
REACT = ["react_plain_10x", "react_plain_100x"]
WIDE = ["wide_state_25x300", "wide_state_15x600", "wide_state_9x1200"]
FAN_OUT = ["fanout_to_subgraph_10x", "fanout_to_subgraph_100x", "send_flat_1000"]
AGENT = ["agent_10x", "agent_100x", "agent_text_100x"]
WORKLOADS = SMALL + REACT + WIDE + FAN_OUT + ["chat_200"] + AGENT
# What the kernel does for memory that is given back and taken again would be most of some rows, on either side.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_TOP_PAD_": str(1 << 26)}

# How often the reference runs each; superstep chooses for itself.
REPEATS = {"none": 7, "memory": 3, "sqlite": 3}


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, **environment):
    """What a command printed, or None and its last words on the error stream."""
    environment = {**os.environ, **ALLOCATOR, **environment}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600, cwd=TOP, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"  {error}")
        return None
    if done.returncode != 0:
        say("  " + "\n  ".join(done.stderr.strip().splitlines()[-5:]))
        return None
    return done.stdout


def lines(output):
    return [json.loads(line) for line in (output or "").splitlines() if line.startswith("{")]


def ours(only):
    say("superstep: measuring")
    return lines(run([*BENCH, "reference"], SUPERSTEP_BENCH_ONLY=only))


def growth(only, missing):
    """Works that grow, each in its own process."""
    found = []
    for case in lines(run([*BENCH, "growth"])):
        name = f"{case['workload']}/{case['saver']}"
        if only not in name:
            continue
        say(f"growth: {name}")
        measured = lines(run([*BENCH, "growth", "--", case["workload"], case["saver"]]))
        found += measured
        if not measured:
            missing.append(f"{name}: it failed")
    if only in "program":
        say("growth: cold starts of the program")
        started = run([sys.executable, HERE / "program.py"])
        found += lines(started)
        if started is None:
            missing.append("cold starts of the program: they failed")
    return found


def floor(only):
    """The table of what a superstep costs beside a bare floor, as the benchmark prints it."""
    say("superstep: measuring beside the floor")
    return run([*BENCH, "supersteps"], SUPERSTEP_BENCH_TABLE="1", SUPERSTEP_BENCH_ONLY=only)


def install_reference(missing):
    """Its interpreter, if it is there."""
    python = HOME / "venv/bin/python"
    say(f"reference: installing {', '.join(REFERENCE)}")
    made = python.exists() or run([sys.executable, "-m", "venv", HOME / "venv"]) is not None
    if not made or run([python, "-m", "pip", "install", "--quiet", *REFERENCE]) is None:
        missing.append("the reference: it could not be installed")
        return None
    return python


def reference(python, only, missing):
    found = []
    for workload in WORKLOADS:
        for saver in SAVERS:
            if only not in f"{workload}/{saver}":
                continue
            say(f"reference: {workload}/{saver}")
            script = HERE / "reference/run_one.py"
            measured = lines(run([python, script, workload, saver, str(REPEATS[saver])]))
            found += measured
            if not measured:
                missing.append(f"the reference's {workload}/{saver}: it failed")
    return found


def build_rust(missing):
    """The engines that are there to be measured, the floor and superstep first."""
    say("rust: building the peers")
    target = {"CARGO_TARGET_DIR": str(HOME / "target")}
    build = ["cargo", "build", "--release", "--manifest-path", HERE / "rust/Cargo.toml"]
    if run([*build, "--bins", "--all-features"], **target) is not None:
        return ["floor", "superstep", *RUST]
    built = []
    for engine in ["floor", "superstep", *RUST]:
        feature = ["--features", engine] if engine in RUST else []
        if run([*build, "--bin", engine, *feature], **target) is not None:
            built.append(engine)
        else:
            missing.append(f"{engine}: it could not be built")
    return built


def rust(engines, only, missing):
    found = []
    for engine in engines:
        say(f"rust: {engine}")
        measured = run([HOME / "target/release" / engine], PEERS_ONLY=only)
        if measured is None:
            missing.append(f"{engine}: it failed")
        found += lines(measured)
    return found


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def versus_reference(results):
    def of(engine, workload, saver):
        same = (r for r in results if (r["engine"], r["workload"], r["saver"]) == (engine, workload, saver))
        return next(same, None)

    rows = []
    for saver, theirs in MODES:
        for workload in WORKLOADS:
            a, b = of("superstep", workload, saver), of("reference", workload, theirs)
            if not a:
                continue
            cells = [f"{workload} / {saver}"]
            cells += [number(r["cpu_us"] / 1e3) if r else "–" for r in (b, a)]
            both = a and b
            cells += [f"{number(b[key] / a[key])}×" if both else "–" for key in ("cpu_us", "wall_us")]
            size = [number(r["db_bytes"] / 1e6) if r and "db_bytes" in r else "" for r in (b, a)]
            rows.append(cells + size)
    head = ["workload / saver", "reference CPU ms", "superstep CPU ms", "ratio", "ratio by the clock"]
    table(head + ["reference MB", "superstep MB"], rows)


def versus_rust(results):
    names = [f"{name}_{size}" for name, size in (("loop", 1000), ("chain", 1000), ("fanout", 100))]
    names += [f"history_{size}" for size in (10, 100, 1000, 5000)]

    def of(engine, workload, saver):
        same = (r for r in results if (r["engine"], r["workload"], r["saver"]) == (engine, workload, saver))
        return next((r for r in same if "kept_bytes" in r), None)

    engines = [e for e in dict.fromkeys(r["engine"] for r in results if "kept_bytes" in r)]
    rows = []
    for saver in ("none", "memory"):
        for name in names:
            mine = of("superstep", name, saver)
            cells = [f"{name} / {saver}"]
            for engine in engines:
                theirs = of(engine, name, saver)
                cell = number(theirs["wall_us"]) if theirs else "–"
                if mine and theirs and engine != "superstep":
                    cell += f" ({number(theirs['wall_us'] / mine['wall_us'])}×)"
                cells.append(cell)
            rows.append(cells)
    kept = ["kept after history_5000 / memory, MiB"]
    for engine in engines:
        found = of(engine, "history_5000", "memory")
        kept.append(f"{found['kept_bytes'] / 2**20:.2f}" if found else "–")
    table(["workload / saver, µs", *engines], [*rows, kept])
    some, one = (of("superstep", name, "memory") for name in ("history_5000", "history-of-one_5000"))
    if some and one:
        more = (some["kept_bytes"] - one["kept_bytes"]) / 2**20
        print(f"\nOf what superstep keeps, {more:.2f} MiB are the last 99 of the 100 checkpoints.")


def growing(results):
    """What a superstep costs when a work grows, and the most memory that its process had."""
    rows = []
    for result in (result for result in results if "step_us" in result):
        cells = [f"{result['workload']} / {result['saver']}", number(result["step_us"])]
        parts = (("load_us", 1e3), ("open_us", 1e3), ("list_us", 1e3), ("run_kib", 1))
        cells += [number(result[key] / by) if key in result else "" for key, by in parts]
        rows.append([*cells, number(result["peak_kib"] / 1024)])
    times = ["a step, µs", "read the state, ms", "open the file, ms", "list the threads, ms"]
    table(["work / saver", *times, "a waiting run, KiB", "most memory, MiB"], rows)
    for result in (result for result in results if "token_ms" in result):
        times = [number(result[key]) for key in ("request_ms", "token_ms")]
        head = ["a cold start of the program, ms until", "the request", "the first token", "most memory, MiB"]
        table(head, [["median", *times, number(result["peak_kib"] / 1024)]])


def table(head, rows):
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a part of the workload's name, or of workload/saver")
    parser.add_argument("--without", action="append", default=[], choices=SIDES)
    chosen = parser.parse_args()
    HOME.mkdir(exist_ok=True)
    missing, results, versus = [], [], []
    # First everything is built, so that nothing else goes on while something is measured.
    say("superstep: building")
    built = run([*BENCH, "reference", "--bench", "supersteps", "--bench", "growth", "--no-run"]) is not None
    if not built:
        missing.append("superstep's own benchmarks: they could not be built")
    python = None if "reference" in chosen.without else install_reference(missing)
    engines = [] if "rust" in chosen.without else build_rust(missing)
    if built and "ours" not in chosen.without:
        results += ours(chosen.only)
    if python:
        results += reference(python, chosen.only, missing)
    versus += rust(engines, chosen.only, missing)
    beside = floor(chosen.only) if built and "floor" not in chosen.without else None
    grown = growth(chosen.only, missing) if built and "growth" not in chosen.without else []
    with open(HOME / "results.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in results + versus + grown)
    if results:
        versus_reference(results)
    if versus:
        versus_rust(versus)
    if beside:
        print(f"\n{beside}")
    if grown:
        growing(grown)
    for what in missing:
        print(f"\nNot measured: {what}.")


if __name__ == "__main__":
    main()
