//! F: messages, debug, chosen channels, and every event as JSON.

use std::collections::BTreeSet;

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    CompiledGraph, Cx, END, Event, JsonChannels, JsonState, JsonUpdate, Log, NodeError, NodeOptions,
    RetryPolicy, RunError, RunOptions, START, State, StateGraph, StreamMode, Streaming, clock::Clock,
    stream::DebugKind,
};

use crate::support::{Plain, PlainUpdate, line, line_of, on_every_store, say, t, text, told};

/// `START → w → z → END`; w streams a message.
fn writer() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let w = graph.add_node("w", async |_: Plain, cx: Cx| {
        cx.emit("before", 0);
        cx.emit_message("m", "Hel");
        cx.emit_message("m", "lo");
        cx.emit_full_message("m", "Hello");
        cx.emit_full_message("whole", "World");
        cx.emit_full_message("whole", "World");
        say("w")
    });
    let z = crate::support::logging_node(&mut graph, "z");
    graph.add_edge(START, w);
    graph.add_edge(w, z);
    graph.add_edge(z, END);
    graph.compile().unwrap()
}

on_every_store! {
    async fn debug_reports_checkpoints_and_tasks_in_order(backend: Backend) {
        let graph = backend.keep(writer());
        assert_eq!(
            told(&graph, say("in"), t(), &[StreamMode::Debug]).await,
            [
                "debug -1 Checkpoint",
                "debug 0 Checkpoint",
                "debug 1 Task",
                "debug 1 TaskResult",
                "debug 1 Checkpoint",
                "debug 2 Task",
                "debug 2 TaskResult",
                "debug 2 Checkpoint",
            ]
        );
    }

    async fn all_modes_together_come_in_the_documented_order(backend: Backend) {
        let graph = backend.keep(writer());
        let all = [
            StreamMode::Debug,
            StreamMode::Messages,
            StreamMode::Checkpoints,
            StreamMode::Tasks,
            StreamMode::Custom,
            StreamMode::Updates,
            StreamMode::Values,
        ];
        let lines = told(&graph, say("in"), t(), &all).await;
        assert_eq!(
            lines[5..18],
            [
                "start 1 w #1",
                "debug 1 Task",
                "custom w before: 0",
                r#"message 1 w #1 m Chunk: "Hel""#,
                r#"message 1 w #1 m Chunk: "lo""#,
                r#"message 1 w #1 whole Full: "World""#,
                r#"update 1 w: {"log":["w"]}"#,
                "end 1 w #1",
                "debug 1 TaskResult",
                "values 1: [in w]",
                "debug 1 Checkpoint",
                "checkpoint loop 1 -> [z]",
                "start 2 z #1",
            ]
        );
    }

    async fn a_message_names_its_node(backend: Backend) {
        let graph = backend.keep(writer());
        let events: Vec<_> = graph.thread("t").stream(say("in"), [StreamMode::Messages]).collect().await;
        let Event::Message { node, step, slot, attempt, checkpoint, id, .. } = &events[0] else {
            panic!("{events:?}")
        };
        assert_eq!((node.as_str(), *step, *slot, *attempt, id.as_str()), ("w", 1, 0, 1, "m"));
        assert_eq!(checkpoint.map(|id| id.0), Some(2), "the checkpoint whose task it is");
        assert_eq!(events.len(), 3);
    }

    async fn updates_and_values_have_the_requested_channels(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("g");
        let a = crate::support::logging_node(&mut graph, "a");
        let b = crate::support::logging_node(&mut graph, "b");
        let x = graph.add_node("x", async |_: Plain, _| say("x").x(7));
        graph.add_edge(START, a);
        graph.add_edge(a, b);
        graph.add_edge(b, x);
        let graph = backend.keep(graph.compile().unwrap());
        let modes = [StreamMode::Updates, StreamMode::Values];
        let streaming = Streaming::from(modes).output_keys(["x"]);
        let mut stream = graph.thread("t").stream(say("in"), streaming);
        let mut data = Vec::new();
        while let Some(event) = stream.next().await {
            data.push(crate::support::json(&event)["data"].clone());
        }
        assert_eq!(
            data,
            [
                json!({"step": 0, "values": {"x": 0}}),
                json!({"step": 1, "node": "a", "update": null, "cached": false}),
                json!({"step": 1, "values": {"x": 0}}),
                json!({"step": 2, "node": "b", "update": null, "cached": false}),
                json!({"step": 2, "values": {"x": 0}}),
                json!({"step": 3, "node": "x", "update": {"x": 7}, "cached": false}),
                json!({"step": 3, "values": {"x": 7}}),
            ]
        );
        assert_eq!(stream.outcome().await.unwrap().state.log_text(), "in a b x", "the run itself is as it was");
    }

    async fn an_unknown_channel_is_refused_before_anything_is_stored(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        let streaming = Streaming::from(StreamMode::Updates).output_keys(["y"]);
        let error = graph.thread("t").stream(say("in"), streaming).outcome().await.unwrap_err();
        assert!(matches!(&error, RunError::UnknownOutputKey { key, .. } if key == "y"), "{error:?}");
        assert_eq!(
            text(&error),
            "SS160: the state has no channel `y` whose values could be streamed; it has `log`, `x`"
        );
        assert_eq!(crate::support::head(&graph).await.checkpoint, None);
    }
}

/// An update of several parts is restricted in all of them.
#[tokio::test]
async fn updates_that_follow_each_other_are_restricted_as_well() {
    use superstep::state::Update as _;
    let mut graph = StateGraph::<Plain>::new("g");
    let update = || -> PlainUpdate { say("1").x(1).then(say("2")).then(Plain::update().x(2)) };
    let a = graph.add_node("a", move |_, _| async move { update() });
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let mut seen = Vec::new();
    for key in ["log", "x"] {
        let streaming = Streaming::from(StreamMode::Updates).output_keys([key]);
        let events: Vec<_> = graph.stream(Plain::update(), streaming).collect().await;
        seen.extend(events.iter().map(line_of));
    }
    assert_eq!(
        seen,
        [r#"update 1 a: {"$then":[{"log":["2"]}],"log":["1"]}"#, r#"update 1 a: {"$then":[{"x":2}],"x":1}"#,]
    );
}

#[tokio::test(start_paused = true)]
async fn chunks_of_a_failed_attempt_are_distinguished_and_do_not_hide_the_whole_message() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, cx: Cx| {
        if cx.attempt() == 1 {
            cx.emit_message("m", "He");
            return Err(NodeError::new("cut off"));
        }
        cx.emit_full_message("m", "Hello");
        Ok(())
    });
    graph.configure(a, NodeOptions::new().retry(RetryPolicy::default()));
    graph.add_edge(START, a);
    assert_eq!(
        told(&graph.compile().unwrap(), Plain::update(), RunOptions::new(), &[StreamMode::Messages]).await,
        [r#"message 1 a #1 m Chunk: "He""#, r#"message 1 a #2 m Full: "Hello""#]
    );
}

#[tokio::test]
async fn a_discarded_message_may_be_sent_anew() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, cx: Cx| {
        cx.discard_message("m");
        cx.emit_message("m", "He");
        cx.discard_message("m");
        cx.emit_full_message("m", "Hello");
    });
    graph.add_edge(START, a);
    assert_eq!(
        told(&graph.compile().unwrap(), Plain::update(), RunOptions::new(), &[StreamMode::Messages]).await,
        [
            r#"message 1 a #1 m Chunk: "He""#,
            "message 1 a #1 m Discarded: null",
            r#"message 1 a #1 m Full: "Hello""#,
        ]
    );
}

/// Every task has messages of its own, also with equal ids.
#[tokio::test]
async fn the_same_id_in_two_tasks_is_two_messages() {
    let mut graph = StateGraph::<Plain>::new("g");
    for name in ["a", "b"] {
        let node = graph.add_node(name, async |_: Plain, cx: Cx| {
            cx.emit_full_message("m", cx.node());
        });
        graph.add_edge(START, node);
    }
    let stream = graph.compile().unwrap().stream(Plain::update(), [StreamMode::Messages]);
    let lines: BTreeSet<_> = stream.map(|event| line_of(&event)).collect().await;
    let expected = [r#"message 1 a #1 m Full: "a""#, r#"message 1 b #1 m Full: "b""#];
    assert_eq!(lines, expected.map(str::to_owned).into());
}

struct At(i64);

impl Clock for At {
    fn now_ms(&self) -> i64 {
        self.0
    }
}

/// The JSON form is a promise.
#[tokio::test(start_paused = true)]
async fn every_event_has_a_json_form() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, cx: Cx| {
        cx.emit("progress", json!({"done": 1}));
        cx.emit_message("m", "Hi");
        if cx.attempt() == 1 {
            return Err(NodeError::new("no luck"));
        }
        Ok(say("a"))
    });
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
        cx.interrupt::<bool>("ok", "sure?").await;
    });
    let nothing = graph.add_node("nothing", async |_: Plain, _| ());
    graph.configure(a, NodeOptions::new().retry(RetryPolicy::default()));
    graph.add_edge(START, nothing);
    graph.add_edge(nothing, a);
    graph.add_edge(a, ask);
    let graph = crate::support::Backend::memory().keep(graph.compile().unwrap());
    let modes = [
        StreamMode::Values,
        StreamMode::Updates,
        StreamMode::Custom,
        StreamMode::Messages,
        StreamMode::Tasks,
        StreamMode::Checkpoints,
        StreamMode::Debug,
    ];
    let events: Vec<_> =
        graph.thread("t").clock(At(1_700_000_000_000)).stream(say("in"), modes).collect().await;
    let mut lines: Vec<_> = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    lines.push(serde_json::to_string(&Event::<Plain>::Lagged { skipped: 3 }).unwrap());
    let discarded = Event::<Plain>::Discarded { nodes: vec!["a".into()] };
    lines.push(serde_json::to_string(&discarded).unwrap());
    insta::assert_snapshot!(lines.join("\n"));
}

#[derive(State, Clone, Debug, Default)]
struct Big {
    huge: u128,
    #[channel(append)]
    log: Log<String>,
}

/// Integers of any size stay integers, and channels are in the order of the fields.
#[tokio::test]
async fn values_are_printed_as_they_are() {
    let mut graph = StateGraph::<Big>::new("g");
    let a = graph.add_node("a", async |_: Big, _| ());
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let input = Big::update().huge(u128::MAX);
    let events: Vec<_> = graph.stream(input, [StreamMode::Values]).collect().await;
    let line = serde_json::to_string(&events[0]).unwrap();
    let expected = r#"{"event":"values","data":{"step":0,"values":{"huge":340282366920938463463374607431768211455,"log":[]}}}"#;
    assert_eq!(line, expected);
}

#[tokio::test]
async fn debug_shows_the_input_of_a_task_and_its_result() {
    let mut graph = StateGraph::<Plain>::new("g");
    let work = graph.add_worker("work", async |item: u32, _: Plain, _: Cx| match item {
        1 => Ok(say("one")),
        _ => Err(NodeError::new("not one").fatal()),
    });
    graph.add_fan_out(START, |_: &Plain| vec![1_u32, 2], work);
    let graph = graph.compile().unwrap();
    let stream = graph.stream(Plain::update(), [StreamMode::Debug]);
    let events: Vec<_> = stream.collect().await;
    let payload = |kind: DebugKind, slot: u32| -> Value {
        let found = events.iter().find_map(|event| match event {
            Event::Debug { kind: found, payload, .. } if *found == kind && payload["slot"] == slot => {
                Some(payload.clone())
            }
            _ => None,
        });
        found.unwrap_or_else(|| panic!("{events:?}"))
    };
    let result = |slot, update: Value, error: Value| json!({"slot": slot, "node": "work", "attempt": 1, "update": update, "error": error, "interrupts": []});
    assert_eq!(payload(DebugKind::Task, 0), json!({"slot": 0, "node": "work", "attempt": 1, "input": 1}));
    assert_eq!(payload(DebugKind::TaskResult, 0), result(0, json!({"log": ["one"]}), Value::Null));
    assert_eq!(payload(DebugKind::TaskResult, 1), result(1, Value::Null, json!("not one")));
}

#[derive(State, Clone, Debug, Default)]
struct Handled {
    #[channel(untracked)]
    handle: Option<String>,
    n: i64,
}

#[tokio::test]
async fn untracked_channels_are_not_in_the_json_of_events() {
    let mut inner = StateGraph::<Handled>::new("inner");
    let open =
        inner.add_node("open", async |_: Handled, _: Cx| Handled::update().handle("secret".to_owned()).n(1));
    inner.add_edge(START, open);
    let mut graph = StateGraph::<Handled>::new("g");
    let sub = graph.add_subgraph("sub", &inner.compile().unwrap());
    graph.add_edge(START, sub);
    let graph = graph.compile().unwrap();
    let modes = vec![StreamMode::Values, StreamMode::Updates, StreamMode::Debug];
    let streaming = Streaming::from(modes).subgraphs();
    let events: Vec<_> = graph.stream(Handled::update(), streaming).collect().await;
    let held = events.iter().rev().find_map(|event| match event {
        Event::Values { state, .. } => state.handle.as_deref(),
        _ => None,
    });
    assert_eq!(held, Some("secret"), "a consumer in the same process has it");
    let shown: Vec<Value> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let text = Value::from(shown.clone()).to_string();
    assert!(!text.contains("secret") && !text.contains("handle") && !text.contains("no JSON form"), "{text}");
    let values = |value: &Value| value["event"] == "values" && value["data"]["values"] == json!({ "n": 1 });
    assert!(shown.iter().any(values), "{text}");
    let inside = |value: &Value| value["event"] == "subgraph" && values(&value["data"]["event"]);
    assert!(shown.iter().any(inside), "{text}");
    let input = |value: &&Value| value["data"]["kind"] == "task";
    assert_eq!(shown.iter().find(input).unwrap()["data"]["payload"]["input"], json!({ "n": 0 }));

    // The same of a state that is described at run time.
    let channels: JsonChannels =
        serde_json::from_value(json!({ "n": {}, "handle": { "untracked": true } })).unwrap();
    let mut graph = StateGraph::with_initial("json", JsonState::new(&channels).unwrap());
    let open = graph.add_node("open", async |_: JsonState, _: Cx| json!({ "n": 1, "handle": "secret" }));
    graph.add_edge(START, open);
    let graph = graph.compile().unwrap();
    let modes = [StreamMode::Values, StreamMode::Updates, StreamMode::Debug];
    let events: Vec<_> = graph.stream(JsonUpdate::new(), modes).collect().await;
    let shown: Vec<Value> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let text = Value::from(shown.clone()).to_string();
    assert!(!text.contains("secret") && !text.contains("handle"), "{text}");
    assert!(shown.iter().any(values), "{text}");
    let update = |value: &&Value| value["event"] == "update";
    assert_eq!(shown.iter().find(update).unwrap()["data"]["update"], json!({ "n": 1 }));
}
