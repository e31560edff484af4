#!/bin/sh
# Installs the Restate server that the tests look for into the folder $1, which takes ten seconds. If it cannot be installed, the tests
# that want it say so, and are skipped.
mkdir -p "$1" && cd "$1" || exit 1
at=@restatedev
[ -d node_modules/$at/restatectl ] || timeout 180 npm install --silent --ignore-scripts --no-audit --no-fund \
    $at/restate-server@1.7.12 $at/restatectl@1.7.12 ||
    printf '\nSKIPPED: npm cannot install the Restate server; the tests that want it do not run\n\n' >&2
