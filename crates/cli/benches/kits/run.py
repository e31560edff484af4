#!/usr/bin/env python3
"""Durability and tampering, by kits that others wrote, on superstep and LangGraph side by side. Prints the tables of `docs/COMPARE.md`.

usage: run.py FOLDER

Installs the kits and LangGraph from PyPI into FOLDER the first time, and builds the program of `orders.rs`. `KIT_DETAILS=1` prints why.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
PACKAGES = [
    "crashresume==0.1.0",
    "agent-memory-integrity==0.6.3",
    "langgraph==1.2.22",
    "langgraph-checkpoint-sqlite==3.1.2",
    "pycryptodome==4.4.0",
    "xxhash==4.1.0",
]


def install(folder):
    """Runs this script again with the interpreter that has the packages."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    os.execv(python, [python, "-B", __file__, folder])


def build():
    """Builds the program with the features of the tests, so that nothing is built twice, and returns its path."""
    command = ["cargo", "build", "--workspace", "--all-features", "--bench", "kit_orders", "--message-format", "json"]
    built = subprocess.run(command, cwd=TOP, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return next(message["executable"] for message in messages if message.get("target", {}).get("name") == "kit_orders")


def show(head, rows):
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print()


def main():
    folder = Path(sys.argv[1]).absolute()
    if Path(sys.prefix) != folder:
        install(folder)
    import crash
    import tamper

    program = build()
    print(f"{datetime.date.today()}, {platform.system()}, Python {platform.python_version()}, {', '.join(PACKAGES[:4])}\n")
    show(["crashresume", "crashes", "state lost", "diverged", "effects lost", "effects replayed"], crash.table(program))
    show(["agmi", *[f"T{edit}" for edit in range(1, 10)]], tamper.table(program))


if __name__ == "__main__":
    main()
