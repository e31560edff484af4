#!/bin/sh
# Starts a collector with a page for traces (Phoenix, from PyPI), and sends it the trace of the example `telemetry`.
# The first time it installs Phoenix into target/phoenix, which takes some minutes. PORT selects another port.
set -eu
folder=$PWD/target/phoenix
port=${PORT:-6006}
if [ ! -x "$folder/bin/phoenix" ]; then
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet arize-phoenix==20.26.1
fi
cargo build -p superstep --features opentelemetry --example telemetry
PHOENIX_WORKING_DIR="$folder/data" PHOENIX_HOST=127.0.0.1 PHOENIX_PORT=$port PHOENIX_GRPC_PORT=$((port + 1)) \
    PHOENIX_TELEMETRY_ENABLED=false "$folder/bin/phoenix" serve > "$folder/log" 2>&1 &
collector=$!
trap 'kill $collector' EXIT INT TERM
until python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/')" 2> /dev/null; do
    kill -0 $collector || { cat "$folder/log"; exit 1; }
    sleep 1
done
# It takes traces only.
OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:$port OTEL_METRICS_EXPORTER=none target/debug/examples/telemetry
echo "the trace is at http://127.0.0.1:$port; Ctrl-C ends the collector"
wait $collector
