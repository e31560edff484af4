#!/bin/sh
# Measures threads and jobs on PostgreSQL. Installs LangGraph with its saver into the folder $1; without it, only superstep is measured.
set -e
[ -d "$1" ] || { python3 -m venv "$1" && timeout 300 "$1/bin/pip" install --quiet --disable-pip-version-check \
    langgraph==1.2.22 langgraph-checkpoint==4.3.2 langgraph-prebuilt==1.1.2 langchain-core==1.7.2 \
    langgraph-checkpoint-postgres==3.2.0 'psycopg[binary]==3.3.9'; } || {
    printf '\nSKIPPED: pip cannot install LangGraph and its saver, which are not measured\n\n' >&2
    rm -rf "$1"
}
[ ! -d "$1" ] || export SUPERSTEP_LANGGRAPH="$PWD/$1"
exec cargo bench --locked -p superstep-worker --bench postgres
