#!/bin/sh
# Installs the MCP servers and the conformance suite of the protocol that the tests look for, into the folder $1, which takes
# half a minute. What cannot be installed is said; the tests that want it say so, too, and are skipped.
mkdir -p "$1" && cd "$1" || exit 1
skip() { printf '\nSKIPPED: %s; the tests that want them do not run\n\n' "$1" >&2; }
at=@modelcontextprotocol
[ -d node_modules/$at/server-memory ] || timeout 120 npm install --silent --no-audit --no-fund \
    $at/server-everything@2026.8.31 $at/server-filesystem@2026.8.31 $at/server-memory@2026.8.31 ||
    skip "npm cannot install the MCP servers"
# The suite needs this version of node.
[ -d node_modules/$at/conformance ] || timeout 120 npm install --silent --no-audit --no-fund \
    $at/conformance@0.1.16 "node-$(uname -s | tr A-Z a-z)-x64@22" ||
    skip "npm cannot install the conformance suite"
[ -x venv/bin/mcp-server-git ] || { python3 -m venv venv && timeout 120 venv/bin/pip install --quiet \
    --disable-pip-version-check mcp-server-time==2026.10.19 mcp-server-git==2026.10.19; } ||
    skip "pip cannot install the MCP servers"
