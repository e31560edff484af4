"""A client on the SDK for Python: a turn with a question, a cancelled turn, and the session in a second process.

Arguments: the folder, and the agent's command. Prints what it received as a line of JSON.
"""

import asyncio
import json
import os
import sys

import acp
from acp.schema import AllowedOutcome

folder, command, *args = sys.argv[1:]
seen = {"stops": [], "asked": [], "calls": [], "text": "", "loaded": ""}


class Editor(acp.Client):
    def __init__(self):
        self.text = ""
        self.on_text = asyncio.Event()

    async def request_permission(self, session_id, tool_call, options, **_):
        seen["asked"].append([tool_call.tool_call_id, [option.kind for option in options]])
        return acp.RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id="allow_once"))

    async def session_update(self, session_id, update, **_):
        if update.session_update == "agent_message_chunk":
            self.text += update.content.text
            self.on_text.set()
        elif update.session_update.startswith("tool_call"):
            seen["calls"].append(f"{update.tool_call_id} {update.status}")


async def connected(run):
    editor = Editor()
    async with acp.spawn_agent_process(editor, command, *args, cwd=folder, env=dict(os.environ)) as (agent, process):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        await run(agent, editor)
    seen["exit"] = await process.wait()


async def main():
    session = None

    async def prompt(agent, text):
        turn = await agent.prompt(session_id=session, prompt=[acp.text_block(text)])
        seen["stops"].append(turn.stop_reason)

    async def begin(agent, editor):
        nonlocal session
        session = (await agent.new_session(cwd=folder, mcp_servers=[])).session_id
        await prompt(agent, "go")
        seen["text"] = editor.text
        editor.on_text.clear()
        turn = asyncio.create_task(prompt(agent, "again"))
        await editor.on_text.wait()
        await agent.cancel(session_id=session)
        await turn

    async def load(agent, editor):
        await agent.load_session(session_id=session, cwd=folder, mcp_servers=[])
        seen["loaded"] = editor.text

    await connected(begin)
    seen["calls"].append("loaded")
    await connected(load)
    print(json.dumps(seen))


asyncio.run(main())
