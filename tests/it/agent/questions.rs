//! Tools that ask the user while their call runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    Answers, Checkpointer, Event, Interrupt, MemoryCheckpointer, OnUnfinished, RunError, RunStream,
    StreamMode, ThreadId,
    agent::{
        Agent, AgentBuilder, AgentOutcome, AgentState, Approval, ReactConfig,
        approval::{StoredDecision, Trust},
        config::{Budget, PermissionRule, ToolErrors, ToolMode},
        deps::SubAgent,
    },
    clock::{Clock, TokioClock},
    llm::{
        Role, Tool, ToolCx, ToolError, ToolFuture, ToolReply, ToolSpec,
        calls::{ToolAnswer, ToolQuestion},
        tool_fn,
    },
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};
use tokio::sync::Notify;

use crate::support::t;

/// Data shared by the tools of a test, in all processes.
#[derive(Clone, Default)]
struct Shared {
    asked: Arc<AtomicUsize>,
    slow: Arc<AtomicUsize>,
    has_asked: Arc<Notify>,
    store: Arc<MemoryCheckpointer>,
}

/// A tool that asks the user.
struct Asks(ToolSpec, Shared);

impl Tool for Asks {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            self.1.asked.fetch_add(1, Ordering::SeqCst);
            let schema =
                json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
            let question = ToolQuestion { from: "the tool".into(), message: "Which?".into(), schema };
            self.1.has_asked.notify_one();
            Ok(ToolReply::text(match cx.ask(question).await? {
                ToolAnswer::Accept(values) => format!("got {}", values["n"]),
                other => format!("{other:?}"),
            }))
        })
    }
}

/// A tool that ends some time after the question of the other one.
struct Slow(ToolSpec, Shared);

impl Tool for Slow {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: Value, _: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            self.1.has_asked.notified().await;
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            self.1.slow.fetch_add(1, Ordering::SeqCst);
            Ok(ToolReply::text("slow"))
        })
    }
}

impl Shared {
    fn agent(&self, answers: impl IntoIterator<Item = Answer>) -> AgentBuilder {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        let model = Arc::new(ScriptedModel::new(Script::new(answers)));
        let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 2 }, ..ReactConfig::graph(5) };
        let store: Arc<dyn Checkpointer> = self.store.clone();
        Agent::builder(model)
            .tools([
                Arc::new(Asks(spec("asks"), self.clone())) as Arc<dyn Tool>,
                Arc::new(Slow(spec("slow"), self.clone())),
            ])
            .config(config)
            .approve_by_interrupt()
            .checkpointer(store)
    }

    fn counts(&self) -> (usize, usize) {
        (self.asked.load(Ordering::SeqCst), self.slow.load(Ordering::SeqCst))
    }
}

/// Runs to the next stop, and returns the events of calls.
async fn calls_of(mut stream: RunStream<AgentState>, told: &mut Vec<String>) -> Vec<Interrupt> {
    while let Some(event) = stream.next().await {
        if let Event::Custom { name: name @ ("tool_start" | "tool_end"), data, .. } = event {
            told.push(format!("{name} {}", data["id"].as_str().unwrap()));
        }
    }
    stream.outcome().await.unwrap().interrupts
}

async fn results(agent: &Agent) -> Vec<String> {
    let messages = agent.graph().thread("t").state().await.unwrap().values.messages;
    messages.iter().filter(|it| it.role == Role::Tool).map(|it| it.content.to_string()).collect()
}

const TWICE: &str = "[The tool asked the user. The call was sent 2 times, each time from its beginning.]\n";

#[tokio::test]
async fn a_call_beside_a_question_is_finished_and_those_that_had_no_place_begin_behind_it() {
    let shared = Shared::default();
    let round = calls([("c1", "asks", "{}"), ("c2", "slow", "{}"), ("c3", "asks", "{}")]);
    let asked = shared.agent([round]).build().unwrap().thread("t").ask("go").await.unwrap();
    assert_eq!(asked.outcome, AgentOutcome::AwaitingApproval);
    assert_eq!(shared.slow.load(Ordering::SeqCst), 1, "it ran to its end");
    let mut reply = asked;
    for _ in 0..2 {
        let Some(id) = reply.interrupts.first().map(|asked| asked.id.clone()) else { break };
        reply = shared
            .agent([txt("ok")])
            .build()
            .unwrap()
            .thread("t")
            .answer(&id, Approval::Answer(json!({"n": 7})))
            .resume()
            .await
            .unwrap();
    }
    assert_eq!(reply.outcome, AgentOutcome::Completed);
    let agent = shared.agent([]).build().unwrap();
    let seven = format!("{TWICE}got 7");
    assert_eq!(results(&agent).await, [seven.clone(), "slow".to_owned(), seven]);
    assert_eq!(shared.counts(), (4, 1));
}

#[tokio::test]
async fn a_question_of_a_sub_agents_tool_is_answered_through_its_caller() {
    let shared = Shared::default();
    let boss = |boss: Vec<Answer>, sub: Vec<Answer>| {
        let sub = SubAgent::new("digger", "Digs.", &shared.agent(sub).build().unwrap());
        shared.agent(boss).sub_agent(sub).build().unwrap()
    };
    let first = boss(vec![call("c1", "digger", r#"{"task":"dig"}"#)], vec![call("d1", "asks", "{}")]);
    let asked = first.thread("t").ask("go").await.unwrap();
    assert_eq!(asked.interrupts[0].key, "d1.asks.1");
    let next = boss(vec![txt("done")], vec![txt("dug")]);
    let reply = next
        .thread("t")
        .answer(&asked.interrupts[0].id, Approval::Answer(json!({"n": 7})))
        .resume()
        .await
        .unwrap();
    assert_eq!((&*reply.text, shared.counts().0), ("done", 2));
    assert_eq!(results(&next).await, ["dug"]);
}

#[tokio::test]
async fn the_start_of_a_call_is_reported_once_over_all_stops() {
    let shared = Shared::default();
    let round = calls([("c1", "asks", "{}"), ("c2", "slow", "{}")]);
    let (mut told, agent) = (Vec::new(), shared.agent([round]).build().unwrap());
    let asked = calls_of(agent.thread("t").stream(agent.input("go"), [StreamMode::Custom]), &mut told).await;
    let agent = shared.agent([txt("ok")]).build().unwrap();
    let answered = agent.thread("t").answer(&asked[0].id, Approval::Answer(json!({"n": 7})));
    let stream = answered.resume_point().await.unwrap().resume_stream([StreamMode::Custom]);
    assert!(calls_of(stream, &mut told).await.is_empty());
    told.sort_unstable();
    assert_eq!(told, ["tool_end c1", "tool_end c2", "tool_start c1", "tool_start c2"]);

    // So it is with a sub-agent whose tool asks.
    let shared = Shared::default();
    let boss = |boss: Vec<Answer>, sub: Vec<Answer>| {
        let sub = SubAgent::new("digger", "Digs.", &shared.agent(sub).build().unwrap());
        shared.agent(boss).sub_agent(sub).build().unwrap()
    };
    let (mut told, agent) =
        (Vec::new(), boss(vec![call("c1", "digger", r#"{"task":"dig"}"#)], vec![call("d1", "asks", "{}")]));
    let asked = calls_of(agent.thread("t").stream(agent.input("go"), [StreamMode::Custom]), &mut told).await;
    let agent = boss(vec![txt("done")], vec![txt("dug")]);
    let answered = agent.thread("t").answer(&asked[0].id, Approval::Answer(json!({"n": 7})));
    let stream = answered.resume_point().await.unwrap().resume_stream([StreamMode::Custom]);
    assert!(calls_of(stream, &mut told).await.is_empty());
    assert_eq!(told, ["tool_start c1", "tool_end c1"]);
}

/// A user without recorded answers.
struct Stranger;

impl Trust for Stranger {
    fn is_granted(&self, _: Option<&ThreadId>, _: &PermissionRule) -> bool {
        false
    }

    fn is_decided(&self, _: &StoredDecision<'_>) -> bool {
        false
    }
}

#[tokio::test]
async fn an_answer_that_is_not_known_to_be_the_users_reaches_no_tool() {
    let shared = Shared::default();
    let first = shared.agent([call("c1", "asks", "{}")]).build().unwrap();
    let asked = first.thread("t").ask("go").await.unwrap();
    let wary = |answers: Vec<Answer>| shared.agent(answers).trust(Arc::new(Stranger)).build().unwrap();
    let again = wary(vec![])
        .thread("t")
        .answer(&asked.interrupts[0].id, Approval::Answer(json!({"n": 7})))
        .resume()
        .await
        .unwrap();
    let question = &again.interrupts[0];
    assert_eq!(question.key, "c1.asks.1.2");
    assert_eq!(
        question.question["problem"],
        "the stored answer is not known to be yours, so it is asked again"
    );
    assert_eq!(shared.counts().0, 1);
    // A denial permits nothing, and needs no trust.
    let denied = t().answers(Answers::new().answer(&question.id, Approval::Deny(String::new())));
    let agent = wary(vec![txt("ok")]);
    agent.configured(denied).resume().await.unwrap();
    assert_eq!(results(&agent).await, [format!("{TWICE}Decline")]);
}

const UNANSWERED: &str = "Error: the tool asked the user a question, and its call was stopped before it continued. What it \
    did before it asked may have been done. Check before repeating it.";

#[tokio::test]
async fn a_tool_whose_question_is_answered_when_the_time_is_over_is_not_said_to_have_done_nothing() {
    let shared = Shared::default();
    let at = |ms| -> Arc<dyn Clock> { Arc::new(TokioClock::starting_at(ms)) };
    let agent = |answer| {
        let budget = Budget { wall: Some(Duration::from_secs(60)), ..Budget::default() };
        shared.agent([answer]).config(ReactConfig { budget, ..ReactConfig::graph(5) }).build().unwrap()
    };
    let asked = agent(call("c1", "asks", "{}")).thread("t").clock(at(0)).ask("go").await.unwrap();
    let (late, seven) = (agent(txt("late")), Approval::Answer(json!({"n": 7})));
    let thread = late.thread("t").answer(&asked.interrupts[0].id, seven).clock(at(120_000));
    assert_eq!(thread.resume().await.unwrap().text, "late");
    assert_eq!((results(&late).await, shared.counts().0), (vec![UNANSWERED.to_owned()], 1));
}

#[tokio::test]
async fn a_call_that_asked_continues_beside_one_that_failed_whatever_their_order() {
    for [first, second] in [["asks", "fails"], ["fails", "asks"]] {
        let shared = Shared::default();
        let agent = |answers: Vec<Answer>| {
            let parameters = json!({"type": "object"});
            let spec = ToolSpec { name: "fails".into(), description: String::new(), parameters };
            let fails =
                tool_fn(spec, |_: Value, _: ToolCx| async { Err::<String, _>(ToolError::failed("no luck")) });
            let (tool_errors, tool_mode) = (ToolErrors::Fail, ToolMode::Parallel { max: 2 });
            let config = ReactConfig { tool_errors, tool_mode, ..ReactConfig::graph(5) };
            shared.agent(answers).tool(fails).config(config).build().unwrap()
        };
        let round = calls([("c1", first, "{}"), ("c2", second, "{}")]);
        let asked = agent(vec![round]).thread("t").ask("go").await.unwrap();
        let (next, seven) = (agent(Vec::new()), Approval::Answer(json!({"n": 7})));
        let reply = next.thread("t").answer(&asked.interrupts[0].id, seven).resume().await.unwrap();
        assert_eq!((reply.outcome, shared.counts().0), (AgentOutcome::ToolFailed, 2));
        assert!(results(&next).await.contains(&format!("{TWICE}got 7")));
    }
}

#[tokio::test]
async fn a_discarded_question_takes_no_answer_and_is_reported_to_the_model_as_unanswered() {
    let shared = Shared::default();
    let first = shared.agent([call("c1", "asks", "{}")]).build().unwrap();
    let asked = first.thread("t").ask("go").await.unwrap();
    let old = asked.interrupts[0].id.clone();
    // The next turn has a call with the same id that asks the same.
    let next = shared.agent([call("c1", "asks", "{}"), txt("ok")]).build().unwrap();
    let again = next.thread("t").on_unfinished(OnUnfinished::Discard).ask("no, this").await.unwrap();
    assert_eq!(results(&next).await, [UNANSWERED]);
    let [question] = &again.interrupts[..] else { panic!("{:?}", again.interrupts) };
    assert_eq!((&*question.key, question.id == old), ("c1.asks.1", false));
    let seven = Approval::Answer(json!({"n": 7}));
    let late = next.thread("t").answer(&old, seven.clone()).resume().await.unwrap_err();
    assert!(matches!(late, RunError::UnknownInterrupt { .. }), "{late}");
    assert_eq!(shared.counts().0, 2);
    next.thread("t").answer(&question.id, seven).resume().await.unwrap();
    assert_eq!(results(&next).await, [UNANSWERED.to_owned(), format!("{TWICE}got 7")]);
}

#[tokio::test]
async fn a_fork_of_a_question_asks_anew_and_its_answer_stays_on_its_branch() {
    let shared = Shared::default();
    let first = shared.agent([call("c1", "asks", "{}")]).build().unwrap();
    let asked = first.thread("t").ask("go").await.unwrap();
    let (waits, old) = (asked.checkpoint.unwrap(), asked.interrupts[0].id.clone());
    let fork = shared.agent([]).build().unwrap().thread("t").at(waits).resume().await.unwrap();
    let new = fork.interrupts[0].id.clone();
    assert!(new != old && shared.counts().0 == 2, "the call of the fork is another one");
    let n = |n: u64| Approval::Answer(json!({ "n": n }));
    let agent = || shared.agent([txt("ok")]).build().unwrap();
    let late = agent().thread("t").answer(&old, n(1)).resume().await.unwrap_err();
    assert!(matches!(late, RunError::UnknownInterrupt { .. } | RunError::ChangedQuestion(_)), "{late}");
    agent().thread("t").answer(&new, n(2)).resume().await.unwrap();
    assert_eq!(results(&agent()).await, [format!("{TWICE}got 2")]);
    assert_eq!(shared.counts().0, 3);
}
