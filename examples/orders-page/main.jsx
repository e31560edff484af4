// A page for the graph of `examples/server.rs`. The address names the thread, so that a reload finds its question again.

import { useStream } from "@langchain/react";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const apiUrl = import.meta.env.VITE_SERVER ?? "http://localhost:2024";
const threadId = new URLSearchParams(location.search).get("thread");

function Orders() {
  const onThreadId = (id) => history.replaceState(null, "", `?thread=${id}`);
  const stream = useStream({ apiUrl, assistantId: "orders", threadId, onThreadId });
  const [euros, setEuros] = useState(20);
  const [failure, setFailure] = useState();
  const send = (request) => request.then(() => setFailure(undefined), setFailure);
  const order = (event) => {
    event.preventDefault();
    send(stream.submit({ euros }));
  };
  const question = stream.interrupt?.value;
  const error = failure ?? stream.error;
  return (
    <main>
      <h1>Orders</h1>
      <form onSubmit={order}>
        <label>
          Euros <input type="number" min="1" value={euros} onChange={(event) => setEuros(Number(event.target.value))} />
        </label>{" "}
        <button disabled={stream.isLoading || !!question}>Order</button>
      </form>
      {question && (
        <p role="status">
          Pay {question["pay euros"]} euros? <button onClick={() => send(stream.respond(true))}>Pay</button>{" "}
          <button onClick={() => send(stream.respond(false))}>Refuse</button>
        </p>
      )}
      <ol>{stream.values.log?.map((line, nth) => <li key={nth}>{line}</li>)}</ol>
      {error && <p role="alert">{String(error)}</p>}
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Orders />);
