#!/usr/bin/env python3
"""Measures the example `mini_swe_agent` beside mini-swe-agent, with the same scripted answers and commands, and prints a table.

usage: mini_swe_agent.py FOLDER [STEPS] [ROUNDS]

Installs mini-swe-agent into FOLDER the first time, by pip. Each round runs all, one after the other; the table has the medians.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
BENCH = ["cargo", "bench", "--profile", "release", "-p", "superstep", "--bench", "mini_swe_agent", "--"]
ORIGINAL = """
import sys, time
from pathlib import Path
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.test_models import DeterministicModel, make_output
steps, file = int(sys.argv[1]), sys.argv[2]
commands = ["true"] * (steps - 1) + ["echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo 1"]
outputs = [make_output(f"Next:\\n```bash\\n{command}\\n```", [{"command": command}], cost=0) for command in commands]
saved = {"output_path": Path(file)} if file else {}
agent = DefaultAgent(DeterministicModel(outputs=outputs), LocalEnvironment(), system_template="s", instance_template="{{task}}", **saved)
started = time.perf_counter()
assert agent.run("count")["exit_status"] == "Submitted"
took = (time.perf_counter() - started) / steps * 1000
print(took, Path(file).stat().st_size if file else 0)
"""


def shell(steps):
    started = time.perf_counter()
    for _ in range(steps):
        subprocess.run(["sh", "-c", "true"], capture_output=True)
    return f"{(time.perf_counter() - started) / steps * 1000} 0"


def main(folder, steps=200, rounds=5):
    python, steps = Path(folder).resolve() / "bin/python", int(steps)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "mini-swe-agent==2.4.6"], check=True)
    printed = lambda *command: subprocess.run(command, cwd=TOP, check=True, text=True, stdout=subprocess.PIPE).stdout
    file = tempfile.NamedTemporaryFile(suffix=".json").name
    original = lambda file: printed(python, "-c", ORIGINAL, str(steps), file).splitlines()[-1]
    ours = lambda store: printed(*BENCH, str(steps), store).splitlines()[-1]
    runs = {f"superstep, {store}": lambda store=store: ours(store) for store in ["none", "sqlite-async", "sqlite"]}
    runs |= {"mini-swe-agent": lambda: original(""), "mini-swe-agent, trajectory": lambda: original(file)}
    runs |= {"the shell alone": lambda: shell(steps)}
    results = {name: [] for name in runs}
    for _ in range(int(rounds)):
        for name, run in runs.items():
            results[name].append([float(number) for number in run().split()])
    print(f"{steps} steps, load {os.getloadavg()[0]:.1f}\n\n| | ms a step | KB on disk |\n|---|---|---|")
    for name, numbers in results.items():
        took, size = (statistics.median(column) for column in zip(*numbers))
        print(f"| {name} | {took:.1f} | {size / 1000:.0f} |")


main(*sys.argv[1:])
