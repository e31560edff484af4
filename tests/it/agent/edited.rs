//! Calls whose arguments a person edits: an approved call runs whole, and a call denied by a rule does not
//! run.

use std::future::ready;

use serde_json::{Value, json};
use superstep::agent::{
    AgentOutcome, Approval, ReactConfig, Reply,
    config::{ApprovalConfig, PermissionRule, Permit, ToolMode},
    hooks::{Acting, Hooks},
};
use superstep_testing::script::{Answer, call, calls, txt};

use super::{
    Kit, Scenario,
    waiting_approvals::{program, result},
};
use crate::support::{Backend, on_every_store};

const FORBIDDEN: &str = r#"the rule `deny echo, x = "b*"` forbids a call with these arguments"#;

/// Creates an agent that asks about `echo`, and must not run arguments that begin with `b`.
fn asking() -> Scenario {
    let no_b = PermissionRule {
        arguments: [("x".to_owned(), "b*".to_owned())].into(),
        ..PermissionRule::new("echo", Permit::Deny)
    };
    let permissions = vec![PermissionRule::new("echo", Permit::Ask), no_b];
    Scenario::new([]).tools(&["echo", "send", "solo"]).config(|config| ReactConfig { permissions, ..config })
}

fn echo() -> Answer {
    call("c1", "echo", r#"{"x":"a"}"#)
}

fn edit(x: &str) -> Approval {
    Approval::Edit(json!({ "x": x }))
}

/// Returns the waiting call, and the problem of the previous answer.
fn waits(reply: &Reply) -> (&str, &Value) {
    assert_eq!((reply.outcome, reply.interrupts.len()), (AgentOutcome::AwaitingApproval, 1));
    (&reply.interrupts[0].key, &reply.interrupts[0].question["problem"])
}

on_every_store! {
    async fn an_edit_that_a_rule_denies_is_asked_for_again(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = program(&asking(), &kit, &backend, vec![echo(), txt("ok")]);
        agent.thread("t").ask("go").await.unwrap();
        let again = agent.thread("t").answer("c1", edit("bob")).resume().await.unwrap();
        assert_eq!(waits(&again), ("c1.2", &json!(FORBIDDEN)));
        assert_eq!(kit.n("echo"), 0);
        let reply = agent.thread("t").answer("c1.2", edit("c")).resume().await.unwrap();
        assert_eq!((reply.outcome, kit.n("echo")), (AgentOutcome::Completed, 1));
        assert_eq!(result(&agent, "c1").await, "[The user changed the arguments to {\"x\":\"c\"}.]\nr:c");
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    }

    async fn an_edit_in_vain_does_not_let_the_models_own_arguments_run(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = program(&asking(), &kit, &backend, vec![echo()]);
        agent.thread("t").ask("go").await.unwrap();
        agent.thread("t").answer("c1", edit("bob")).resume().await.unwrap();
        drop(agent);
        let (_, model) = program(&asking(), &kit, &backend, vec![txt("ok")]);
        let agent = asking().agent(std::sync::Arc::new(model), &kit).checkpointer(backend.open());
        let agent = agent.approve_all().build().unwrap();
        agent.thread("t").resume().await.unwrap();
        let denied = format!(
            "Error: Permission denied: the user changed the arguments to ones that cannot be used: {FORBIDDEN}"
        );
        assert_eq!((kit.n("echo"), result(&agent, "c1").await), (0, denied));
        // Approvals need not be the same in a replay.
        let (agent, _) = program(&asking(), &kit, &backend, vec![]);
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    }

    async fn a_decision_that_was_none_and_an_approval_of_everything_are_replayed(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = program(&asking(), &kit, &backend, vec![echo()]);
        agent.thread("t").ask("go").await.unwrap();
        let again = agent.thread("t").answer("c1", Approval::Cancel).resume().await.unwrap();
        assert_eq!(waits(&again).0, "c1.2");
        drop(agent);
        let (_, model) = program(&asking(), &kit, &backend, vec![txt("ok")]);
        let agent = asking().agent(std::sync::Arc::new(model), &kit).checkpointer(backend.open());
        agent.approve_all().build().unwrap().thread("t").resume().await.unwrap();
        assert_eq!(kit.n("echo"), 1);
        let (agent, _) = program(&asking(), &kit, &backend, vec![]);
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    }

    async fn an_edit_holds_whatever_rule_was_added_since(backend: Backend) {
        let kit = Kit::default();
        let two = calls([("c1", "echo", r#"{"x":"a"}"#), ("c2", "send", r#"{"to":"a"}"#)]);
        let (agent, _) = program(&asking(), &kit, &backend, vec![two]);
        agent.thread("t").ask("go").await.unwrap();
        agent.thread("t").answer("c1", edit("c")).resume().await.unwrap();
        drop(agent);
        let allowing = |config| ReactConfig { permissions: vec![PermissionRule::new("*", Permit::Allow)], ..config };
        let (agent, _) = program(&asking().config(allowing), &kit, &backend, vec![txt("ok")]);
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((reply.outcome, kit.n("echo"), kit.n("send")), (AgentOutcome::Completed, 1, 1));
        assert_eq!(result(&agent, "c1").await, "[The user changed the arguments to {\"x\":\"c\"}.]\nr:c");
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    }

    async fn an_edit_is_about_one_call(backend: Backend) {
        let kit = Kit::default();
        let two = calls([("c1", "echo", r#"{"x":"a"}"#), ("c2", "echo", r#"{"x":"a"}"#)]);
        let script = vec![two, call("c3", "echo", r#"{"x":"c"}"#), call("c4", "echo", r#"{"x":"d"}"#), txt("ok")];
        let (agent, _) = program(&asking(), &kit, &backend, script);
        let asked = agent.thread("t").ask("go").await.unwrap();
        assert_eq!(asked.interrupts.len(), 2);
        let half = agent.thread("t").answer("c1", edit("c")).resume().await.unwrap();
        assert_eq!(waits(&half), ("c2", &Value::Null));
        // What was typed for one call permits nothing else, not even the same.
        let later = agent.thread("t").answer("c2", Approval::Approve).resume().await.unwrap();
        assert_eq!(waits(&later), ("c3", &Value::Null));
        // A permanent permission is the one shown by the question.
        let always = Approval::always_for([("x", "c")]);
        let other = agent.thread("t").answer("c3", always).resume().await.unwrap();
        assert_eq!((waits(&other), kit.n("echo")), (("c4", &Value::Null), 3));
        let again = agent.thread("t").answer("c4", edit("bob")).resume().await.unwrap();
        assert_eq!(waits(&again), ("c4.2", &json!(FORBIDDEN)));
        agent.thread("t").answer("c4.2", Approval::Deny("no".into())).resume().await.unwrap();
        assert_eq!((result(&agent, "c2").await.as_str(), kit.n("echo")), ("r:a", 3));
    }
}

#[tokio::test(start_paused = true)]
async fn an_edited_call_retains_its_position() {
    for (mode, behind) in [(ToolMode::Sequential, "send"), (ToolMode::Parallel { max: 8 }, "solo")] {
        let (kit, backend) = (Kit::default(), Backend::memory());
        let args = if behind == "send" { r#"{"to":"a"}"# } else { r#"{"x":"c"}"# };
        let scenario = asking().config(|config| {
            let mut permissions = config.permissions.clone();
            permissions.push(PermissionRule::new("send", Permit::Allow));
            ReactConfig { permissions, tool_mode: mode, ..config }
        });
        let round = calls([("c1", "echo", r#"{"x":"a"}"#), ("c2", behind, args)]);
        let (agent, _) = program(&scenario, &kit, &backend, vec![round, txt("ok")]);
        agent.thread("t").ask("go").await.unwrap();
        assert_eq!((kit.n("echo"), kit.n(behind)), (0, 0), "{behind}");
        agent.thread("t").answer("c1", edit("c")).resume().await.unwrap();
        let order: Vec<_> = kit.effects().into_iter().map(|(tool, _)| tool).collect();
        assert_eq!(order, ["echo", behind]);
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_receive_edited_calls() {
    // They deny `d`, and turn other calls into `X`.
    let hooks = |kit: &Kit| {
        let (mut hooks, kit) = (Hooks::default(), kit.clone());
        hooks.acting.pre(|mut acting: Acting| {
            if acting.args["x"] == "d" {
                acting.denied = Some("no d".to_owned());
            } else {
                acting.args = json!({ "x": "X" });
            }
            ready(Ok(Some(acting)))
        });
        hooks.acting.post(move |acting: Acting, _| {
            kit.note(acting.args.to_string());
            ready(Ok(None))
        });
        hooks
    };
    for (decision, ran, seen, times) in [
        (Approval::Approve, "r:X", r#"{"x":"X"}"#, 1),
        (edit("c"), "[The user changed the arguments to {\"x\":\"c\"}.]\nr:c", r#"{"x":"c"}"#, 1),
        (edit("d"), "Error: Permission denied: no d", r#"{"x":"d"}"#, 0),
    ] {
        let (kit, backend, scenario) = (Kit::default(), Backend::memory(), Scenario { hooks, ..asking() });
        let (agent, _) = program(&scenario, &kit, &backend, vec![echo(), txt("ok")]);
        let asked = agent.thread("t").ask("go").await.unwrap();
        assert_eq!(asked.interrupts[0].question["args"], json!({ "x": "X" }));
        agent.thread("t").answer("c1", decision).resume().await.unwrap();
        assert_eq!((result(&agent, "c1").await.as_str(), kit.notes()), (ran, vec![seen.to_owned()]));
        assert_eq!(kit.n("echo"), times);
        agent.graph().thread("t").replay().run().await.unwrap().assert_same();
    }
}

#[test]
fn an_edit_by_an_approver_is_checked_against_the_rules() {
    let scenario = Scenario { decide: Some(|_| Some(edit("bob"))), ..asking() };
    let script = superstep_testing::script::Script::new([echo(), txt("ok")]);
    let ran = Scenario { script, ..scenario }.play();
    assert_eq!(
        (ran.kit.n("echo"), ran.result("c1")),
        (0, &*format!("Error: Permission denied: {FORBIDDEN}"))
    );
}

#[test]
fn the_event_of_a_call_that_was_edited_before_has_its_own_arguments() {
    let hold = ApprovalConfig { hold_batch: true, ..ApprovalConfig::default() };
    let scenario = Scenario { decide: Some(|_| Some(edit("alice"))), ..asking() };
    let script = superstep_testing::script::Script::new([echo(), txt("ok")]);
    let scenario = Scenario { script, ..scenario };
    for approval in [hold, ApprovalConfig::default()] {
        let ran = scenario.clone().config(|config| ReactConfig { approval, ..config }).play();
        assert!(ran.events().contains(r#"tool_start{echo,{"x":"alice"},c1}"#), "{}", ran.events());
    }
}
