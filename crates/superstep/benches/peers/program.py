#!/usr/bin/env python3
"""Measures cold starts of the program: from its start to the first token, and its peak of resident memory.

usage: program.py [--runs N] [--program PATH]

A server on loopback, in this process, streams a reply as soon as it has a request. The program is a new process each
time, with a new thread in a database, as for a user: `superstep run "hi"`. Prints one JSON line: the medians of the
time until the request arrives, of the time until the first token is on stdout, and of the peak.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
BUILD = ["cargo", "build", "--release", "--locked", "-p", "superstep-cli", "--message-format", "json"]
TOKEN = "first"


class Model(BaseHTTPRequestHandler):
    """A model whose reply is one token, then a pause, then the end, so that the token cannot wait for the end."""

    def do_POST(self):
        self.server.arrived = time.perf_counter()
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.chunk([{"index": 0, "delta": {"role": "assistant", "content": f"{TOKEN} "}, "finish_reason": None}])
        self.server.seen.wait(timeout=60)
        self.chunk([{"index": 0, "delta": {"content": "last"}, "finish_reason": "stop"}])
        self.chunk([], usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11})
        self.event("[DONE]")

    def chunk(self, choices, **more):
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": choices}
        self.event(json.dumps({**chunk, **more}))

    def event(self, data):
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_):
        pass


def build():
    built = subprocess.run(BUILD, cwd=TOP, check=True, stdout=subprocess.PIPE, text=True)
    artifacts = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    return next(a["executable"] for a in artifacts if a.get("executable") and a["target"]["name"] == "superstep")


def start(program, server, folder):
    """Runs the program once; returns the two times in ms, and the peak in KiB."""
    server.seen.clear()
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    command = [program, "run", "hi", "--base-url", address, "--model", "m"]
    kept = {"PATH": os.environ["PATH"], "HOME": folder, "XDG_STATE_HOME": folder, "XDG_DATA_HOME": folder}
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    text = b""
    while TOKEN.encode() not in text:
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            sys.exit(f"{command} printed no token: {text!r} {process.stderr.read().decode()}")
        text += piece
    token = time.perf_counter()
    server.seen.set()
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{command} failed: {process.stderr.read().decode()}")
    process.returncode = 0
    return (server.arrived - began) * 1e3, (token - began) * 1e3, used.ru_maxrss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--program", help="a built program; by default the release build of this repository")
    chosen = parser.parse_args()
    program = os.path.abspath(chosen.program or build())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.seen = threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        # The first start also reads the program from the disk, and makes the database.
        start(program, server, folder)
        starts = [start(program, server, folder) for _ in range(chosen.runs)]
    request, token, peak = (statistics.median(values) for values in zip(*starts))
    line = {"engine": "superstep", "workload": "program", "saver": "sqlite", "runs": chosen.runs}
    print(json.dumps({**line, "request_ms": round(request, 2), "token_ms": round(token, 2), "peak_kib": peak}))


if __name__ == "__main__":
    main()
