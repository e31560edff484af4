"""Tampering: the nine edits of agent-memory-integrity (agmi), on the SQLite files of superstep and of LangGraph."""

import base64
import json
import os
import secrets
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import xxhash
from agmi.adapters.base import MemoryAdapter, Record
from agmi.adapters.langgraph_sqlite import LangGraphSqliteAdapter
from agmi.check import run

COLUMNS = ["key", "parent", "source", "created_ms", "control", "metadata", "parent_pruned", "applied", "snapshot"]


class Superstep(MemoryAdapter):
    """A thread whose records are checkpoints with a note each. What counts is whether `state` and `history` read it without a
    note that it is not as the user's last command left it.

    Who edits the file also corrects the checksums and the counts of the thread, which have no secret, with `informed`.
    """

    name = "superstep"
    supports_replay = supports_metadata = supports_snapshot = True
    program = None

    def __init__(self, informed, key):
        self.informed, self.key, self.folder = informed, key, None

    def setup(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "store" / "threads.db"
        self.file.parent.mkdir()
        # Outside of the store, as in the home of the user.
        self.environment = {**os.environ, "SUPERSTEP_STATE_DIR": str(Path(self.folder.name) / "home")}
        self.environment.pop("SUPERSTEP_KEY", None)
        if self.key:
            self.environment["SUPERSTEP_KEY"] = base64.b64encode(secrets.token_bytes(32)).decode()

    def teardown(self):
        self.folder.cleanup()

    def ran(self, *args):
        command = [self.program, *args, "--db", str(self.file)]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True)

    def write(self, thread, notes):
        for note in notes:
            done = self.ran("edit", thread, "--update", json.dumps({"note": note}))
            if done.returncode != 0:
                raise RuntimeError(done.stderr)

    def begin(self, thread, notes):
        begun = self.ran("run", "--input", '{"job": "seed"}', "--thread", thread)
        if begun.returncode != 0:
            raise RuntimeError(begun.stderr)
        self.write(thread, notes)

    def seed(self, n):
        self.begin("victim", [f"agmi-seed-{i}" for i in range(n)])

    def seed_other(self, n):
        self.begin("other", [f"agmi-other-{i}" for i in range(n)])

    def append_genuine(self):
        self.write("victim", ["agmi-seed-late"])

    def sql(self, text, values=()):
        with sqlite3.connect(self.file) as database:
            return database.execute(text, values).fetchall()

    def rows(self, thread):
        key = self.sql("SELECT key FROM threads WHERE name = ?", (thread,))[0][0]
        columns = ", ".join([*COLUMNS, "checksum", "content_checksum"])
        rows = self.sql(
            f"SELECT {columns} FROM checkpoints WHERE key >> 32 = ? AND source = 'update' ORDER BY key", (key,)
        )
        names = [*COLUMNS, "checksum", "content_checksum"]
        return [Record(i, {**dict(zip(names, row)), "thread": thread}) for i, row in enumerate(rows)]

    def read_all_raw(self):
        return self.rows("victim")

    def read_other_raw(self):
        return self.rows("other")

    def put(self, fields):
        """Writes a row, with the checksums that fit it if the editor knows how they are made."""
        fields = dict(fields)
        if self.informed:
            fields["checksum"] = checksum("checkpoint", *[fields[name] for name in COLUMNS[:7]])
            fields["content_checksum"] = checksum("content", fields["key"], fields["applied"], fields["snapshot"])
        names = [*COLUMNS, "checksum", "content_checksum"]
        marks = ", ".join("?" * len(names))
        self.sql(f"INSERT OR REPLACE INTO checkpoints ({', '.join(names)}) VALUES ({marks})", [fields[n] for n in names])
        self.count()

    def count(self):
        """Corrects what the row of the thread says about its checkpoints."""
        if self.informed:
            key, name, branched = self.sql("SELECT key, name, branched FROM threads WHERE name = 'victim'")[0]
            head, number = self.sql("SELECT max(key) & 0xffffffff, count(*) FROM checkpoints WHERE key >> 32 = ?", (key,))[0]
            fits = checksum("thread", key, name, head, number, branched)
            self.sql("UPDATE threads SET head = ?, checkpoints = ?, checksum = ? WHERE key = ?", (head, number, fits, key))

    def write_raw(self, record):
        rows = self.read_all_raw()
        place = rows[record.seq].fields if record.seq < len(rows) else record.fields
        # The slot keeps its place in the thread; what it says is the record's.
        self.put({**record.fields, "key": place["key"], "parent": place["parent"]})

    def delete_raw(self, seq):
        self.sql("DELETE FROM checkpoints WHERE key = ?", (self.read_all_raw()[seq].fields["key"],))
        self.count()

    def mutate_payload(self, record):
        applied = json.loads(record.fields["applied"])
        update = applied[0]["update"]
        if "note" in update:
            update["note"] = "agmi-tampered"
        else:
            data = update["data"]
            update["data"] = data[:-8] + ("A" if data[-8] != "A" else "B") + data[-7:]
        record.fields["applied"] = json.dumps(applied, separators=(",", ":"))
        return record

    def forge_record(self, template):
        fields = dict(template.fields)
        fields["parent"], fields["key"] = fields["key"] & 0xFFFFFFFF, fields["key"] + 1
        return self.mutate_payload(Record(template.seq + 1, fields))

    def replay_onto(self, victim, donor):
        place = self.read_all_raw()[victim].fields
        self.put({**place, **{name: donor.fields[name] for name in ["metadata", "applied", "snapshot"]}})

    def read_meta(self, seq):
        return json.loads(self.read_all_raw()[seq].fields["metadata"])

    def write_meta(self, seq, meta):
        fields = self.read_all_raw()[seq].fields
        # The time and the reason of the checkpoint are its metadata as well.
        self.put({**fields, "metadata": json.dumps(meta), "created_ms": fields["created_ms"] - 86_400_000})

    def identity_of(self, record):
        return str(record.fields["key"])

    def payload_of(self, record):
        return record.fields["applied"]

    def owner_of(self, record):
        return record.fields["thread"]

    def snapshot_store(self):
        return self._copy_store(self.file.parent)

    def restore_store(self, token):
        self._restore_store(token, self.file.parent)

    def reload(self):
        """Every command opens the file."""

    def verify(self):
        for command in ["state", "history"]:
            read = self.ran(command, "victim", "--json")
            if read.returncode != 0:
                self.verify_detail = read.stderr.strip().splitlines()[0]
                return False
            if "which your last run left at" in read.stderr:
                self.verify_detail = read.stderr.strip()
                return False
        return True


def checksum(*cells):
    """The public checksum of a row: see `crates/sqlite/src/schema.sql`."""
    total = 0
    for cell in cells:
        kind = 0 if cell is None else 1 if isinstance(cell, int) else 3
        data = b"" if cell is None else cell.to_bytes(8, "little", signed=True) if kind == 1 else cell.encode()
        total = xxhash.xxh3_64_intdigest(data, (total + kind) & 0xFFFFFFFFFFFFFFFF)
    return total - (1 << 64) if total >= 1 << 63 else total


class Encrypted(LangGraphSqliteAdapter):
    """The kit's own adapter, with LangGraph's serializer that encrypts."""

    def setup(self):
        self.secret = secrets.token_bytes(32)
        super().setup()
        self.encrypt()

    def reload(self):
        super().reload()
        self.encrypt()

    def encrypt(self):
        from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

        self._saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=self.secret)

    def mutate_payload(self, record):
        blob = bytearray(record.fields["checkpoint"])
        blob[-8] ^= 1
        record.fields["checkpoint"] = bytes(blob)
        return record


def table(program):
    """Rows: the subject, and the verdict about each edit."""
    Superstep.program = program
    subjects = [
        ("superstep, checksums not corrected", Superstep(informed=False, key=False)),
        ("superstep, checksums corrected", Superstep(informed=True, key=False)),
        ("superstep, `SUPERSTEP_KEY`, checksums corrected", Superstep(informed=True, key=True)),
        ("LangGraph `SqliteSaver`", LangGraphSqliteAdapter()),
        ("LangGraph `SqliteSaver`, `EncryptedSerializer`", Encrypted()),
    ]
    for name, adapter in subjects:
        rows = run(adapter)
        if os.environ.get("KIT_DETAILS"):
            for row in rows:
                print(name, row["edit"], row["verdict"], row["detail"][:300], sep=" | ")
        yield [name, *[row["verdict"].lower() for row in rows]]
