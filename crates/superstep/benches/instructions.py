#!/usr/bin/env python3
"""Counts the instructions of the benchmarks under callgrind, and compares them with the stored counts.

usage: instructions.py [--only WORD]... [--save] [--jobs N]
       instructions.py --profile CASE [--side floor]

The counts are in `instructions.json` beside this script, by case and side: instructions and allocations per unit
(superstep, round, turn, run). A case that needs more than 3 % more instructions than stored makes the script fail.
`--save` stores the new counts instead. `--profile` prints the functions of one case, most expensive first.
Needs valgrind.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[2]
STORED = HERE / "instructions.json"
BUILD = ["cargo", "bench", "-p", "superstep", "--bench", "instructions", "--no-run", "--message-format", "json"]
# Fractions, of instructions: counts vary by less than one percent from run to run.
WORSE = 0.03
ALLOCATES = {"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign"}


def build():
    built = subprocess.run(BUILD, cwd=TOP, check=True, stdout=subprocess.PIPE, text=True)
    artifacts = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    ours = (a["executable"] for a in artifacts if a.get("target", {}).get("name") == "instructions")
    return next(path for path in ours if path)


def callgrind(binary, case, side, folder):
    """The profile of the measured part, from the start of the stopwatch to its reading, and the number of units."""
    out = Path(folder) / f"{case.replace('/', '-')}-{side}"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-pos=no"]
    command += ["--zero-before=*Stopwatch::start*", "--dump-before=*Stopwatch::elapsed*", binary, case, side]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{case} {side} failed:\n{done.stderr}")
    # A numbered profile for each turn, and one of the rest of the program.
    turns = sorted(out.parent.glob(f"{out.name}.*"), key=lambda path: int(path.suffix[1:]))
    return [path for path in turns if "--dump-before" in path.read_text()][-1], int(done.stdout)


def counts(profile, units):
    """Instructions and allocations per unit."""
    names, called, instructions, allocations = {}, "", 0, 0
    with open(profile, encoding="utf-8") as lines:
        for line in lines:
            if match := re.match(r"cfn=(\(\d+\))(?: (.*))?", line):
                called = names.setdefault(match[1], match[2])
            elif match := re.match(r"fn=(\(\d+\)) (.*)", line):
                names[match[1]] = match[2]
            elif line.startswith("calls=") and called.split("'")[0] in ALLOCATES:
                allocations += int(line[6:].split()[0])
            elif line.startswith(("summary:", "totals:")):
                instructions = int(line.split()[1])
    return {"instructions": round(instructions / units), "allocations": round(allocations / units, 1)}


def measure(binary, case, side):
    with tempfile.TemporaryDirectory() as folder:
        found = counts(*callgrind(binary, case, side, folder))
    print(f"{case} {side}: {found['instructions']:,}", file=sys.stderr, flush=True)
    return found


def change(new, old):
    return f"{(new / old - 1) * 100:+.1f} %" if old else "new"


def table(cases, found, stored):
    """Prints the counts, and returns the cases that became worse."""
    head = ["case", "per", "floor", "instructions", "× floor", "allocations", "stored", "change"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    worse = []
    for case in cases:
        name = case["case"]
        ours, floor = found[name]["superstep"], found[name].get("floor")
        old = stored.get(name, {}).get("superstep", {}).get("instructions")
        cells = [name, case["unit"], f"{floor['instructions']:,}" if floor else ""]
        cells += [f"{ours['instructions']:,}", f"{ours['instructions'] / floor['instructions']:.2f}" if floor else ""]
        cells += [f"{ours['allocations']:,}", f"{old:,}" if old else "", change(ours["instructions"], old)]
        print(f"| {' | '.join(cells)} |")
        if old and ours["instructions"] > old * (1 + WORSE):
            worse.append(f"{name} ({change(ours['instructions'], old)})")
    return worse


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="a part of the names of the cases; several add up")
    parser.add_argument("--save", action="store_true", help="stores the counts instead of failing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="the number of cases at the same time")
    parser.add_argument("--profile", metavar="CASE", help="prints the most expensive functions of one case")
    parser.add_argument("--side", default="superstep", choices=["superstep", "floor"], help="the side of --profile")
    chosen = parser.parse_args()
    binary = build()
    if chosen.profile:
        folder = TOP / "target/instructions"
        folder.mkdir(parents=True, exist_ok=True)
        profile, _ = callgrind(binary, chosen.profile, chosen.side, folder)
        print(f"# {profile}", flush=True)
        sys.exit(subprocess.run(["callgrind_annotate", "--inclusive=yes", profile]).returncode)
    listed = subprocess.run([binary], check=True, stdout=subprocess.PIPE, text=True).stdout
    cases = [json.loads(line) for line in listed.splitlines()]
    cases = [c for c in cases if not chosen.only or any(word in c["case"] for word in chosen.only)]
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    found = {case["case"]: {} for case in cases}
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        runs = [(c["case"], side, pool.submit(measure, binary, c["case"], side))
                for c in cases for side in c["sides"]]
        for name, side, run in runs:
            found[name][side] = run.result()
    worse = table(cases, found, stored)
    if chosen.save:
        rows = (f" {json.dumps(name)}: {json.dumps(sides)}" for name, sides in sorted({**stored, **found}.items()))
        STORED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    elif worse:
        sys.exit(f"more instructions than stored: {', '.join(worse)}")


if __name__ == "__main__":
    main()
