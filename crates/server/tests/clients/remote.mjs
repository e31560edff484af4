// RemoteGraph for JavaScript, and the transport of `useChat` of @ai-sdk/langchain, against the server at the address in the first argument.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { RemoteGraph } = require("@langchain/langgraph/remote");
const { LangSmithDeploymentTransport } = require("@ai-sdk/langchain");
const { Client } = require("@langchain/langgraph-sdk");

const url = process.argv[2];
const client = new Client({ apiUrl: url, apiKey: null });

async function all(iterable) {
  const found = [];
  for await (const each of iterable) found.push(each);
  return found;
}

const counter = new RemoteGraph({ graphId: "counter", url });
assert.deepEqual(await counter.invoke({ n: 1 }), { n: 3, log: ["one", "two"] });
const parts = await all(await counter.stream({ n: 1 }, { streamMode: ["values", "updates"] }));
assert.deepEqual(parts.map(([mode]) => mode), ["values", "updates", "values", "updates", "values"]);
assert.deepEqual(await all(counter.getSubgraphsAsync()), []);
const chat = new RemoteGraph({ graphId: "chat", url });
const { thread_id } = await client.threads.create();
const config = { configurable: { thread_id } };
const messages = [{ role: "human", content: "2+40?" }];
const pieces = await all(await chat.stream({ messages }, { ...config, streamMode: "messages" }));
assert.deepEqual(pieces.map(([piece]) => piece.content), ["Let me ", "add.", "", "", "42"]);
assert.equal((await chat.getState(config)).values.messages.length, 3);
assert.equal((await all(chat.getStateHistory(config))).length, 4);

/** Returns the kinds and texts of what a page receives. */
async function page(graphId, text) {
  const transport = new LangSmithDeploymentTransport({ url, graphId });
  const sent = [{ id: "u1", role: "user", parts: [{ type: "text", text }] }];
  const stream = await transport.sendMessages({ chatId: "c1", trigger: "submit-message", messages: sent });
  const parts = (await all(stream)).filter(({ type }) => /delta|output|error/.test(type));
  return parts.map((part) => `${part.type} ${part.delta ?? part.inputTextDelta ?? part.output ?? part.errorText}`);
}

assert.deepEqual(await page("chat", "2+40?"), [
  "text-delta Let me ",
  "text-delta add.",
  'tool-input-delta {"a":2',
  "tool-input-delta }",
  "tool-output-available 42",
]);
await client.runs.wait(null, "key", { input: { gate: "use chat" } });
assert.deepEqual(await page("write", "use chat"), ["reasoning-delta Hm.", "text-delta one ", "text-delta two"]);
assert.match((await page("fail", "boom")).join(), /error .*boom/);

console.log("done");
process.exit(0);
