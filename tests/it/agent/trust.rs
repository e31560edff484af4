//! Stored grants and answers without trust.

use std::sync::{Arc, Mutex};

use serde_json::json;
use superstep::{
    ThreadId,
    agent::{
        Agent, AgentOutcome, Approval,
        approval::{StoredDecision, Trust},
        config::PermissionRule,
        deps::SubAgent,
    },
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};

use super::{Kit, Scenario};
use crate::support::{Backend, head, on_every_store};

/// The calls decided by its user.
#[derive(Default)]
struct Known(Mutex<Vec<String>>);

impl Trust for Known {
    fn is_granted(&self, thread: Option<&ThreadId>, rule: &PermissionRule) -> bool {
        assert_eq!(thread.map(ThreadId::as_str), Some("t"));
        self.0.lock().unwrap().contains(&rule.tool)
    }

    fn is_decided(&self, stored: &StoredDecision<'_>) -> bool {
        assert!(stored.decision.needs_trust() && stored.is_current);
        self.0.lock().unwrap().contains(&stored.request.call_id)
    }
}

fn program(kit: &Kit, backend: &Backend, trust: Option<&Arc<Known>>, answers: Vec<Answer>) -> Agent {
    let model = ScriptedModel::new(Script::new(answers));
    let scenario = Scenario::new([]).tools(&["send"]);
    let agent = scenario.agent(Arc::new(model), kit).checkpointer(backend.open()).approve_by_interrupt();
    match trust {
        Some(trust) => agent.trust(trust.clone()),
        None => agent,
    }
    .build()
    .unwrap()
}

fn send(id: &'static str) -> Answer {
    call(id, "send", r#"{"to":"a"}"#)
}

on_every_store! {
    async fn a_grant_that_only_the_thread_knows_is_asked_about(backend: Backend) {
        let kit = Kit::default();
        let agent = program(&kit, &backend, None, vec![send("c1"), txt("ok")]);
        agent.thread("t").ask("go").await.unwrap();
        agent.thread("t").answer("c1", Approval::Always).resume().await.unwrap();
        assert_eq!((kit.n("send"), head(agent.graph()).await.values.permissions.len()), (1, 1));
        drop(agent);
        let trust = Arc::new(Known::default());
        let agent = program(&kit, &backend, Some(&trust), vec![send("c2"), txt("ok")]);
        let asked = agent.thread("t").ask("more").await.unwrap();
        assert_eq!((asked.outcome, kit.n("send")), (AgentOutcome::AwaitingApproval, 1));
        agent.thread("t").answer("c2", Approval::Deny("no".into())).resume().await.unwrap();
        // A replay runs nothing, and is told what was not taken.
        for trust in [None, Some(&trust)] {
            let agent = program(&kit, &backend, trust, Vec::new());
            agent.graph().thread("t").replay().run().await.unwrap().assert_same();
        }
        drop(agent);
        trust.0.lock().unwrap().push("send".into());
        let agent = program(&kit, &backend, Some(&trust), vec![send("c3"), txt("ok")]);
        let done = agent.thread("t").ask("more").await.unwrap();
        assert_eq!((done.outcome, kit.n("send")), (AgentOutcome::Completed, 2));
    }

    /// The model would read it as the result of the tool.
    async fn a_response_that_only_the_thread_knows_is_asked_for_again(backend: Backend) {
        let (kit, trust) = (Kit::default(), Arc::new(Known::default()));
        let agent = program(&kit, &backend, Some(&trust), vec![send("c1"), txt("ok")]);
        agent.thread("t").ask("go").await.unwrap();
        let respond = || Approval::Respond("it was sent".into());
        let asked = agent.thread("t").answer("c1", respond()).resume().await.unwrap();
        assert_eq!((asked.interrupts.len(), asked.interrupts[0].key.as_str()), (1, "c1.2"));
        trust.0.lock().unwrap().push("c1".into());
        let done = agent.thread("t").answer("c1.2", respond()).resume().await.unwrap();
        assert_eq!((done.outcome, kit.n("send")), (AgentOutcome::Completed, 0));
    }

    async fn an_answer_that_only_the_thread_knows_is_asked_for_again(backend: Backend) {
        let kit = Kit::default();
        let two = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "send", r#"{"to":"b"}"#)]);
        let agent = program(&kit, &backend, None, vec![two]);
        agent.thread("t").ask("go").await.unwrap();
        agent.thread("t").answer("c1", Approval::Edit(json!({ "to": "evil" }))).resume().await.unwrap();
        drop(agent);
        let trust = Arc::new(Known::default());
        trust.0.lock().unwrap().push("c2".into());
        let agent = program(&kit, &backend, Some(&trust), vec![txt("ok")]);
        let asked = agent.thread("t").answer("c2", Approval::Approve).resume().await.unwrap();
        assert_eq!((asked.interrupts.len(), asked.interrupts[0].key.as_str(), kit.n("send")), (1, "c1.2", 0));
        assert_eq!(
            asked.interrupts[0].question["problem"],
            json!("the stored answer is not known to be yours, so it is asked again")
        );
        assert_eq!(asked.interrupts[0].question["args"], json!({ "to": "a" }));
        trust.0.lock().unwrap().push("c1".into());
        // The first answer, with other arguments, is superseded although it is known by now.
        let done = agent.thread("t").answer("c1.2", Approval::Approve).resume().await.unwrap();
        assert_eq!((done.outcome, kit.n("send")), (AgentOutcome::Completed, 2));
        let messages = format!("{:?}", head(agent.graph()).await.values.messages);
        assert!(!messages.contains("evil"), "{messages}");
        for trust in [None, Some(&trust)] {
            let agent = program(&kit, &backend, trust, Vec::new());
            agent.graph().thread("t").replay().run().await.unwrap().assert_same();
        }
    }

    async fn a_later_denial_beats_an_earlier_approval(backend: Backend) {
        let (kit, trust) = (Kit::default(), Arc::new(Known::default()));
        let agent = program(&kit, &backend, Some(&trust), vec![send("c1"), txt("ok")]);
        agent.thread("t").ask("go").await.unwrap();
        let again = agent.thread("t").answer("c1", Approval::Approve).resume().await.unwrap();
        assert_eq!(again.interrupts[0].key, "c1.2");
        // The first answer becomes known meanwhile.
        trust.0.lock().unwrap().push("c1".into());
        let done = agent.thread("t").answer("c1.2", Approval::Deny("no".into())).resume().await.unwrap();
        assert_eq!((done.outcome, kit.n("send")), (AgentOutcome::Completed, 0));
    }

    /// The identity of the decision is computed from the task, also in a sub-agent.
    async fn a_trust_learns_which_interrupt_of_which_task_was_answered(backend: Backend) {
        for deep in [false, true] {
            let (kit, seen) = (Kit::default(), Arc::new(Seen::default()));
            let open = |answers: [Vec<Answer>; 2]| {
                let [outer, inner] = answers.map(|answers| Arc::new(ScriptedModel::new(Script::new(answers))));
                let agent = |model, tools: &[&'static str]| Scenario::new([]).tools(tools).agent(model, &kit).trust(seen.clone());
                let outer = match deep {
                    false => agent(outer, &["send"]),
                    true => agent(outer, &[]).sub_agent(SubAgent::new("worker", "Works.", &agent(inner, &["send"]).approve_by_interrupt().build().unwrap())),
                };
                outer.checkpointer(backend.open()).approve_by_interrupt().build().unwrap()
            };
            let thread = format!("deep {deep}");
            let work = call("w1", "worker", r#"{"task":"send"}"#);
            let agent = if deep { open([vec![work], vec![send("c1")]]) } else { open([vec![send("c1")], Vec::new()]) };
            let asked = agent.thread(&*thread).ask("go").await.unwrap();
            let id = asked.interrupts[0].id.clone();
            drop(agent);
            let agent = open([vec![txt("ok")], vec![txt("sent it")]]);
            agent.thread(&*thread).answer(&*id, Approval::Approve).resume().await.unwrap();
            let seen = seen.0.lock().unwrap();
            assert_eq!(seen.len(), 1, "{seen:?}");
            assert_eq!(seen[0].0, id);
            assert!(seen[0].1.starts_with(&format!("{thread}/")) && seen[0].1.matches(':').count() == usize::from(deep), "{seen:?}");
            assert_eq!(kit.n("send"), 1);
        }
    }
}

/// The interrupts and positions of the decisions, all of which are known.
#[derive(Default)]
struct Seen(Mutex<Vec<(String, String)>>);

impl Trust for Seen {
    fn is_granted(&self, _: Option<&ThreadId>, _: &PermissionRule) -> bool {
        false
    }

    fn is_decided(&self, stored: &StoredDecision<'_>) -> bool {
        let interrupt = stored.interrupt.unwrap().to_owned();
        self.0.lock().unwrap().push((interrupt, stored.position.to_owned()));
        true
    }
}
