"""Runs one workload in this process and prints one JSON line.

usage: run_one.py WORKLOAD none|memory|sqlite REPEATS
"""

import gc
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from workloads import WORKLOADS


def saver(name, folder):
    if name == "none":
        return None
    if name == "memory":
        return InMemorySaver()
    connection = sqlite3.connect(os.path.join(folder, "bench.db"), check_same_thread=False)
    # As superstep has it; the write-ahead log is the saver's own choice.
    connection.execute("PRAGMA synchronous = NORMAL")
    return SqliteSaver(connection)


def main():
    workload, saved, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        kept = saver(saved, folder)
        case = WORKLOADS[workload](kept)
        # "async" is the default: every superstep is stored.
        options = {} if kept is None else {"durability": "async"}
        wall, cpu = [], []
        for nth in range(repeats + 1):
            config = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": 1_000_000}
            gc.collect()
            walls, cpus = time.perf_counter(), time.process_time()
            for given in case.inputs:
                for _ in case.graph.stream(given, config, **options):
                    pass
            if nth > 0:  # the first one warms up
                wall.append((time.perf_counter() - walls) * 1e6)
                cpu.append((time.process_time() - cpus) * 1e6)
        line = {
            "engine": "reference",
            "workload": workload,
            "saver": saved,
            "runs": repeats,
            "wall_us": statistics.median(wall),
            "cpu_us": statistics.median(cpu),
        }
        if saved == "sqlite":
            kept.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            line["db_bytes"] = os.path.getsize(os.path.join(folder, "bench.db")) // (repeats + 1)
        print(json.dumps(line))


if __name__ == "__main__":
    main()
