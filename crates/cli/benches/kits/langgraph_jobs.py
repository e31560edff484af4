"""The jobs of `orders.rs` in LangGraph, on its SQLite saver: `langgraph_jobs.py DB JOB`. Prints the state at the end."""

import json
import operator
import os
import socket
import sqlite3
import sys
import uuid
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class Jobs(TypedDict, total=False):
    job: str
    receipts: Annotated[list, operator.add]
    done: Annotated[list, operator.add]


def effect(name, job):
    """Calls the service with a key of the program, or one that is made in this attempt."""
    key = uuid.uuid4().hex if os.environ["KIT_KEYS"] == "fresh" else f"{name}-{job}"
    host, port = os.environ["KIT_EFFECTS"].rsplit(":", 1)
    with socket.create_connection((host, int(port))) as service:
        service.sendall(f"{name} {job} {key}\n".encode())
        return service.makefile().readline().strip()


def charge(state):
    return {"receipts": [effect("charge", state["job"])]}


def mail(state):
    return {"receipts": [effect("mail", state["job"])], "done": [state["job"]]}


def main():
    database, job = sys.argv[1:]
    graph = StateGraph(Jobs)
    graph.add_node("charge", charge)
    graph.add_node("mail", mail)
    graph.add_edge(START, "charge")
    graph.add_edge("charge", "mail")
    graph.add_edge("mail", END)
    graph = graph.compile(checkpointer=SqliteSaver(sqlite3.connect(database, check_same_thread=False)))
    thread = {"configurable": {"thread_id": "shop"}}
    if graph.get_state(thread).next:
        graph.invoke(None, thread, durability="sync")
    if job not in graph.get_state(thread).values.get("done", []):
        graph.invoke({"job": job}, thread, durability="sync")
    values = graph.get_state(thread).values
    print(json.dumps({"done": values["done"], "receipts": values["receipts"]}))


if __name__ == "__main__":
    main()
