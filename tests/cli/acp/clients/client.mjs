// A client on the SDK for JavaScript: a turn with a question, a cancelled turn, and the session in a second process.
// Arguments: the folder, and the agent's command. Prints what it received as a line of JSON.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [folder, command, ...args] = process.argv.slice(2);
const seen = { stops: [], asked: [], calls: [], text: "", loaded: "" };

async function connected(run) {
    const agent = spawn(command, args, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
    const ended = new Promise((end) => agent.once("exit", end));
    const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
    const updates = { onText: () => {}, text: "" };
    await acp
        .client({ name: "test" })
        .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
            seen.asked.push([params.toolCall.toolCallId, params.options.map((option) => option.kind)]);
            return { outcome: { outcome: "selected", optionId: "allow_once" } };
        })
        .onNotification(acp.methods.client.session.update, ({ params: { update } }) => {
            if (update.sessionUpdate === "agent_message_chunk") {
                updates.text += update.content.text;
                updates.onText();
            }
            if (update.sessionUpdate.startsWith("tool_call")) seen.calls.push(`${update.toolCallId} ${update.status}`);
        })
        .connectWith(stream, async (client) => {
            await client.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
            await run(client, updates);
        });
    agent.stdin.end();
    seen.exit = await ended;
}

let sessionId;
await connected(async (client, updates) => {
    const prompt = async (text) => {
        const turn = { sessionId, prompt: [{ type: "text", text }] };
        seen.stops.push((await client.request(acp.methods.agent.session.prompt, turn)).stopReason);
    };
    ({ sessionId } = await client.request(acp.methods.agent.session.new, { cwd: folder, mcpServers: [] }));
    await prompt("go");
    seen.text = updates.text;
    updates.onText = () => {
        updates.onText = () => {};
        void client.notify(acp.methods.agent.session.cancel, { sessionId });
    };
    await prompt("again");
});
seen.calls.push("loaded");
await connected(async (client, updates) => {
    await client.request(acp.methods.agent.session.load, { sessionId, cwd: folder, mcpServers: [] });
    seen.loaded = updates.text;
});
console.log(JSON.stringify(seen));
