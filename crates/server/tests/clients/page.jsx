// A page with the hooks that chat pages use: `useStream` of LangGraph, and `useChat` of the AI SDK.

import { LangSmithDeploymentTransport } from "@ai-sdk/langchain";
import { useChat } from "@ai-sdk/react";
import { useStream } from "@langchain/langgraph-sdk/react";
import { useMemo, useState } from "react";
import { createRoot } from "react-dom/client";

const parameters = new URLSearchParams(location.search);
const apiUrl = parameters.get("server");
const graph = parameters.get("graph");

const text = (message) => (typeof message.content === "string" ? message.content : JSON.stringify(message.content));

function Stream() {
  const [threadId, setThreadId] = useState(parameters.get("thread"));
  const stream = useStream({
    apiUrl,
    assistantId: graph,
    threadId,
    reconnectOnMount: true,
    fetchStateHistory: true,
    onThreadId: (id) => {
      setThreadId(id);
      parameters.set("thread", id);
      history.replaceState(null, "", `?${parameters}`);
    },
  });
  const options = { streamResumable: true, onDisconnect: "continue" };
  const messages = stream.messages ?? [];
  return (
    <main>
      <p id="state">{stream.isLoading ? "loading" : "ready"}</p>
      <p id="error">{stream.error ? String(stream.error) : ""}</p>
      <ol id="messages">{messages.map((message) => <li key={message.id}>{`${message.type}: ${text(message)}`}</li>)}</ol>
      <pre id="values">{JSON.stringify(stream.values)}</pre>
      <pre id="interrupt">{stream.interrupt ? JSON.stringify(stream.interrupt.value) : ""}</pre>
      <p id="branches">{stream.history.length}</p>
      <button id="say" onClick={() => stream.submit({ messages: [{ type: "human", content: "2+40?" }] }, options)} />
      <button id="pay" onClick={() => stream.submit({ euros: 20 }, options)} />
      <button id="approve" onClick={() => stream.submit(undefined, { command: { resume: "yes" }, ...options })} />
    </main>
  );
}

function Chat() {
  const transport = useMemo(() => new LangSmithDeploymentTransport({ url: apiUrl, graphId: graph }), []);
  const chat = useChat({ transport });
  const shown = (message) => message.parts.map((part) => part.text ?? part.type).join(" ");
  return (
    <main>
      <p id="state">{chat.status}</p>
      <p id="error">{chat.error ? String(chat.error) : ""}</p>
      <ol id="messages">{chat.messages.map((message) => <li key={message.id}>{`${message.role}: ${shown(message)}`}</li>)}</ol>
      <button id="say" onClick={() => chat.sendMessage({ text: "2+40?" })} />
    </main>
  );
}

createRoot(document.getElementById("root")).render(parameters.get("hook") === "useChat" ? <Chat /> : <Stream />);
