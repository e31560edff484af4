"""The SDK of LangGraph for Python on the thread protocol, against the server at the address in the first argument."""

import asyncio
import sys

from langgraph_sdk import get_client

URL = sys.argv[1]


async def chat(client, transport):
    input = {"messages": [{"role": "user", "content": "2+40?", "id": "h1"}]}
    async with client.threads.stream(assistant_id="chat", transport=transport) as thread:

        async def text(message):
            return [piece async for piece in message.text]

        await thread.run.start(input=input)
        reading = [asyncio.create_task(text(message)) async for message in thread.messages]
        texts = await asyncio.wait_for(asyncio.gather(*reading), 20)
        assert texts == [["Let me ", "add."]], texts
        state = await asyncio.wait_for(thread.output, 20)
        assert [message["id"] for message in state["messages"]] == ["h1", "answer-1", "result-2"], state
    async with client.threads.stream(assistant_id="chat", transport=transport) as thread:
        await thread.run.start(input=input)
        [call] = [call async for call in thread.tool_calls]
        output = await asyncio.wait_for(call.output, 20)
        assert (call.name, call.input) == ("add", {"a": 2}) and output["content"] == "42", output
        return thread.thread_id


async def again(client, transport, id):
    """Another session on the thread, and one that finds its end."""
    async with client.threads.stream(id, assistant_id="chat", transport=transport) as thread:
        run = await thread.run.start(input={"messages": [{"role": "user", "content": "and 3?"}]})
        # A session is for one run: `output` is that of the first end it sees.
        state = await client.runs.join(id, run["run_id"])
        assert len(state["messages"]) == 6, state
    async with client.threads.stream(id, assistant_id="chat", transport=transport) as thread:
        assert len((await asyncio.wait_for(thread.output, 20))["messages"]) == 6


async def question(client, transport):
    async with client.threads.stream(assistant_id="approve", transport=transport) as thread:
        await thread.run.start(input={"euros": 20})
        for _ in range(2000):
            if thread.interrupts:
                break
            await asyncio.sleep(0.005)
        assert thread.interrupts[0]["value"] == {"euros": 20}, thread.interrupts
        await thread.run.respond("yes")
        state = await asyncio.wait_for(thread.output, 20)
        assert state["verdict"] == "yes", state


async def subgraphs_and_failures(client, transport):
    async with client.threads.stream(assistant_id="parent", transport=transport) as thread:
        await thread.run.start(input={"euros": 5})
        async for child in thread.subgraphs:
            assert child.graph_name == "child", child.graph_name
            break
    async with client.threads.stream(assistant_id="fail", transport=transport) as thread:
        await thread.run.start(input={})
        try:
            await asyncio.wait_for(thread.output, 20)
            raise AssertionError("no error")
        except RuntimeError as error:
            assert "boom" in str(error), error


async def values(client, transport):
    async with client.threads.stream(assistant_id="counter", transport=transport) as thread:

        async def numbers():
            return [event["params"]["data"]["n"] async for event in thread.subscribe(["values"])]

        reading = asyncio.create_task(numbers())
        # Before the thread exists.
        await asyncio.sleep(0.2)
        await thread.run.start(input={"n": 1})
        assert await asyncio.wait_for(reading, 20) == [1, 2, 3]
    async with client.threads.stream(assistant_id="counter", transport=transport) as thread:
        await thread.run.start(input={"n": 1})
        assert [payload["payload"] async for payload in thread.extensions["progress"]] == [{"done": 50}]


async def main():
    client = get_client(url=URL)
    for transport in ("sse", "websocket"):
        id = await chat(client, transport)
        await again(client, transport, id)
        for part in (question, subgraphs_and_failures, values):
            await part(client, transport)
    print("done")


asyncio.run(main())
