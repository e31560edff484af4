//! A: states whose channels are only known at run time.

use serde_json::{Value, json};
use superstep::{
    CheckpointId, CompiledGraph, Cx, JsonChannels, JsonState, JsonUpdate, RunError, START, State as _,
    StateGraph,
    state::{JsonChannel, JsonReducer, Update as _, reduce},
};

use crate::support::{entries, failed, h, head, json as shown, on_every_store, task};

fn channels(description: Value) -> JsonChannels {
    serde_json::from_value(description).unwrap()
}

fn state(description: Value) -> JsonState {
    JsonState::new(&channels(description)).unwrap()
}

fn update(json: Value) -> JsonUpdate {
    json.try_into().unwrap()
}

/// `START → first → second → …`, each returning the given update, or the state that it sees under `saw`.
fn line(description: Value, nodes: &[(&'static str, Value)]) -> CompiledGraph<JsonState> {
    let mut graph = StateGraph::with_initial("g", state(description));
    let mut last = START;
    for (name, returns) in nodes {
        let returns = returns.clone();
        let node = graph.add_node(name, move |state: JsonState, cx: Cx| {
            let returns = if returns.is_null() {
                json!({ "saw": [format!("{} {}", cx.node(), state.pick(&["e", "t", "u", "r"]))] })
            } else {
                returns.clone()
            };
            async move { returns }
        });
        graph.add_edge(last, node);
        last = node;
    }
    graph.compile().unwrap()
}

/// Returns the states seen by the nodes that return them.
fn saw(state: &JsonState) -> Vec<&str> {
    state.items("saw").filter_map(Value::as_str).collect()
}

on_every_store! {
    async fn writing_an_undeclared_channel_names_node_and_key(backend: Backend) {
        let description = json!({ "x": {}, "log": { "reducer": "append" } });
        let graph = backend.keep(line(description.clone(), &[("a", json!({ "x": 1, "zzz": 9 }))]));
        let error = failed(graph.thread("t").run(update(json!({ "x": 0 }))).await);
        assert_eq!(
            error.to_string(),
            "SS133: superstep 1: node `a` wrote `zzz`, which is not a channel of the state; it has `log`, `x`"
        );
        assert_eq!(head(&graph).await.values.to_value(), json!({ "x": 0, "log": [] }));
        let tasks: Vec<_> = head(&graph).await.tasks.iter().map(task).collect();
        assert_eq!(tasks, [("a".to_owned(), Value::Null, error.to_string())]);

        let repaired = [("a", json!({ "x": 1 }))];
        let end = backend.keep(line(description, &repaired)).thread("t").resume().await.unwrap();
        assert_eq!(end.state.to_value(), json!({ "x": 1, "log": [] }));
    }

    async fn an_undeclared_channel_in_the_input_leaves_no_trace(backend: Backend) {
        let graph = backend.keep(line(json!({}), &[("a", json!({}))]));
        let error = failed(graph.thread("t").run(update(json!({ "zzz": 9 }))).await);
        assert!(
            matches!(&error, RunError::UndeclaredChannel { node, step: 0, .. } if node.as_str() == "__start__"),
            "{error}"
        );
        assert_eq!(h(&graph).await, []);
        let error = graph.thread("t").update_as("a", update(json!({ "zzz": 9 }))).await.unwrap_err();
        assert!(matches!(&error, RunError::UndeclaredChannel { .. }), "{error}");
    }

    async fn parallel_writers_of_a_last_value_conflict(backend: Backend) {
        let mut graph = StateGraph::with_initial("g", state(json!({ "x": {} })));
        for (name, x) in [("a", 1), ("b", 2)] {
            let node = graph.add_node(name, move |_, _| async move { json!({ "x": x }) });
            graph.add_edge(START, node);
        }
        let graph = backend.keep(graph.compile().unwrap());
        let error = failed(graph.thread("t").run(JsonUpdate::new()).await);
        assert!(matches!(&error, RunError::Conflict { channel, step: 1, .. } if channel == "x"), "{error}");
        assert_eq!(h(&graph).await, entries(&[("loop", 0, "a b"), ("input", -1, "__start__")]));
    }

    async fn unwritten_channels_have_their_zero_or_are_absent(backend: Backend) {
        let description = json!({
            "l": { "reducer": "append" },
            "n": { "reducer": "sum" },
            "t": { "reducer": "append", "default": "" },
            "d": { "reducer": "union" },
            "plain": {},
        });
        let graph = backend.keep(line(description, &[("a", json!({}))]));
        let end = graph.thread("t").snapshot_every(1).run(update(json!({ "n": 2 }))).await;
        let expected = json!({ "l": [], "n": 2, "t": "", "d": {} });
        assert_eq!(end.unwrap().state.to_value(), expected);
        assert_eq!(head(&graph).await.values.to_value(), expected, "also from a full state");
    }

    async fn ephemeral_values_and_topics_are_seen_for_one_superstep(backend: Backend) {
        let description = json!({
            "e": { "reducer": "ephemeral" },
            "t": { "reducer": "topic" },
            "u": { "reducer": "append" },
            "saw": { "reducer": "append" },
        });
        let nodes = [
            ("a", json!({ "e": "hot", "t": 1, "u": [1, 2] })),
            ("b", Value::Null),
            ("c", json!({ "t": [5, 6], "u": 3 })),
            ("d", Value::Null),
            ("e", Value::Null),
        ];
        let expected = [
            r#"b {"e":"hot","t":[1],"u":[1,2]}"#,
            r#"d {"t":[5,6],"u":[1,2,3]}"#,
            r#"e {"t":[],"u":[1,2,3]}"#,
        ];
        let graph = backend.keep(line(description.clone(), &nodes));
        let end = graph.thread("t").run(JsonUpdate::new()).await.unwrap();
        assert_eq!(saw(&end.state), expected);
        // And when each superstep is another process'.
        failed(backend.keep(line(description.clone(), &nodes)).thread("stops").step_limit(1).run(JsonUpdate::new()).await);
        for _ in 0..3 {
            failed(backend.keep(line(description.clone(), &nodes)).thread("stops").step_limit(1).resume().await);
        }
        let end = backend.keep(line(description, &nodes)).thread("stops").step_limit(1).resume().await.unwrap();
        assert_eq!(saw(&end.state), expected);
    }

    async fn an_untracked_channel_is_seen_by_its_run_and_never_stored(backend: Backend) {
        let description = json!({ "r": { "untracked": true }, "saw": { "reducer": "append" } });
        let nodes = [("a", json!({ "r": "handle", "clear": ["r"] })), ("b", Value::Null)];
        let graph = backend.keep(line(description, &nodes));
        let end = graph.thread("t").snapshot_every(1).run(JsonUpdate::new()).await.unwrap();
        assert_eq!(end.state.to_value(), json!({ "r": "handle", "saw": [r#"b {"r":"handle"}"#] }));
        assert_eq!(shown(&end.state), json!({ "saw": [r#"b {"r":"handle"}"#] }), "nor is it serialized");
        assert_eq!(head(&graph).await.values.get("r"), None);
        let store = backend.open();
        for at in 1..=4 {
            let loaded = store.load(&"t".into(), Some(CheckpointId(at))).await.unwrap().unwrap();
            if let Some(snapshot) = &loaded.snapshot {
                assert!(snapshot.channels().unwrap().iter().all(|channel| channel.channel != "r"));
            }
            for stored in loaded.commits.into_iter().flatten() {
                let stored: Value = serde_json::from_str(&stored.json().unwrap()).unwrap();
                assert_eq!((stored.get("r"), stored.get("clear")), (None, None));
            }
        }

        graph.thread("stops").break_before(["b"]).run(JsonUpdate::new()).await.unwrap();
        let end = graph.thread("stops").resume().await.unwrap();
        assert_eq!(saw(&end.state), ["b {}"]);
    }

    async fn a_write_that_its_reducer_refuses_spares_the_thread(backend: Backend) {
        let description = json!({ "n": { "reducer": "sum" } });
        let graph = backend.keep(line(description.clone(), &[("a", json!({ "n": "many" }))]));
        let error = failed(graph.thread("t").run(update(json!({ "n": 1 }))).await);
        let RunError::Fold { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.source.to_string(), "a text is written, and a number is needed");
        assert_eq!(head(&graph).await.values.get("n"), Some(json!(1)));
        let end = backend.keep(line(description, &[("a", json!({ "n": 2 }))])).thread("t").resume().await.unwrap();
        assert_eq!(end.state.get("n"), Some(json!(3)));
    }

    async fn a_thread_outlives_another_description(backend: Backend) {
        let released = json!({ "log": { "reducer": "append" }, "mood": {}, "later": {} });
        let graph = backend.keep(line(released.clone(), &[("a", json!({ "log": "a", "mood": "fine" }))]));
        graph.thread("t").run(update(json!({ "log": ["in"], "later": null }))).await.unwrap();

        // `log` has another name, `mood` is removed.
        let renamed = json!({ "lines": { "reducer": "append", "was": ["log"] } });
        let graph = backend.keep(line(renamed, &[("a", json!({ "lines": "b" }))]));
        let snapshot = head(&graph).await;
        assert_eq!(snapshot.values.to_value(), json!({ "lines": ["in", "a"] }));
        assert_eq!(snapshot.unknown, ["later", "mood"]);
        graph.thread("t").snapshot_every(1).run(JsonUpdate::new()).await.unwrap();

        // Rolled back, with another name for the newer program's `lines`.
        let back = json!({ "log": { "reducer": "append", "was": ["lines"] }, "mood": {} });
        let values = head(&backend.keep(line(back, &[("a", json!({}))]))).await.values;
        assert_eq!(values.to_value(), json!({ "log": ["in", "a", "b"], "mood": "fine" }));
    }
}

/// Returns the state after each update in turn.
fn after(description: Value, updates: &[Value]) -> Result<Value, String> {
    let mut state = state(description);
    for json in updates {
        let update: JsonUpdate = json.clone().try_into().map_err(|error| format!("{error}"))?;
        state = reduce(&state, [update]).map_err(|error| error.source.to_string())?;
    }
    Ok(state.to_value())
}

#[test]
fn every_reducer_folds_as_it_says() {
    let one = |reducer: Value, writes: &[Value]| {
        let updates: Vec<_> = writes.iter().map(|write| json!({ "x": write })).collect();
        after(json!({ "x": reducer }), &updates).map(|state| state["x"].clone())
    };
    let fold = |reducer: &str, writes: &[Value]| one(json!({ "reducer": reducer }), writes);
    assert_eq!(fold("last_value", &[json!(1), json!({ "a": 2 })]), Ok(json!({ "a": 2 })));
    assert_eq!(fold("last_value", &[json!(1), json!(null)]), Ok(json!(null)));
    assert_eq!(fold("append", &[json!([1, 2]), json!(3), json!([[4]])]), Ok(json!([1, 2, 3, [4]])));
    let text = json!({ "reducer": "append", "default": "> " });
    assert_eq!(one(text, &[json!("a"), json!("b")]), Ok(json!("> ab")));
    assert_eq!(fold("sum", &[json!(i64::MAX), json!(1)]), Ok(json!(9_223_372_036_854_775_808_u64)));
    assert_eq!(fold("sum", &[json!(1), json!(0.5)]), Ok(json!(1.5)));
    assert_eq!(
        fold("sum", &[json!(u64::MAX), json!(1)]),
        Err("18446744073709551615 + 1 does not fit 64 bits".into())
    );
    assert_eq!(
        fold("max", &[json!(-5), json!(-7), json!(-2)]),
        Ok(json!(-2)),
        "there is no zero to compete with"
    );
    assert_eq!(fold("max", &[json!("a"), json!("c"), json!("b")]), Ok(json!("c")));
    assert_eq!(fold("max", &[json!("a"), json!(1)]), Err("a number cannot be compared with a text".into()));
    assert_eq!(fold("max", &[json!([])]), Err("a list cannot be compared with a list".into()));
    assert_eq!(fold("union", &[json!({ "a": 1, "b": 1 }), json!({ "b": 2 })]), Ok(json!({ "a": 1, "b": 2 })));
    let set = json!({ "reducer": "union", "default": [] });
    assert_eq!(one(set, &[json!([2, 1]), json!(2), json!([1, 3])]), Ok(json!([2, 1, 3])));
    let messages = [
        json!([{ "id": "1", "text": "x" }, { "text": "y" }]),
        json!({ "id": "1", "text": "z" }),
        json!([{ "$remove": "auto-1" }, { "id": "2" }]),
    ];
    assert_eq!(fold("merge_by_id", &messages), Ok(json!([{ "id": "1", "text": "z" }, { "id": "2" }])));
    assert_eq!(fold("merge_by_id", &[json!([{ "id": "1" }, { "$remove_all": true }])]), Ok(json!([])));
    assert_eq!(
        fold("merge_by_id", &[json!({ "$remove": "7" })]),
        Err("no item has the id `7`, so it cannot be removed".into())
    );
    assert_eq!(fold("merge_by_id", &[json!({ "id": 7 })]), Err("the `id` of an item is a text".into()));
    let barrier = json!({ "reducer": "barrier", "names": ["left", "right"] });
    assert_eq!(
        one(barrier.clone(), &[json!("right"), json!(["left", "right"])]),
        Ok(json!(["left", "right"]))
    );
    assert_eq!(one(barrier, &[json!("up")]), Err("the barrier has no name \"up\"".into()));
}

#[test]
fn an_update_clears_overwrites_and_chains() {
    let state = state(json!({ "log": { "reducer": "append" }, "x": { "default": 7 } }));
    let log = |word: &str| JsonUpdate::new().write("log", word);
    let next = reduce(&state, [log("a").then(log("b")).write("x", 1)]).unwrap();
    assert_eq!(next.to_value(), json!({ "log": ["a", "b"], "x": 1 }));
    let again = [log("a").then(log("b")).then(JsonUpdate::new().set("log", json!(["c"])).clear("x"))];
    assert_eq!(
        shown(&again[0]),
        json!({
            "log": "a",
            "$then": [{ "log": "b" }, { "log": ["c"], "clear": ["log", "x"] }],
        })
    );
    assert_eq!(reduce(&next, again.clone()).unwrap().to_value(), json!({ "log": ["c"], "x": 7 }));
    let read: JsonUpdate = serde_json::from_value(shown(&again[0])).unwrap();
    assert_eq!(shown(&read), shown(&again[0]));
    let set = state.exclusive(&again[0]);
    assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1], "what is cleared is written alone");
}

#[tokio::test]
async fn a_node_that_returns_no_object_fails() {
    let graph = line(json!({}), &[("a", json!(5))]);
    let error = failed(graph.run(JsonUpdate::new()).await);
    assert_eq!(
        superstep::error::chain(&error),
        "SS101: superstep 1: node `a` failed after 1 attempt: an update has to be an object with an entry \
         for each written channel, not 5"
    );
}

#[test]
fn all_problems_of_a_description_are_reported_at_once() {
    let error = JsonState::new(&channels(json!({
        "$x": {},
        "clear": {},
        "a": { "reducer": "sum", "default": "none" },
        "b": { "was": ["a"], "untracked": true },
        "c": { "reducer": "barrier" },
        "d": { "names": ["left"] },
    })));
    assert_eq!(
        error.unwrap_err().to_string(),
        "SS180: invalid channels: channel `$x`: `$x` is not a valid channel name; channel `a`: its default: it \
         is a text and cannot be a number; channel `b`: `a` is already the name of a channel, or a \
         duplicate; channel `b`: it is never stored, so options about its stored form have no effect; \
         channel `c`: a barrier requires `names`, and no other channel has them; channel `clear`: `clear` is not \
         a valid channel name; channel `d`: a barrier requires `names`, and no other channel has them"
    );
    let error = serde_json::from_value::<JsonChannels>(json!({ "x": { "reducer": "product" } })).unwrap_err();
    assert!(error.to_string().starts_with("unknown variant `product`"), "{error}");
    let many =
        (0..129).fold(JsonChannels::new(), |channels, n| channels.with(format!("c{n}"), JsonReducer::Sum));
    let error = JsonState::new(&many).unwrap_err();
    assert_eq!(error.problems, ["they are 129, and at most 128 can be"]);
}

#[test]
fn a_description_is_read_as_it_was_written() {
    let description = JsonChannels::new()
        .with("log", JsonReducer::Append)
        .with("x", JsonChannel { required: true, was: vec!["y".into()], ..JsonChannel::default() });
    let json = shown(&description);
    assert_eq!(json["log"], json!({ "reducer": "append" }));
    assert_eq!(json["x"], json!({ "reducer": "last_value", "required": true, "was": ["y"] }));
    assert_eq!(channels(json), description);
}

#[cfg(feature = "json-schema")]
mod schemas {
    use super::*;

    on_every_store! {
        async fn a_write_that_does_not_fit_its_schema_names_node_channel_and_place(backend: Backend) {
            let description = json!({
                "log": { "reducer": "append", "schema": {
                    "type": "array",
                    "items": { "type": "object", "properties": { "text": { "type": "string" } } },
                } },
            });
            let wrong = line(description.clone(), &[("a", json!({ "log": [{ "text": "x" }, { "text": 5 }] }))]);
            let graph = backend.keep(wrong);
            let error = failed(graph.thread("t").run(JsonUpdate::new()).await);
            assert_eq!(
                error.to_string(),
                "SS134: superstep 1: the write of node `a` to channel `log` does not match its schema at \
                 `/1/text`: value is not of type \"string\""
            );
            let tasks: Vec<_> = head(&graph).await.tasks.iter().map(task).collect();
            assert_eq!(tasks, [("a".to_owned(), Value::Null, error.to_string())]);
            let end = backend.keep(line(description, &[("a", json!({ "log": { "text": "y" } }))]));
            let end = end.thread("t").resume().await.unwrap();
            assert_eq!(end.state.to_value(), json!({ "log": [{ "text": "y" }] }));
        }
    }

    #[tokio::test]
    async fn one_schema_describes_the_whole_state() {
        let channels = JsonChannels::from_schema(&json!({
            "type": "object",
            "properties": {
                "messages": { "type": "array", "items": { "$ref": "#/$defs/message" }, "x-reducer": "merge_by_id" },
                "turns": { "type": "integer", "x-reducer": "sum", "default": 1 },
                "user": { "type": "string" },
            },
            "required": ["user"],
            "$defs": { "message": { "type": "object", "required": ["text"] } },
        }))
        .unwrap();
        let mut graph = StateGraph::with_initial("g", JsonState::new(&channels).unwrap());
        let a = graph.add_node("a", async |_: JsonState, _: Cx| json!({ "messages": { "text": "hello" } }));
        graph.add_edge(START, a);
        let graph = graph.compile().unwrap();
        let run = async |json: Value| graph.run(update(json)).await;

        let end = run(json!({ "user": "u", "turns": 2 })).await.unwrap();
        let messages = json!([{ "id": "auto-0", "text": "hello" }]);
        assert_eq!(end.state.to_value(), json!({ "messages": messages, "turns": 3, "user": "u" }));
        let error = failed(run(json!({ "turns": 2 })).await);
        assert!(matches!(&error, RunError::MissingChannel { channel, .. } if channel == "user"), "{error}");
        let error = failed(run(json!({ "user": 5 })).await);
        assert_eq!(
            error.to_string(),
            "SS134: superstep 0: the write of node `__start__` to channel `user` does not match its schema: \
             value is not of type \"string\""
        );
        let removes_too =
            json!({ "user": "u", "messages": [{ "text": "x", "id": "1" }, { "$remove": "1" }] });
        assert!(run(removes_too).await.is_ok(), "a removal is no item");
        let error = failed(run(json!({ "user": "u", "messages": [{ "id": "1" }] })).await);
        assert!(matches!(&error, RunError::UnfitWrite { place, .. } if place == "/0"), "{error}");
    }

    #[test]
    fn an_invalid_schema_is_rejected() {
        let error =
            JsonState::new(&channels(json!({ "x": { "schema": { "type": "colour" } } }))).unwrap_err();
        assert!(
            error.problems[0].starts_with("channel `x`: its schema is not a valid JSON Schema: "),
            "{error}"
        );
    }
}
