// The SDK of LangGraph for JavaScript against the server at the address in the first argument.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { Client } = require("@langchain/langgraph-sdk");

const client = new Client({ apiUrl: process.argv[2], apiKey: null });

const [counter] = await client.assistants.search({ graphId: "counter" });
assert.equal(counter.assistant_id, "09d6caf4-2ef3-5a8b-b1a7-114690ed5d45");
assert.equal((await client.assistants.getGraph("counter")).nodes.length, 4);

const thread = await client.threads.create({ metadata: { by: "js" } });
let created;
const parts = [];
for await (const part of client.runs.stream(thread.thread_id, "counter", {
  input: { n: 1 },
  streamMode: ["values", "updates", "messages-tuple"],
  streamResumable: true,
  onRunCreated: (run) => (created = run),
})) {
  parts.push(part);
}
assert.equal(parts[0].event, "metadata");
assert.equal(created.run_id, parts[0].data.run_id);
assert.deepEqual(parts.at(-1).data, { n: 3, log: ["one", "two"] });
const joined = [];
for await (const part of client.runs.joinStream(thread.thread_id, created.run_id, { lastEventId: "-1", streamMode: ["values"] })) {
  joined.push(part);
}
assert.deepEqual(joined.map((part) => part.event), ["metadata", "values", "values", "values"]);
assert.equal((await client.runs.join(thread.thread_id, created.run_id)).n, 3);

const asks = await client.threads.create();
const asked = await client.runs.wait(asks.thread_id, "approve", { input: { euros: 20 } });
assert.deepEqual(asked.__interrupt__[0].value, { euros: 20 });
const answered = await client.runs.wait(asks.thread_id, "approve", { command: { resume: "yes" } });
assert.equal(answered.verdict, "yes");
const history = await client.threads.getHistory(asks.thread_id, { limit: 100 });
assert.equal(history.at(-1).parent_checkpoint, null);
await client.threads.updateState(asks.thread_id, { values: { verdict: "no" }, asNode: "decide" });
assert.deepEqual((await client.threads.getState(asks.thread_id)).next, ["send"]);

const busy = await client.threads.create();
const run = await client.runs.create(busy.thread_id, "gate", { input: { gate: "javascript" } });
await assert.rejects(client.runs.create(busy.thread_id, "gate", { input: {}, multitaskStrategy: "reject" }), /409/);
await client.runs.cancel(busy.thread_id, run.run_id, true);
assert.equal((await client.runs.get(busy.thread_id, run.run_id)).status, "interrupted");
await client.runs.cancel(busy.thread_id, run.run_id).then(
  () => assert.fail("cancelled twice"),
  (error) => assert.match(String(error), /No runs found to cancel/),
);

const copy = await client.threads.copy(asks.thread_id);
assert.equal(copy.values.verdict, "no");
await client.threads.delete(copy.thread_id);
await assert.rejects(client.threads.get(copy.thread_id), /404/);
await assert.rejects(client.runs.wait(null, "fail", { input: {} }), /boom/);

await client.store.putItem(["js"], "tea", { likes: "green tea" });
assert.equal((await client.store.getItem(["js"], "tea")).value.likes, "green tea");
assert.equal(await client.store.getItem(["js"], "none"), null);
await client.store.deleteItem(["js"], "tea");
await assert.rejects(client.crons.search({}), /crons are not supported/);
console.log("done");
