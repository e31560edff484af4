// The page of the example in a browser: built by Vite as its users do, with the server at the address in the first argument. `CHROMIUM` is
// the program, and `CLIENTS` has the packages.

import assert from "node:assert/strict";
import { cp, mkdtemp, rm, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { serveFiles } from "./files.mjs";

const clients = process.env.CLIENTS;
const require = createRequire(clients + "/");
const { chromium } = require("playwright-core");
const vite = await import(pathToFileURL(join(clients, "node_modules/vite/dist/node/index.js")));

const folder = await mkdtemp(join(tmpdir(), "orders-page-"));
await cp(join(dirname(fileURLToPath(import.meta.url)), "../../../../examples/orders-page"), folder, {
  recursive: true,
  filter: (path) => !["node_modules", "dist"].includes(basename(path)),
});
await symlink(join(clients, "node_modules"), join(folder, "node_modules"));
process.env.VITE_SERVER = process.argv[2];
await vite.build({ root: folder, logLevel: "error" });
const pages = await serveFiles(join(folder, "dist"));

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage();
page.setDefaultTimeout(20_000);
page.on("pageerror", (error) => console.error(String(error)));
await page.goto(pages.url);

const order = async (euros) => {
  await page.getByLabel("Euros").fill(String(euros));
  await page.getByRole("button", { name: "Order" }).click();
  await page.getByRole("status").getByText(`Pay ${euros} euros?`).waitFor();
};
// The state has the question at once; it can be answered when its event has come.
const answer = async (name, line) => {
  const shown = page.getByRole("listitem").filter({ hasText: line });
  for (let attempt = 0; !(await shown.count()); attempt += 1) {
    assert.ok(attempt < 100, `no line ${line}: ${await page.textContent("body")}`);
    const button = page.getByRole("button", { name });
    if (await button.count()) await button.click({ timeout: 1_000 }).catch(() => {});
    await page.waitForTimeout(100);
  }
};

await order(20);
await answer("Pay", "paid 20 euros");
await order(7);
const address = page.url();
assert.match(address, /\?thread=.+/);
await page.reload();
await page.getByRole("status").getByText("Pay 7 euros?").waitFor();
await answer("Refuse", "refused");
assert.deepEqual(await page.getByRole("listitem").allTextContents(), ["paid 20 euros", "refused"]);
assert.equal(page.url(), address);
assert.equal(await page.getByRole("alert").count(), 0);

await browser.close();
await pages.close();
await rm(folder, { recursive: true });
console.log("done");
