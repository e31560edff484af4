//! States, updates and histories.

use insta::assert_snapshot;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{redacted, start};

fn pretty(value: &Value) -> String {
    redacted(&serde_json::to_string_pretty(value).unwrap())
}

#[tokio::test]
async fn a_state_has_the_question_that_waits() {
    let server = start().await;
    let thread = server.thread().await;
    let before = server.get(&format!("/threads/{thread}/state")).await;
    assert_eq!((&before["values"], &before["checkpoint"]), (&json!({}), &Value::Null));
    server
        .stream(
            &thread,
            json!({ "assistant_id": "approve", "input": { "euros": 20 }, "metadata": { "by": "ada" } }),
        )
        .await;
    let state = server.get(&format!("/threads/{thread}/state")).await;
    assert_snapshot!(pretty(&state));
    let named =
        server.post(&format!("/threads/{thread}/state/checkpoint"), json!({ "checkpoint": {} })).await;
    assert_eq!(named, state);
    let row = server.get(&format!("/threads/{thread}")).await;
    assert_eq!(row["status"], "interrupted");
    let task = state["tasks"][0]["id"].as_str().unwrap();
    assert_eq!(row["interrupts"][task], state["tasks"][0]["interrupts"]);
}

#[tokio::test]
async fn a_history_has_all_checkpoints_newest_first() {
    let server = start().await;
    let thread = server.thread().await;
    server
        .stream(
            &thread,
            json!({ "assistant_id": "counter", "input": { "n": 5 }, "metadata": { "by": "ada" } }),
        )
        .await;
    let history = server.post(&format!("/threads/{thread}/history"), json!({ "limit": 1000 })).await;
    let line = |state: &Value| {
        format!(
            "{} <- {}: step {} {}, {} next {}, by {} {}\n",
            state["checkpoint_id"],
            state["parent_checkpoint_id"],
            state["metadata"]["step"],
            state["metadata"]["source"],
            state["values"],
            state["next"],
            state["metadata"]["by"],
            state["tasks"][0]["result"],
        )
    };
    let lines: String = history.as_array().unwrap().iter().map(line).collect();
    assert_snapshot!(redacted(&lines));
    let second = history[1]["checkpoint_id"].clone();
    for before in [
        second.clone(),
        json!({ "checkpoint_id": second }),
        json!({ "configurable": { "checkpoint_id": second } }),
    ] {
        let older =
            server.post(&format!("/threads/{thread}/history"), json!({ "limit": 1, "before": before })).await;
        assert_eq!(older, json!([history[2]]));
    }
    let none = json!({ "metadata": { "by": "bob" } });
    assert_eq!(server.post(&format!("/threads/{thread}/history"), none).await, json!([]));
    let by_step = json!({ "metadata": { "by": "ada", "step": 0 } });
    assert_eq!(
        server.post(&format!("/threads/{thread}/history"), by_step).await.as_array().unwrap().len(),
        1
    );
    assert_eq!(
        server.get(&format!("/threads/{thread}/history?limit=2")).await,
        json!([history[0], history[1]])
    );
}

#[tokio::test]
async fn an_update_makes_a_checkpoint_and_what_follows_it_is_next() {
    let server = start().await;
    let thread = server.thread().await;
    server.stream(&thread, json!({ "assistant_id": "counter", "input": { "n": 5 } })).await;
    let path = format!("/threads/{thread}/state");
    let head = server.get(&path).await;
    let updated = server.post(&path, json!({ "values": { "n": 10 }, "as_node": "one" })).await;
    assert_eq!(updated["checkpoint"]["thread_id"], thread);
    let state = server.get(&path).await;
    assert_eq!((&state["values"]["n"], &state["next"]), (&json!(17), &json!(["two"])));
    assert_eq!(state["metadata"]["source"], "update");
    assert_eq!(state["parent_checkpoint"], head["checkpoint"]);
    assert_eq!(state["checkpoint_id"], updated["checkpoint_id"]);
    let events = server
        .stream(&thread, json!({ "assistant_id": "counter", "input": null, "stream_mode": "updates" }))
        .await;
    assert_eq!(events[1].data, json!({ "two": { "n": 1, "log": ["two"] } }));
    // From an older checkpoint, on a branch of its own.
    let at = head["parent_checkpoint"].clone();
    server.post(&path, json!({ "values": { "n": 100 }, "as_node": "two", "checkpoint": at })).await;
    let branch = server.get(&path).await;
    assert_eq!((&branch["values"]["n"], &branch["parent_checkpoint"]), (&json!(106), &at));
}

#[tokio::test]
async fn an_impossible_update_is_400_and_one_that_does_not_fit_422() {
    let server = start().await;
    let thread = server.thread().await;
    let path = format!("/threads/{thread}/state");
    let (status, _) = server.refused(Method::POST, &path, json!({ "values": { "n": 1 } })).await;
    assert_eq!(status, 409);
    server.stream(&thread, json!({ "assistant_id": "counter", "input": {} })).await;
    let (status, detail) =
        server.refused(Method::POST, &path, json!({ "values": {}, "as_node": "three" })).await;
    assert_eq!(status, 400);
    assert!(detail.contains("`three`"), "{detail}");
    let (status, detail) = server.refused(Method::POST, &path, json!({ "values": { "n": "x" } })).await;
    assert_eq!(status, 422, "{detail}");
    let (status, _) =
        server.refused(Method::GET, &format!("{path}/00000000-0000-8000-8000-0000000000ff"), json!({})).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_run_from_an_older_checkpoint_forks_and_from_the_head_does_not() {
    let server = start().await;
    let thread = server.thread().await;
    server.stream(&thread, json!({ "assistant_id": "counter", "input": { "n": 5 } })).await;
    let history = format!("/threads/{thread}/history");
    let before = server.post(&history, json!({ "limit": 100 })).await;
    // Before `two` ran.
    let old = before[1]["checkpoint"].clone();
    let replay = json!({ "assistant_id": "counter", "input": null, "checkpoint": { "checkpoint_id": old["checkpoint_id"] } });
    server.stream(&thread, replay).await;
    let after = server.post(&history, json!({ "limit": 100 })).await;
    assert_eq!(after.as_array().unwrap().len(), before.as_array().unwrap().len() + 2);
    assert_eq!((&after[1]["metadata"]["source"], &after[1]["parent_checkpoint"]), (&json!("fork"), &old));
    assert_eq!(after[0]["values"], before[0]["values"]);
    // An edit: an input in place of the first.
    let first = before.as_array().unwrap().last().unwrap()["checkpoint"].clone();
    let edit = json!({ "assistant_id": "counter", "input": { "n": 7 }, "checkpoint": first });
    let events = server.stream(&thread, edit).await;
    assert_eq!(events.last().unwrap().data["n"], 9);
    // Chat pages name the head in each run.
    let head = server.get(&format!("/threads/{thread}/state")).await["checkpoint"].clone();
    let count = server.post(&history, json!({ "limit": 100 })).await.as_array().unwrap().len();
    let next = json!({ "assistant_id": "counter", "input": { "n": 1 }, "checkpoint": head });
    server.stream(&thread, next).await;
    let states = server.post(&history, json!({ "limit": 100 })).await;
    assert_eq!(states.as_array().unwrap().len(), count + 4);
    assert_eq!(states[3]["metadata"]["source"], "input");
    assert_eq!(states[3]["parent_checkpoint"], head);
}

#[tokio::test]
async fn one_of_two_questions_is_answered_by_its_id() {
    let server = start().await;
    let thread = server.thread().await;
    let ask = json!({ "assistant_id": "two", "input": {} });
    let asked = server.stream(&thread, ask).await;
    let waiting = &asked.last().unwrap().data["__interrupt__"];
    assert_eq!(waiting.as_array().unwrap().len(), 2);
    let resume = |resume: Value| json!({ "assistant_id": "two", "command": { "resume": resume } });
    let unclear = server.stream(&thread, resume(json!("yes"))).await;
    assert_eq!(unclear.last().unwrap().data["error"], "InvalidCommand");
    let id = waiting[0]["id"].as_str().unwrap();
    let one = server.stream(&thread, resume(json!({ id: "first" }))).await;
    let left = &one.last().unwrap().data["__interrupt__"];
    assert_eq!(left, &json!([waiting[1]]));
    let done = server.post(&format!("/threads/{thread}/runs/wait"), resume(json!("second"))).await;
    assert_eq!(done["log"].as_array().unwrap().len(), 2);
    let nothing = server.stream(&thread, resume(json!("third"))).await;
    let error = &nothing.last().unwrap().data;
    assert_eq!(error["message"], "nothing waits for an answer on this thread; send an input instead");
}

#[tokio::test]
async fn a_command_updates_and_goes_to_a_node_or_to_the_end() {
    let server = start().await;
    let thread = server.thread().await;
    let run =
        |command: Value| json!({ "assistant_id": "approve", "command": command, "stream_mode": "values" });
    server.stream(&thread, json!({ "assistant_id": "approve", "input": { "euros": 20 } })).await;
    let both = server
        .stream(&thread, run(json!({ "resume": "no", "update": { "verdict": "later" }, "goto": "send" })))
        .await;
    let last = &both.last().unwrap().data;
    assert_eq!(both.last().unwrap().name, "values", "{last}");
    assert_eq!((&last["verdict"], &last["sent"]), (&json!("no"), &json!(true)));
    // First as it stands.
    assert_eq!((&both[1].data["verdict"], &both[1].data["sent"]), (&json!(""), &json!(false)));
    server.stream(&thread, json!({ "assistant_id": "approve", "input": { "euros": 40 } })).await;
    let ended = server.stream(&thread, run(json!({ "goto": "__end__" }))).await;
    assert_eq!(ended.last().unwrap().name, "values");
    let state = server.get(&format!("/threads/{thread}/state")).await;
    assert_eq!((&state["next"], &state["tasks"]), (&json!([]), &json!([])));
    assert_eq!(server.get(&format!("/threads/{thread}")).await["status"], "idle");
    let sent = json!({ "goto": { "node": "send", "input": { "verdict": "sent" } } });
    let sent = server.stream(&thread, run(sent)).await;
    assert_eq!(sent.last().unwrap().data["verdict"], "sent");
    let unknown = server.stream(&thread, run(json!({ "goto": "nowhere" }))).await;
    assert_eq!(unknown.last().unwrap().name, "error");
}

#[tokio::test]
async fn a_waiting_subgraph_is_named_by_its_task() {
    let server = start().await;
    let thread = server.thread().await;
    let ask = json!({ "assistant_id": "parent", "input": { "euros": 20 }, "stream_mode": "updates", "stream_subgraphs": true });
    let events = server.stream(&thread, ask).await;
    let state = server.get(&format!("/threads/{thread}/state?subgraphs=true")).await;
    let named = server.get(&format!("/threads/{thread}/state")).await;
    let (task, named) = (&state["tasks"][0], &named["tasks"][0]);
    let namespace = format!("child:{}", task["id"].as_str().unwrap());
    assert_eq!(named["checkpoint"], json!({ "thread_id": thread, "checkpoint_ns": namespace }));
    assert_eq!((&named["state"], &task["checkpoint"]), (&Value::Null, &Value::Null));
    let inner = &task["state"];
    assert_eq!((&inner["values"]["euros"], &inner["next"]), (&json!(20), &json!(["decide"])));
    assert_eq!(inner["checkpoint"]["checkpoint_ns"], namespace);
    assert_eq!(inner["tasks"][0]["interrupts"], task["interrupts"]);
    assert!(
        events.iter().any(|event| event.name == format!("updates|{namespace}")),
        "{namespace} {events:?}"
    );
    let answer = json!({ "assistant_id": "parent", "command": { "resume": "yes" } });
    let end = server.post(&format!("/threads/{thread}/runs/wait"), answer).await;
    assert_eq!((&end["verdict"], &end["sent"]), (&json!("yes"), &json!(true)));
}
