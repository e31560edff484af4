// The chat page of LangGraph, agent-chat-ui, in a browser, against the server at the address in the first argument. `CHROMIUM` is the
// program, and `CLIENTS` has the built page.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { serveFiles } from "./files.mjs";

const clients = process.env.CLIENTS;
const { chromium } = createRequire(clients + "/")("playwright-core");
const pages = await serveFiles(join(clients, "agent-chat-ui/dist"));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });

async function open(assistantId, more = {}) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  page.setDefaultTimeout(20_000);
  page.on("pageerror", (error) => console.error(String(error)));
  const query = new URLSearchParams({ apiUrl: process.argv[2], assistantId, ...more });
  await page.goto(`${pages.url}?${query}`);
  return page;
}

async function send(page, text) {
  const box = page.getByPlaceholder("Type your message...");
  await box.fill(text);
  await box.press("Enter");
}

const shows = async (page, text) => {
  const found = page.getByText(text, { exact: true }).first();
  await found.waitFor().catch(async (error) => {
    throw new Error(`the page lacks ${text}: ${await page.innerText("body")}`, { cause: error });
  });
};
const earlier = async (page) => {
  await page.getByText("2 / 2", { exact: true }).locator("xpath=preceding-sibling::button").click();
  await shows(page, "1 / 2");
};
const ready = (page) => page.getByRole("button", { name: "Send" }).waitFor();
const thread = (page) => new URL(page.url()).searchParams.get("threadId");

// A text appears while the model writes.
const slow = await open("slow");
await send(slow, "Count.");
await slow.waitForFunction(() => document.body.innerText.includes("one two") && !document.body.innerText.includes("eight"));
await slow.getByRole("button", { name: "Cancel" }).waitFor();
await shows(slow, "one two three four five six seven eight");
await ready(slow);
await slow.close();

// A call of a tool, and its question, before and after a reload.
const page = await open("assistant");
await send(page, "2+40?");
await shows(page, "Let me see: 2+40?");
await page.getByRole("heading", { name: /^add/ }).waitFor();
const accept = page.getByRole("button", { name: "Accept" });
await accept.waitFor();
const id = thread(page);
assert.ok(id);
await page.reload();
await shows(page, "Let me see: 2+40?");
await accept.click();
await shows(page, "The sum is 42.");
await shows(page, "Done: The sum is 42.");
await ready(page);
await accept.waitFor({ state: "detached" });

// An edit is a branch beside the first one; its call is ignored.
await page.getByRole("button", { name: "Edit" }).first().click();
await page.locator("textarea").first().fill("3+40?");
await page.getByRole("button", { name: "Submit" }).click();
await shows(page, "Let me see: 3+40?");
await page.getByRole("button", { name: "Ignore" }).click();
await shows(page, "Done: Refused.");
await ready(page);
await earlier(page);
await shows(page, "Done: The sum is 42.");

// The last answer once more.
await page.getByRole("button", { name: "Refresh" }).last().click();
await page.getByText("2 / 2", { exact: true }).first().waitFor();
await ready(page);
await shows(page, "Done: The sum is 42.");
assert.equal(thread(page), id);
assert.equal(await page.getByText("An error occurred").count(), 0);

// The list of threads.
const list = await open("assistant", { chatHistoryOpen: "true" });
await list.getByRole("button", { name: "2+40?" }).click();
// The page begins with the newest branch of each fork.
await shows(list, "Done: Refused.");
await earlier(list);
await shows(list, "Done: The sum is 42.");
assert.equal(thread(list), id);

await browser.close();
await pages.close();
console.log("done");
