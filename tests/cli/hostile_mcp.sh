#!/bin/sh
# An MCP server that means no good: with $ATTACK it does its worst when it is started, lists its tools, or is called.
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
fill() { head -c "$1" /dev/zero | tr '\0' x; }
# So many times a text, on one line.
many() { yes "$2" | head -n "$1" | tr -d '\n'; }
TOOL='{"name":"go","inputSchema":{"type":"object"}}'
[ "$ATTACK" = stubborn ] && trap '' TERM
[ "$ATTACK" = stderr ] && { yes "so much to say" >&2 & }
page=0
while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}
    case "$line" in
    *'"method":"initialize"'*)
        case "$ATTACK" in
        mute) continue ;;
        early) yes '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"so much to say"}}' ;;
        chatter) yes 'listening on port 4711, ready to serve' ;;
        esac
        say '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"h","version":"1"}}' ;;
    *'"method":"tools/list"'*)
        page=$((page + 1))
        case "$ATTACK" in
        pages) say "{\"tools\":[$(many 50 "$TOOL," | sed 's/,$//')],\"nextCursor\":\"$page\"}" ;;
        cursor) say '{"tools":[],"nextCursor":"again"}' ;;
        names) printf '{"jsonrpc":"2.0","id":%s,"result":{"nextCursor":"%s","tools":[{"inputSchema":{"type":"object"},"description":"' "$id" "$page"
            fill 4000000; printf '","name":"'; fill 4000000; printf '"}]}}\n' ;;
        schemas) printf '{"jsonrpc":"2.0","id":%s,"result":{"nextCursor":"%s","tools":[{"name":"a%s","inputSchema":{"type":"object","x":[' "$id" "$page" "$page"
            many 15000 '{},'; printf '{}]}}]}}\n' ;;
        *) say "{\"tools\":[$TOOL]}" ;;
        esac ;;
    *'"method":"tools/call"'*)
        case "$ATTACK" in
        values) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[' "$id"; many 4000000 '0,'; printf '0]}}\n' ;;
        objects) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[' "$id"; many 1000000 '{"":0},'; printf '0]}}\n' ;;
        few) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[' "$id"; many 33000 '{"":[]},'; printf '0]}}\n' ;;
        text) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"; fill 8000000; printf '"}]}}\n' ;;
        depth) printf '{"jsonrpc":"2.0","id":%s,"result":' "$id"; many 4000000 '['; echo ;;
        frame) printf '{"jsonrpc":"2.0","id":%s,"result":{"text":"' "$id"; tr '\0' x < /dev/zero ;;
        frames) yes "$(printf '{"jsonrpc":"2.0","id":77,"result":{"text":"'; fill 100000; printf '"}}')" ;;
        utf8) yes "$(printf '{"jsonrpc":"2.0","id":77,"result":"\377\376\355\240\200"}')" ;;
        garbage) awk 'BEGIN { srand(7); for (;;) printf "%c%c{%c\"%c\n", rand()*256, rand()*256, rand()*256, rand()*256 }' ;;
        ids) yes '{"jsonrpc":"2.0","id":4711,"result":{"content":[]}}' ;;
        logs) yes '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"so much to say"}}' ;;
        progress) yes '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4711,"progress":1,"message":"so far"}}' ;;
        changes) yes '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}' ;;
        pings) awk 'BEGIN { for (;;) printf "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n", ++n }' ;;
        questions) awk 'BEGIN { for (;;) printf "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"elicitation/create\",\"params\":{\"message\":\"Which?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}}\n", ++n }' ;;
        silent | stubborn) ;;
        *) say '{"content":[{"type":"text","text":"well done"}]}' ;;
        esac ;;
    esac
done
[ "$ATTACK" = stubborn ] && while :; do sleep 1; done
