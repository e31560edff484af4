// The official client of AG-UI against the server at the address in the first argument.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { HttpAgent } = require("@ag-ui/client");

const agent = (graph, threadId) => new HttpAgent({ url: `${process.argv[2]}/agui/${graph}`, threadId });

// Text, a call and its result; then the same conversation goes on.
const chat = agent("chat", "agui-chat");
const seen = [];
chat.addMessage({ id: "u1", role: "user", content: "2 + 40?" });
await chat.runAgent({ runId: "r1" }, { onEvent: ({ event }) => void seen.push(event.type) });
assert.equal(seen[0], "RUN_STARTED");
assert.equal(seen.at(-1), "RUN_FINISHED");
assert.deepEqual(chat.messages.map((message) => message.role), ["user", "assistant", "tool"]);
assert.equal(chat.messages[1].content, "Let me add.");
assert.equal(chat.messages[1].toolCalls[0].function.arguments, '{"a":2}');
assert.equal(chat.messages[2].content, "42");
chat.addMessage({ id: "u2", role: "user", content: "and 3?" });
await chat.runAgent({ runId: "r2" });
assert.equal(chat.messages.length, 6);

// A question, and its answer in the next run.
const approve = agent("approve", "agui-approve");
approve.setState({ euros: 9 });
let finished;
await approve.runAgent({ runId: "r1" }, { onRunFinishedEvent: ({ event }) => void (finished = event) });
assert.equal(finished.outcome.type, "interrupt");
const [asked] = finished.outcome.interrupts;
assert.deepEqual(asked.metadata.value, { euros: 9 });
await approve.runAgent({ runId: "r2", resume: [{ interruptId: asked.id, status: "resolved", payload: "yes" }] });
assert.equal(approve.state.verdict, "yes");

// A failure is an event.
let problem;
await agent("fail", "agui-fail").runAgent({ runId: "r1" }, { onRunErrorEvent: ({ event }) => void (problem = event) });
assert.match(problem.message, /boom/);

console.log("done");
