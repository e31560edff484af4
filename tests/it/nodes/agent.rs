//! The nodes of an agent's graph.

use super::*;
use superstep::{
    agent::{
        Agent, AgentState, Approval, ReactConfig,
        config::{PermissionRule, Permit},
    },
    llm::{Message, tool},
    state::reduce,
};
use superstep_testing::{
    assert_transition, chain, node, route,
    script::{Script, call, txt},
    scripted::ScriptedModel,
};

/// Adds two numbers.
#[tool]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Returns an agent with this script, and its model.
fn agent(script: Script, config: ReactConfig) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(script);
    let agent = Agent::builder(Arc::new(model.clone())).tools([add()]).config(config);
    (agent.approve_by_interrupt().build().unwrap(), model)
}

/// Returns the state before the node `agent`.
async fn asked(agent: &Agent, text: &str) -> AgentState {
    let state = reduce(&AgentState::default(), [agent.input(text)]).unwrap();
    let begun = chain(agent.graph(), "init_state").until("agent").state(state).run().await.unwrap();
    begun.last().unwrap().after.clone()
}

#[tokio::test(start_paused = true)]
async fn the_node_agent_calls_a_scripted_model() {
    let script = Script::new([call("c1", "add", r#"{"a":2,"b":3}"#)]);
    let (agent, model) = agent(script, ReactConfig::graph(5));
    let state = asked(&agent, "2 + 3?").await;
    assert_transition!(agent.graph(), "agent", state, @r#"
    node `agent` in superstep 1
    update
      messages [
        {
          "content": "",
          "id": "1.0.message",
          "role": "assistant",
          "tool_calls": [
            {
              "arguments": "{\"a\":2,\"b\":3}",
              "id": "c1",
              "name": "add"
            }
          ]
        }
      ]
      llm_calls 1
      model_requests 1
      usage {"input_tokens":56,"output_tokens":18}
      answer {"estimated":true}
      request_size {"message":"auto-0","tokens":56}
      frame {
        "model": "scripted",
        "tools": [
          {
            "description": "Adds two numbers.",
            "name": "add",
            "parameters": {
              "properties": {
                "a": {
                  "format": "int64",
                  "type": "integer"
                },
                "b": {
                  "format": "int64",
                  "type": "integer"
                }
              },
              "required": [
                "a",
                "b"
              ],
              "type": "object"
            }
          }
        ]
      }
    state
      messages + {"content":"","id":"1.0.message","role":"assistant","tool_calls":[{"arguments":"{\"a\":2,\"b\":3}","id":"c1","name":"add"}]}
      llm_calls 0 → 1
      model_requests 0 → 1
      usage.input_tokens 0 → 56
      usage.output_tokens 0 → 18
      answer.estimated + true
      request_size.message + "auto-0"
      request_size.tokens + 56
      frame.model "" → "scripted"
      frame.tools + [{"description":"Adds two numbers.","name":"add","parameters":{"properties":{"a":{"format":"int64","type":"integer"},"b":{"format":"int64","type":"integer"}},"required":["a","b"],"type":"object"}}]
    next
      tools
    events
      node_start {"node":"agent"}
      piece of 1.0.message {"content":"","role":"assistant","tool_calls":[{"arguments":"","id":"c1","index":0,"name":"add"}]}
      piece of 1.0.message {"content":"","role":"assistant","tool_calls":[{"arguments":"{\"a\":2,\"b\":3}","index":0}]}
      node_end {"node":"agent"}
    effects
      model {
        "end": {
          "answered": {
            "calls": 1,
            "finish": "tool_calls",
            "message": {
              "content": "",
              "role": "assistant",
              "tool_calls": [
                {
                  "arguments": "{\"a\":2,\"b\":3}",
                  "id": "c1",
                  "name": "add"
                }
              ]
            }
          }
        },
        "requests": 1,
        "usage": {
          "input_tokens": 0,
          "output_tokens": 0
        }
      }
    "#);
    model.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_node_agent_takes_a_given_response() {
    let recording = agent(Script::new([txt("five")]), ReactConfig::graph(5)).0;
    let state = asked(&recording, "2 + 3?").await;
    let live = node(recording.graph(), "agent").state(state.clone()).run().await.unwrap();
    let (again, model) = agent(Script::default(), ReactConfig::graph(5));
    let given = node(again.graph(), "agent").state(state).effect("model", &live.effects["model"]);
    let given = given.run().await.unwrap();
    assert_eq!((given.update_json(), model.requests().len()), (live.update_json(), 0));
    assert_eq!(route(again.graph(), "agent", &given.after).unwrap(), given.route());
}

#[tokio::test(start_paused = true)]
async fn the_node_tools_executes_a_call() {
    let (agent, _) = agent(Script::default(), ReactConfig::graph(5));
    let state = asked(&agent, "2 + 3?").await;
    let called = Message::assistant("").with(|message| {
        message.tool_calls = vec![superstep::llm::ToolCall::new("c1", "add", r#"{"a":2,"b":3}"#)];
    });
    let state = reduce(&state, [AgentState::update().messages([called])]).unwrap();
    assert_transition!(agent.graph(), "tools", state, @r#"
    node `tools` in superstep 1
    update
      messages [{"content":"5","id":"1.0.0","role":"tool","tool_call_id":"c1"}]
      current_step 1
      tool_call_history [{"args":{"a":2,"b":3},"name":"add"}]
      tool_result_history ["5"]
      tools_used ["add"]
    state
      messages + {"content":"5","id":"1.0.0","role":"tool","tool_call_id":"c1"}
      current_step 0 → 1
      tool_call_history + {"args":{"a":2,"b":3},"name":"add"}
      tool_result_history + "5"
      tools_used + "add"
    next
      agent
    events
      tool_start {"args":{"a":2,"b":3},"id":"c1","tool":"add"}
      tool_end {"id":"c1","result":"5","status":"completed","tool":"add"}
      message 1.0.0 {"content":"5","id":"1.0.0","role":"tool","tool_call_id":"c1"}
    effects
      call.0 {"executed":true,"result":"5","returned":true}
    "#);
}

#[tokio::test(start_paused = true)]
async fn the_node_tools_asks_for_an_approval() {
    let rule = PermissionRule::new("add", Permit::Ask);
    let config = ReactConfig { permissions: vec![rule], ..ReactConfig::graph(5) };
    let script = Script::new([call("c1", "add", r#"{"a":2,"b":3}"#)]);
    let (agent, _) = agent(script, config);
    let state = asked(&agent, "2 + 3?").await;
    let test = chain(agent.graph(), "agent").state(state);
    let waiting = test.run().await.unwrap();
    let [question] = &waiting.last().unwrap().questions[..] else { panic!("{waiting}") };
    insta::assert_snapshot!(question.question, @r#"{"args":{"a":2,"b":3},"call_id":"c1","question":"Run add with {\"a\":2,\"b\":3}?","tool":"add"}"#);
    let test = node(agent.graph(), "tools").state(waiting.last().unwrap().before.clone());
    let denied = test.answer(&question.key, Approval::Deny("no sums".to_owned())).run().await.unwrap();
    insta::assert_snapshot!(denied.diff(), @r#"
    messages + {"content":"Error: Permission denied: no sums","failed":true,"id":"1.0.0","role":"tool","tool_call_id":"c1"}
    current_step 0 → 1
    tool_call_history + {"args":{"a":2,"b":3},"name":"add"}
    tool_result_history + "Error: Permission denied: no sums"
    "#);
}
