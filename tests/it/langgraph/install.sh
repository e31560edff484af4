#!/bin/sh
# Installs the LangGraph for which `docs/langgraph.md` is written, into the folder $1, which takes half a minute. If it cannot be
# installed, the test that wants it says so, and is skipped.
[ -d "$1" ] || { python3 -m venv "$1" && timeout 180 "$1/bin/pip" install --quiet --disable-pip-version-check \
    langgraph==1.2.22 langgraph-checkpoint==4.3.2 langgraph-prebuilt==1.1.2 langchain-core==1.7.2; } || {
    printf '\nSKIPPED: pip cannot install LangGraph; the test that wants it does not run\n\n' >&2
    rm -rf "$1"
}
