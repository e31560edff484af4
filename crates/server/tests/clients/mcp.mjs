// The SDK of the Model Context Protocol for JavaScript, against the server at the address in the first argument.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENTS + "/");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(`${process.argv[2]}/mcp`)));
assert.equal(client.getServerVersion().name, "superstep");
await client.ping();

const { tools } = await client.listTools();
const counter = tools.find((tool) => tool.name === "counter");
assert.ok(counter.inputSchema.properties.n, JSON.stringify(counter));

const counted = await client.callTool({ name: "counter", arguments: { n: 5 } });
assert.deepEqual(counted.structuredContent, { n: 7, log: ["one", "two"] });
assert.deepEqual(JSON.parse(counted.content[0].text), counted.structuredContent);

// Several calls at the same time, of which one takes two seconds.
const messages = [{ role: "user", content: "2+40?" }];
const call = (name) => client.callTool({ name, arguments: { messages } });
const replies = await Promise.all(["slow", "chat"].map(call));
assert.deepEqual(replies.map(({ content }) => content[0].text), ["one two three four five six seven eight", "Let me add."]);

for (const [name, given, text] of [
  ["fail", { n: 1 }, /boom/],
  ["counter", { n: "five" }, /n/],
  ["approve", { euros: 20 }, /waits for an answer.*\{"euros":20\}/],
]) {
  const failed = await client.callTool({ name, arguments: given });
  assert.ok(failed.isError, name);
  assert.match(failed.content[0].text, text);
}
await assert.rejects(client.callTool({ name: "unknown", arguments: {} }), /unknown tool `unknown`/);

await client.close();
console.log("done");
