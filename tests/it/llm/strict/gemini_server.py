#!/usr/bin/env python3
"""A scripted, strict server of the Gemini API and of Vertex AI: answers request k with script[k], checks and logs every request.

usage: gemini_server.py SCRIPT.json LOG.jsonl [--port 0]        (prints the port)

SCRIPT is a list of answers, or {"config": {..}, "answers": [..]}. An answer is one of
  {"parts": [PART, ..], "finish": "STOP", "message": ".."?, "usage": {..}?}   {"block": "SAFETY", "message": ".."?}   {"empty": true} (no candidates)
  {"http": 429, "headers": {..}, "body": {..}}   {"raw": "bytes of a body"}   {"hang": seconds}
  plus for streams: pieces (chunks per text, 3), error_at: {"index": n, "error": {..}} (an error as a chunk, then the end),
  late (the signature of a text follows in a chunk behind the finish reason), and of scripted_base.Handler.sse: gap, delay, cut, eof, drop, insert, crlf, split, ascii, tail.
PART: {"text": "..", "signed": bool?}  {"thought": ".."}  {"call": [name, {args} or their text], "signed": bool?, "id": ..?}  {"part": {..}} sent as is.
  Signed by default: the first call, and without calls the last text (in a part of its own, behind it).
config: key, token (that of Vertex AI; other tokens get 401), signs (true: signatures of the current turn's calls are required, those sent are checked; as Gemini 3), ids (false: calls have none),
  window (chars), repeat_last, house ("log"|"reject").

A refused request gets the provider's body and does not use up an answer. (house) rules are superstep's own.
Log line: t, path, headers, body, status, error, house, answer, signed: how many signatures of earlier answers the request has, of how many it could have; verbatim: those signatures, each on the part that it came with.
"""
import base64, binascii, json, re, time
from scripted_base import Handler, Reject, main, pieces, sign

SECRET = b"gemini"
FOREIGN = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
FIELDS = "contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent labels serviceTier store".split()
SETTINGS = """temperature topP topK candidateCount maxOutputTokens stopSequences responseLogprobs logprobs presencePenalty frequencyPenalty seed responseMimeType responseSchema
  responseJsonSchema responseModalities mediaResolution speechConfig thinkingConfig""".split()
DATA = "text inlineData fileData functionCall functionResponse executableCode codeExecutionResult toolCall toolResponse".split()
PART = DATA + "thought thoughtSignature videoMetadata partMetadata mediaResolution".split()
IMAGES = {"image/jpeg": b"\xff\xd8\xff", "image/png": b"\x89PNG\r\n\x1a\n", "image/webp": b"RIFF", "application/pdf": b"%PDF"}
STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
EQUAL = "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."

def bad(message, code=400, status=None, details=None):
    return Reject(code, {"error": {"code": code, "message": message, "status": status or STATUS[code], **({"details": details} if details else {})}})

def known(value, fields, at):
    """Refuses unknown fields. Their names in protocol buffers are known too."""
    if not isinstance(value, dict): raise bad(f"Invalid value at '{at}'")
    for name in value:
        if re.sub("_([a-z])", lambda match: match[1].upper(), name) not in fields: raise bad(f'Invalid JSON payload received. Unknown name "{name}"' + (f" at '{at}'" if at else "") + ": Cannot find field.")

class Content(Handler):
    made = {}                                                                          # signature: the part it came with
    def authorize(self):
        config, headers = self.script.config, self.headers
        if token := config.get("token"):
            if "/projects/" not in self.path: raise bad("Not found", 404)
            if headers.get("authorization") != f"Bearer {token}": raise bad("Request had invalid authentication credentials. Expected OAuth 2 access token.", 401)
            if headers.get("x-goog-api-key"): raise bad("Vertex AI takes no key", 400)
        elif config.get("key") and headers.get("x-goog-api-key") != config["key"]:
            raise bad("API key not valid. Please pass a valid API key.", details=[{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}])
    def check(self, body, raw, house):
        config = self.script.config
        known(body, FIELDS, "")
        generation = body.get("generationConfig") or {}; known(generation, SETTINGS, "generation_config")
        thinking = generation.get("thinkingConfig") or {}; known(thinking, ["includeThoughts", "thinkingBudget", "thinkingLevel"], "generation_config.thinking_config")
        if "thinkingBudget" in thinking and "thinkingLevel" in thinking: raise bad("You can only set only one of thinking budget and thinking level.")
        if thinking.get("thinkingLevel") not in (None, "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"): raise bad("Invalid value at 'generation_config.thinking_config.thinking_level'")
        if "responseJsonSchema" in generation and generation.get("responseMimeType") != "application/json": raise bad("response_json_schema requires response_mime_type application/json")
        system = body.get("systemInstruction")
        if system is not None:
            known(system, ["parts", "role"], "system_instruction")
            if any(not part.get("text") for part in system.get("parts") or [{}]): raise bad("Unable to submit request because it must have a text parameter.")
        names = self.check_tools(body)
        if (window := config.get("window")) and len(raw) > window: raise bad(f"The input token count ({len(raw) // 4}) exceeds the maximum number of tokens allowed ({window // 4}).")
        return self.check_contents(body, names, house)
    def check_tools(self, body):
        names = []
        for n, tool in enumerate(body.get("tools") or []):
            known(tool, ["functionDeclarations", "googleSearch", "codeExecution", "urlContext"], f"tools[{n}]")
            for m, declaration in enumerate(tool.get("functionDeclarations") or []):
                at = f"tools[{n}].function_declarations[{m}]"
                known(declaration, ["name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior"], at)
                if not re.fullmatch(r"[a-zA-Z_][\w.:-]{0,127}", str(declaration.get("name"))): raise bad(f"Invalid value at '{at}.name': Invalid function name. Must start with a letter or an underscore.")
                schema = declaration.get("parametersJsonSchema")
                if schema is not None and schema.get("type") != "object": raise bad(f"{at}.parameters_json_schema: schema must be of type object")
                if schema is not None and not schema.get("properties") and "additionalProperties" not in schema: raise bad(f"{at}.parameters.properties: should be non-empty for OBJECT type")
                names.append(declaration["name"])
        if len(set(names)) < len(names): raise bad(f"Duplicate function declaration found: {max(names, key=names.count)}")
        choice = body.get("toolConfig")
        if choice is not None:
            known(choice, ["functionCallingConfig"], "tool_config")
            calling = choice.get("functionCallingConfig") or {}; known(calling, ["mode", "allowedFunctionNames"], "tool_config.function_calling_config")
            if calling.get("mode") not in ("AUTO", "ANY", "NONE", "VALIDATED"): raise bad("Invalid value at 'tool_config.function_calling_config.mode'")
            if not names: raise bad("Function calling config is set without function_declarations.")
        return names
    def check_part(self, part, role, at):
        known(part, PART, at)
        data = [name for name in DATA if name in part]
        if len(data) > 1: raise bad(f"{at}: oneof field 'data' is already set. Cannot set '{data[1]}'")
        if not data and not part.get("thoughtSignature"): raise bad(f"{at}.data: required oneof field 'data' must have one initialized field")
        if "text" in part and not part["text"] and role == "user": raise bad("Unable to submit request because it must have a text parameter.")
        if "functionCall" in part:
            if role != "model": raise bad("Please ensure that function call turn comes from the role model.")
            known(part["functionCall"], ["id", "name", "args"], f"{at}.function_call")
            if not isinstance(part["functionCall"].get("args", {}), dict): raise bad(f"Invalid value at '{at}.function_call.args' (type.googleapis.com/google.protobuf.Struct)")
        if "functionResponse" in part:
            if role != "user": raise bad("Please ensure that function response turn comes from the role user.")
            response = part["functionResponse"]; known(response, ["id", "name", "response", "parts"], f"{at}.function_response")
            if not response.get("name"): raise bad(f"{at}.function_response.name: Name cannot be empty.")
            if not isinstance(response.get("response"), dict): raise bad(f"Invalid value at '{at}.function_response.response' (type.googleapis.com/google.protobuf.Struct)")
            for inner in response.get("parts") or []:
                known(inner, ["inlineData", "fileData"], f"{at}.function_response.parts"); self.check_media(inner, at)
            if response.get("parts") and not self.script.config.get("signs", True): raise bad("Multimodal function response is not supported by this model.")
        self.check_media(part, at)
    def check_media(self, part, at):
        blob = part.get("inlineData")
        if blob is None: return
        known(blob, ["mimeType", "data", "displayName"], f"{at}.inline_data")
        if blob.get("mimeType") not in IMAGES: raise bad(f"Unsupported MIME type: {blob.get('mimeType')}")
        try: data = base64.b64decode(blob.get("data", ""), validate=True)
        except (binascii.Error, ValueError): raise bad(f"Invalid value at '{at}.inline_data.data' (TYPE_BYTES), Base64 decoding failed")
        if not data.startswith(IMAGES[blob["mimeType"]]): raise bad("Unable to process input image. Please retry or report in https://developers.generativeai.google/guide/troubleshooting")
    def check_contents(self, body, names, house):
        contents, signs = body.get("contents"), self.script.config.get("signs", True)
        if not contents: raise bad("* GenerateContentRequest.contents: contents is not specified")
        turns = []                                                                     # consecutive contents of one side are one turn
        for n, content in enumerate(contents):
            known(content, ["role", "parts"], f"contents[{n}]")
            role, parts = content.get("role"), content.get("parts")
            if role not in ("user", "model"): raise bad("Please use a valid role: user, model.")
            if not parts: raise bad(f"* GenerateContentRequest.contents[{n}].parts: contents.parts must not be empty.")
            for m, part in enumerate(parts): self.check_part(part, role, f"contents[{n}].parts[{m}]")
            if turns and turns[-1]["role"] == role:
                house.append(f"contents[{n}] has the role of the one before"); turns[-1]["parts"] = turns[-1]["parts"] + parts
            else: turns.append({"role": role, "parts": parts})
        open_calls, before = [], None
        for n, turn in enumerate(turns):
            results = [part["functionResponse"] for part in turn["parts"] if "functionResponse" in part]
            calls = [part["functionCall"] for part in turn["parts"] if "functionCall" in part]
            if len(results) != len(open_calls): raise bad(EQUAL if open_calls else "Please ensure that function response turn comes immediately after a function call turn.")
            if any("functionResponse" not in part for part in turn["parts"][:len(results)]): house.append(f"turn {n}: the results are not first")
            for call, result in zip(open_calls, results):                              # by order; an id, if any, is the same
                if call["name"] != result["name"]: raise bad(f"Function response name {result['name']} does not match function call name {call['name']}.")
                if call.get("id") != result.get("id"): raise bad(f"Function response id {result.get('id')} does not match function call id {call.get('id')}.")
            if calls and before is None: raise bad("Please ensure that function call turn comes immediately after a user turn or after a function response turn.")
            ids = [call["id"] for call in calls if call.get("id")]
            if len(set(ids)) < len(ids): raise bad(f"turn {n}: function call ids must be unique")
            open_calls, before = calls, turn["role"]
        if before != "user": raise bad(EQUAL if open_calls else "Please ensure that single turn requests end with a user role or the role field is empty.")
        called = {part["functionCall"]["name"] for turn in turns for part in turn["parts"] if "functionCall" in part}
        if called - set(names): house.append(f"calls of tools without a declaration: {sorted(called - set(names))}")
        return self.check_signatures(turns, signs)
    def check_signatures(self, contents, signs):
        is_text = lambda content: content["role"] == "user" and any("functionResponse" not in part for part in content["parts"])
        begin = max(n for n, content in enumerate(contents) if is_text(content) or n == 0)
        sent = set()
        for n, content in enumerate(contents):
            calls = [m for m, part in enumerate(content["parts"]) if "functionCall" in part]
            for m, part in enumerate(content["parts"]):
                signature = part.get("thoughtSignature")
                if signature is None:
                    if signs and n > begin and calls and m == calls[0]:
                        raise bad(f"Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{part['functionCall']['name']}` , position {n + 1}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.")
                    continue
                if content["role"] != "model": raise bad("Thought signature is only valid in model parts.")
                if signature in FOREIGN:
                    if m != (calls or [None])[0]: raise bad("Thought signature is not valid")
                    continue
                if signature not in self.made: raise bad("Corrupted thought signature.")
                if signs and self.bare(part) != self.made[signature]: raise bad("Thought signature is not valid")
                sent.add(signature)
        return sent
    def bare(self, part):
        """The kind of a part and its content: a signature is valid on its own part only."""
        if "functionCall" in part: return ["call", part["functionCall"].get("name"), part["functionCall"].get("args", {})]
        return ["text", bool(part.get("thought")), part.get("text", "")]
    def do_POST(self):
        raw, body = self.body(); house, error, k, answer, sent = [], None, None, None, set()
        path, _, query = self.path.partition("?")
        try:
            if not re.search(r"/models/[^/]+:streamGenerateContent$", path) or query != "alt=sse": raise bad("Not found", 404)
            if not re.match(r"/v1(beta)?/", path): raise bad("Not found", 404)
            self.authorize()
            sent = self.check(body, raw, house)
            if house and self.script.config.get("house") == "reject": raise bad("house rules: " + "; ".join(house))
        except Reject as reject: error = reject
        if not error: k, answer = self.script.next(raw)
        headers = {name: value for name, value in [*self.kept_headers().items(), ("x-goog-api-key", self.headers.get("x-goog-api-key"))] if value}
        self.script.log(t=time.time(), path=path, headers=headers, body=body, status=error.status if error else (answer or {}).get("http", 200), error=error and error.body, house=house, answer=k, signed=[len(sent), len(self.made)], verbatim={signature: True for signature in sent})
        if error: return self.send_json(error.status, error.body)
        if self.plain(answer): return
        self.sse(answer, self.events(answer, body))
    def parts(self, answer):
        """Returns the parts of an answer, each with the texts it is streamed in."""
        specs, out = answer.get("parts", []), []
        calls = [n for n, spec in enumerate(specs) if "call" in spec]
        texts = [n for n, spec in enumerate(specs) if "text" in spec]
        default = calls[:1] or texts[-1:]
        for n, spec in enumerate(specs):
            if "part" in spec: out.append(spec["part"]); continue
            if "thought" in spec: out.append({"text": spec["thought"], "thought": True}); continue
            if "call" in spec:
                name, args = spec["call"]; part = {"functionCall": {"name": name, "args": json.loads(args) if isinstance(args, str) else args}}
                if self.script.config.get("ids"): part["functionCall"]["id"] = spec.get("id") or self.script.fresh("call-")
                elif "id" in spec: part["functionCall"]["id"] = spec["id"]
            else: part = {"text": spec["text"]}
            if spec.get("signed", n in default and self.script.config.get("signs", True)):
                if "text" in part: out.append(part); part = {"text": ""}                # behind the text, without one
                part["thoughtSignature"] = base64.b64encode(("sig" + self.script.fresh("") + sign(SECRET, json.dumps(part, sort_keys=True))).encode()).decode()
                self.made[part["thoughtSignature"]] = self.bare(part)
            out.append(part)
        return out
    def events(self, answer, body):
        at = answer.get("error_at", {})
        thoughts = 2 if any("thought" in spec for spec in answer.get("parts", [])) else 0
        prompt = len(json.dumps(body)) // 4
        usage = {"promptTokenCount": prompt, "candidatesTokenCount": 5, "totalTokenCount": prompt + 5 + thoughts, **({"thoughtsTokenCount": thoughts} if thoughts else {}), **answer.get("usage", {})}
        def chunk(candidate=None, **more):
            return None, {**({"candidates": [{**candidate, "index": 0}]} if candidate is not None else {}), **more, "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}
        content = lambda *parts: {"content": {"role": "model", "parts": list(parts)}}
        def all_events():
            if "block" in answer:
                yield chunk(promptFeedback={"blockReason": answer["block"], **({"blockReasonMessage": answer["message"]} if "message" in answer else {})}); return
            if answer.get("empty"): yield chunk(); return
            parts = self.parts(answer)
            last = parts.pop() if answer.get("late") and parts else None
            for part in parts:
                if part.get("text"):
                    for piece in pieces(part["text"], answer.get("pieces", 3)): yield chunk(content({**part, "text": piece}))
                else: yield chunk(content(part))
            end = {**content({"text": ""}), "finishReason": answer.get("finish", "STOP"), **({"finishMessage": answer["message"]} if "message" in answer else {})}
            yield chunk(end)
            if last: yield chunk(content(last))
        for n, pair in enumerate(all_events()):
            if n == at.get("index"):
                yield None, {"error": at["error"]}; return
            yield pair

if __name__ == "__main__": main(Content)
