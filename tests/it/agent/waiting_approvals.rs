//! Calls that wait for an external decision, and calls with an unknown result.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use serde_json::json;
use superstep::{
    Answers, Event, RunError, RunOptions, RunStream, State, StreamMode,
    agent::{
        Agent, AgentOutcome, AgentState, Approval, ReactConfig, Reply,
        config::{ApprovalConfig, Budget, PermissionRule, Permit, ToolErrors, ToolMode},
    },
    clock::{Clock, TokioClock},
    llm::Message,
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};

use super::{Kit, Scenario, check, kit::Decide, paused};
use crate::support::{Backend, h, head, on_every_store};

const NOBODY: &str = "Error: Permission denied: nobody is there to approve it";
const IN_DOUBT: &str = "Error: the outcome of this call is unknown, the process stopped while it ran. Check before repeating it.";

/// Starts a program on a store.
pub(super) fn program(
    scenario: &Scenario,
    kit: &Kit,
    backend: &Backend,
    answers: Vec<Answer>,
) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(Script::new(answers));
    let agent = scenario.agent(Arc::new(model.clone()), kit).checkpointer(backend.open());
    (agent.approve_by_interrupt().build().unwrap(), model)
}

fn sending() -> Scenario {
    let scenario = Scenario::new([]).tools(&["echo", "send", "add"]);
    scenario.config(|config| ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..config })
}

fn with_approval(approval: ApprovalConfig) -> Scenario {
    sending().config(|config| ReactConfig { approval, ..config })
}

fn two() -> Answer {
    calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "echo", r#"{"x":"1"}"#)])
}

async fn messages(agent: &Agent) -> Vec<Message> {
    let messages: Vec<_> = head(agent.graph()).await.values.messages.iter().cloned().collect();
    check::calls_are_answered(&messages);
    messages
}

pub(super) async fn result(agent: &Agent, call: &str) -> String {
    let answers = messages(agent).await;
    answers.iter().find(|message| message.tool_call_id == call).unwrap().content.clone()
}

/// Runs up to the question about `c1` and decides it in another process.
async fn after(backend: &Backend, kit: &Kit, approval: Approval) -> (Agent, Reply) {
    let (agent, _) = program(&sending(), kit, backend, vec![two()]);
    let asked = agent.thread("t").ask("go").await.unwrap();
    assert_eq!((asked.outcome, asked.metadata.llm_calls), (AgentOutcome::AwaitingApproval, 1));
    assert_eq!((asked.interrupts[0].key.as_str(), asked.interrupts.len()), ("c1", 1));
    assert_eq!(asked.interrupts[0].question["question"], json!("Send to a?"));
    assert!(asked.interrupts[0].schema.is_some());
    // The call without approval has run, and does not run again.
    assert_eq!((kit.n("send"), kit.n("echo")), (0, 1));
    drop(agent);
    let (agent, model) = program(&sending(), kit, backend, vec![txt("ok")]);
    let thread = agent.thread("t");
    let reply = thread.answer("c1", approval).resume().await.unwrap();
    assert!(!thread.state().await.unwrap().values.messages.is_empty());
    if reply.outcome == AgentOutcome::Completed {
        model.check().unwrap();
        assert_eq!((reply.text.as_str(), kit.n("echo")), ("ok", 1));
        assert_eq!(result(&agent, "c2").await, "r:1");
    }
    (agent, reply)
}

on_every_store! {
    async fn an_approved_call_runs_in_another_process(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = after(&backend, &kit, Approval::Approve).await;
        assert_eq!((kit.n("send"), result(&agent, "c1").await.as_str()), (1, "sent"));
    }

    async fn a_denied_call_does_not_run(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = after(&backend, &kit, Approval::Deny("no mail".into())).await;
        let denied = "Error: Permission denied: no mail";
        assert_eq!((kit.n("send"), result(&agent, "c1").await.as_str()), (0, denied));
    }

    async fn an_answer_in_its_place_is_the_result(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = after(&backend, &kit, Approval::Respond("already sent".into())).await;
        assert_eq!((kit.n("send"), result(&agent, "c1").await.as_str()), (0, "already sent"));
    }

    async fn edited_arguments_are_checked_and_reported(backend: Backend) {
        let kit = Kit::default();
        let (agent, reply) = after(&backend, &kit, Approval::Edit(json!({ "to": 1 }))).await;
        // The question is repeated, with the problem.
        assert_eq!((reply.outcome, reply.interrupts[0].key.as_str()), (AgentOutcome::AwaitingApproval, "c1.2"));
        let problem = reply.interrupts[0].question["problem"].as_str().unwrap();
        assert!(problem.contains("`to`"), "{problem}");
        agent.thread("t").answer("c1.2", Approval::Edit(json!({ "to": "b" }))).resume().await.unwrap();
        let told = "[The user changed the arguments to {\"to\":\"b\"}.]\nsent";
        assert_eq!((kit.n("send"), result(&agent, "c1").await.as_str()), (1, told));
        assert_eq!(messages(&agent).await[1].tool_calls[0].arguments, r#"{"to":"a"}"#);
    }

    /// A model chooses the ids of its calls.
    async fn a_repeated_question_does_not_collide_with_a_call_id(backend: Backend) {
        let kit = Kit::default();
        let both = calls([("c1", "send", r#"{"to":"a"}"#), ("c1.2", "send", r#"{"to":"b"}"#)]);
        let (agent, _) = program(&sending(), &kit, &backend, vec![both, txt("ok")]);
        agent.thread("t").ask("go").await.unwrap();
        let answers = Answers::new().answer("c1", Approval::Edit(json!({ "to": 1 }))).answer("c1.2", Approval::Approve);
        let reply = agent.thread("t").answers(answers).resume().await.unwrap();
        assert_eq!((reply.interrupts.len(), reply.interrupts[0].key.as_str(), kit.n("send")), (1, "c1..2", 0));
        agent.thread("t").answer("c1..2", Approval::Deny("no".into())).resume().await.unwrap();
        assert_eq!(result(&agent, "c1").await, "Error: Permission denied: no");
        assert_eq!((result(&agent, "c1.2").await.as_str(), kit.n("send")), ("sent", 1));
    }

    async fn a_permanently_granted_call_requires_no_approval(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = after(&backend, &kit, Approval::Always).await;
        drop(agent);
        let again = vec![call("c3", "send", r#"{"to":"b"}"#), txt("ok")];
        let (agent, _) = program(&sending(), &kit, &backend, again);
        let reply = agent.thread("t").ask("once more").await.unwrap();
        assert_eq!((reply.outcome, kit.n("send")), (AgentOutcome::Completed, 2));
    }

    async fn an_approval_is_for_the_call_that_was_shown(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = program(&sending(), &kit, &backend, vec![call("c1", "send", r#"{"to":"a"}"#), txt("ok")]);
        let asked = agent.thread("t").ask("go").await.unwrap().interrupts;
        let mut message = head(agent.graph()).await.values.messages.last().unwrap().clone();
        message.to_mut().tool_calls[0].arguments = r#"{"to":"mallory"}"#.into();
        agent.graph().thread("t").update(AgentState::update().messages([message])).await.unwrap();
        let error = agent.thread("t").answer(&asked[0].id, Approval::Approve).resume().await.unwrap_err();
        assert!(matches!(error, RunError::ChangedQuestion(_)), "{error}");
        let shown = error.to_string();
        assert!(shown.contains(r#""to":"a""#) && shown.contains(r#""to":"mallory""#), "{shown}");
        let now = head(agent.graph()).await.tasks[0].interrupts.clone();
        assert_eq!((kit.n("send"), &now[0].question["args"]), (0, &json!({ "to": "mallory" })));
        agent.thread("t").answer(&now[0].id, Approval::Deny("no".into())).resume().await.unwrap();
        assert_eq!(kit.n("send"), 0);
    }

    async fn several_calls_are_decided_in_any_order(backend: Backend) {
        let kit = Kit::default();
        let both = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "send", r#"{"to":"b"}"#)]);
        let (agent, _) = program(&sending(), &kit, &backend, vec![both, txt("ok")]);
        let asked = agent.thread("t").ask("go").await.unwrap();
        assert_eq!(asked.interrupts.len(), 2);
        let half = agent.thread("t").answer("c2", Approval::Approve).resume().await.unwrap();
        assert_eq!((half.interrupts.len(), half.interrupts[0].key.as_str()), (1, "c1"));
        for late in ["c2", "c9"] {
            let error = agent.thread("t").answer(late, Approval::Approve).resume().await.unwrap_err();
            assert!(matches!(error, RunError::UnknownInterrupt { .. }), "{error}");
        }
        agent.thread("t").answer("c1", Approval::Deny("no".into())).resume().await.unwrap();
        assert_eq!((kit.n("send"), result(&agent, "c2").await.as_str()), (1, "sent"));
    }

    async fn several_calls_are_decided_in_one_resume_and_a_wrong_answer_changes_nothing(backend: Backend) {
        let kit = Kit::default();
        let both = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "send", r#"{"to":"b"}"#)]);
        let (agent, _) = program(&sending(), &kit, &backend, vec![both, txt("ok")]);
        agent.thread("t").ask("go").await.unwrap();
        let before = (head(agent.graph()).await.values, h(agent.graph()).await);
        // One answer to an unknown question invalidates the others.
        let wrong = Answers::new().answer("c1", Approval::Approve).answer("c9", Approval::Approve);
        let error = agent.thread("t").answers(wrong).resume().await.unwrap_err();
        assert!(matches!(error, RunError::UnknownInterrupt { .. }), "{error}");
        assert_eq!((head(agent.graph()).await.values, h(agent.graph()).await), before);
        assert_eq!(kit.n("send"), 0);
        let all = Answers::new().answer("c2", Approval::Deny("no".into())).answer("c1", Approval::Approve);
        let reply = agent.thread("t").answers(all).resume().await.unwrap();
        assert_eq!((reply.outcome, kit.n("send")), (AgentOutcome::Completed, 1));
        let again = agent.thread("t").answer("c1", Approval::Approve).resume().await.unwrap_err();
        assert!(matches!(again, RunError::UnknownInterrupt { .. }), "{again}");
    }

    async fn a_round_may_wait_as_a_whole(backend: Backend) {
        let kit = Kit::default();
        let scenario = with_approval(ApprovalConfig { hold_batch: true, ..ApprovalConfig::default() });
        let (agent, _) = program(&scenario, &kit, &backend, vec![two(), txt("ok")]);
        let asked = agent.thread("t").ask("go").await.unwrap();
        assert_eq!((asked.interrupts.len(), kit.n("echo"), kit.n("send")), (1, 0, 0));
        agent.thread("t").answer("c1", Approval::Approve).resume().await.unwrap();
        assert_eq!((kit.n("echo"), kit.n("send")), (1, 1));
        let results: Vec<_> = messages(&agent).await.iter().map(|message| message.tool_call_id.clone()).collect();
        assert_eq!(results[2..4], ["c1", "c2"]);
    }

    async fn a_denial_may_end_the_turn(backend: Backend) {
        let kit = Kit::default();
        let scenario = with_approval(ApprovalConfig { stop_on_deny: true, ..ApprovalConfig::default() });
        let (agent, model) = program(&scenario, &kit, &backend, vec![two()]);
        agent.thread("t").ask("go").await.unwrap();
        let reply = agent.thread("t").answer("c1", Approval::Deny("no mail".into())).resume().await.unwrap();
        assert_eq!((reply.outcome, reply.metadata.stop_reason.as_str()), (AgentOutcome::Denied, "denied"));
        assert_eq!(reply.text, "No answer: a tool call was denied (denied).");
        assert_eq!(model.requests().len(), 1);
        assert_eq!(result(&agent, "c1").await, "Error: Permission denied: no mail");
        assert_eq!((result(&agent, "c2").await.as_str(), kit.n("send")), ("r:1", 0));
        drop(agent);
        // The next turn is a regular turn, and an approved call ends nothing.
        let (agent, _) = program(&scenario, &kit, &backend, vec![call("c3", "send", r#"{"to":"b"}"#), txt("ok")]);
        agent.thread("t").ask("once more").await.unwrap();
        let reply = agent.thread("t").answer("c3", Approval::Approve).resume().await.unwrap();
        assert_eq!((reply.outcome, kit.n("send")), (AgentOutcome::Completed, 1));
    }

    async fn a_permanent_grant_may_be_for_some_calls_only(backend: Backend) {
        let kit = Kit::default();
        let bad = Approval::always_for([("to", "[")]);
        let (agent, reply) = after(&backend, &kit, bad).await;
        // An invalid pattern repeats the question.
        let problem = reply.interrupts[0].question["problem"].as_str().unwrap();
        assert!(problem.contains('['), "{problem}");
        let good = Approval::always_for([("to", "a*")]);
        assert_eq!(serde_json::Value::from(good.clone()), json!({ "always_for": { "to": "a*" } }));
        agent.thread("t").answer("c1.2", good).resume().await.unwrap();
        assert_eq!(kit.n("send"), 1);
        drop(agent);
        let both = calls([("c3", "send", r#"{"to":"ada"}"#), ("c4", "send", r#"{"to":"bob"}"#)]);
        let (agent, _) = program(&sending(), &kit, &backend, vec![both]);
        let asked = agent.thread("t").ask("once more").await.unwrap();
        assert_eq!((asked.interrupts.len(), asked.interrupts[0].key.as_str(), kit.n("send")), (1, "c4", 2));
        let stored = &head(agent.graph()).await.values.permissions;
        assert_eq!(stored.len(), 1);
    }

    async fn a_permanent_grant_does_not_override_a_deny_rule(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = after(&backend, &kit, Approval::Always).await;
        drop(agent);
        let to_b = PermissionRule {
            arguments: [("to".to_owned(), "b*".to_owned())].into(),
            ..PermissionRule::new("send", Permit::Deny)
        };
        let scenario = sending().config(|config| ReactConfig { permissions: vec![to_b], ..config });
        let both = calls([("c3", "send", r#"{"to":"a"}"#), ("c4", "send", r#"{"to":"b"}"#)]);
        let (agent, _) = program(&scenario, &kit, &backend, vec![both, txt("ok")]);
        agent.thread("t").ask("once more").await.unwrap();
        assert_eq!((result(&agent, "c3").await.as_str(), kit.n("send")), ("sent", 2));
        assert_eq!(result(&agent, "c4").await, "Error: Permission denied: a rule forbids it");
    }

    async fn an_event_lists_the_decisions_only_while_they_are_possible(backend: Backend) {
        let kit = Kit::default();
        let both = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "send", r#"{"to":"b"}"#)]);
        let (agent, _) = program(&sending(), &kit, &backend, vec![both, txt("ok")]);
        let requested = async |mut stream: RunStream<_>| {
            let mut requested = Vec::new();
            while let Some(event) = stream.next().await {
                if let Event::Custom { name: "approval_requested", data, .. } = event {
                    requested.push(data);
                }
            }
            stream.outcome().await.unwrap();
            requested
        };
        let first = requested(agent.thread("t").stream(agent.input("go"), StreamMode::Custom)).await;
        let wanted = json!({
            "id": "c1", "tool": "send", "args": { "to": "a" }, "allowed": ["approve", "deny", "edit", "respond"],
        });
        assert_eq!((first.len(), &first[0]), (2, &wanted));
        let half = agent.thread("t").answer("c1", Approval::Approve).resume_point().await.unwrap().resume_stream(StreamMode::Custom);
        let second = requested(half).await;
        assert_eq!((second.len(), &second[0]["id"]), (1, &json!("c2")));
        let rest = agent.thread("t").answer("c2", Approval::Approve).resume_point().await.unwrap().resume_stream(StreamMode::Custom);
        assert!(requested(rest).await.is_empty());
    }

    async fn unusable_arguments_require_no_approval(backend: Backend) {
        let kit = Kit::default();
        let (agent, _) = program(&sending(), &kit, &backend, vec![call("c1", "send", "{}"), txt("ok")]);
        let reply = agent.thread("t").ask("go").await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::Completed);
        assert!(result(&agent, "c1").await.starts_with("Error: invalid args for 'send'"));
    }

    async fn the_last_rule_about_a_call_decides(backend: Backend) {
        let to_b = |then| PermissionRule {
            arguments: [("to".to_owned(), "b*".to_owned())].into(),
            ..PermissionRule::new("se*", then)
        };
        let rules = vec![PermissionRule::new("*", Permit::Allow), to_b(Permit::Deny), PermissionRule::new("echo", Permit::Ask)];
        let scenario = sending().config(|config| ReactConfig { permissions: rules, ..config });
        let round = calls([
            ("c1", "send", r#"{"to":"a"}"#),
            ("c2", "send", r#"{"to":"bob"}"#),
            ("c3", "echo", r#"{"x":"1"}"#),
        ]);
        let kit = Kit::default();
        let (agent, _) = program(&scenario, &kit, &backend, vec![round, txt("ok")]);
        let asked = agent.thread("t").ask("go").await.unwrap();
        assert_eq!(asked.interrupts[0].question["question"], json!(r#"Run echo with {"x":"1"}?"#));
        agent.thread("t").answer("c3", Approval::Approve).resume().await.unwrap();
        assert_eq!((kit.n("send"), kit.n("echo")), (1, 1));
        assert_eq!(result(&agent, "c2").await, "Error: Permission denied: a rule forbids it");
    }

    async fn what_is_approved_when_the_time_is_over_is_not_executed(backend: Backend) {
        let kit = Kit::default();
        let budget = Budget { wall: Some(Duration::from_secs(3600)), reserve_final: true, ..Budget::default() };
        let scenario = sending().config(|config| ReactConfig { budget, ..config });
        let at = |ms| -> Arc<dyn Clock> { Arc::new(TokioClock::starting_at(ms)) };
        let (agent, _) = program(&scenario, &kit, &backend, vec![two(), txt("too late")]);
        agent.thread("t").clock(at(0)).ask("go").await.unwrap();
        let reply = agent.thread("t").answer("c1", Approval::Approve).clock(at(7_200_000)).resume().await.unwrap();
        assert_eq!((reply.text.as_str(), reply.metadata.stop_reason.as_str()), ("too late", "budget_wall"));
        assert_eq!(kit.n("send"), 0);
        assert_eq!(result(&agent, "c1").await, "Error: budget exhausted, not executed.");
    }

    async fn a_call_with_an_unknown_outcome_requires_no_second_approval(backend: Backend) {
        let deny: Decide = |_| Some(Approval::Deny("not again".into()));
        for (thread, then) in [("denied", Some(deny)), ("nobody", None)] {
            let (kit, on) = (Kit::default(), RunOptions::new().thread(thread));
            let asks = vec![PermissionRule::new("deaf", Permit::Ask)];
            let scenario = Scenario::new([]).tools(&["deaf"]);
            let scenario = scenario.config(|config| ReactConfig { permissions: asks, ..config });
            let program = |decide, answers| {
                let model = Arc::new(ScriptedModel::new(Script::new(answers)));
                let scenario = Scenario { decide, ..scenario.clone() };
                scenario.agent(model, &kit).checkpointer(backend.open()).build().unwrap()
            };
            let agent = program(Some(|_| Some(Approval::Approve)), vec![call("c1", "deaf", "{}")]);
            let begun = async {
                while kit.n("deaf") == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                ended = agent.configured(on.clone()).ask("go") => panic!("{ended:?}"),
                () = begun => {}
            }
            drop(agent);

            let agent = program(then, vec![txt("ok")]);
            agent.configured(on).resume().await.unwrap();
            let state = agent.graph().thread(thread).state().await.unwrap().values;
            assert_eq!((kit.asked().len(), kit.n("deaf")), (1, 1), "{thread}");
            assert_eq!(state.tool_result_history.iter().collect::<Vec<_>>(), [IN_DOUBT], "{thread}");
        }
    }

    async fn a_crash_inside_a_batch_repeats_nothing_that_must_not_be(backend: Backend) {
        for (stuck, ran, wanted) in
            [("deaf", 1, IN_DOUBT), ("again", 2, "done at last"), ("known", 1, "it was done")]
        {
            let kit = Kit::default();
            let rules = vec![PermissionRule::new("*", Permit::Allow)];
            let scenario = Scenario::new([]).tools(&["send", "add", stuck]);
            let scenario = scenario.config(|config| ReactConfig { permissions: rules, ..config });
            let batch =
                calls([("c0", "send", r#"{"to":"a"}"#), ("c1", stuck, "{}"), ("c2", "add", r#"{"a":1,"b":2}"#)]);
            let (agent, _) = program(&scenario, &kit, &backend, vec![batch]);
            let begun = async {
                while kit.n(stuck) == 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                ended = agent.thread(stuck).ask("go") => panic!("{ended:?}"),
                () = begun => {}
            }
            assert_eq!((kit.n("send"), kit.n(stuck), kit.n("add")), (1, 1, 0));
            drop(agent);

            let (agent, _) = program(&scenario, &kit, &backend, vec![txt("ok")]);
            agent.thread(stuck).resume().await.unwrap();
            assert_eq!((kit.n("send"), kit.n(stuck), kit.n("add")), (1, ran, 1), "{stuck}");
            let state = agent.graph().thread(stuck).state().await.unwrap().values;
            let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
            assert_eq!(results, ["sent", wanted, "3"]);
            let keys = kit.keys();
            assert!(ran == 1 || keys[1] == keys[2], "{keys:?}");
            assert_ne!(keys[0], keys[1]);
        }
    }
}

#[test]
fn nobody_is_asked_about_a_call_that_cannot_run_any_more() {
    let failed = "No answer: a tool failed (tool_error): Error executing 'fails': no luck";
    for (first, skipped, ended) in [
        (("c1", "fails", "{}"), "Error: a tool failed before, not executed.", failed),
        (("c1", "slow", r#"{"x":"a"}"#), "Error: budget exhausted, not executed.", "ok"),
    ] {
        for (tool_mode, first_comes_first) in
            [(ToolMode::Sequential, true), (ToolMode::Parallel { max: 8 }, false)]
        {
            paused(async {
                let kit = Kit::default();
                let budget = Budget { wall: Some(Duration::from_millis(100)), ..Budget::default() };
                let scenario = Scenario::new([]).tools(&["fails", "slow", "send"]).config(|config| {
                    ReactConfig { tool_errors: ToolErrors::Fail, tool_mode, budget, ..config }
                });
                let send = ("c2", "send", r#"{"to":"a"}"#);
                let round = calls(if first_comes_first { [first, send] } else { [send, first] });
                let (agent, _) = program(&scenario, &kit, &Backend::memory(), vec![round, txt("ok")]);
                let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(0));
                let reply = agent.thread("t").clock(clock).ask("go").await.unwrap();
                assert_eq!((reply.interrupts.len(), kit.n("send")), (0, 0));
                assert_eq!(result(&agent, "c2").await, skipped);
                assert_eq!(reply.text, ended);
            });
        }
    }
}

#[test]
fn a_call_that_had_begun_is_in_doubt_also_beside_one_that_failed() {
    paused(async {
        let (kit, backend) = (Kit::default(), Backend::memory());
        let scenario = sending().tools(&["fails", "deaf"]);
        let scenario = scenario.config(|config| ReactConfig { tool_errors: ToolErrors::Fail, ..config });
        let round = calls([("c1", "fails", "{}"), ("c2", "deaf", "{}")]);
        let (agent, _) = program(&scenario, &kit, &backend, vec![round]);
        tokio::time::timeout(Duration::from_secs(1), agent.thread("t").ask("go")).await.unwrap_err();
        drop(agent);
        let (agent, _) = program(&scenario, &kit, &backend, Vec::new());
        agent.thread("t").resume().await.unwrap();
        assert_eq!((result(&agent, "c2").await.as_str(), kit.n("deaf")), (IN_DOUBT, 1));
    });
}

#[test]
fn without_an_approver_calls_that_need_approval_are_denied() {
    let ran = Scenario::new([call("c1", "send", r#"{"to":"a"}"#), txt("ok")]).tools(&["send"]).play();
    assert_eq!(ran.result("c1"), NOBODY);
}

#[test]
fn an_invalid_pattern_is_rejected_when_the_agent_is_built() {
    let model = Arc::new(ScriptedModel::new(Script::new([])));
    let config =
        ReactConfig { permissions: vec![PermissionRule::new("[", Permit::Allow)], ..ReactConfig::default() };
    let refused = Agent::builder(model).config(config).build().err().unwrap();
    assert!(refused.to_string().starts_with("invalid pattern in permission rule for `[`:"), "{refused}");
}
