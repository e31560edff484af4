// The hook of @langchain/react against the server at the address in the first argument, by the transport in the second one: sse or
// websocket.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { Window } = require("happy-dom");
const window = new Window();
globalThis.window = window;
globalThis.document = window.document;
globalThis.navigator ??= window.navigator;
const { createElement } = require("react");
const { createRoot } = require("react-dom/client");
const { useMessageMetadata, useStream } = require("@langchain/react");
const { Client } = require("@langchain/langgraph-sdk");

const [url, transport] = process.argv.slice(2);
const client = new Client({ apiUrl: url, apiKey: null });
const user = (content, id) => ({ messages: [{ type: "human", content, id }] });
const openGate = (gate) => client.runs.wait(null, "key", { input: { gate } });

async function until(ready, what) {
  for (let waited = 0; !ready(); waited += 5) {
    assert.ok(waited < 20_000, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Mounts a page with one hook, and returns what it renders at any time. */
function mount(assistantId, threadId) {
  const page = { shown: [] };
  const App = () => {
    const stream = useStream({ apiUrl: url, apiKey: null, assistantId, threadId, transport, onThreadId: (id) => (page.threadId = id) });
    page.metadata = useMessageMetadata(stream, stream.messages[0]?.id);
    page.stream = stream;
    page.shown.push(texts(stream));
    return null;
  };
  const root = createRoot(document.createElement("div"));
  root.render(createElement(App));
  page.unmount = () => root.unmount();
  return page;
}

const texts = (stream) => stream.messages.map((message) => message.text);

async function mounted(assistantId, threadId) {
  const page = mount(assistantId, threadId);
  await until(() => page.stream && !page.stream.isThreadLoading, "the page");
  return page;
}

const ended = (page) => until(() => !page.stream.isLoading, "the end of the run");

// A chat, and the same page after a reload.
{
  const page = await mounted("chat");
  await page.stream.submit(user("2+40?", "h1"));
  await ended(page);
  await until(() => page.stream.messages.length === 3, "three messages");
  assert.deepEqual(texts(page.stream), ["2+40?", "Let me add.", "42"]);
  assert.ok(page.shown.some((shown) => shown[1] === "Let me " || shown[1] === "Let me add."));
  // No message twice, at no time.
  for (const shown of page.shown) assert.equal(new Set(shown).size, shown.length, shown.join());
  const [call] = page.stream.toolCalls;
  assert.deepEqual([page.stream.toolCalls.length, call.name, call.args], [1, "add", { a: 2 }]);
  assert.equal(page.stream.error, undefined);
  page.unmount();
  const reloaded = await mounted("chat", page.threadId);
  await until(() => reloaded.stream.messages.length === 3, "the messages of the thread");
  assert.equal(reloaded.stream.isLoading, false);
  await reloaded.stream.submit(user("and 3?", "h4"));
  await ended(reloaded);
  await until(() => reloaded.stream.messages.length === 6, "six messages");
  assert.deepEqual(texts(reloaded.stream).slice(3), ["and 3?", "Let me add.", "42"]);
  reloaded.unmount();
}

// An edit of the first message, without a reload.
{
  const page = await mounted("chat");
  await page.stream.submit(user("first", "h1"));
  await ended(page);
  await until(() => page.metadata?.parentCheckpointId && page.stream.messages.length === 3, "the checkpoint before the message");
  const history = await client.threads.getHistory(page.threadId, { limit: 100 });
  assert.ok(history.some(({ checkpoint }) => checkpoint.checkpoint_id === page.metadata.parentCheckpointId));
  await page.stream.submit(user("second", "h1-edited"), { forkFrom: history.at(-1).checkpoint.checkpoint_id });
  await ended(page);
  await until(() => texts(page.stream)[0] === "second" && page.stream.messages.length === 3, "the edited message");
  const { values } = await client.threads.getState(page.threadId);
  assert.deepEqual(values.messages.map((message) => message.content), ["second", "Let me add.", "42"]);
  page.unmount();
}

// A reload in the middle of a message: both pages have each text once.
{
  const gate = `react-${transport}`;
  const page = await mounted("write");
  const submitted = page.stream.submit(user(gate, "h1"));
  await until(() => texts(page.stream)[1] === "one ", "the first piece");
  const other = await mounted("write", page.threadId);
  await until(() => texts(other.stream)[1] === "one " && other.stream.isLoading, "the first piece on the other page");
  await openGate(gate);
  await submitted;
  for (const each of [page, other]) {
    await ended(each);
    await until(() => texts(each.stream)[1] === "one two", "the whole message");
    assert.equal(each.stream.messages.length, 2);
    each.unmount();
  }
}

// A question, before and after a reload.
{
  const page = await mounted("approve");
  await page.stream.submit({ euros: 9 });
  await until(() => page.stream.interrupt, "a question");
  assert.deepEqual(page.stream.interrupt.value, { euros: 9 });
  page.unmount();
  const reloaded = await mounted("approve", page.threadId);
  await until(() => reloaded.stream.interrupt, "the question after a reload");
  // The state has the question at once; it can be answered when its event has come.
  let isAnswered = false;
  for (let attempt = 0; !isAnswered; attempt += 1) {
    await reloaded.stream.respond("yes").then(() => (isAnswered = true), (error) => assert.ok(attempt < 200, String(error)));
    if (!isAnswered) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await until(() => reloaded.stream.values.verdict === "yes" && !reloaded.stream.isLoading, "the answer");
  assert.equal(reloaded.stream.interrupts.length, 0);
  reloaded.unmount();
}

// Two questions, and one of a subgraph.
{
  const page = await mounted("two");
  await page.stream.submit({});
  await until(() => page.stream.interrupts.length === 2, "two questions");
  const [first, second] = page.stream.interrupts.map(({ id }) => id);
  await page.stream.respond("one", { interruptId: first });
  await until(() => page.stream.interrupts.length === 1 && !page.stream.isLoading, "the other question");
  await page.stream.respond("two", { interruptId: second });
  await until(() => page.stream.values.log?.length === 2 && !page.stream.isLoading, "both answers");
  page.unmount();
  const parent = await mounted("parent");
  await parent.stream.submit({ euros: 5 });
  await until(() => parent.stream.interrupt, "the question of the subgraph");
  await parent.stream.respond("yes");
  await until(() => parent.stream.values.verdict === "yes" && !parent.stream.isLoading, "the answer to the subgraph");
  parent.unmount();
}

// A failure; a run that is stopped, and what is sent while another runs.
{
  const page = await mounted("fail");
  await page.stream.submit({}).catch(() => {});
  await until(() => page.stream.error && !page.stream.isLoading, "the failure");
  assert.match(String(page.stream.error), /boom/);
  page.unmount();
  const gate = `react-stop-${transport}`;
  const stopped = await mounted("gate");
  const submitted = stopped.stream.submit({ gate });
  await until(() => stopped.stream.isLoading && stopped.stream.values.log?.length === 1, "the run");
  await stopped.stream.stop();
  await ended(stopped);
  await submitted;
  const [run] = await client.runs.list(stopped.threadId);
  await client.runs.join(stopped.threadId, run.run_id);
  assert.equal((await client.runs.get(stopped.threadId, run.run_id)).status, "interrupted");
  void stopped.stream.submit({ gate });
  await until(() => stopped.stream.isLoading, "another run");
  await openGate(gate);
  await until(() => stopped.stream.values.log?.at(-1) === "after" && !stopped.stream.isLoading, "its end");
  stopped.unmount();
}

console.log("done");
process.exit(0);
