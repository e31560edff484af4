//! The context of a run.

use serde::{Deserialize, Serialize};
use serde_json::json;
use superstep::{
    CompiledGraph, Cx, NodeError, NodeOptions, RetryPolicy, RunError, RunOptions, START, State, StateGraph,
};

use crate::support::{Plain, failed, on_every_store, say, t, text};

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
    #[serde(default)]
    age: u8,
}

/// Builds a node that says the name of the user, read from the context as `T`.
fn greet<T: for<'de> Deserialize<'de> + 'static>(show: fn(T) -> String) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", move |_: Plain, cx: Cx| async move {
        Ok::<_, NodeError>(say(&show(cx.context::<T>()?)))
    });
    graph.configure(a, NodeOptions::new().retry(RetryPolicy::default()));
    graph.add_edge(START, a);
    graph.compile().unwrap()
}

async fn log_with(graph: &CompiledGraph<Plain>, config: RunOptions) -> String {
    graph.configured(config).run(Plain::update()).await.unwrap().state.log_text()
}

#[tokio::test]
async fn a_context_is_given_as_a_value_or_as_a_map_and_null_if_it_is_missing() {
    let graph = greet(|user: Option<User>| {
        user.map_or("nobody".to_owned(), |user| format!("{} is {}", user.name, user.age))
    });
    let ada = User { name: "Ada".to_owned(), age: 36 };
    assert_eq!(log_with(&graph, RunOptions::new().context(ada)).await, "Ada is 36");
    let map = json!({ "name": "Bo", "more": "is ignored" });
    assert_eq!(log_with(&graph, RunOptions::new().context(map)).await, "Bo is 0");
    assert_eq!(log_with(&graph, RunOptions::new()).await, "nobody");

    let raw = greet(|context: serde_json::Value| context.to_string());
    assert_eq!(log_with(&raw, RunOptions::new()).await, "null");
}

#[tokio::test]
async fn a_context_that_does_not_fit_is_an_error_that_no_attempt_mends() {
    let graph = greet(|user: User| user.name);
    let wrong = RunOptions::new().context(json!({ "name": 7 }));
    for (config, cause) in [
        (RunOptions::new(), "invalid type: null, expected struct User"),
        (wrong, "invalid type: integer `7`, expected a string"),
    ] {
        let error = failed(graph.configured(config).run(Plain::update()).await);
        assert!(matches!(&error, RunError::Node { attempts: 1, .. }), "{error}");
        assert_eq!(
            text(&error),
            format!(
                "SS101: superstep 1: node `a` failed after 1 attempt\n  cause: SS166: the context of this \
                 run cannot be read as `it::engine::context::User`; pass another with `Thread::context`\n  \
                 cause: {cause}"
            )
        );
    }
}

on_every_store! {
    async fn a_context_belongs_to_its_run_and_is_not_stored(backend: Backend) {
        let graph = backend.keep(greet(|user: Option<User>| user.map_or("nobody".to_owned(), |user| user.name)));
        let cancelled = t().context(json!({ "name": "Ada" }));
        cancelled.get_cancel().cancel();
        graph.configured(cancelled).run(Plain::update()).await.unwrap();
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "nobody");
    }
}
