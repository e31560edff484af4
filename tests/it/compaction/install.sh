#!/bin/sh
# Installs the kit that grades compactions, into the folder $1, which takes some seconds. If it cannot be installed, the test that wants
# it says so, and is skipped.
[ -d "$1" ] || { python3 -m venv "$1" && timeout 180 "$1/bin/pip" install --quiet --disable-pip-version-check \
    compaction-conformance-kit==0.8.0; } || {
    printf '\nSKIPPED: pip cannot install compaction-conformance-kit; the test that wants it does not run\n\n' >&2
    rm -rf "$1"
}
