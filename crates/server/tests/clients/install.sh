#!/bin/sh
# Installs the clients that `tests/it/clients.rs` looks for, into the folder $1: the SDKs of LangGraph for Python and JavaScript, the
# client of AG-UI, and the hooks of chat pages with what drives a browser. Takes some minutes. What cannot be installed is reported, and
# its test is skipped. The browser itself is the package `chromium` of Debian.
mkdir -p "$1" && cd "$1" || exit 1
skip() { printf '\nSKIPPED: %s; the test that wants it does not run\n\n' "$1" >&2; }
[ -x venv/bin/python ] && venv/bin/python -c 'import langgraph.pregel.remote' || { python3 -m venv venv && timeout 300 venv/bin/pip \
    install --quiet --disable-pip-version-check langgraph-sdk==0.4.14 langgraph==1.2.22; } || skip "pip cannot install the SDK"
[ -d node_modules/@langchain/langgraph-sdk ] || timeout 300 npm install --silent --no-audit --no-fund \
    @langchain/langgraph-sdk@1.15.0 @langchain/core || skip "npm cannot install the SDK"
[ -d node_modules/@ag-ui/client ] || timeout 300 npm install --silent --no-audit --no-fund \
    @ag-ui/client@1.0.0 || skip "npm cannot install the client of AG-UI"
[ -d node_modules/playwright-core ] || timeout 300 npm install --silent --no-audit --no-fund \
    react@19.3.1 react-dom@19.3.1 @ai-sdk/react@3.0.328 @ai-sdk/langchain@2.0.296 ai@6.0.326 @langchain/langgraph@1.7.3 \
    esbuild@0.28.2 playwright-core@1.65.1 || skip "npm cannot install the hooks of chat pages"
command -v chromium > /dev/null || skip "there is no chromium"
