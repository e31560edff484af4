#!/bin/sh
# A small MCP server: one JSON-RPC message a line. It notes what it is asked in the file $SEEN.
PLAIN='"inputSchema":{"type":"object"}'
echo "started" >> "$SEEN"
echo "listening with ${GREETING:-nothing}" >&2
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
tell() { printf '{"jsonrpc":"2.0","method":"notifications/%s","params":%s}\n' "$1" "$2"; }
log() { tell message "{\"level\":\"$1\",\"data\":\"$2\"}"; }
unlisted() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not now, %s"}}\n' "$id" "$GREETING"; }
text() { reply "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}],\"isError\":${2:-false}}"; }
while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}
    case "$line" in
    *'"method":"initialize"'*)
        [ -n "$MUTE" ] && continue
        reply '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"small","version":"1"}}' ;;
    *'"method":"notifications/initialized"'*) [ -n "$LOGS" ] && log warning "disk nearly full" ;;
    *'"method":"tools/list"'*'"cursor":"2"'*)
        reply "{\"tools\":[{\"name\":\"die\",$PLAIN},{\"name\":\"sleep\",$PLAIN},{\"name\":\"note\",$PLAIN},
            {\"name\":\"count\",$PLAIN},{\"name\":\"grow\",$PLAIN}$GROWN]}" | tr -d '\n'; echo ;;
    *'"method":"tools/list"'*)
        [ -n "$ODD" ] && { reply "$ODD"; continue; }
        [ -f "$SEEN.unlisted" ] && { rm "$SEEN.unlisted"; unlisted; continue; }
        reply '{"nextCursor":"2","tools":[{"name":"say","description":"Says it again.","annotations":{"readOnlyHint":true},
            "inputSchema":{"type":"object","properties":{"what":{"type":"string"}},"required":["what"]}},
            {"name":"fail","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}}]}' | tr -d '\n'; echo ;;
    *'"method":"notifications/cancelled"'*) echo "cancelled" >> "$SEEN" ;;
    *'"method":"tools/call"'*)
        echo "called" >> "$SEEN"
        case "$line" in *'"traceparent":"'*)
            trace=${line#*\"traceparent\":\"}; echo "traced:${trace%%\"*}" >> "$SEEN" ;;
        esac
        case "$line" in
        *'a flood'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"%01100000d"}}\n' "$id" 0 ;;
        *'"name":"say"'*) [ -n "$ORDER" ] && { what=${line#*\"what\":\"}; echo "said:${what%%\"*}" >> "$SEEN"; }
            what=${line#*\"what\":\"}; text "${what%%\"*} ${CARGO_MANIFEST_DIR:-no key} ${GREETING:-no greeting}" ;;
        *'"name":"fail"'*) text "it went wrong" true ;;
        *'"name":"die"'*) exit 1 ;;
        *'"name":"note"'*)
            what=${line#*\"what\":\"}; what=${what%%\"*}
            echo "noted:$what" >> "$SEEN"; [ -f "$SEEN.mute:$what" ] || text "noted $what" ;;
        *'"name":"count"'*)
            token=${line#*\"progressToken\":}; token=${token%%[,\}]*}
            tell progress "{\"progressToken\":$token,\"progress\":1,\"total\":2,\"message\":\"one\"}"
            log debug "nobody wants to know"; log info "half of it"
            tell progress "{\"progressToken\":$token,\"progress\":2,\"total\":2}"
            tell progress "{\"progressToken\":$token,\"progress\":1,\"message\":\"late\"}"
            text counted ;;
        *'"name":"grow"'*) GROWN=",{\"name\":\"extra\",$PLAIN}"; tell tools/list_changed '{}'; text grown ;;
        *'"name":"extra"'*) text "extra work" ;;
        esac ;;
    esac
done
echo "ended" >> "$SEEN"
