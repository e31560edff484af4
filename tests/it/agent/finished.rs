//! Records of an earlier run of a round when its turn is resumed under other conditions.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use superstep::{
    RunOptions,
    agent::{
        AgentOutcome, AgentState, Approval, ReactConfig,
        config::{Budget, PermissionRule, Permit, ToolMode},
        hooks::{Acting, Hooks},
    },
    node::NodeName,
};
use superstep_testing::{
    script::{Answer, Script, calls, txt},
    scripted::ScriptedModel,
};

use super::{Kit, Scenario, resume::another, waiting_approvals::program};
use crate::support::{Backend, head, on_every_store};

const INTERRUPTED: &str = "The tool call has been interrupted by the user.";
const IN_DOUBT: &str = "Error: the outcome of this call is unknown, the process stopped while it ran. Check before repeating it.";
const BUDGET: &str = "Error: budget exhausted, not executed.";

fn scenario() -> Scenario {
    let scenario = Scenario::new([]).tools(&["echo", "send", "deaf"]);
    scenario.config(|config| ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..config })
}

fn limited(budget: Budget) -> Scenario {
    scenario().config(|config| ReactConfig { budget, ..config })
}

/// Returns options whose run is cancelled before it begins.
fn cancelled() -> RunOptions {
    let options = RunOptions::new().thread("t");
    options.get_cancel().cancel();
    options
}

/// Two calls that end and wait, behind each other.
fn two() -> Answer {
    calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "send", r#"{"to":"a"}"#)])
}

fn results(state: &AgentState) -> Vec<&str> {
    state.tool_result_history.iter().map(String::as_str).collect()
}

/// Runs a turn until `c2` waits for approval, and `c1` is finished.
async fn waiting(backend: &Backend, kit: &Kit) {
    let (agent, _) = program(&scenario(), kit, backend, vec![two()]);
    assert_eq!(agent.thread("t").ask("go").await.unwrap().interrupts.len(), 1);
    assert_eq!((kit.n("echo"), kit.n("send")), (1, 0));
}

/// Runs a turn until its process stops in `c2`, with `c1` finished and `c3` not begun.
async fn crashed(backend: &Backend, kit: &Kit) {
    let three = calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "deaf", "{}"), ("c3", "echo", r#"{"x":"3"}"#)]);
    let sequential = scenario().config(|config| ReactConfig { tool_mode: ToolMode::Sequential, ..config });
    let (agent, _) = program(&sequential, kit, backend, vec![three]);
    let begun = async {
        while kit.n("deaf") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = agent.thread("t").ask("go") => panic!("{ended:?}"),
        () = begun => {}
    }
}

on_every_store! {
    async fn a_finished_call_keeps_its_result_if_the_waiting_turn_is_cancelled(backend: Backend) {
        let kit = Kit::default();
        waiting(&backend, &kit).await;
        let (agent, _) = program(&scenario(), &kit, &backend, vec![]);
        let reply = agent.configured(cancelled()).resume().await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::Cancelled);
        let state = head(agent.graph()).await.values;
        assert_eq!(results(&state), ["r:1", INTERRUPTED]);
        assert_eq!(state.tools_used.iter().collect::<Vec<_>>(), ["echo"]);
        assert_eq!((kit.n("echo"), kit.n("send")), (1, 0));
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    }

    async fn a_finished_call_keeps_its_result_under_a_smaller_budget(backend: Backend) {
        let wall = Budget { wall: Some(Duration::ZERO), ..Budget::default() };
        let calls = |n| Budget { tool_calls: Some(n), ..Budget::default() };
        for (budget, sent, wanted) in [(calls(0), 0, BUDGET), (calls(1), 0, BUDGET), (calls(2), 1, "sent"), (wall, 0, BUDGET)] {
            let (kit, backend) = (Kit::default(), another(&backend));
            waiting(&backend, &kit).await;
            let (agent, _) = program(&limited(budget), &kit, &backend, vec![txt("ok")]);
            agent.thread("t").answer("c2", Approval::Approve).resume().await.unwrap();
            assert_eq!(results(&head(agent.graph()).await.values), ["r:1", wanted]);
            assert_eq!((kit.n("echo"), kit.n("send")), (1, sent));
            // The first call of the model had the larger budget.
            let history = agent.graph().thread("t").history().checkpoints().await.unwrap();
            let runs_tools = |next: &[NodeName]| next.iter().any(|node| node.as_str() == "tools");
            let round = history.iter().find(|meta| runs_tools(&meta.control.next)).unwrap().id;
            agent.graph().thread("t").replay().from(round).run().await.unwrap().assert_same();
        }
    }

    async fn nobody_is_asked_about_a_finished_call(backend: Backend) {
        let kit = Kit::default();
        waiting(&backend, &kit).await;
        let asks = vec![PermissionRule::new("*", Permit::Ask)];
        let strict = scenario().config(|config| ReactConfig { permissions: asks, ..config });
        let (agent, _) = program(&strict, &kit, &backend, vec![txt("ok")]);
        let reply = agent.thread("t").answer("c2", Approval::Approve).resume().await.unwrap();
        assert_eq!((reply.interrupts.len(), reply.text.as_str()), (0, "ok"));
        assert_eq!(results(&head(agent.graph()).await.values), ["r:1", "sent"]);
        assert_eq!((kit.n("echo"), kit.n("send")), (1, 1));
    }

    async fn a_call_that_had_begun_is_in_doubt_also_if_the_resumed_turn_is_cancelled(backend: Backend) {
        let kit = Kit::default();
        crashed(&backend, &kit).await;
        let (agent, _) = program(&scenario(), &kit, &backend, vec![]);
        agent.configured(cancelled()).resume().await.unwrap();
        assert_eq!(results(&head(agent.graph()).await.values), ["r:1", IN_DOUBT, INTERRUPTED]);
        assert_eq!((kit.n("echo"), kit.n("deaf")), (1, 1));
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    }

    async fn a_call_that_had_begun_is_in_doubt_also_under_a_smaller_budget(backend: Backend) {
        let kit = Kit::default();
        crashed(&backend, &kit).await;
        let none = limited(Budget { tool_calls: Some(0), ..Budget::default() });
        let (agent, _) = program(&none, &kit, &backend, vec![txt("ok")]);
        agent.thread("t").resume().await.unwrap();
        assert_eq!(results(&head(agent.graph()).await.values), ["r:1", IN_DOUBT, BUDGET]);
        assert_eq!((kit.n("echo"), kit.n("deaf")), (1, 1));
    }

    async fn a_finished_call_stays_that_of_the_tool_into_which_a_hook_changed_it(backend: Backend) {
        let kit = Kit::default();
        let hooked = |answers| {
            let mut hooks = Hooks::default();
            hooks.acting.pre(|mut acting: Acting| async move {
                if acting.tool == "find" {
                    (acting.tool, acting.args) = ("echo".to_owned(), json!({ "x": "1" }));
                }
                Ok(Some(acting))
            });
            let model = Arc::new(ScriptedModel::new(Script::new(answers)));
            let agent = scenario().tools(&["echo", "find", "send"]).agent(model, &kit).hooks(hooks);
            agent.approve_by_interrupt().checkpointer(backend.open()).build().unwrap()
        };
        let two = calls([("c1", "find", r#"{"q":"1"}"#), ("c2", "send", r#"{"to":"a"}"#)]);
        let agent = hooked(vec![two]);
        agent.thread("t").ask("go").await.unwrap();
        drop(agent);
        let agent = hooked(vec![]);
        agent.configured(cancelled()).resume().await.unwrap();
        let state = head(agent.graph()).await.values;
        assert_eq!(results(&state), ["r:1", INTERRUPTED]);
        assert_eq!(state.tools_used.iter().collect::<Vec<_>>(), ["echo"]);
    }
}
