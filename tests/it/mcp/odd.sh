#!/bin/sh
# A server with the tools $TOOLS that answers their calls with $ANSWER, a format of printf in which ID stands for the id of the call.
# With $STUBBORN it ignores the end of its input and SIGTERM. It notes the id of its process in the file $SEEN.
[ -n "$STUBBORN" ] && trap '' TERM
echo $$ > "$SEEN"
while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}
    case "$line" in
    *'"action":"decline"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"declined"}]}}\n' "$asking" ;;
    *'"method":"initialize"'*)
        [ "$START" = mute ] && continue
        [ "$START" = broken ] && { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"no"}}\n' "$id"; continue; }
        printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}}\n' "$id" ;;
    *'"method":"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":%s}}\n' "$id" "$TOOLS" ;;
    *'"method":"tools/call"'*)
        if [ -n "$ASKS" ]; then
            asking=$id
            printf '{"jsonrpc":"2.0","id":99,"method":"elicitation/create","params":{"message":"%s","requestedSchema":{"type":"object","properties":{}}}}\n' "$ASKS"
            continue
        fi
        [ -n "$FLOOD" ] && { printf '{"result":{"content":[{"type":"text","text":"'; head -c "$FLOOD" /dev/zero | tr '\0' x; }
        printf "$(printf '%s' "$ANSWER" | sed "s/ID/$id/g")\n" ;;
    esac
done
[ -n "$STUBBORN" ] && while :; do sleep 1; done
