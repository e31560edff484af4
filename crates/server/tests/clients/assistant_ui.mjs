// The runtime of assistant-ui for LangGraph, against the server at the address in the first argument.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { Window } = require("happy-dom");
const window = new Window({ url: "http://localhost/" });
globalThis.window = window;
globalThis.document = window.document;
globalThis.navigator ??= window.navigator;
const { createElement } = require("react");
const { createRoot } = require("react-dom/client");
// It has modules of the newer kind only, which `require` does not load.
const load = (name) => import(`${process.env.CLIENTS}/node_modules/@assistant-ui/${name}/dist/index.js`);
const { AssistantRuntimeProvider } = await load("react");
const langgraph = await load("react-langgraph");
const { Client } = require("@langchain/langgraph-sdk");

const client = new Client({ apiUrl: process.argv[2], apiKey: null });

async function until(ready, what) {
  for (let waited = 0; !ready(); waited += 5) {
    assert.ok(waited < 20_000, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Mounts a page, and returns what it has at any time. */
async function mounted(assistantId, streamMode) {
  const page = {};
  const Inner = () => {
    page.question = langgraph.useLangGraphInterruptState();
    page.command = langgraph.useLangGraphSendCommand();
    return null;
  };
  const App = () => {
    const runtime = langgraph.useLangGraphRuntime({
      stream: langgraph.unstable_createLangGraphStream({ client, assistantId, streamMode }),
      create: async () => ({ externalId: (await client.threads.create()).thread_id }),
      load: async (id) => {
        const { values, tasks } = await client.threads.getState(id);
        return { messages: values.messages, interrupts: tasks[0]?.interrupts };
      },
    });
    page.runtime = runtime;
    return createElement(AssistantRuntimeProvider, { runtime }, createElement(Inner));
  };
  const root = createRoot(document.createElement("div"));
  root.render(createElement(App));
  page.unmount = () => root.unmount();
  page.shown = () => runtime(page).messages.flatMap(({ content }) => content.map(shownPart));
  await until(() => page.command, "the page");
  return page;
}

const runtime = (page) => page.runtime.thread.getState();
const shownPart = ({ type, text, toolName, argsText, result }) => (type === "tool-call" ? [toolName, argsText, result] : text);
const ended = (page, parts) => until(() => !runtime(page).isRunning && page.shown().length === parts, "the end of the run");

// It reads questions from the updates.
for (const streamMode of [["messages", "updates"], ["messages-tuple", "updates"]]) {
  // Text, a call and its result.
  const chat = await mounted("chat", streamMode);
  chat.runtime.thread.append("2+40?");
  await ended(chat, 3);
  assert.deepEqual(chat.shown(), ["2+40?", "Let me add.", ["add", '{"a":2}', "42"]]);
  chat.unmount();

  // A question, and its answer.
  const page = await mounted("assistant", streamMode);
  page.runtime.thread.append("2+40");
  await until(() => page.question, "the question");
  assert.equal(page.question.value[0].action_request.action, "add");
  await page.command({ resume: [{ type: "accept", args: null }] });
  await ended(page, 4);
  const call = ["add", '{"sum":"2+40"}', "The sum is 42."];
  assert.deepEqual(page.shown(), ["2+40", "Let me see: 2+40", call, "Done: The sum is 42."]);
  page.unmount();
}

console.log("done");
process.exit(0);
