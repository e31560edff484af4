//! Views of a state as input, as output, and as a node's argument.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superstep::{Cx, Input, Log, START, State, StateGraph, View};

use crate::support::{head, json as shown, on_every_store};

#[derive(State, Clone, Debug, Default)]
struct Chat {
    q: String,
    a: String,
    private: i64,
    #[channel(append)]
    log: Log<String>,
}

#[derive(Input, View, Serialize, Deserialize)]
#[input(of = Chat)]
#[view(of = Chat)]
struct Ask {
    q: String,
}

#[derive(View, Serialize)]
#[view(of = Chat)]
struct Reply {
    a: String,
}

on_every_store! {
    async fn callers_and_nodes_see_the_part_of_the_state_that_is_theirs(backend: Backend) {
        let mut graph = StateGraph::<Chat>::new("g");
        let node = graph.add_view_node("node", async |ask: Ask, _: Cx| {
            let keys = shown(&ask).as_object().map_or(0, |keys| keys.len());
            Chat::update().a(format!("{}!", ask.q)).private(keys as i64)
        });
        graph.add_edge(START, node);
        let graph = backend.keep(graph.compile().unwrap());

        let input = json!({ "q": "hi", "a": "IGNORED", "private": 99 });
        let ask: Ask = serde_json::from_value(input).unwrap();
        let end = graph.thread("t").run(ask).await.unwrap().view::<Reply>();
        assert_eq!(shown(&end.state), json!({ "a": "hi!" }));
        let whole = head(&graph).await.values;
        assert_eq!((whole.a.as_str(), whole.private), ("hi!", 1));
    }
}

#[derive(View)]
#[view(of = Chat)]
struct Lines {
    log: Log<String>,
}

#[derive(Input)]
#[input(of = Chat)]
struct Line {
    log: Vec<String>,
}

#[tokio::test]
async fn an_input_has_writes_and_a_view_has_values() {
    let mut graph = StateGraph::<Chat>::new("g");
    let node = graph.add_view_node("node", async |lines: Lines, _: Cx| {
        Chat::update().log([format!("{} before", lines.log.len())])
    });
    graph.add_edge(START, node);
    let graph = graph.compile().unwrap();
    let end = graph.run(Line { log: vec!["in".into()] }).await.unwrap();
    let lines: Lines = end.view().state;
    assert_eq!(lines.log, ["in", "1 before"].map(str::to_owned));
    assert_eq!(shown(&superstep::JsonState::default()), Value::Object(Default::default()));
}
