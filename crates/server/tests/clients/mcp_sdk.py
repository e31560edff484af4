"""The SDK of the Model Context Protocol for Python, against the server at the address in the first argument."""

import asyncio
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main():
    async with streamable_http_client(f"{sys.argv[1]}/mcp") as streams, ClientSession(streams[0], streams[1]) as client:
        assert (await client.initialize()).server_info.name == "superstep"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "n" in tools["counter"].input_schema["properties"], tools["counter"]
        counted = await client.call_tool("counter", {"n": 5})
        assert counted.structured_content == {"n": 7, "log": ["one", "two"]}, counted
        messages = [{"role": "user", "content": "2+40?"}]
        replied = await client.call_tool("chat", {"messages": messages})
        assert replied.content[0].text == "Let me add.", replied
        failed = await client.call_tool("fail", {"n": 1})
        assert failed.is_error and "boom" in failed.content[0].text, failed
    print("done")


asyncio.run(main())
