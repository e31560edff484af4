#!/usr/bin/env python3
"""A scripted, strict server of chat completions with `reasoning_details`, as OpenRouter has them: answers request k with script[k], checks and logs every request.

usage: chat_server.py SCRIPT.json LOG.jsonl [--port 0]        (prints the port)

SCRIPT is a list of answers, or {"config": {..}, "answers": [..]}. An answer is one of
  {"out": [PART, ..], "finish": "stop"?}   {"http": 429, "headers": {..}, "body": {..}}   {"raw": "bytes of a body"}   {"hang": seconds}
  plus for streams: pieces (chunks per text, 3), and of scripted_base.Handler.sse: gap, delay, cut, eof, drop, insert, crlf, split, ascii, tail.
PART: {"reasoning": "text"} (signed here; "" is encrypted)  {"text": ".."}  {"call": [name, arguments], "id": ..?}
config: key, window (chars), repeat_last, again (the same request gets the same answer), house ("log"|"reject").

A refused request gets the provider's body and does not use up an answer. (house) rules are superstep's own.
Log line: t, path, headers, body, status, error, house, answer, verbatim: the signed details of earlier answers, each on the message that it came with.
"""
import json, time
from scripted_base import Handler, Reject, main, pieces, sign

SECRET = b"chat"
FIELDS = """model messages tools tool_choice parallel_tool_calls response_format stream stream_options max_tokens max_completion_tokens temperature top_p
  reasoning reasoning_effort""".split()
MESSAGE = "role content tool_calls tool_call_id reasoning reasoning_content reasoning_details".split()

def bad(message, status=400, code=None):
    return Reject(status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}})

def shown(message):
    """The text and the calls of a message: its details are valid with them only."""
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or []]
    return [message.get("content") or "", calls]

class Chat(Handler):
    made = {}                                                                          # signature: the details, and the message they came with
    def do_GET(self):
        self.send_json(200, {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "scripted"}]})
    def check(self, body, raw, house):
        config = self.script.config
        if config.get("key") and self.headers.get("authorization") != f"Bearer {config['key']}": raise bad("Incorrect API key provided.", 401, "invalid_api_key")
        for field in body:
            if field not in FIELDS: raise bad(f"Unknown parameter: '{field}'.")
        if (window := config.get("window")) and len(raw) > window: raise bad("This model's maximum context length is exceeded.", code="context_length_exceeded")
        if not isinstance(body.get("messages"), list) or not body["messages"]: raise bad("[] is too short - 'messages'")
        names = [tool["function"]["name"] for tool in body.get("tools") or []]
        if len(set(names)) < len(names): raise bad("Tool names must be unique.")
        verbatim, open_calls, last_user = {}, [], 0
        for n, message in enumerate(body["messages"]):
            role = message.get("role")
            for field in message:
                if field not in MESSAGE: raise bad(f"Unknown parameter: 'messages[{n}].{field}'.")
            if role not in ("system", "user", "assistant", "tool"): raise bad(f"Invalid value: '{role}'.")
            if role == "tool":
                if message.get("tool_call_id") not in open_calls: raise bad("messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.")
                open_calls.remove(message["tool_call_id"]); continue
            if open_calls: raise bad(f"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_calls)}")
            if role == "user": last_user = n
            if role != "assistant": continue
            open_calls = [call["id"] for call in message.get("tool_calls") or []]
            if len(set(open_calls)) < len(open_calls): raise bad("Duplicate tool call id.")
            if not open_calls and not message.get("content"): raise bad(f"messages[{n}]: 'content' or 'tool_calls' is required.")
            details = message.get("reasoning_details") or []
            for detail in details:
                made, came_with = self.made.get(detail.get("signature") or detail.get("data"), (None, None))
                if detail != made or came_with != shown(message): raise bad(f"messages[{n}]: Invalid signature in reasoning_details.")
                verbatim[detail.get("signature") or detail["data"]] = True
        if open_calls: raise bad(f"The following tool_call_ids did not have response messages: {', '.join(open_calls)}")
        for n, message in enumerate(body["messages"][last_user:]):
            ours = [made for made, came_with in self.made.values() if message.get("role") == "assistant" and came_with == shown(message)]
            if ours and not message.get("reasoning_details"): house.append(f"messages[{last_user + n}] lacks its reasoning_details")
        return verbatim
    def do_POST(self):
        raw, body = self.body(); house, verbatim, error, k, answer = [], {}, None, None, None
        path = self.path.split("?")[0]
        try:
            if not path.endswith("/chat/completions"): raise bad("Not found", 404)
            verbatim = self.check(body, raw, house)
            if house and self.script.config.get("house") == "reject": raise bad("house rules: " + "; ".join(house))
        except Reject as reject: error = reject
        if not error: k, answer = self.script.next(raw)
        self.script.log(t=time.time(), path=path, headers=self.kept_headers(), body=body, status=error.status if error else (answer or {}).get("http", 200), error=error and error.body, house=house, answer=k, verbatim=verbatim)
        if error: return self.send_json(error.status, error.body)
        if not self.plain(answer): self.sse(answer, self.events(answer, len(raw) // 4))
    def events(self, answer, prompt):
        chunk = lambda delta, finish=None: (None, {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        count, out, details, calls = answer.get("pieces", 3), [], [], []
        out.append(chunk({"role": "assistant", "content": ""}))
        for part in answer.get("out", []):
            if "reasoning" in part:
                at, signature = len(details), sign(SECRET, self.script.fresh("n"), part["reasoning"])
                if part["reasoning"]:
                    details.append({"type": "reasoning.text", "format": "x", "index": at, "text": part["reasoning"], "signature": signature})
                    for piece in pieces(part["reasoning"], count): out.append(chunk({"reasoning": piece, "reasoning_details": [{"type": "reasoning.text", "format": "x", "index": at, "text": piece}]}))
                    out.append(chunk({"reasoning_details": [{"type": "reasoning.text", "index": at, "signature": signature}]}))
                else:
                    details.append({"type": "reasoning.encrypted", "id": self.script.fresh("rs_"), "index": at, "data": signature}); out.append(chunk({"reasoning_details": [details[-1]]}))
            elif "call" in part:
                name, arguments = part["call"]; at = len(calls); calls.append([name, arguments])
                out.append(chunk({"tool_calls": [{"index": at, "id": part.get("id") or self.script.fresh("call_"), "type": "function", "function": {"name": name, "arguments": ""}}]}))
                for piece in pieces(arguments, count): out.append(chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]}))
            else:
                for piece in pieces(part["text"], count): out.append(chunk({"content": piece}))
        text = "".join(part.get("text", "") for part in answer.get("out", []))
        for detail in details: self.made[detail.get("signature") or detail["data"]] = (detail, [text, calls])
        yield from out
        yield chunk({}, answer.get("finish", "tool_calls" if calls else "stop"))
        yield None, {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}}
        yield None, "[DONE]"

if __name__ == "__main__": main(Chat)
