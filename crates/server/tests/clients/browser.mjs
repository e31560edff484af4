// The hooks of chat pages in a browser, against the server at the address in the first argument. `CHROMIUM` is the program.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const clients = process.env.CLIENTS;
const require = createRequire(clients + "/");
const { chromium } = require("playwright-core");
const { buildSync } = require("esbuild");

const here = dirname(fileURLToPath(import.meta.url));
const built = buildSync({
  entryPoints: [join(here, "page.jsx")],
  bundle: true,
  write: false,
  format: "iife",
  jsx: "automatic",
  platform: "browser",
  nodePaths: [join(clients, "node_modules")],
  define: { "process.env.NODE_ENV": '"production"', "process.env": "{}" },
  logLevel: "error",
});
const script = built.outputFiles[0].text;
const pages = createServer((request, response) => {
  const isScript = request.url.startsWith("/page.js");
  response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
  response.end(isScript ? script : '<meta charset="utf-8"><div id="root"></div><script src="/page.js"></script>');
});
await new Promise((ready) => pages.listen(0, "127.0.0.1", ready));

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
const open = async (graph, hook = "useStream") => {
  const page = await browser.newPage();
  page.on("pageerror", (error) => console.error(String(error)));
  page.on("console", (message) => message.type() === "error" && console.error(message.text()));
  const query = new URLSearchParams({ server: process.argv[2], graph, hook });
  await page.goto(`http://127.0.0.1:${pages.address().port}/?${query}`);
  await page.waitForSelector("#state");
  return page;
};
const shows = async (page, selector, expected) => {
  const has = ([selector, expected]) => document.querySelector(selector)?.textContent.includes(expected);
  await page.waitForFunction(has, [selector, expected], { timeout: 20_000 }).catch(async (error) => {
    throw new Error(`${selector} lacks ${expected}: ${await page.textContent("body")}`, { cause: error });
  });
};
const press = (page, button) => page.evaluate((button) => document.getElementById(button).click(), button);

// A chat in pieces, with the result of a tool, and the same after a reload.
const chat = await open("chat");
await press(chat, "say");
await shows(chat, "#messages", "human: 2+40?ai: Let me add.tool: 42");
await shows(chat, "#state", "ready");
await chat.reload();
await shows(chat, "#messages", "human: 2+40?ai: Let me add.tool: 42");
await press(chat, "say");
await shows(chat, "#messages", "tool: 42human: 2+40?ai: Let me add.tool: 42");
await shows(chat, "#state", "ready");
assert.ok(Number(await chat.textContent("#branches")) > 4);
assert.equal(await chat.textContent("#error"), "");

// A question, which a reload does not lose, and its answer.
const approve = await open("approve");
await press(approve, "pay");
await shows(approve, "#interrupt", '{"euros":20}');
await approve.reload();
await shows(approve, "#interrupt", '{"euros":20}');
await press(approve, "approve");
await shows(approve, "#values", '"verdict":"yes"');
await shows(approve, "#state", "ready");

// A page that is loaded again while a model writes.
const slow = await open("slow");
await press(slow, "say");
await shows(slow, "#messages", "ai: one two");
await slow.reload();
await shows(slow, "#messages", "ai: one two three four five six seven eight");
await shows(slow, "#state", "ready");

const ai = await open("chat", "useChat");
await press(ai, "say");
await shows(ai, "#messages", "user: 2+40?");
await shows(ai, "#messages", "Let me add.");
await shows(ai, "#state", "ready");
assert.equal(await ai.textContent("#error"), "");

await browser.close();
pages.close();
console.log("done");
