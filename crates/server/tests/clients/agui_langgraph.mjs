// The agent of @ag-ui/langgraph, which reads the stream mode `events`, against the server at the address in the first argument.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { LangGraphAgent } = require("@ag-ui/langgraph");

const agent = new LangGraphAgent({ deploymentUrl: process.argv[2], graphId: "chat" });
const seen = [];
agent.addMessage({ id: "u1", role: "user", content: "2 + 40?" });
await agent.runAgent({ runId: "r1" }, { onEvent: ({ event }) => void seen.push([event.type, event.delta]) });
const parts = seen.filter(([type]) => /^(TEXT|TOOL)/.test(type));
assert.deepEqual(parts, [
  ["TEXT_MESSAGE_START", undefined],
  ["TEXT_MESSAGE_CONTENT", "Let me "],
  ["TEXT_MESSAGE_CONTENT", "add."],
  ["TEXT_MESSAGE_END", undefined],
  ["TOOL_CALL_START", undefined],
  ["TOOL_CALL_ARGS", '{"a":2'],
  ["TOOL_CALL_ARGS", "}"],
  ["TOOL_CALL_END", undefined],
  ["TOOL_CALL_RESULT", undefined],
]);
assert.equal(seen.at(-1)[0], "RUN_FINISHED");
assert.deepEqual(agent.messages.map(({ role }) => role), ["user", "assistant", "tool"]);

// A question, and in the run after the answer the result of a call of the run before.
const asks = new LangGraphAgent({ deploymentUrl: process.argv[2], graphId: "assistant" });
const names = [];
asks.addMessage({ id: "u1", role: "user", content: "2 + 40" });
await asks.runAgent({ runId: "r1" }, { onCustomEvent: ({ event }) => void names.push(event.name) });
assert.deepEqual(names, ["on_interrupt"]);
const command = { resume: [{ type: "accept", args: null }] };
let last;
const onMessagesSnapshotEvent = ({ event }) => void (last = event.messages);
await asks.runAgent({ runId: "r2", forwardedProps: { command } }, { onMessagesSnapshotEvent });
assert.deepEqual(last.map(({ content }) => content), ["2 + 40", "Let me see: 2 + 40", "The sum is 42.", "Done: The sum is 42."]);

console.log("done");
process.exit(0);
