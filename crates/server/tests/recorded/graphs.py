"""The graphs of `../it/recorded/graphs.rs`, written with LangGraph."""

import asyncio
import operator
from typing import Annotated, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.stream.transformers import (
    CheckpointsTransformer,
    CustomTransformer,
    TasksTransformer,
    UpdatesTransformer,
)
from langgraph.types import interrupt

TRANSFORMERS = [UpdatesTransformer, CustomTransformer, CheckpointsTransformer, TasksTransformer]


def line(name, state, nodes, transformers=TRANSFORMERS):
    """Returns a graph whose nodes follow each other."""
    builder = StateGraph(state)
    for node, action in nodes.items():
        builder.add_node(node, action)
    names = [START, *nodes, END]
    for source, target in zip(names, names[1:]):
        builder.add_edge(source, target)
    return builder.compile(name=name, transformers=transformers)


class Count(TypedDict):
    n: Annotated[int, operator.add]
    log: Annotated[list[str], operator.add]


def one(_):
    get_stream_writer()({"done": 50})
    return {"n": 1, "log": ["one"]}


def boom(_):
    raise ValueError("boom")


counter = line("counter", Count, {"one": one, "two": lambda _: {"n": 1, "log": ["two"]}})
fail = line("fail", Count, {"one": lambda _: {"n": 1}, "boom": boom})


class Approval(TypedDict):
    euros: int
    verdict: str
    sent: bool


def decide(state):
    return {"verdict": interrupt({"euros": state["euros"]})}


APPROVAL = {"begin": lambda _: {"sent": False}, "decide": decide, "send": lambda _: {"sent": True}}
approve = line("approve", Approval, APPROVAL)
parent = line(
    "parent", Approval, {"child": line("child", Approval, APPROVAL, None), "done": lambda _: {"sent": True}}
)


class Two(TypedDict):
    log: Annotated[list[str], operator.add]


class Held(TypedDict):
    hold: bool
    log: Annotated[list[str], operator.add]


async def wait(state):
    if state["hold"]:
        await asyncio.sleep(600)
    return {"log": ["passed"]}


gate = line("gate", Held, {"before": lambda _: {"log": ["before"]}, "wait": wait})


class Scripted(BaseChatModel):
    """A model that calls a tool and then repeats the result, in pieces."""

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def pieces(self, messages):
        if messages[-1].type == "tool":
            for text in ["The sum ", "is ", messages[-1].content]:
                yield AIMessageChunk(text)
        else:
            yield AIMessageChunk("Let me ")
            yield AIMessageChunk("add.")
            for name, identity, args in [("add", "c1", '{"a":2,'), (None, None, '"b":40}')]:
                part = {"name": name, "id": identity, "args": args, "index": 0, "type": "tool_call_chunk"}
                yield AIMessageChunk("", tool_call_chunks=[part])

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        first, *rest = self.pieces(messages)
        whole = sum(rest, first)
        message = AIMessage(whole.content, tool_calls=whole.tool_calls)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        for piece in self.pieces(messages):
            chunk = ChatGenerationChunk(message=piece)
            if run_manager:
                run_manager.on_llm_new_token(piece.content, chunk=chunk)
            yield chunk


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


def chat_graph():
    model = Scripted()
    builder = StateGraph(Chat)

    async def agent(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([add]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(name="chat", transformers=TRANSFORMERS)


def two_graph():
    builder = StateGraph(Two)
    for name in ["left", "right"]:
        builder.add_node(name, lambda _, name=name: {"log": [interrupt(name)]})
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder.compile(name="two", transformers=TRANSFORMERS)


chat, two = chat_graph(), two_graph()
