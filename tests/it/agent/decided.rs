//! The fate of a call that waited for a decision.

use std::sync::Arc;

use serde_json::json;
use superstep::{
    Answers, MemoryCheckpointer,
    agent::{
        Agent, AgentOutcome, Approval, ReactConfig, Reply,
        config::{ApprovalConfig, ToolMode},
    },
    llm::Message,
};
use superstep_testing::script::{Answer, call, calls, txt};

use super::{
    check,
    facades::{Asked, both},
    preset,
};
use crate::support::head;

const ASKS: (&str, &str, &str) = ("c1", "send", r#"{"to":"a"}"#);
const ASKS_NOT: (&str, &str, &str) = ("c2", "echo", r#"{"x":"1"}"#);

/// A thread, and the calls executed on it.
struct Thread {
    agent: Agent,
    kit: super::Kit,
}

impl Thread {
    fn new(asked: Asked, approval: ApprovalConfig) -> Self {
        // With sequential calls, the neighbour would wait as well.
        let config = ReactConfig { approval, tool_mode: ToolMode::Parallel { max: 8 }, ..preset() };
        let agent = asked.agent.config(config).checkpointer(Arc::new(MemoryCheckpointer::new()));
        Self { agent: agent.approve_by_interrupt().build().unwrap(), kit: asked.kit }
    }

    async fn says(&self, text: &str) -> Reply {
        self.agent.thread("t").ask(text).await.unwrap()
    }

    async fn decide(&self, call: &str, decision: Approval) -> Reply {
        let answers = Answers::new().answer(call, decision);
        self.agent.thread("t").answers(answers).resume().await.unwrap()
    }

    /// Returns the number of runs of `send` and `echo`.
    fn ran(&self) -> (usize, usize) {
        (self.kit.n("send"), self.kit.n("echo"))
    }

    async fn messages(&self) -> Vec<Message> {
        let messages: Vec<_> = head(self.agent.graph()).await.values.messages.iter().cloned().collect();
        check::calls_are_answered(&messages);
        messages
    }

    /// Returns the result of each call, and the model's arguments.
    async fn results(&self) -> Vec<String> {
        let messages = self.messages().await;
        messages
            .into_iter()
            .filter(|said| !said.tool_call_id.is_empty())
            .map(|said| said.into_data().content)
            .collect()
    }
}

/// Runs a round with one waiting call and this decision; returns the end of the turn, the executed calls, and
/// all results.
fn after(decision: &Approval, answers: &[Answer]) -> (AgentOutcome, (usize, usize), Vec<String>) {
    let script = [&[calls([ASKS, ASKS_NOT])], answers].concat();
    let (made, sent) = both(&script, async |asked: Asked| {
        let thread = Thread::new(asked, ApprovalConfig::default());
        let waits = thread.says("go").await;
        assert_eq!(waits.outcome, AgentOutcome::AwaitingApproval);
        assert_eq!((waits.interrupts.len(), waits.interrupts[0].key.as_str()), (1, "c1"));
        assert_eq!(thread.ran(), (0, 1), "what needs nobody has run");
        let reply = thread.decide("c1", decision.clone()).await;
        let said = &thread.messages().await[1].tool_calls[0];
        assert_eq!(said.arguments, ASKS.2, "the words of the model stay");
        (reply.outcome, thread.ran(), thread.results().await)
    });
    assert_eq!(sent.requests, script.len());
    made
}

#[test]
fn a_decision_determines_the_result_and_finished_neighbours_do_not_run_again() {
    let completed = AgentOutcome::Completed;
    for (decision, sends, result) in [
        (Approval::Approve, 1, "sent"),
        (Approval::Deny("no mail".into()), 0, "Error: Permission denied: no mail"),
        (Approval::Edit(json!({"to": "b"})), 1, "[The user changed the arguments to {\"to\":\"b\"}.]\nsent"),
        (Approval::Respond("already sent".into()), 0, "already sent"),
        (Approval::Always, 1, "sent"),
    ] {
        let wanted = (completed, (sends, 1), vec![result.to_owned(), "r:1".to_owned()]);
        assert_eq!(after(&decision, &[txt("ok")]), wanted, "{decision:?}");
    }
}

#[test]
fn permanent_grants_do_not_pause_later_turns() {
    let script = [call("c1", "send", ASKS.2), txt("ok"), call("c3", "send", r#"{"to":"b"}"#), txt("ok")];
    let (made, _) = both(&script, async |asked: Asked| {
        let thread = Thread::new(asked, ApprovalConfig::default());
        thread.says("go").await;
        thread.decide("c1", Approval::Always).await;
        let later = thread.says("once more").await;
        (later.outcome, thread.ran(), head(thread.agent.graph()).await.values.permissions.len())
    });
    assert_eq!(made, (AgentOutcome::Completed, (2, 0), 1));
}

#[test]
fn a_round_that_is_held_runs_as_a_whole() {
    let (made, _) = both(&[calls([ASKS, ASKS_NOT]), txt("ok")], async |asked: Asked| {
        let thread = Thread::new(asked, ApprovalConfig { hold_batch: true, ..ApprovalConfig::default() });
        thread.says("go").await;
        let before = thread.ran();
        thread.decide("c1", Approval::Deny("no mail".into())).await;
        (before, thread.ran(), thread.results().await)
    });
    let results = ["Error: Permission denied: no mail", "r:1"].map(str::to_owned);
    assert_eq!(made, ((0, 0), (0, 1), results.to_vec()));
}

#[test]
fn a_denial_that_ends_the_turn_leaves_every_call_answered() {
    let script = [calls([ASKS_NOT, ASKS]), txt("hello")];
    let (made, sent) = both(&script, async |asked: Asked| {
        let thread = Thread::new(asked, ApprovalConfig { stop_on_deny: true, ..ApprovalConfig::default() });
        thread.says("go").await;
        let denied = thread.decide("c1", Approval::Deny("no mail".into())).await;
        let results = thread.results().await;
        (denied.outcome, results, thread.says("hi").await.text)
    });
    let results = ["r:1", "Error: Permission denied: no mail"].map(str::to_owned);
    assert_eq!(made, (AgentOutcome::Denied, results.to_vec(), "hello".to_owned()));
    assert_eq!(sent.requests, 2);
}

#[test]
fn two_that_wait_are_decided_in_any_order_and_an_answer_to_nothing_changes_nothing() {
    let script = [calls([ASKS, ("c2", "send", r#"{"to":"b"}"#)]), txt("ok")];
    let (made, _) = both(&script, async |asked: Asked| {
        let thread = Thread::new(asked, ApprovalConfig::default());
        assert_eq!(thread.says("go").await.interrupts.len(), 2);
        let half = thread.decide("c2", Approval::Approve).await;
        assert_eq!(half.outcome, AgentOutcome::AwaitingApproval);
        let before = head(thread.agent.graph()).await.values;
        for nobody_asked in ["c2", "c9"] {
            let answers = Answers::new().answer(nobody_asked, Approval::Approve);
            let refused = thread.agent.thread("t").answers(answers).resume().await.unwrap_err();
            assert!(matches!(refused, superstep::RunError::UnknownInterrupt { .. }), "{refused}");
        }
        assert_eq!(head(thread.agent.graph()).await.values, before);
        thread.decide("c1", Approval::Respond("not needed".into())).await;
        (thread.ran(), thread.results().await)
    });
    assert_eq!(made, ((1, 0), vec!["not needed".to_owned(), "sent".to_owned()]));
}

#[test]
fn invalid_arguments_are_reported_before_an_approval() {
    let (made, _) = both(&[call("c1", "send", r#"{"to":1}"#), txt("ok")], async |asked: Asked| {
        let thread = Thread::new(asked, ApprovalConfig::default());
        let reply = thread.says("go").await;
        (reply.outcome, reply.interrupts.len(), thread.ran(), thread.results().await)
    });
    let told = "Error: invalid args for 'send': `to`: expected string, got a number".to_owned();
    assert_eq!(made, (AgentOutcome::Completed, 0, (0, 0), vec![told]));
}
