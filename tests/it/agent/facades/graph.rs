//! The facade `graph`, which is the agent itself.

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{Event, StreamMode, agent::ReactConfig};
use superstep_testing::script::txt;

use super::{Asked, both, echo};

#[test]
fn a_result_has_a_reply_and_metadata() {
    let (made, _) = both(&[echo(1), txt("done")], async |asked: Asked| {
        let agent = asked.agent.config(ReactConfig::graph(5)).build().unwrap();
        let reply = agent.ask("go").await.unwrap();
        serde_json::to_value(&reply).unwrap()
    });
    assert_eq!(
        made,
        json!({
            "final_reply": "done",
            "metadata": {"steps_taken": 1, "tools_used": ["echo"], "stop_reason": "", "llm_calls": 2},
            "outcome": "completed",
            "usage": made["usage"],
        })
    );
    // The provider reports no usage, so it is estimated.
    assert!(made["usage"]["input_tokens"].as_u64() > Some(0), "{made}");
}

#[test]
fn a_stream_has_the_base_events_in_their_order() {
    let (made, _) = both(&[echo(1), txt("done")], async |asked: Asked| {
        let agent = asked.agent.config(ReactConfig::graph(5)).build().unwrap();
        let mut stream = agent.without_thread().stream(agent.input("go"), [StreamMode::Custom]);
        let mut events: Vec<Value> = Vec::new();
        while let Some(event) = stream.next().await {
            if let Event::Custom { name, data, .. } = event {
                events.push(json!([name, data]));
            }
        }
        events
    });
    assert_eq!(
        Value::from(made),
        json!([
            ["node_start", {"node": "agent"}],
            ["node_end", {"node": "agent"}],
            ["tool_start", {"tool": "echo", "args": {"x": "1"}, "id": "c1"}],
            ["tool_end", {"tool": "echo", "id": "c1", "result": "r:1", "status": "completed"}],
            ["node_start", {"node": "agent"}],
            ["llm_token", {"token": "done", "reasoning_token": ""}],
            ["node_end", {"node": "agent"}],
        ])
    );
}
