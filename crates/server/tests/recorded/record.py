"""Sends the exchanges of `exchanges.txt` to the development server of LangGraph, and writes each topic's as JSON lines.

Usage: record.py FOLDER [TOPIC]... with the folder of `install.sh`, where the server also runs; without topics all of them.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).parent
GRAPHS = ["counter", "chat", "approve", "parent", "fail", "two", "gate"]
PORT = 28125
# The headers that clients read.
HEADERS = ["content-type", "content-location", "location", "x-pagination-total", "x-pagination-next", "cache-control"]
# Keys of what only this server knows of itself, of the packages below it, and of a user that there is not. They differ between versions,
# and no client reads them.
INTERNAL = re.compile("__|user_id|langsmith_|langgraph_(api|auth|request|version|plan|host)|ls_(integration|model_type)|lc_versions")
# Keys that are spelled as if they were such.
PUBLIC = ["__interrupt__", "__error__"]
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
ID = re.compile(rf"(lc_run-{{1,2}}{UUID}(?:-\d+)?)|({UUID})|\b([0-9a-f]{{32}})\b")
EVENT = re.compile(r"\d{13}-\d+(\.\d+)?")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")
PLACE = re.compile("<[TRAKMIU][0-9]+>")
# The kinds of ids, by the key that has them.
KINDS = {
    "thread_id": "T",
    "run_id": "R",
    "assistant_id": "A",
    "checkpoint_id": "K",
    "parent_checkpoint_id": "K",
    "interrupt_id": "I",
}
# The kinds of ids in a text, by what stands before them.
BEFORE = {"/threads/": "T", "/runs/": "R", "synth:": "R"}
MESSAGES = ["human", "ai", "tool", "AIMessageChunk"]


class Ids:
    """The placeholders of ids, numbered in the order in which they appear."""

    def __init__(self):
        self.places, self.ids, self.counts = {}, {}, {}

    def place(self, text, kind):
        if text not in self.places:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.bind(f"<{kind}{self.counts[kind]}>", text)
        return self.places[text]

    def bind(self, place, text):
        self.places[text], self.ids[place] = place, text

    def hide(self, value, key=None, kind=None):
        """Returns JSON in which ids and times are placeholders."""
        if isinstance(value, dict):
            is_message = value.get("type") in MESSAGES
            known = {key: item for key, item in value.items() if not INTERNAL.match(key) or key in PUBLIC}
            if "graph_id" in known:
                # Metadata of a run, in which `system` stands for the lack of a user.
                known.pop("created_by", None)
            return {
                self.hide(key): self.hide(item, key, "M" if is_message and key == "id" else None)
                for key, item in known.items()
            }
        if isinstance(value, list):
            return [self.hide(item, key) for item in value]
        if isinstance(value, str):
            value = TIME.sub("<TIME>", ID.sub(lambda id: self.hide_id(id, key, kind), value))
            return EVENT.sub("<E>", value) if key == "event_id" else value
        return "<MS>" if key == "timestamp" else "<N>" if key in ["seq", "applied_through_seq"] else value

    def hide_id(self, match, key, kind):
        message, identity, digest = match.groups()
        # Version 5 is made of the name of a graph, and the same everywhere.
        if identity and identity[14] == "5" and key == "assistant_id":
            return identity
        before = match.string[: match.start()]
        named = next((kind for end, kind in BEFORE.items() if before.endswith(end)), None)
        kind = kind or named or ("M" if message else "I" if digest else KINDS.get(key, "U"))
        return self.place(match[0], kind)

    def shown(self, text):
        """Returns text in which placeholders are ids, of which the unknown ones are made up."""
        for place in PLACE.findall(text):
            if place not in self.ids:
                kind = place[1]
                self.counts[kind] = max(self.counts.get(kind, 0), int(place[2:-1]))
                self.bind(place, str(uuid.uuid4()))
        return PLACE.sub(lambda place: self.ids[place[0]], text)


def send(method, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    name = "last-event-id" if method == "GET" else "content-type"
    headers = {name: body if method == "GET" else "application/json"} if body else {}
    connection.request(method, path, body if method != "GET" else None, headers)
    return connection, connection.getresponse()


def event(frame):
    fields = dict(line.split(": ", 1) for line in frame.split("\r\n") if not line.startswith(":") and line)
    shown = {"event": fields["event"], "data": json.loads(fields["data"])} if fields else {}
    return shown | ({"id": True} if "id" in fields else {})


def until_quiet(connection, response):
    """Returns the frames of a stream that does not end, until nothing has come for a while."""
    text = b""
    connection.sock.settimeout(2)
    try:
        while line := response.readline():
            text += line
    except TimeoutError:
        pass
    connection.close()
    return text.decode()


def exchange(ids, line):
    """Sends one request, and returns it with its response."""
    line, ends = re.fullmatch(r"(.*?)(?: ends (\d+))?", line).groups()
    method, path, *body = line.split(" ", 2)
    body = body[0] if body else ""
    connection, response = send(method, ids.shown(path), ids.shown(body))
    request = {"method": method, "path": path, "body": body}
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    text = until_quiet(connection, response) if ends else response.read().decode()
    answer = {"status": response.status}
    if "event-stream" in headers.get("content-type", ""):
        events = [event(frame) for frame in text.split("\r\n\r\n")]
        content = {"ends": int(ends or 0), "events": [event for event in events if event]}
    elif "json" in headers.get("content-type", "") and text.strip():
        content = {"json": json.loads(text)}
    else:
        content = {"text": text}
    return request | answer | ids.hide({"headers": headers}) | ids.hide(content)


def contains(value, part):
    if isinstance(part, dict):
        return isinstance(value, dict) and all(contains(value.get(key), item) for key, item in part.items())
    return value == part


def until(ids, line):
    """Waits until the answer of a GET contains this."""
    _, path, part = line.split(" ", 2)
    for _ in range(600):
        _, response = send("GET", ids.shown(path), "")
        if contains(json.loads(response.read()), json.loads(ids.shown(part))):
            return {"until": path, "contains": json.loads(part)}
        time.sleep(0.1)
    raise SystemExit(f"never: {line}")


def record(topic, lines):
    ids = Ids()
    with (HERE / f"{topic}.jsonl").open("w") as file:
        for line in lines:
            print(topic, line[:150])
            answer = until(ids, line) if line.startswith("until ") else exchange(ids, line)
            file.write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")) + "\n")


def start(folder):
    """Starts the server in a folder of its own, and waits until it answers."""
    home = folder / "recorded"
    subprocess.run(["rm", "-rf", home], check=True)
    home.mkdir()
    (home / "graphs.py").write_bytes((HERE / "graphs.py").read_bytes())
    graphs = {name: f"./graphs.py:{name}" for name in GRAPHS}
    (home / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    command = [folder.absolute() / "venv/bin/langgraph", "dev", "--no-browser", "--no-reload", "--port", str(PORT)]
    # With one seed, keys from sets are always in the same order.
    settings = {"LANGSMITH_TRACING": "false", "LANGGRAPH_NO_VERSION_CHECK": "1", "LOG_LEVEL": "error", "PYTHONHASHSEED": "0"}
    log = (home / "server.log").open("w")
    server = subprocess.Popen(command, cwd=home, env=os.environ | settings, stdout=log, stderr=log)
    for _ in range(120):
        try:
            send("GET", "/ok", "")
            return server
        except OSError:
            time.sleep(0.5)
    server.terminate()
    raise SystemExit((home / "server.log").read_text())


def main():
    topics, chosen = {}, sys.argv[2:]
    for line in (HERE / "exchanges.txt").read_text().splitlines():
        if line.startswith("["):
            topic = topics.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            topic.append(line)
    server = start(Path(sys.argv[1]))
    try:
        for topic, lines in topics.items():
            if not chosen or topic in chosen:
                record(topic, lines)
    finally:
        server.terminate()


main()
