#!/bin/sh
# Installs a PostgreSQL that has the extension pgvector into the folder $1, for the tests of queries by meaning, which takes half a minute.
# If it cannot be installed, the tests that want it say so, and are skipped. Where the extension is a package of the system (Debian 13:
# postgresql-17-pgvector), that is enough.
[ -e "$1/programs" ] || { python3 -m venv "$1" && timeout 180 "$1/bin/pip" install --quiet --disable-pip-version-check pgserver==0.1.4 &&
    programs=$(find "$(realpath "$1")" -path '*/pginstall/bin' -type d) && ln -s "$programs" "$1/programs"; } || {
    printf '\nSKIPPED: pip cannot install PostgreSQL with pgvector; the tests that want it do not run\n\n' >&2
    rm -rf "$1"
}
