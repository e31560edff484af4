"""Durability: crashresume, with a service that kills the process of a job right after an effect."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from crashresume import conform
from crashresume.core import InjectedCrash

HERE = Path(__file__).resolve().parent
JOBS = ["a", "b", "c"]


class Service:
    """Does each effect once for a key, and kills the process that called for it where the kit wants a crash."""

    def __init__(self, context):
        self.context, self.process, self.crash, self.receipts = context, None, None, RECEIPTS.setdefault(context.run_id, {})
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()

    def address(self):
        return "127.0.0.1:%d" % self.socket.getsockname()[1]

    def serve(self):
        while True:
            call, _ = self.socket.accept()
            with call:
                name, job, key = call.makefile().readline().split()
                if key not in self.receipts:
                    self.receipts[key] = f"{name}-{job}"
                    try:
                        self.context.effect(name, job, key=f"{name}:{job}")
                    except InjectedCrash as crash:
                        self.crash = crash
                        self.process.kill()
                        continue
                call.sendall(f"{self.receipts[key]}\n".encode())


# What the service knows, by scenario: it outlives the crashes.
RECEIPTS = {}


class Subject:
    """Runs each job in a process of its own, on a database for each scenario."""

    def __init__(self, context, folder, keys):
        self._service, self._database = Service(context), str(Path(folder) / f"{context.run_id}.db")
        self._environment = {
            **os.environ,
            "KIT_EFFECTS": self._service.address(),
            "KIT_KEYS": keys,
            "SUPERSTEP_STATE_DIR": str(Path(folder) / "state"),
        }
        self._state = None

    def state(self):
        return self._state

    def step(self, job):
        for command in self.commands(job):
            self._service.process = subprocess.Popen(
                command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            out, error = self._service.process.communicate()
            if self._service.crash:
                raise self._service.crash
            if self._service.process.returncode != 0:
                raise RuntimeError(f"{command}: {error}")
        self._state = self.read(out)


class Superstep(Subject):
    def __init__(self, context, folder, keys, program):
        super().__init__(context, folder, keys)
        self._program = program

    def shown(self):
        command = [self._program, "state", "shop", "--json", "--db", self._database]
        shown = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        return json.loads(shown.stdout) if shown.returncode == 0 else {"next": [], "values": {"done": []}}

    def commands(self, job):
        rest = ["shop", "--json", "--db", self._database]
        if self.shown()["next"]:
            yield [self._program, "resume", *rest]
        if job not in self.shown()["values"]["done"]:
            yield [self._program, "run", "--input", json.dumps({"job": job}), "--thread", *rest]
        yield [self._program, "state", *rest]

    def read(self, out):
        values = json.loads(out)["values"]
        return {"done": values["done"], "receipts": values["receipts"]}


class LangGraph(Subject):
    def commands(self, job):
        yield [sys.executable, str(HERE / "langgraph_jobs.py"), self._database, job]

    def read(self, out):
        return json.loads(out.splitlines()[-1])


def table(program):
    """Rows: the subject, the crash points, and the findings by kind."""
    subjects = [
        ("superstep, `Cx::once`, its key", lambda context, folder: Superstep(context, folder, "once", program)),
        ("superstep, no `once`, a key for each attempt", lambda context, folder: Superstep(context, folder, "fresh", program)),
        ("LangGraph, a key of the program for each job", lambda context, folder: LangGraph(context, folder, "own")),
        ("LangGraph, a key for each attempt", lambda context, folder: LangGraph(context, folder, "fresh")),
    ]
    for name, subject in subjects:
        RECEIPTS.clear()
        with tempfile.TemporaryDirectory() as folder:
            report = conform(lambda context: subject(context, folder), JOBS)
        kinds = ["state_lost", "resume_diverged", "effect_lost", "effect_replayed"]
        found = [sum(finding.kind == kind for finding in report.findings) for kind in kinds]
        yield [name, report.crash_points, *found]
