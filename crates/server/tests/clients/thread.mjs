// The SDK of LangGraph for JavaScript on the thread protocol, against the server at the address in the first argument, by the
// transport in the second one: sse or websocket.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { Client } = require("@langchain/langgraph-sdk");

const [url, transport] = process.argv.slice(2);
const client = new Client({ apiUrl: url, apiKey: null });
const open = (assistantId, threadId) =>
  threadId ? client.threads.stream(threadId, { assistantId, transport }) : client.threads.stream({ assistantId, transport });
const user = (content, id) => ({ messages: [{ type: "human", content, id }] });

async function until(ready, what) {
  for (let waited = 0; !ready(); waited += 5) {
    assert.ok(waited < 10_000, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Reads events of some channels to the end of the run. */
async function events(thread, params) {
  const seen = [];
  for await (const event of await thread.subscribe(params)) {
    seen.push(event);
    const { namespace, data } = event.params;
    if (event.method === "lifecycle" && namespace.length === 0 && data.event !== "running") break;
  }
  return seen;
}

// Tokens, a call with its result, and the state; then another run on the same thread.
{
  const thread = open("chat");
  const messages = (async () => {
    const texts = [];
    for await (const message of thread.messages) {
      let text = "";
      for await (const piece of message.text) text += piece + "|";
      texts.push([message.id, text]);
    }
    return texts;
  })();
  const calls = (async () => {
    const found = [];
    for await (const call of thread.toolCalls) found.push([call.name, call.args, await call.output]);
    return found;
  })();
  const { run_id } = await thread.run.start({ input: user("what is 2+40?", "h1"), metadata: { by: "js" } });
  const output = await thread.output;
  assert.deepEqual(output.messages.map((message) => message.id), ["h1", "answer-1", "result-2"]);
  assert.deepEqual(await messages, [["answer-1", "Let me |add.|"]]);
  const [[name, args, result]] = await calls;
  assert.deepEqual([name, args, result], ["add", { a: 2 }, "42"]);
  const state = await client.threads.getState(thread.threadId);
  assert.deepEqual([state.next, state.values.messages.length], [[], 3]);
  const { metadata } = await client.threads.get(thread.threadId);
  assert.deepEqual([metadata.graph_id, metadata.by], ["chat", "js"]);
  assert.equal((await client.runs.get(thread.threadId, run_id)).status, "success");
  await thread.run.start({ input: user("and 3?", "h4") });
  await until(() => thread.ordering.lastSeenSeq > 0, "events");
  const again = open("chat", thread.threadId);
  const lifecycle = await events(again, { channels: ["lifecycle"] });
  assert.deepEqual(lifecycle.map((event) => event.params.data.event), ["running", "completed"]);
  const whole = await client.threads.getState(thread.threadId);
  assert.equal(whole.values.messages.length, 6);
  await again.close();
  await thread.close();
}

// Numbers without gaps over all channels; every new stream has the same events.
{
  const channels = ["lifecycle", "input", "values", "checkpoints", "updates", "messages", "tools", "tasks", "custom"];
  const thread = open("counter");
  const reading = events(thread, { channels });
  await thread.run.start({ input: { n: 1 } });
  const live = await reading;
  live.slice(1).forEach((event, at) => assert.equal(event.seq, live[at].seq + 1));
  const other = open("counter", thread.threadId);
  assert.deepEqual(await events(other, { channels }), live);
  const custom = await other.subscribe("custom:progress");
  for await (const payload of custom) {
    assert.deepEqual(payload, { done: 50 });
    break;
  }
  const values = live.filter((event) => event.method === "values").map((event) => event.params.data.n);
  assert.deepEqual(values, [1, 2, 3]);
  await other.close();
  await thread.close();
}

// A question and its answer; a wrong one.
{
  const thread = open("approve");
  await thread.run.start({ input: { euros: 9 } });
  await until(() => thread.interrupted && thread.interrupts.length > 0, "a question");
  const [asked] = thread.interrupts;
  assert.deepEqual(asked.payload, { euros: 9 });
  await assert.rejects(
    thread.input.respond({ namespace: [], interrupt_id: "nobody", response: "yes" }),
    (error) => error.code === "no_such_interrupt",
  );
  await thread.input.respond({ namespace: asked.namespace, interrupt_id: asked.interruptId, response: "yes" });
  const state = await events(open("approve", thread.threadId), { channels: ["values", "lifecycle"] });
  assert.deepEqual(state.filter((event) => event.method === "lifecycle").length > 0, true);
  await until(() => !thread.interrupted, "the answer");
  await client.runs.join(thread.threadId, (await client.runs.list(thread.threadId))[0].run_id);
  assert.equal((await client.threads.getState(thread.threadId)).values.verdict, "yes");
  await assert.rejects(
    thread.input.respond({ namespace: [], interrupt_id: asked.interruptId, response: "no" }),
    (error) => error.code === "no_such_interrupt",
  );
  await thread.close();
}

// Two questions at the same time, with one answer each in one command.
{
  const thread = open("two");
  await thread.run.start({ input: {} });
  await until(() => thread.interrupts.length === 2, "two questions");
  const responses = thread.interrupts.map(({ interruptId, namespace, payload }) => ({
    namespace,
    interrupt_id: interruptId,
    response: payload + "!",
  }));
  await thread.input.respond({ responses });
  await until(() => thread.interrupts.length === 0, "answers");
  await client.runs.join(thread.threadId, (await client.runs.list(thread.threadId))[0].run_id);
  assert.deepEqual((await client.threads.getState(thread.threadId)).values.log, ["left!", "right!"]);
  await thread.close();
}

// A subgraph that asks.
{
  const thread = open("parent");
  const found = (async () => {
    for await (const subgraph of thread.subgraphs) return subgraph;
  })();
  await thread.run.start({ input: { euros: 5 } });
  const subgraph = await found;
  assert.equal(subgraph.name, "child");
  await until(() => thread.interrupts.length === 1, "a question");
  const [asked] = thread.interrupts;
  assert.deepEqual(asked.namespace, subgraph.namespace);
  await events(open("parent", thread.threadId), { channels: ["lifecycle"] });
  const { tree } = await thread.agent.getTree();
  assert.deepEqual([tree.status, tree.children[0].status], ["interrupted", "interrupted"]);
  await thread.input.respond({ namespace: asked.namespace, interrupt_id: asked.interruptId, response: "yes" });
  await client.runs.join(thread.threadId, (await client.runs.list(thread.threadId))[0].run_id);
  assert.equal((await thread.state.get({ namespace: [] })).values.verdict, "yes");
  await thread.close();
}

// A failure, an unknown assistant, and a fork.
{
  const thread = open("fail");
  const reading = events(thread, { channels: ["lifecycle"] });
  await thread.run.start({ input: {} });
  const failed = (await reading).at(-1).params.data;
  assert.deepEqual([failed.event, /boom/.test(failed.error)], ["failed", true]);
  await thread.close();
  const unknown = open("nobody");
  await assert.rejects(unknown.run.start({ input: {} }), (error) => error.code === "invalid_argument" && /`counter`/.test(error.message));
  await assert.rejects(client.threads.getState(unknown.threadId), /404/);
  await unknown.close();
  const fork = open("counter");
  await fork.run.start({ input: { n: 1 } });
  await fork.output;
  const history = await client.threads.getHistory(fork.threadId, { limit: 100 });
  const { run_id } = await fork.run.start({ input: { n: 10 }, forkFrom: history.at(-1).checkpoint.checkpoint_id });
  await client.runs.join(fork.threadId, run_id);
  const { values } = await client.threads.getState(fork.threadId);
  assert.deepEqual(values, { n: 12, log: ["one", "two"] });
  await assert.rejects(fork.run.start({ input: {}, forkFrom: "999" }), (error) => error.code === "no_such_checkpoint");
  await fork.close();
}

// One run at a time: reject, and interrupt.
{
  const thread = open("gate");
  const first = await thread.run.start({ input: { gate: `js-${transport}` } });
  await assert.rejects(thread.run.start({ input: {}, multitaskStrategy: "reject" }), (error) => error.code === "invalid_argument");
  const second = await thread.run.start({ input: { gate: `js-${transport}` }, multitaskStrategy: "interrupt" });
  await until(() => thread.interrupted, "the end of the first run");
  await client.runs.cancel(thread.threadId, second.run_id, true);
  assert.equal((await client.runs.get(thread.threadId, first.run_id)).status, "interrupted");
  await thread.close();
}

console.log("done");
process.exit(0);
