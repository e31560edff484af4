"""The crons of the SDK of LangGraph for Python, against the server at the address in the first argument."""

import asyncio
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from langgraph_sdk import get_client
from langgraph_sdk.errors import NotFoundError, UnprocessableEntityError

URL = sys.argv[1]


async def main():
    client = get_client(url=URL)
    end = datetime.now(timezone.utc) + timedelta(days=30)
    cron = await client.crons.create(
        "counter",
        schedule="0 9 * * 1-5",
        timezone=ZoneInfo("Europe/Berlin"),
        input={"n": 1},
        metadata={"by": "python"},
        end_time=end,
        stream_mode=["values", "updates"],
        durability="sync",
        on_run_completed="keep",
        multitask_strategy="enqueue",
    )
    id = cron["cron_id"]
    assert cron["timezone"] == "Europe/Berlin" and cron["payload"]["input"] == {"n": 1}, cron
    assert datetime.fromisoformat(cron["end_time"]) == end, cron
    assert datetime.fromisoformat(cron["next_run_date"]) > datetime.now(timezone.utc), cron
    thread = (await client.threads.create())["thread_id"]
    mine = await client.crons.create_for_thread(thread, "counter", schedule="@daily", input={}, enabled=False)
    assert mine["thread_id"] == thread and not mine["enabled"] and mine["next_run_date"] is None, mine

    assert [found["cron_id"] for found in await client.crons.search(thread_id=thread)] == [mine["cron_id"]]
    found = await client.crons.search(assistant_id="counter", metadata={"by": "python"}, sort_by="next_run_date", sort_order="asc")
    assert found == [cron], found
    assert await client.crons.search(enabled=True, select=["cron_id"]) == [{"cron_id": id}]
    assert await client.crons.count(assistant_id=cron["assistant_id"]) == 2
    changed = await client.crons.update(id, schedule="30 8 * * *", timezone="UTC", end_time=None)
    assert changed["next_run_date"].endswith("T08:30:00.000000+00:00") and changed["end_time"] is None, changed
    assert changed["payload"]["input"] == {"n": 1}, changed
    try:
        await client.crons.create("counter", schedule="every morning")
        raise AssertionError("created with times that are none")
    except UnprocessableEntityError as error:
        assert "it has 2 fields, not five" in str(error), error
    for created in (cron, mine):
        await client.crons.delete(created["cron_id"])
    try:
        await client.crons.delete(id)
        raise AssertionError("deleted twice")
    except NotFoundError:
        pass
    assert await client.crons.count() == 0
    print("done")


asyncio.run(main())
