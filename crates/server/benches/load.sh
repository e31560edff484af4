#!/bin/sh
# Measures a server, and beside it the development server of LangGraph, which it installs into the folder $1; without it, only superstep
# is measured.
set -e
mkdir -p "$1"
[ -x "$1/venv/bin/langgraph" ] || { python3 -m venv "$1/venv" && timeout 600 "$1/venv/bin/pip" install --quiet \
    --disable-pip-version-check 'langgraph-cli[inmem]'; } || printf '\nSKIPPED: pip cannot install langgraph-cli, which is not measured\n\n' >&2
cargo bench --locked -p superstep-server --bench load
[ -x "$1/venv/bin/langgraph" ] || exit 0
cat > "$1/graphs.py" <<'END'
import asyncio
from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class Nothing(TypedDict):
    n: int


def graph(seconds):
    async def node(state: Nothing):
        await asyncio.sleep(seconds)
        return {"n": state["n"] + 1}

    builder = StateGraph(Nothing)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


nothing, waits = graph(0), graph(600)
END
printf '{"dependencies": ["."], "graphs": {"nothing": "./graphs.py:nothing", "waits": "./graphs.py:waits"}}' > "$1/langgraph.json"
cd "$1"
# Its log of every run is no part of the measurement.
LANGSMITH_TRACING=false LOG_LEVEL=error venv/bin/langgraph dev --no-browser --no-reload --port 28124 --n-jobs-per-worker 16 > dev.log 2>&1 &
server=$!
trap 'kill $server' EXIT
tries=0
until curl -sf http://127.0.0.1:28124/ok > /dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 120 ] || { cat dev.log; exit 1; }
    sleep 0.5
done
cd - > /dev/null
printf '\nlanggraph dev:\n'
cargo bench --locked -p superstep-server --bench load -- 127.0.0.1:28124 "$server"
