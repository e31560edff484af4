// The crons of the SDK of LangGraph for JavaScript, against the server at the address in the first argument.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { Client } = require("@langchain/langgraph-sdk");

const client = new Client({ apiUrl: process.argv[2], apiKey: null });

const cron = await client.crons.create("counter", {
  schedule: "0 9 * * 1-5",
  timezone: "Europe/Berlin",
  input: { n: 1 },
  metadata: { by: "js" },
  streamMode: ["values"],
  onRunCompleted: "keep",
});
assert.deepEqual(cron.payload.input, { n: 1 });
assert.ok(new Date(cron.next_run_date) > new Date());
const thread = (await client.threads.create()).thread_id;
const mine = await client.crons.createForThread(thread, "counter", { schedule: "@daily", input: {} });
assert.equal(mine.thread_id, thread);

assert.deepEqual(await client.crons.search({ metadata: { by: "js" } }), [cron]);
assert.deepEqual(await client.crons.search({ threadId: thread, select: ["cron_id"] }), [{ cron_id: mine.cron_id }]);
const paused = await client.crons.update(cron.cron_id, { enabled: false });
assert.equal(paused.next_run_date, null);
assert.deepEqual(paused.payload.input, { n: 1 });
await assert.rejects(client.crons.create("counter", { schedule: "every morning" }), /it has 2 fields, not five/);
for (const created of [cron, mine]) {
  await client.crons.delete(created.cron_id);
}
await assert.rejects(client.crons.delete(cron.cron_id), /not found/);
assert.deepEqual(await client.crons.search({}), []);
console.log("done");
