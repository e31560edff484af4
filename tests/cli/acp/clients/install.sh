#!/bin/sh
# Installs the clients that `tests/cli/acp_clients.rs` looks for, into the folder $1: the SDKs for JavaScript and Python, and acpx with the
# version of node that it needs. Takes some minutes. What cannot be installed is reported, and its test is skipped.
mkdir -p "$1" && cd "$1" || exit 1
skip() { printf '\nSKIPPED: %s; the test that wants it does not run\n\n' "$1" >&2; }
[ -d node_modules/@agentclientprotocol/sdk ] || timeout 300 npm install --silent --no-audit --no-fund \
    @agentclientprotocol/sdk@2.4.0 || skip "npm cannot install the SDK"
[ -d node_modules/acpx ] || timeout 300 npm install --silent --no-audit --no-fund \
    acpx@0.19.1 "node-$(uname -s | tr A-Z a-z)-x64@24" || skip "npm cannot install acpx"
[ -x venv/bin/python ] && venv/bin/python -c 'import acp' || { python3 -m venv venv && timeout 300 venv/bin/pip install \
    --quiet --disable-pip-version-check agent-client-protocol==0.12.1; } || skip "pip cannot install the SDK"
