#!/bin/sh
# A server whose tool `pay` asks the user before it pays. It notes in the file $SEEN what it gets. Its question is $ASKS, or what stands in
# the file $SEEN.asks; with $COUNTS it has a number that is never the same, and with $MORE one that counts the questions of a call.
FLAT='{"type":"object","properties":{"account":{"type":"string","minLength":2}},"required":["account"]}'
PLAIN='"inputSchema":{"type":"object"}'
asked=900
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
text() { reply "$1" "{\"content\":[{\"type\":\"text\",\"text\":\"$2\"}]}"; }
ask() {
    asked=$((asked + 1)); nth=$((nth + 1)); message=$ASKS
    [ -f "$SEEN.asks" ] && message=$(cat "$SEEN.asks")
    [ -n "$COUNTS" ] && { echo x >> "$SEEN.count"; message="$ASKS $(wc -l < "$SEEN.count")"; }
    [ -n "$MORE" ] && message="$ASKS $nth"
    params=${PARAMS:-"{\"message\":\"$message\",\"requestedSchema\":$FLAT}"}
    printf '{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":%s}\n' "$asked" "$params"
}
while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}
    case "$line" in
    *'"method":"initialize"'*)
        case "$line" in *'"elicitation":{"form":'*) echo announced >> "$SEEN" ;; esac
        reply "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bank","version":"1"}}' ;;
    *'"method":"tools/list"'*)
        reply "$id" "{\"tools\":[{\"name\":\"pay\",$PLAIN},{\"name\":\"note\",$PLAIN},{\"name\":\"hang\",$PLAIN},{\"name\":\"peek\",$PLAIN,\"annotations\":{\"readOnlyHint\":true}},{\"name\":\"wait\",$PLAIN,\"annotations\":{\"readOnlyHint\":true}}]}" ;;
    *'"method":"notifications/cancelled"'*)
        echo cancelled >> "$SEEN"
        given_up=${line#*\"requestId\":}; [ "${given_up%%[,\}]*}" = "$call" ] && call= ;;
    *'"method":"tools/call"'*'"name":"note"'*) echo note >> "$SEEN"; text "$id" noted ;;
    *'"method":"tools/call"'*'"name":"wait"'*)
        echo wait >> "$SEEN"
        if [ -f "$SEEN.both" ]; then text "$id" waited; else touch "$SEEN.both"; ask; fi ;;
    *'"method":"tools/call"'*'"name":"peek"'*) echo peek >> "$SEEN"; call=$id; nth=0; [ -f "$SEEN.both" ] && ask ;;
    *'"method":"tools/call"'*) echo pay >> "$SEEN"; call=$id; nth=0; ask ;;
    *'"method":'*) ;;
    *'"result":'*)
        result=${line#*\"result\":}; result=${result%\}}
        echo "$result" >> "$SEEN"
        [ -z "$call" ] || [ "$id" != "$asked" ] && continue
        [ -f "$SEEN.hang" ] && continue
        case "$result" in *accept*) [ -n "$MORE$AGAIN" ] && { ask; continue; } ;; esac
        reply "$call" "{\"content\":[],\"structuredContent\":$result}"; call= ;;
    *'"error":'*)
        error=${line#*\"message\":\"}
        echo "error" >> "$SEEN"; [ -n "$call" ] && [ "$id" = "$asked" ] && text "$call" "${error%%\"*}" ;;
    esac
done
