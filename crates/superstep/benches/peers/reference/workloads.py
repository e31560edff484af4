"""The workloads on the reference's public API. `../../workloads/` has the same ones for superstep.

Of each workload the variant that is quickest on the reference: plain functions and its synchronous API.
"""

import operator
import random
import string
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, Callable

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import create_react_agent
from langgraph.types import Send
from typing_extensions import TypedDict

LETTERS = string.ascii_lowercase


@dataclass
class Case:
    graph: Any
    inputs: list  # one run on the same thread for each


def sequential(n, saver):
    """A chain of n nodes that write nothing."""
    g = StateGraph(MessagesState)
    last = START
    for i in range(n):
        g.add_node(f"node_{i}", lambda state: None)
        g.add_edge(last, f"node_{i}")
        last = f"node_{i}"
    g.add_edge(last, END)
    return Case(g.compile(checkpointer=saver), [{"messages": []}])


def loop(n, saver):
    """One node that adds 1 to a number and a conditional edge back to it."""

    class Counter(TypedDict):
        n: int

    g = StateGraph(Counter)
    g.add_node("step", lambda s: {"n": s["n"] + 1})
    g.add_edge(START, "step")
    g.add_conditional_edges("step", lambda s: END if s["n"] >= n else "step", ["step", END])
    return Case(g.compile(checkpointer=saver), [{"n": 0}])


def react_plain(n, saver):
    """n calls with an argument of 3,600 characters and a result of 36,180, then an answer of 600."""

    class S(TypedDict):
        messages: Annotated[list, operator.add]

    calls = [{"id": str(uuid.uuid4()), "query": str(uuid.uuid4()) * 100} for _ in range(n)]

    def agent(s: S):
        done = sum(1 for m in s["messages"] if m["role"] == "tool")
        if done < n:
            return {"messages": [{"role": "ai", "content": "", "tool_calls": [calls[done]]}]}
        return {"messages": [{"role": "ai", "content": "answer" * 100, "tool_calls": []}]}

    def tools(s: S):
        call = s["messages"][-1]["tool_calls"][0]
        content = f"result for query: {call['query']}" * 10
        return {"messages": [{"role": "tool", "tool_call_id": call["id"], "content": content}]}

    g = StateGraph(S)
    g.add_node("agent", agent)
    g.add_node("tools", tools)
    g.add_edge(START, "agent")
    g.add_conditional_edges("agent", lambda s: "tools" if s["messages"][-1]["tool_calls"] else END, ["tools", END])
    g.add_edge("tools", "agent")
    return Case(g.compile(checkpointer=saver), [{"messages": [{"role": "human", "content": "hi?"}]}])


def keep_new(x, y):
    return y


def keep_truthy(x, y):
    return y or x


def keep_some(x, y):
    return y if y is not None else x


@dataclass(kw_only=True)
class Wide:
    messages: Annotated[list, operator.add] = field(default_factory=list)
    trigger_events: Annotated[list, operator.add] = field(default_factory=list)
    primary_issue_medium: Annotated[str, keep_truthy] = "email"
    autoresponse: Annotated[dict | None, keep_new] = None
    issue: Annotated[dict | None, keep_truthy] = None
    relevant_rules: list[dict] | None = None
    memory_docs: list[dict] | None = None
    categorizations: Annotated[list[dict], operator.add] = field(default_factory=list)
    responses: Annotated[list[dict], operator.add] = field(default_factory=list)
    user_info: Annotated[dict | None, keep_some] = None
    crm_info: Annotated[dict | None, keep_some] = None
    email_thread_id: Annotated[str | None, keep_some] = None
    slack_participants: Annotated[dict, operator.or_] = field(default_factory=dict)
    bot_id: str | None = None
    notified_assignees: Annotated[dict, operator.or_] = field(default_factory=dict)


def wide(n, outer, inner, saver):
    """Six nodes in a circle, two of them at once, until there are more than n messages; texts of n random letters."""

    def text():
        return "".join(random.choice(LETTERS) for _ in range(n))

    def one(s):
        return {"trigger_events": s.messages, "primary_issue_medium": text()}

    def two(s):
        last = s.trigger_events[-1]
        return {"autoresponse": last, "issue": last}

    def three(s):
        return {"relevant_rules": [s.autoresponse]}

    def four(s):
        events = s.trigger_events
        return {"categorizations": events, "responses": events, "memory_docs": events}

    def five(s):
        last = s.categorizations[-1]
        given = dict.fromkeys(["user_info", "crm_info", "slack_participants", "notified_assignees"], last)
        return {**given, "email_thread_id": text(), "bot_id": text()}

    def six(s):
        return {"messages": s.responses}

    g = StateGraph(Wide)
    for node in (one, two, three, four, five, six):
        g.add_node(node.__name__, node)
    for a, b in ((START, "one"), ("one", "two"), ("two", "three"), ("two", "four"), ("five", "six")):
        g.add_edge(a, b)
    g.add_edge(["three", "four"], "five")
    g.add_conditional_edges("six", lambda s: END if len(s.messages) > n else "one", ["one", END])
    scalars = ["hi?" * 10, True, 1, 6327816386138, None] * 5
    message = {str(i) * 10: {str(j) * 10: scalars for j in range(inner)} for i in range(outer)}
    return Case(g.compile(checkpointer=saver), [{"messages": [message]}])


def send_flat(n, saver):
    """n sends to a worker that doubles its number."""

    class S(TypedDict):
        items: list[int]
        out: Annotated[list[int], operator.add]

    g = StateGraph(S)
    g.add_node("work", lambda x: {"out": [x["i"] * 2]})
    g.add_conditional_edges(START, lambda s: [Send("work", {"i": i}) for i in s["items"]], ["work"])
    g.add_edge("work", END)
    return Case(g.compile(checkpointer=saver), [{"items": list(range(n))}])


def fanout_to_subgraph(n, saver):
    """n sends, each to a subgraph of 12 supersteps; a subject is a list of 1,000 letters, 5,000 characters as text."""

    class Overall(TypedDict):
        subjects: list[str]
        jokes: Annotated[list[str], operator.add]

    class JokeIn(TypedDict):
        subject: str

    class JokeOut(TypedDict):
        jokes: list[str]

    class Joke(JokeIn, JokeOut): ...

    sub = StateGraph(Joke, input_schema=JokeIn, output_schema=JokeOut)
    sub.add_node("edit", lambda s: {"subject": f"{s['subject']} - hohoho"})
    sub.add_node("generate", lambda s: {"jokes": [f"Joke about {s['subject']}"]})
    sub.add_node("bump", lambda s: {"jokes": [s["jokes"][0] + " a"]})
    sub.add_edge(START, "edit")
    sub.add_edge("edit", "generate")
    sub.add_edge("generate", "bump")
    sub.add_edge("generate", END)
    sub.add_conditional_edges("bump", lambda s: END if s["jokes"][0].endswith(" a" * 10) else "bump")
    g = StateGraph(Overall)
    g.add_node("generate_joke", sub.compile())
    g.add_conditional_edges(START, lambda s: [Send("generate_joke", {"subject": x}) for x in s["subjects"]])
    g.add_edge("generate_joke", END)
    subjects = [random.choices(LETTERS, k=1000) for _ in range(n)]
    return Case(g.compile(checkpointer=saver), [{"subjects": subjects}])


def chat(turns, saver):
    """A run for each turn, on one thread: a message of 1,000 characters and a reply as long."""

    class S(TypedDict):
        messages: Annotated[list, add_messages]

    def reply(s: S):
        return {"messages": [AIMessage(content="r" * 1000, id=str(uuid.uuid4()))]}

    g = StateGraph(S)
    g.add_node("reply", reply)
    g.add_edge(START, "reply")
    g.add_edge("reply", END)
    said = [{"messages": [HumanMessage("h" * 1000, id=str(uuid.uuid4()))]} for _ in range(turns)]
    return Case(g.compile(checkpointer=saver), said)


def agent(n, characters, saver):
    """The prebuilt agent: n calls with an argument of so many characters and a result of ten times as many."""
    tool = StructuredTool.from_function(
        lambda query: f"result for query: {query}" * 10, name="search", description="Searches."
    )

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self):
            return "scripted"

        def bind_tools(self, tools, **options):
            return self

        def _generate(self, messages, stop=None, run_manager=None, **options):
            done = sum(1 for m in messages if m.type == "tool")
            if done < n:
                query = f"{done:08}" * (characters // 8)
                call = {"id": f"call-{done}", "name": "search", "args": {"query": query}}
                said = AIMessage(content="", tool_calls=[call])
            else:
                said = AIMessage(content="answer" * 100)
            return ChatResult(generations=[ChatGeneration(message=said)])

    graph = create_react_agent(Scripted(), [tool], checkpointer=saver)
    return Case(graph, [{"messages": [HumanMessage("hi?")]}])


WORKLOADS: dict[str, Callable[[Any], Case]] = {
    "sequential_10": lambda saver: sequential(10, saver),
    "sequential_1000": lambda saver: sequential(1000, saver),
    "loop_1000": lambda saver: loop(1000, saver),
    "react_plain_10x": lambda saver: react_plain(10, saver),
    "react_plain_100x": lambda saver: react_plain(100, saver),
    "wide_state_25x300": lambda saver: wide(300, 5, 5, saver),
    "wide_state_15x600": lambda saver: wide(600, 3, 5, saver),
    "wide_state_9x1200": lambda saver: wide(1200, 3, 3, saver),
    "fanout_to_subgraph_10x": lambda saver: fanout_to_subgraph(10, saver),
    "fanout_to_subgraph_100x": lambda saver: fanout_to_subgraph(100, saver),
    "send_flat_1000": lambda saver: send_flat(1000, saver),
    "chat_200": lambda saver: chat(200, saver),
    "agent_10x": lambda saver: agent(10, 32, saver),
    "agent_100x": lambda saver: agent(100, 32, saver),
    "agent_text_100x": lambda saver: agent(100, 3600, saver),
}
