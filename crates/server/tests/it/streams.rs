//! Names, data and order of the events of each mode.

use insta::assert_snapshot;
use reqwest::Method;
use serde_json::json;

use crate::{
    graphs,
    support::{Reader, names, shown, start},
};

#[tokio::test]
async fn values_come_after_the_input_and_each_superstep() {
    let server = start().await;
    let thread = server.thread().await;
    let events =
        server.stream(&thread, json!({ "assistant_id": "counter", "input": { "n": 5, "tools": [] } })).await;
    assert_snapshot!(shown(&events));
}

#[tokio::test]
async fn several_modes_come_in_the_order_of_a_superstep() {
    let server = start().await;
    let thread = server.thread().await;
    let modes = ["values", "updates", "custom", "tasks", "checkpoints", "debug"];
    let body =
        json!({ "assistant_id": "counter", "input": { "n": 5 }, "stream_mode": modes, "durability": "sync" });
    assert_snapshot!(shown(&server.stream(&thread, body).await));
}

#[tokio::test]
async fn messages_come_in_pieces() {
    let server = start().await;
    let thread = server.thread().await;
    let input = json!({ "messages": [{ "role": "user", "content": "2+40?", "id": "h1" }] });
    let body = json!({ "assistant_id": "chat", "input": input, "stream_mode": ["messages-tuple", "values"] });
    assert_snapshot!(shown(&server.stream(&thread, body).await));
}

#[tokio::test]
async fn messages_so_far_come_whole() {
    let server = start().await;
    let thread = server.thread().await;
    let input = json!({ "messages": { "role": "user", "content": "2+40?", "id": "h1" } });
    let body = json!({ "assistant_id": "chat", "input": input, "stream_mode": "messages" });
    assert_snapshot!(shown(&server.stream(&thread, body).await));
}

#[tokio::test]
async fn a_question_ends_a_stream_and_its_answer_continues() {
    let server = start().await;
    let thread = server.thread().await;
    let modes = ["updates", "values"];
    let ask = json!({ "assistant_id": "approve", "input": { "euros": 20 }, "stream_mode": modes });
    let asked = server.stream(&thread, ask).await;
    // Some clients send an empty input beside a command.
    let command = json!({ "resume": "yes", "update": null, "goto": null });
    let answer = json!({ "assistant_id": "approve", "input": {}, "command": command, "stream_mode": modes });
    let answered = server.stream(&thread, answer).await;
    assert_snapshot!(format!("{}--\n{}", shown(&asked), shown(&answered)));
}

#[tokio::test]
async fn a_breakpoint_ends_a_stream_and_a_null_input_continues() {
    let server = start().await;
    let thread = server.thread().await;
    let modes = ["updates", "values"];
    let stop = json!({ "assistant_id": "counter", "input": { "n": 1 }, "stream_mode": modes, "interrupt_before": ["two"] });
    let stopped = server.stream(&thread, stop).await;
    let go = json!({ "assistant_id": "counter", "input": null, "stream_mode": modes });
    let went = server.stream(&thread, go).await;
    assert_snapshot!(format!("{}--\n{}", shown(&stopped), shown(&went)));
}

#[tokio::test]
async fn the_events_of_a_subgraph_have_its_namespace() {
    let server = start().await;
    let thread = server.thread().await;
    let modes = ["updates", "values"];
    let ask = json!({ "assistant_id": "parent", "input": { "euros": 20 }, "stream_mode": modes, "stream_subgraphs": true });
    let asked = server.stream(&thread, ask.clone()).await;
    assert_snapshot!(shown(&asked));
    let mut without = ask;
    without["stream_subgraphs"] = false.into();
    let thread = server.thread().await;
    assert!(server.stream(&thread, without).await.iter().all(|event| !event.name.contains('|')));
}

#[tokio::test]
async fn a_failure_is_the_last_event() {
    let server = start().await;
    let thread = server.thread().await;
    let events = server.stream(&thread, json!({ "assistant_id": "fail", "input": {} })).await;
    assert_snapshot!(shown(&events));
    let limited = json!({ "assistant_id": "counter", "input": {}, "config": { "recursion_limit": 1 } });
    let thread = server.thread().await;
    let events = server.stream(&thread, limited).await;
    assert_eq!(events.last().unwrap().data["error"], "GraphRecursionError");
}

#[tokio::test]
async fn modes_that_do_not_exist_are_refused() {
    let server = start().await;
    let thread = server.thread().await;
    for mode in ["event", "value"] {
        let body = json!({ "assistant_id": "counter", "input": {}, "stream_mode": mode });
        let path = format!("/threads/{thread}/runs/stream");
        let (status, detail) = server.refused(Method::POST, &path, body).await;
        assert_eq!(status, 422, "{detail}");
        assert!(detail.contains(mode), "{detail}");
    }
}

#[tokio::test]
async fn a_resumable_stream_continues_after_an_id_and_after_its_end() {
    let server = start().await;
    let thread = server.thread().await;
    let body = json!({
        "assistant_id": "gate", "input": { "gate": "resumable" }, "stream_mode": ["updates", "values"], "stream_resumable": true,
    });
    let response = server.send(Method::POST, &format!("/threads/{thread}/runs/stream"), body).await;
    let place = response.headers()["location"].to_str().unwrap().to_owned();
    let run = response.headers()["content-location"].to_str().unwrap().to_owned();
    assert_eq!(place, format!("{run}/stream"));
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let mut reader = Reader::new(response);
    let last = reader.until("updates").await;
    let id = last.id.unwrap();
    drop(reader);
    graphs::open("resumable");
    let join = async |id: Option<&str>| {
        let mut request = server.request(Method::GET, &place);
        if let Some(id) = id {
            request = request.header("last-event-id", id);
        }
        crate::support::events(request.send().await.unwrap()).await
    };
    let rest = join(Some(&id)).await;
    assert_eq!(names(&rest), ["values", "updates", "values", "updates", "values"]);
    let all = join(Some("-1")).await;
    assert_eq!(names(&all[..3]), ["metadata", "values", "updates"]);
    assert_eq!(&all[3..], rest);
    assert_eq!(all[2].id, Some(id));
    // Of a run that is over nothing is still to come.
    assert_eq!(join(None).await, []);
    let wrong = server.request(Method::GET, &place).header("last-event-id", "x").send().await.unwrap();
    assert_eq!(wrong.status(), 422);
}

#[tokio::test]
async fn a_joined_stream_has_what_is_still_to_come() {
    let server = start().await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "joined" }, "stream_mode": ["updates", "values"] });
    let run =
        server.post(&format!("/threads/{thread}/runs"), body).await["run_id"].as_str().unwrap().to_owned();
    let path = format!("/threads/{thread}/runs/{run}/stream");
    let all = server.request(Method::GET, &path).header("last-event-id", "-1").send().await.unwrap();
    let mut all = Reader::new(all);
    // The input, and the superstep before the gate.
    let _ = (all.until("values").await, all.until("values").await);
    let modes = format!("{path}?stream_mode=%5B%22updates%22%5D");
    let joined = server.request(Method::GET, &modes).send().await.unwrap();
    graphs::open("joined");
    let joined = crate::support::events(joined).await;
    assert_eq!(names(&joined), ["updates", "updates"]);
    assert_eq!(joined[0].data, json!({ "wait": { "log": ["passed"] } }));
    assert_eq!(joined[0].id, None);
}

#[tokio::test]
async fn a_thread_streams_all_its_runs() {
    let server = start().await;
    let thread = server.thread().await;
    let response = server.request(Method::GET, &format!("/threads/{thread}/stream")).send().await.unwrap();
    let mut reader = Reader::new(response);
    for _ in 0..2 {
        let run = server
            .post(&format!("/threads/{thread}/runs"), json!({ "assistant_id": "counter", "input": {} }))
            .await;
        let begin = reader.next().await.unwrap();
        assert_eq!((&*begin.name, &begin.data["run_id"]), ("metadata", &run["run_id"]));
        assert!(begin.id.is_some());
        let done = reader.until("metadata").await;
        assert_eq!(done.data, json!({ "status": "run_done", "run_id": run["run_id"] }));
    }
}
