#!/bin/sh
# A small MCP server: one JSON-RPC message a line. It notes what it is asked in the file $SEEN.
echo "started" >> "$SEEN"
echo "listening with ${GREETING:-nothing}" >&2
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
text() { reply "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}],\"isError\":${2:-false}}"; }
while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}
    case "$line" in
    *'"method":"initialize"'*)
        [ -n "$MUTE" ] && continue
        reply '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"small","version":"1"}}' ;;
    *'"method":"tools/list"'*'"cursor":"2"'*)
        reply '{"tools":[{"name":"die","inputSchema":{"type":"object"}},{"name":"sleep","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/list"'*)
        reply '{"nextCursor":"2","tools":[{"name":"say","description":"Says it again.","annotations":{"readOnlyHint":true},
            "inputSchema":{"type":"object","properties":{"what":{"type":"string"}},"required":["what"]}},
            {"name":"fail","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}}]}' | tr -d '\n'; echo ;;
    *'"method":"notifications/cancelled"'*) echo "cancelled" >> "$SEEN" ;;
    *'"method":"tools/call"'*)
        echo "called" >> "$SEEN"
        case "$line" in
        *'"name":"say"'*) what=${line#*\"what\":\"}; text "${what%%\"*} ${CARGO_MANIFEST_DIR:-no key} ${GREETING:-no greeting}" ;;
        *'"name":"fail"'*) text "it went wrong" true ;;
        *'"name":"die"'*) exit 1 ;;
        esac ;;
    esac
done
echo "ended" >> "$SEEN"
