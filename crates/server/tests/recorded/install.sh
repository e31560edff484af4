#!/bin/sh
# Installs the development server of LangGraph into the folder $1, in the versions of the recording.
set -e
[ -x "$1/venv/bin/langgraph" ] && exit 0
mkdir -p "$1"
python3 -m venv "$1/venv"
"$1/venv/bin/pip" install --quiet --disable-pip-version-check langgraph-api==0.16.7 langgraph-runtime-inmem==0.36.7 langgraph-cli==0.4.40 \
    langgraph==1.2.24 langchain-core==1.8.3
