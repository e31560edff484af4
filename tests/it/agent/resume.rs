//! Resumed runs.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use futures::{StreamExt, future::BoxFuture};
use superstep::{
    CheckpointId, Checkpointer, Event, OnUnfinished, RunError, State, StreamMode, ThreadId,
    agent::{Agent, AgentOutcome, AgentState, ReactConfig, Reply, config::Truncate},
    checkpoint::{CheckpointError, Commit},
    llm::{ApiKey, OpenAiConfig, OpenAiModel, ToolReply, tool},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, http, txt},
    scripted::ScriptedModel,
    wire::WireServer,
    wrapped::{Wrapped, Wrapper},
};

use super::{Scenario, check, kit::Kit, real, show};
use crate::support::{Backend, Stuck, h, head, on_every_store, t};

/// A store whose program stops right after the checkpoint before the `nth` run of `node`.
struct StopsBefore {
    store: Arc<dyn Checkpointer>,
    node: &'static str,
    nth: u32,
    seen: AtomicU32,
    stuck: Stuck,
}

impl Wrapper for StopsBefore {
    fn store(&self) -> &dyn Checkpointer {
        &*self.store
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let comes = next.control.next.iter().any(|node| node.as_str() == self.node);
        let stops = comes && self.seen.fetch_add(1, Ordering::Relaxed) + 1 == self.nth;
        let commit = self.store.commit(thread, expected, next);
        Box::pin(async move {
            let id = commit.await?;
            if stops {
                self.stuck.here().await;
            }
            Ok(id)
        })
    }
}

/// Creates a program: an agent on the threads of a store, with a model of its own.
fn program(
    scenario: &Scenario,
    kit: &Kit,
    store: Arc<dyn Checkpointer>,
    answers: impl IntoIterator<Item = Answer>,
) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(Script::new(answers));
    let agent = scenario.agent(Arc::new(model.clone()), kit).checkpointer(store).build().unwrap();
    (agent, model)
}

/// Runs a turn up to the checkpoint before the nth run of a node, and stops the program there.
async fn crash_before(
    (nth, node): (u32, &'static str),
    scenario: &Scenario,
    kit: &Kit,
    backend: &Backend,
    answers: impl IntoIterator<Item = Answer>,
) {
    let stuck = Stuck::default();
    let (store, seen) = (backend.open(), AtomicU32::new(0));
    let store = Wrapped(StopsBefore { store, node, nth, seen, stuck: stuck.clone() });
    let (agent, model) = program(scenario, kit, Arc::new(store), answers);
    stuck.crash(agent.thread("t").ask("go")).await;
    model.check().unwrap();
}

async fn state(agent: &Agent) -> AgentState {
    head(agent.graph()).await.values
}

/// Returns the end of a program that was not stopped.
async fn uninterrupted(
    scenario: &Scenario,
    answers: impl IntoIterator<Item = Answer>,
) -> (Reply, AgentState) {
    let backend = Backend::memory();
    let (agent, model) = program(scenario, &Kit::default(), backend.open(), answers);
    let reply = agent.thread("t").ask("go").await.unwrap();
    model.check().unwrap();
    (reply, state(&agent).await)
}

/// Returns the part of a reply that is the same in every process.
fn without_checkpoint(reply: &Reply) -> Reply {
    Reply { checkpoint: None, ..reply.clone() }
}

/// Stores the user's name.
#[tool]
async fn introduce(name: String) -> ToolReply {
    ToolReply::text("Hello!").with_update(AgentState::update().user_id(name))
}

fn send() -> Answer {
    call("c1", "send", r#"{"to":"a"}"#)
}

fn sending() -> Scenario {
    let scenario = Scenario::new([]).tools(&["echo", "send"]);
    Scenario { decide: Some(|_| Some(superstep::agent::Approval::Approve)), ..scenario }
}

on_every_store! {
    async fn a_turn_that_stopped_between_agent_and_tools_goes_on_there(backend: Backend) {
        let (scenario, kit) = (sending(), Kit::default());
        let (plain_reply, plain) = uninterrupted(&scenario, [send(), txt("ok")]).await;
        crash_before((1, "tools"), &scenario, &kit, &backend, [send()]).await;
        assert_eq!(kit.n("send"), 0);

        let (agent, model) = program(&scenario, &kit, backend.open(), [txt("ok")]);
        let before = h(agent.graph()).await.len();
        let reply = agent.thread("t").resume().await.unwrap();
        model.check().unwrap();
        assert_eq!((without_checkpoint(&reply), kit.n("send")), (without_checkpoint(&plain_reply), 1));
        assert_eq!(state(&agent).await, plain);
        check::calls_are_answered(plain.messages.iter());
        assert!(plain.messages.iter().all(|message| !message.id.is_empty()));
        // tools, agent and finalize; earlier nodes did not run again.
        assert_eq!(h(agent.graph()).await.len(), before + 3);
    }

    async fn resuming_a_finished_turn_does_nothing(backend: Backend) {
        let (scenario, kit) = (sending(), Kit::default());
        let (agent, _) = program(&scenario, &kit, backend.open(), [send(), txt("ok")]);
        let reply = agent.thread("t").ask("go").await.unwrap();
        let (history, before) = (h(agent.graph()).await, state(&agent).await);
        drop(agent);

        let (agent, model) = program(&scenario, &kit, backend.open(), []);
        assert_eq!(agent.thread("t").resume().await.unwrap(), reply);
        model.check().unwrap();
        assert_eq!((h(agent.graph()).await, state(&agent).await), (history, before));
        assert_eq!(kit.n("send"), 1);
    }

    async fn a_stop_before_any_node_loses_nothing(backend: Backend) {
        let (scenario, answers) = (sending(), || [send(), txt("ok")]);
        let (plain_reply, plain) = uninterrupted(&scenario, answers()).await;
        // The model's answers up to the stop are used; the others follow in the next process.
        for (spent, node) in [
            (0, (1, "init_state")),
            (0, (1, "memory_trigger")),
            (0, (1, "agent")),
            (1, (1, "tools")),
            (1, (2, "agent")),
            (2, (1, "finalize")),
        ] {
            let (backend, kit) = (another(&backend), Kit::default());
            crash_before(node, &scenario, &kit, &backend, answers().into_iter().take(spent)).await;
            let (agent, model) =
                program(&scenario, &kit, backend.open(), answers().into_iter().skip(spent));
            assert_eq!(without_checkpoint(&agent.thread("t").resume().await.unwrap()), without_checkpoint(&plain_reply), "{node:?}");
            model.check().unwrap();
            assert_eq!((state(&agent).await, kit.n("send")), (plain.clone(), 1), "{node:?}");
        }
    }

    async fn resuming_does_not_cut_a_result_again(backend: Backend) {
        let cococat = Truncate::chars(2000, "[truncated {omitted} chars]");
        let scenario = Scenario::new([]).tools(&["big"]);
        let scenario = scenario.config(|config| ReactConfig { truncate: Some(cococat), ..config });
        let big = || call("c1", "big", r#"{"n":5000}"#);
        let (plain_reply, plain) = uninterrupted(&scenario, [big(), txt("ok")]).await;
        let kit = Kit::default();
        // The tools have run; the next step is a model call.
        crash_before((2, "agent"), &scenario, &kit, &backend, [big()]).await;
        let (agent, model) = program(&scenario, &kit, backend.open(), [txt("ok")]);
        assert_eq!(without_checkpoint(&agent.thread("t").resume().await.unwrap()), without_checkpoint(&plain_reply));
        assert_eq!(state(&agent).await, plain);
        let result = "x".repeat(2000) + "[truncated 3000 chars]";
        assert_eq!(model.requests()[0].messages.last().unwrap().content, result);
        assert_eq!(kit.n("big"), 1);
    }

    async fn resuming_asks_the_model_again_from_its_node(backend: Backend) {
        let busy = || http(503, &[], "{}");
        let (scenario, kit) = (sending(), Kit::default());
        let (agent, first) = program(&scenario, &kit, backend.open(), [send(), busy(), busy(), busy()]);
        let reply = agent.thread("t").ask("go").await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::LlmError);
        assert_eq!(kit.n("send"), 1);
        drop(agent);

        let (agent, model) = program(&scenario, &kit, backend.open(), [txt("ok")]);
        let before = h(agent.graph()).await.len();
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((&*reply.text, reply.outcome), ("ok", AgentOutcome::Completed));
        assert_eq!(model.requests()[..], first.requests()[3..]);
        assert_eq!(kit.n("send"), 1);
        // The fork, agent and finalize; earlier nodes did not run again.
        assert_eq!(h(agent.graph()).await.len(), before + 3);
        let state = state(&agent).await;
        assert_eq!(
            show::messages(state.messages.iter()),
            r#"u:"go", a:[c1 send{"to":"a"}], t(c1):"sent", a:"ok""#
        );
        assert_eq!((state.error, state.stop_reason.as_str()), (None, ""));
        // Now it is finished.
        assert_eq!(agent.thread("t").resume().await.unwrap(), reply);
    }

    async fn a_cancelled_turn_resumes_from_its_last_model_call(backend: Backend) {
        let (scenario, kit) = (Scenario::new([]).tools(&["hang"]), Kit::default());
        let (agent, _) = program(&scenario, &kit, backend.open(), [call("c1", "hang", "{}")]);
        let config = t();
        let cancel = config.get_cancel().clone();
        let mut stream = agent.configured(config).stream(agent.input("go"), [StreamMode::Custom]);
        while let Some(event) = stream.next().await {
            if matches!(event, Event::Custom { name: "tool_start", .. }) {
                cancel.cancel();
            }
        }
        let state = stream.outcome().await.unwrap().state;
        assert_eq!(state.outcome, Some(AgentOutcome::Cancelled));
        drop(agent);

        let (agent, model) = program(&scenario, &kit, backend.open(), [txt("ok")]);
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((&*reply.text, reply.outcome), ("ok", AgentOutcome::Completed));
        assert_eq!(
            show::messages(&model.requests()[0].messages),
            r#"u:"go", a:[c1 hang{}], t(c1):"The tool call has been interrupted by the user.""#
        );
    }

    async fn a_turn_resumes_from_its_last_model_call_after_any_replay(backend: Backend) {
        let (scenario, kit) = (sending(), Kit::default());
        let refused = || http(400, &[], r#"{"error":{"message":"no"}}"#);
        let (agent, _) = program(&scenario, &kit, backend.open(), [txt("one"), refused()]);
        agent.thread("t").ask("first").await.unwrap();
        let turn = agent.thread("t").ask("second").await.unwrap();
        assert_eq!(turn.outcome, AgentOutcome::LlmError);

        let (agent, _) = program(&scenario, &kit, backend.open(), [txt("another one")]);
        let live = agent.graph().thread("t").replay().live(["agent"]).run().await.unwrap();
        assert!(live.divergence.is_some(), "{live}");
        let (agent, model) = program(&scenario, &kit, backend.open(), [txt("two")]);
        assert_eq!(agent.thread("t").resume().await.unwrap().text, "two");
        model.check().unwrap();
        let said: Vec<_> = state(&agent).await.messages.iter().map(|message| message.content.clone()).collect();
        assert_eq!(said, ["first", "one", "second", "two"]);
    }

    async fn a_message_for_a_stopped_turn_is_refused(backend: Backend) {
        let (scenario, kit) = (sending(), Kit::default());
        crash_before((1, "tools"), &scenario, &kit, &backend, [send()]).await;
        let (agent, _) = program(&scenario, &kit, backend.open(), []);
        let error = agent.thread("t").ask("hello?").await.unwrap_err();
        assert!(matches!(error, RunError::Unfinished { .. }), "{error}");
    }

    async fn a_message_that_discards_a_stopped_turn_answers_its_calls(backend: Backend) {
        let (scenario, kit) = (sending(), Kit::default());
        crash_before((1, "tools"), &scenario, &kit, &backend, [send()]).await;
        let (agent, model) = program(&scenario, &kit, backend.open(), [txt("hi"), txt("bye")]);
        assert_eq!(agent.thread("t").on_unfinished(OnUnfinished::Discard).ask("hello?").await.unwrap().text, "hi");
        assert_eq!(agent.thread("t").ask("more").await.unwrap().text, "bye");
        let requests = model.requests();
        let interrupted = r#"t(c1):"The tool call has been interrupted by the user.""#;
        let first = format!(r#"u:"go", a:[c1 send{{"to":"a"}}], {interrupted}, u:"hello?""#);
        assert_eq!(show::messages(&requests[0].messages), first);
        check::requests_extend(&requests, 0);
        // The stored messages contain it, not only the sent ones.
        let stored = state(&agent).await.messages;
        let stored = show::messages(stored.iter());
        assert_eq!(stored, format!(r#"{first}, a:"hi", u:"more", a:"bye""#));
        assert_eq!(kit.n("send"), 0);
    }

    async fn a_discarded_round_retains_its_results_and_reports_which_others_began(backend: Backend) {
        let kit = Kit::default();
        let scenario = Scenario::new([]).tools(&["echo", "deaf", "add"]);
        let batch = calls([("c0", "echo", r#"{"x":"1"}"#), ("c1", "deaf", "{}"), ("c2", "add", r#"{"a":1,"b":2}"#)]);
        let (agent, _) = program(&scenario, &kit, backend.open(), [batch]);
        let begun = async {
            while kit.n("deaf") == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = agent.thread("t").ask("go") => panic!("{ended:?}"),
            () = begun => {}
        }
        drop(agent);

        let (agent, model) = program(&scenario, &kit, backend.open(), [txt("hi")]);
        assert_eq!(agent.thread("t").on_unfinished(OnUnfinished::Discard).ask("hello?").await.unwrap().text, "hi");
        let stored = state(&agent).await.messages;
        check::calls_are_answered(stored.iter());
        let results: Vec<_> = stored.iter().skip(2).take(3).map(|message| message.content.as_str()).collect();
        let in_doubt = "Error: the outcome of this call is unknown, the process stopped while it ran. Check before repeating it.";
        assert_eq!(results, ["r:1", in_doubt, "The tool call has been interrupted by the user."]);
        assert_eq!(model.requests()[0].messages.iter().skip(2).take(3).map(|said| &said.content).collect::<Vec<_>>(), results);
        // No tool ran for it, and a replay has the same result.
        assert_eq!((kit.n("echo"), kit.n("deaf"), kit.n("add")), (1, 1, 0));
        let replayed = agent.graph().thread("t").replay().run().await.unwrap();
        assert!(replayed.divergence.is_none(), "{replayed}");
    }

    async fn a_discarded_question_leaves_what_was_written_and_permitted_before_it(backend: Backend) {
        let kit = Kit::default();
        let scenario = Scenario::new([]).tools(&["send"]);
        let open = |answers: Vec<Answer>| {
            let model = ScriptedModel::new(Script::new(answers));
            let agent = scenario.agent(Arc::new(model), &kit).tools([introduce()]);
            agent.checkpointer(backend.open()).approve_by_interrupt().build().unwrap()
        };
        let batch = calls([("c0", "introduce", r#"{"name":"ada"}"#), ("c1", "send", r#"{"to":"a"}"#)]);
        let asked = open(vec![batch]).thread("t").ask("go").await.unwrap();
        assert_eq!(asked.outcome, AgentOutcome::AwaitingApproval);
        let agent = open(vec![txt("hi")]);
        agent.thread("t").on_unfinished(OnUnfinished::Discard).ask("hello?").await.unwrap();
        let state = state(&agent).await;
        check::calls_are_answered(state.messages.iter());
        assert_eq!((state.user_id.as_str(), kit.n("send")), ("ada", 0));
    }
}

#[test]
fn retries_over_the_wire() {
    real(async {
        let (scenario, kit, backend) = (sending(), Kit::default(), Backend::sqlite());
        let (stuck, seen) = (Stuck::default(), AtomicU32::new(0));
        let stops = StopsBefore { store: backend.open(), node: "tools", nth: 1, seen, stuck: stuck.clone() };
        let (agent, server) = wired(&scenario, &kit, Arc::new(Wrapped(stops)), [send()]).await;
        stuck.crash(agent.thread("t").ask("go")).await;
        server.check().unwrap();
        drop(agent);

        let refused = http(401, &[], "{}");
        let (agent, server) = wired(&scenario, &kit, backend.open(), [refused]).await;
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((reply.outcome, kit.n("send")), (AgentOutcome::LlmError, 1));
        let asked = server.requests();
        drop(agent);

        let (agent, server) = wired(&scenario, &kit, backend.open(), [txt("ok")]).await;
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!((&*reply.text, reply.outcome), ("ok", AgentOutcome::Completed));
        assert_eq!((server.requests(), kit.n("send")), (asked, 1));
        server.check().unwrap();
        check::calls_are_answered(state(&agent).await.messages.iter());
    });
}

async fn wired(
    scenario: &Scenario,
    kit: &Kit,
    store: Arc<dyn Checkpointer>,
    answers: impl IntoIterator<Item = Answer>,
) -> (Agent, WireServer) {
    let server = WireServer::start(Script::new(answers)).await.unwrap();
    let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "m");
    let model = Arc::new(OpenAiModel::new(config).unwrap());
    (scenario.agent(model, kit).checkpointer(store).build().unwrap(), server)
}

#[tokio::test(start_paused = true)]
async fn resuming_a_thread_that_never_ran_is_an_error() {
    let (agent, _) = program(&sending(), &Kit::default(), Backend::memory().open(), []);
    let error = agent.thread("nobody").resume().await.unwrap_err();
    assert!(matches!(error, RunError::EmptyThread { .. }), "{error}");
}

/// Creates a fresh store of the same kind.
pub(super) fn another(backend: &Backend) -> Backend {
    match backend {
        Backend::Memory(_) => Backend::memory(),
        Backend::Text(_) => Backend::text(),
        Backend::Sqlite(_) => Backend::sqlite(),
        #[cfg(all(feature = "postgres", unix))]
        Backend::Postgres(_) => Backend::postgres().expect("it is installed"),
        #[cfg(all(feature = "restate", unix))]
        Backend::Restate(_) => Backend::restate().expect("it is installed"),
    }
}
