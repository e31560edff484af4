"""The SDK of A2A for Python, by version 1.0 of the protocol, against the server at the address in the first argument."""

import asyncio
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as types
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from google.protobuf.json_format import MessageToDict, ParseDict

URL = sys.argv[1]


async def client_of(http, graph):
    card = await A2ACardResolver(http, f"{URL}/a2a/{graph}").get_agent_card()
    assert card.name == graph and card.supported_interfaces[0].protocol_version == "1.0", card
    return ClientFactory(ClientConfig(httpx_client=http)).create(card)


async def send(client, part, **ids):
    message = ParseDict({"role": "ROLE_USER", "messageId": "m", "parts": [part], **ids}, types.Message())
    [answer] = [answer async for answer in client.send_message(types.SendMessageRequest(message=message))]
    return MessageToDict(answer)["task"]


async def main():
    async with httpx.AsyncClient(timeout=30) as http:
        chat = await client_of(http, "chat")
        replied = await send(chat, {"text": "2+40?"})
        assert replied["status"]["state"] == "TASK_STATE_COMPLETED", replied
        assert replied["artifacts"][0]["parts"] == [{"text": "Let me add."}], replied
        again = await send(chat, {"text": "and 3?"}, contextId=replied["contextId"])
        assert again["contextId"] == replied["contextId"] and again["id"] != replied["id"], again

        approve = await client_of(http, "approve")
        waits = await send(approve, {"data": {"euros": 5}})
        assert waits["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", waits
        seen = MessageToDict(await approve.get_task(types.GetTaskRequest(id=waits["id"])))
        assert seen["status"]["message"] == waits["status"]["message"], seen
        for call, request, refused in [
            (approve.cancel_task, types.CancelTaskRequest(id=waits["id"]), TaskNotCancelableError),
            (approve.get_task, types.GetTaskRequest(id="none"), TaskNotFoundError),
        ]:
            try:
                raise AssertionError(await call(request))
            except refused:
                pass
        # The task knows its context.
        done = await send(approve, {"text": "yes"}, taskId=waits["id"])
        assert done["id"] == waits["id"] and done["contextId"] == waits["contextId"], done
        assert done["artifacts"][0]["parts"][0]["data"]["verdict"] == "yes", done
        seen = MessageToDict(await approve.get_task(types.GetTaskRequest(id=waits["id"])))
        assert seen["artifacts"] == done["artifacts"], seen
        failed = await send(await client_of(http, "fail"), {"data": {"n": 1}})
        assert failed["status"]["state"] == "TASK_STATE_FAILED", failed
    print("done")


asyncio.run(main())
