#!/bin/sh
# Installs the clients that `tests/it/clients.rs` looks for, into the folder $1: the SDKs of LangGraph for Python and JavaScript, its
# hooks for React, RemoteGraph, the transport of `useChat`, assistant-ui, the clients of AG-UI, its chat page, the SDKs of A2A and of the Model
# Context Protocol, and what drives a browser. Takes some minutes. What
# cannot be installed is reported, and its test is skipped. The browser itself is the package `chromium` of Debian.
mkdir -p "$1" && cd "$1" || exit 1
skip() { printf '\nSKIPPED: %s; the test that wants it does not run\n\n' "$1" >&2; }
[ -x venv/bin/python ] && venv/bin/python -c 'import langgraph.pregel.remote' || { python3 -m venv venv && timeout 300 venv/bin/pip \
    install --quiet --disable-pip-version-check langgraph-sdk==0.4.14 langgraph==1.2.22; } || skip "pip cannot install the SDK"
[ -d node_modules/@langchain/langgraph-sdk ] || timeout 300 npm install --silent --no-audit --no-fund \
    @langchain/langgraph-sdk@1.15.0 @langchain/core || skip "npm cannot install the SDK"
[ -d node_modules/@langchain/react ] || timeout 300 npm install --silent --no-audit --no-fund \
    @langchain/react@1.1.0 react@19 react-dom@19 happy-dom@21 || skip "npm cannot install the hook for React"
[ -d node_modules/@ag-ui/client ] || timeout 300 npm install --silent --no-audit --no-fund \
    @ag-ui/client@1.0.0 || skip "npm cannot install the client of AG-UI"
[ -d node_modules/playwright-core ] || timeout 300 npm install --silent --no-audit --no-fund \
    playwright-core@1.65.1 axe-core@4.14.1 || skip "npm cannot install the driver of a browser"
[ -d node_modules/@ag-ui/langgraph ] || timeout 300 npm install --silent --no-audit --no-fund \
    @ag-ui/langgraph@0.0.43 || skip "npm cannot install the client of AG-UI for LangGraph"
[ -d node_modules/@ai-sdk/react ] || timeout 300 npm install --silent --no-audit --no-fund \
    @ai-sdk/react@3.0.328 @ai-sdk/langchain@2.0.296 ai@6.0.326 @langchain/langgraph@1.7.3 esbuild@0.28.2 \
    || skip "npm cannot install RemoteGraph and the hooks of chat pages"
[ -d node_modules/@modelcontextprotocol/sdk ] || timeout 300 npm install --silent --no-audit --no-fund \
    @modelcontextprotocol/sdk@1.32.2 || skip "npm cannot install the SDK of the Model Context Protocol"
[ -x venv/bin/mcp ] || timeout 300 venv/bin/pip install --quiet --disable-pip-version-check a2a-sdk==1.3.0 mcp==2.3.0 \
    || skip "pip cannot install the SDKs of A2A and of the Model Context Protocol"
# What newer versions of its parts need of each other is not always there.
[ -d node_modules/@assistant-ui/react-langgraph ] || timeout 300 npm install --silent --no-audit --no-fund \
    @assistant-ui/react@0.14.27 @assistant-ui/react-langgraph@0.14.12 \
    @assistant-ui/core@0.2.21 @assistant-ui/store@0.2.20 @assistant-ui/tap@0.9.4 || skip "npm cannot install assistant-ui"
[ -d node_modules/vite ] || timeout 300 npm install --silent --no-audit --no-fund \
    vite@7.3.8 || skip "npm cannot install Vite, which builds the page of the example"
# The chat page of LangGraph, agent-chat-ui, is a template in a package of npm. Of its packages, what
# only its development needs is left out.
chat_page() (
    rm -rf package agent-chat-ui
    npm pack --silent create-agent-chat-app@0.1.6 > /dev/null && tar xzf create-agent-chat-app-0.1.6.tgz package/templates/vite || exit 1
    cd package/templates/vite || exit 1
    for name in dependencies.@langchain/langgraph-api dependencies.@langchain/langgraph-cli dependencies.prettier dependencies.recharts \
        devDependencies.turbo devDependencies.eslint devDependencies.@eslint/js devDependencies.typescript-eslint \
        devDependencies.eslint-plugin-react-hooks devDependencies.eslint-plugin-react-refresh; do
        npm pkg delete "$name"
    done
    timeout 600 npm install --silent --no-audit --no-fund --legacy-peer-deps || exit 1
    timeout 600 node_modules/.bin/vite build --logLevel error --outDir ../../../agent-chat-ui/dist
)
[ -d agent-chat-ui/dist ] || chat_page || skip "npm cannot build the chat page of LangGraph"
rm -rf package create-agent-chat-app-0.1.6.tgz
command -v chromium > /dev/null || skip "there is no chromium"
