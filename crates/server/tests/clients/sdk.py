"""The SDK of LangGraph for Python, and RemoteGraph, against the server at the address in the first argument."""

import asyncio
import sys

from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

URL = sys.argv[1]


async def assistants_and_threads(client):
    [counter] = await client.assistants.search(graph_id="counter")
    assert counter["assistant_id"] == "09d6caf4-2ef3-5a8b-b1a7-114690ed5d45", counter
    graph = await client.assistants.get_graph("counter")
    assert [node["id"] for node in graph["nodes"]] == ["__start__", "one", "two", "__end__"], graph
    assert "n" in (await client.assistants.get_schemas("counter"))["output_schema"]["properties"]
    mine = await client.assistants.create("counter", name="mine", config={"recursion_limit": 9})
    changed = await client.assistants.update(mine["assistant_id"], metadata={"a": 1})
    assert changed["version"] == 2
    assert len(await client.assistants.get_versions(mine["assistant_id"])) == 2
    await client.assistants.set_latest(mine["assistant_id"], 1)
    await client.assistants.delete(mine["assistant_id"])

    thread = await client.threads.create(metadata={"by": "ada"}, graph_id="counter")
    id = thread["thread_id"]
    try:
        await client.threads.create(thread_id=id)
        raise AssertionError("created twice")
    except ConflictError:
        pass
    await client.threads.create(thread_id=id, if_exists="do_nothing")
    await client.threads.update(id, metadata={"topic": "tea"})
    [found] = await client.threads.search(metadata={"by": "ada"}, status="idle")
    assert found["metadata"]["topic"] == "tea"
    assert await client.threads.count(metadata={"by": "ada"}) == 1
    copy = await client.threads.copy(id)
    await client.threads.delete(copy["thread_id"])
    await client.threads.delete(id)
    try:
        await client.threads.get(id)
        raise AssertionError("still there")
    except NotFoundError:
        pass


async def streams(client):
    thread = (await client.threads.create())["thread_id"]
    created = []
    parts = []
    modes = ["values", "updates", "custom", "messages-tuple", "tasks", "checkpoints", "debug"]
    async for part in client.runs.stream(
        thread, "counter", input={"n": 1}, stream_mode=modes, on_run_created=created.append, stream_resumable=True
    ):
        parts.append(part)
    assert parts[0].event == "metadata" and created[0]["run_id"] == parts[0].data["run_id"]
    assert {part.event for part in parts} == {"metadata", "values", "updates", "custom", "tasks", "checkpoints", "debug"}
    assert [part.data for part in parts if part.event == "values"][-1] == {"n": 3, "log": ["one", "two"]}
    run = created[0]["run_id"]
    again = [part async for part in client.runs.join_stream(thread, run, last_event_id="-1")]
    assert len(again) == len(parts)
    assert (await client.runs.get(thread, run))["status"] == "success"
    assert await client.runs.join(thread, run) == {"n": 3, "log": ["one", "two"]}

    chat = (await client.threads.create())["thread_id"]
    texts = []
    async for part in client.runs.stream(
        chat, "chat", input={"messages": [{"role": "user", "content": "2+40?"}]}, stream_mode=["messages", "values"]
    ):
        if part.event == "messages/partial":
            texts.append(part.data[0]["content"])
    assert texts[:2] == ["Let me ", "Let me add."], texts
    state = await client.threads.get_state(chat)
    assert [message["type"] for message in state["values"]["messages"]] == ["human", "ai", "tool"]

    failed = [part async for part in client.runs.stream(None, "fail", input={})]
    assert failed[-1].event == "error" and "boom" in failed[-1].data["message"], failed
    try:
        await client.runs.wait(None, "fail", input={})
        raise AssertionError("no error")
    except Exception as error:
        assert "boom" in str(error), error
    assert (await client.runs.wait(None, "counter", input={"n": 1}))["n"] == 3
    try:
        await client.runs.create(None, "nobody", input={})
        raise AssertionError("no error")
    except UnprocessableEntityError as error:
        assert "`counter`" in str(error), error


async def questions(client):
    thread = (await client.threads.create())["thread_id"]
    asked = await client.runs.wait(thread, "approve", input={"euros": 20})
    assert asked["__interrupt__"][0]["value"] == {"euros": 20}, asked
    assert (await client.threads.get(thread))["status"] == "interrupted"
    answered = await client.runs.wait(thread, "approve", command={"resume": "yes"})
    assert answered["verdict"] == "yes", answered
    history = await client.threads.get_history(thread, limit=100)
    assert history[-1]["parent_checkpoint"] is None and history[0]["next"] == []
    checkpoint = await client.threads.update_state(thread, {"verdict": "no"}, as_node="decide")
    state = await client.threads.get_state(thread, checkpoint=checkpoint["checkpoint"])
    assert state["next"] == ["send"] and state["values"]["verdict"] == "no", state
    forked = await client.runs.wait(thread, "approve", input=None, checkpoint_id=history[-2]["checkpoint_id"])
    assert "__interrupt__" in forked, forked


async def control(client):
    thread = (await client.threads.create())["thread_id"]
    run = await client.runs.create(thread, "gate", input={"gate": "python"})
    try:
        await client.runs.create(thread, "gate", input={}, multitask_strategy="reject")
        raise AssertionError("not rejected")
    except ConflictError:
        pass
    await client.runs.cancel(thread, run["run_id"], wait=True)
    assert (await client.runs.get(thread, run["run_id"]))["status"] == "interrupted"
    assert [run["status"] for run in await client.runs.list(thread)] == ["interrupted"]
    await client.runs.delete(thread, run["run_id"])
    batch = await client.runs.create_batch([{"assistant_id": "counter", "input": {}}])
    assert batch[0]["status"] in ("pending", "running", "success")


async def items(client):
    await client.store.put_item(["python", "ada"], "tea", {"likes": "green tea", "since": 1842})
    item = await client.store.get_item(["python", "ada"], "tea")
    assert item["value"]["since"] == 1842
    found = await client.store.search_items(["python"], filter={"since": {"$gte": 1840}})
    assert [item["key"] for item in found["items"]] == ["tea"]
    assert (await client.store.list_namespaces(["python"]))["namespaces"] == [["python", "ada"]]
    await client.store.delete_item(["python", "ada"], "tea")


def remote_graph():
    graph = RemoteGraph("approve", url=URL)
    thread = get_sync_client(url=URL).threads.create()["thread_id"]
    config = {"configurable": {"thread_id": thread}}
    asked = graph.invoke({"euros": 5}, config)
    assert asked["__interrupt__"][0]["value"] == {"euros": 5}, asked
    snapshot = graph.get_state(config)
    assert snapshot.next == ("decide",) and snapshot.interrupts[0].value == {"euros": 5}, snapshot
    from langgraph.types import Command

    end = graph.invoke(Command(resume="yes"), config)
    assert end["verdict"] == "yes", end
    assert len(list(graph.get_state_history(config))) > 3
    graph.update_state(config, {"verdict": "no"}, as_node="decide")
    assert graph.get_state(config).next == ("send",)
    assert "decide" in graph.get_graph().nodes
    parts = list(RemoteGraph("parent", url=URL).stream({"euros": 5}, stream_mode="updates", subgraphs=True))
    assert any(namespace and namespace[0].startswith("child:") for namespace, _ in parts), parts
    pieces = list(RemoteGraph("chat", url=URL).stream({"messages": [{"role": "user", "content": "hi"}]}, stream_mode="messages"))
    assert pieces[0][0]["content"] == "Let me ", pieces


async def main():
    client = get_client(url=URL)
    for part in (assistants_and_threads, streams, questions, control, items):
        await part(client)
    await asyncio.to_thread(remote_graph)
    print("done")


asyncio.run(main())
