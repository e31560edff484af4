"""The works of `postgres.rs` in LangGraph: `reference.py FOLDER sync|async|chat SIZE`, with the folder of the server's socket."""

import sys
import time
import uuid
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

folder, work, size = sys.argv[1], sys.argv[2], int(sys.argv[3])


def text(nth):
    return "".join(f"{(nth * 7919 + word * 104_729) % 100_003} " for word in range(1000))[:1000]


class Count(TypedDict):
    n: int


class Chat(TypedDict):
    messages: Annotated[list, add_messages]


with PostgresSaver.from_conn_string(f"host={folder} user=test dbname=postgres") as saver:
    saver.setup()
    config = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": 10 * size}
    if work != "chat":
        graph = StateGraph(Count)
        graph.add_node("add", lambda s: {"n": s["n"] + 1})
        graph.add_edge(START, "add")
        graph.add_conditional_edges("add", lambda s: "add" if s["n"] < size else END, ["add", END])
        graph = graph.compile(checkpointer=saver)
        begun = time.perf_counter()
        assert graph.invoke({"n": 0}, config, durability=work)["n"] == size
        print(size / (time.perf_counter() - begun))
    else:
        graph = StateGraph(Chat)
        graph.add_node("reply", lambda s: {"messages": [AIMessage(content=text(len(s["messages"])), id=str(uuid.uuid4()))]})
        graph.add_edge(START, "reply")
        graph.add_edge("reply", END)
        graph = graph.compile(checkpointer=saver)
        for turn in range(size):
            graph.invoke({"messages": [HumanMessage(text(2 * turn), id=str(uuid.uuid4()))]}, config, durability="sync")
        print(0)
