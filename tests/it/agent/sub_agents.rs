//! Agents that are tools of other agents.

mod crash;
mod spent;
mod traced;

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};
use serde_json::json;
use superstep::{
    Answers, Checkpointer, Event, MemoryCheckpointer, RunOptions, StreamMode, Streaming,
    agent::{
        Agent, AgentBuilder, AgentOutcome, AgentState, Approval, ReactConfig,
        config::{Budget, ToolMode},
        deps::SubAgent,
        hooks::{Acting, Hooks},
    },
    llm::{ChatModel, Delta, FinishReason, Message, Request, ResponseStream, Role, Usage},
};

use super::{
    Kit, check, preset,
    writes::{At, watched},
};
use crate::support::{on_every_store, t};

/// A model that calls its tools until each has answered, one round for each entry, and then reports the
/// results of the last round. Its answers depend only on its requests, so that a request may be repeated.
#[derive(Clone)]
struct Caller {
    who: &'static str,
    rounds: Vec<Vec<(&'static str, &'static str)>>,
    /// Returns the requests, each with its number of tools.
    asked: Arc<Mutex<Vec<usize>>>,
}

fn caller(who: &'static str, rounds: &[&[(&'static str, &'static str)]]) -> Caller {
    Caller { who, rounds: rounds.iter().map(|round| round.to_vec()).collect(), asked: Arc::default() }
}

impl Caller {
    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl ChatModel for Caller {
    fn name(&self) -> &str {
        self.who
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        self.asked.lock().unwrap().push(request.tools.len());
        let turn = request.messages.iter().rposition(|message| message.role == Role::User).unwrap();
        let since = &request.messages[turn..];
        let round = since.iter().filter(|message| message.role == Role::Assistant).count();
        let calls = self.rounds.get(round).filter(|_| !request.tools.is_empty());
        let usage = Delta::Usage(Usage::new(40, 10));
        let deltas = match calls {
            Some(calls) => {
                let call = |(n, (name, args)): (usize, &(&str, &str))| Delta::ToolCall {
                    index: n,
                    id: Some(format!("{}{round}.{n}", self.who)),
                    name: Some((*name).to_owned()),
                    arguments: (*args).to_owned(),
                };
                let calls = calls.iter().enumerate().map(call);
                calls.chain([usage, Delta::Finish(FinishReason::ToolCalls)]).collect()
            }
            None => {
                let results = since.iter().rev().take_while(|message| message.role == Role::Tool);
                let mut results: Vec<_> = results.map(|message| message.content.as_str()).collect();
                results.reverse();
                let text = format!("{}: {}", self.who, results.join(", "));
                vec![Delta::Text(text), usage, Delta::Finish(FinishReason::Stop)]
            }
        };
        stream::iter(deltas).map(Ok).boxed()
    }
}

fn agent(model: &Caller, kit: &Kit, tools: &[&'static str]) -> AgentBuilder {
    let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 4 }, ..preset() };
    Agent::builder(Arc::new(model.clone())).tools(kit.tools(tools)).config(config).approve_by_interrupt()
}

fn sub(name: &str, agent: AgentBuilder) -> SubAgent {
    SubAgent::new(name, "Knows more.", &agent.build().unwrap())
}

/// Creates a boss whose researcher uses a tool once.
fn office(kit: &Kit, boss: &Caller, digger: &Caller) -> AgentBuilder {
    agent(boss, kit, &["echo"]).sub_agent(sub("digger", agent(digger, kit, &["echo", "send", "hang"])))
}

const DIG: (&str, &str) = ("digger", r#"{"task":"dig"}"#);
const ECHO: (&str, &str) = ("echo", r#"{"x":"1"}"#);
const SEND: (&str, &str) = ("send", r#"{"to":"a"}"#);
const HANG: (&str, &str) = ("hang", "{}");

fn valid(state: &AgentState) {
    let messages: Vec<Message> = state.messages.iter().cloned().collect();
    check::calls_are_answered(&messages);
}

#[tokio::test]
async fn a_sub_agents_reply_is_the_result_of_its_call_and_its_events_are_nested() {
    let (kit, boss, digger) = (Kit::default(), caller("boss", &[&[DIG, ECHO]]), caller("digger", &[&[ECHO]]));
    let agent = office(&kit, &boss, &digger).build().unwrap();
    let streaming = Streaming::from([StreamMode::Custom]).subgraphs();
    let mut stream = agent.without_thread().stream(agent.input("go"), streaming);
    let (mut outside, mut inside) = (Vec::new(), Vec::new());
    while let Some(event) = stream.next().await {
        let json = serde_json::to_value(&event).unwrap();
        match event {
            Event::Custom { name, data, .. } if name.starts_with("tool") => {
                outside.push(format!("{name} {}", data["tool"]))
            }
            Event::Subgraph { .. } => inside.push(json.to_string()),
            _ => {}
        }
    }
    assert_eq!(
        outside,
        [r#"tool_start "echo""#, r#"tool_end "echo""#, r#"tool_start "digger""#, r#"tool_end "digger""#]
    );
    assert!(
        inside.iter().any(|event| event.contains("tool_start") && event.contains("digger.0")),
        "{inside:?}"
    );
    let state = stream.outcome().await.unwrap().state;
    // In call order, though the sub-agent comes last.
    assert_eq!(state.final_reply, "boss: digger: r:1, r:1");
    assert_eq!(state.tools_used.iter().map(String::as_str).collect::<Vec<_>>(), ["digger", "echo"]);
    // Two requests of each.
    assert_eq!(state.usage, Usage::new(160, 40));
    assert_eq!((state.llm_calls, boss.asked(), digger.asked()), (2, 2, 2));
    valid(&state);
}

#[tokio::test]
async fn where_calls_run_one_after_the_other_one_behind_a_sub_agent_waits_for_all_that_it_asks() {
    let (kit, boss, digger) = (Kit::default(), caller("boss", &[&[DIG, ECHO]]), caller("digger", &[&[SEND]]));
    let agent =
        office(&kit, &boss, &digger).config(preset()).checkpointer(Arc::new(MemoryCheckpointer::new()));
    let agent = agent.build().unwrap();
    let asked = agent.thread("t").ask("go").await.unwrap();
    assert_eq!((kit.n("send"), kit.n("echo")), (0, 0));
    let answers = Answers::new().answer(asked.interrupts[0].id.as_str(), Approval::Approve);
    let reply = agent.thread("t").answers(answers).resume().await.unwrap();
    assert_eq!(reply.text, "boss: digger: sent, r:1");
    let ran: Vec<_> = kit.effects().into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(ran, ["send", "echo"]);
}

on_every_store! {
    async fn an_approval_inside_a_sub_agent_is_asked_by_the_run_and_answered_in_another_process(backend: Backend) {
        let kit = Kit::default();
        let (boss, digger) = (caller("boss", &[&[DIG, ECHO]]), caller("digger", &[&[SEND, ECHO]]));
        let open = || office(&kit, &boss, &digger).checkpointer(backend.open()).build().unwrap();
        let asked = open().thread("t").ask("go").await.unwrap();
        assert_eq!(asked.outcome, AgentOutcome::AwaitingApproval);
        let interrupt = &asked.interrupts[0];
        assert_eq!((interrupt.key.as_str(), interrupt.question["tool"].as_str()), ("digger0.0", Some("send")));
        assert!(interrupt.id.starts_with("tools:4.0:digger.0/tools:4.0:"), "{}", interrupt.id);
        assert_eq!(kit.n("echo"), 2);

        let answers = Answers::new().answer(interrupt.id.as_str(), Approval::Approve);
        let agent = open();
        let reply = agent.thread("t").answers(answers).resume().await.unwrap();
        assert_eq!(reply.text, "boss: digger: sent, r:1, r:1");
        // No call ran twice, on either level.
        assert_eq!((kit.n("send"), kit.n("echo"), boss.asked(), digger.asked()), (1, 2, 2, 2));
        valid(&agent.graph().thread("t").state().await.unwrap().values);
    }

    async fn several_sub_agents_ask_side_by_side_and_one_two_levels_down(backend: Backend) {
        let kit = Kit::default();
        let deep = caller("deep", &[&[SEND]]);
        let middle = caller("middle", &[&[("deep", r#"{"task":"deeper"}"#)]]);
        let boss = caller("boss", &[&[("middle", r#"{"task":"a"}"#), ("deep", r#"{"task":"b"}"#)]]);
        let open = || {
            let lowest = || sub("deep", agent(&deep, &kit, &["send"]));
            let between = sub("middle", agent(&middle, &kit, &[]).sub_agent(lowest()));
            let agent = agent(&boss, &kit, &[]).sub_agent(between).sub_agent(lowest());
            agent.checkpointer(backend.open()).build().unwrap()
        };
        let asked = open().thread("t").ask("go").await.unwrap();
        let ids: Vec<_> = asked.interrupts.iter().map(|interrupt| interrupt.id.as_str()).collect();
        // The first request comes first.
        assert_eq!(
            crate::support::id_prefixes(&asked.interrupts),
            ["tools:4.0:deep.1/tools:4.0:deep0.0", "tools:4.0:middle.0/tools:4.0:deep.0/tools:4.0:deep0.0"]
        );
        // One after the other, each in its own process.
        let asked = open().thread("t").answer(ids[0], Approval::Deny("no".into())).resume().await.unwrap();
        assert_eq!(asked.interrupts.len(), 1);
        let reply = open().thread("t").answer(ids[1], Approval::Approve).resume().await.unwrap();
        assert_eq!(reply.text, "boss: middle: deep: sent, deep: Error: Permission denied: no");
        assert_eq!((kit.n("send"), deep.asked(), middle.asked(), boss.asked()), (1, 4, 2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_sub_agent_and_leaves_the_callers_conversation_whole() {
    let (kit, boss, digger) =
        (Kit::default(), caller("boss", &[&[ECHO, DIG, DIG]]), caller("digger", &[&[HANG]]));
    let agent =
        office(&kit, &boss, &digger).checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
    let config = t();
    let token = config.get_cancel().clone();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        token.cancel();
    };
    let (reply, ()) = tokio::join!(agent.configured(config).ask("go"), cancel);
    assert_eq!(reply.unwrap().outcome, AgentOutcome::Cancelled);
    let state = agent.graph().thread("t").state().await.unwrap().values;
    valid(&state);
    let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
    let interrupted = "The tool call has been interrupted by the user.";
    assert_eq!(results, ["r:1", interrupted, interrupted]);
    // The next turn is a turn like any other.
    let next = agent.thread("t").step_limit(50).ask("again");
    let reply = tokio::time::timeout(Duration::from_millis(50), next).await;
    assert!(reply.is_err(), "it digs again, and hangs");
}

#[tokio::test(start_paused = true)]
async fn a_sub_agent_has_the_timeout_of_a_tool_or_its_own() {
    for (own, ms) in [(None, 70), (Some(40), 40)] {
        let (kit, boss, digger) =
            (Kit::default(), caller("boss", &[&[DIG], &[ECHO]]), caller("digger", &[&[HANG]]));
        let config = ReactConfig { tool_timeout: Some(Duration::from_millis(70)), ..preset() };
        let patient = ReactConfig { tool_timeout: None, ..preset() };
        let mut hangs = sub("digger", agent(&digger, &kit, &["hang"]).config(patient));
        if let Some(ms) = own {
            hangs = hangs.timeout(Duration::from_millis(ms));
        }
        let agent = agent(&boss, &kit, &["echo"]).config(config).sub_agent(hangs).build().unwrap();
        let state = agent.without_thread().run(agent.input("go")).await.unwrap().state;
        let late = format!("Error: tool 'digger' timed out after {ms} ms");
        let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
        assert_eq!((results, state.outcome), (vec![&*late, "r:1"], Some(AgentOutcome::Completed)));
        valid(&state);
    }
}

/// Creates the boss with a budget, and the share of the digger.
fn thrifty(kit: &Kit, boss: &Caller, digger: &Caller, tokens: u64, share: f64) -> Agent {
    let budget = Budget { tokens: Some(tokens), reserve_final: true, ..Budget::default() };
    let patient = ReactConfig { loops: Vec::new(), ..preset() };
    let own = sub("digger", agent(digger, kit, &["echo"]).config(patient)).share(share);
    agent(boss, kit, &[]).config(ReactConfig { budget, ..preset() }).sub_agent(own).build().unwrap()
}

#[tokio::test]
async fn a_sub_agent_has_a_share_of_the_callers_remaining_budget() {
    let rounds: &[&[(&str, &str)]] = &[&[ECHO], &[ECHO], &[ECHO], &[ECHO]];
    let (kit, boss, digger) = (Kit::default(), caller("boss", &[&[DIG]]), caller("digger", rounds));
    // 50 of 450 are spent when it is called; a half of the rest is 200, which four requests exhaust.
    let agent = thrifty(&kit, &boss, &digger, 450, 0.5);
    let state = agent.without_thread().run(agent.input("go")).await.unwrap().state;
    assert_eq!((kit.n("echo"), digger.asked()), (3, 5), "the last one is without tools");
    assert_eq!(*digger.asked.lock().unwrap(), [1, 1, 1, 1, 0]);
    assert_eq!(state.usage.input_tokens + state.usage.output_tokens, 350);
    assert_eq!(state.outcome, Some(AgentOutcome::Completed));

    // A call that does not run takes no share.
    let (kit, boss, digger) =
        (Kit::default(), caller("boss", &[&[DIG, ("digger", r#"{"work":1}"#)]]), caller("digger", rounds));
    thrifty(&kit, &boss, &digger, 450, 0.5).ask("go").await.unwrap();
    assert_eq!((kit.n("echo"), digger.asked()), (3, 5));

    // Its usage counts for the caller.
    let (kit, boss, digger) =
        (Kit::default(), caller("boss", &[&[DIG], &[DIG]]), caller("digger", &[&[ECHO]]));
    let agent = thrifty(&kit, &boss, &digger, 160, 1.0);
    let state = agent.without_thread().run(agent.input("go")).await.unwrap().state;
    assert_eq!((state.outcome, digger.asked()), (Some(AgentOutcome::Budget), 2));
    valid(&state);
}

#[tokio::test]
async fn calls_that_a_hook_redirects_to_a_sub_agent_share_the_budget() {
    let rounds: &[&[(&str, &str)]] = &[&[ECHO], &[ECHO], &[ECHO], &[ECHO]];
    let mut asked = Vec::new();
    for round in [[DIG, DIG], [ECHO, ECHO]] {
        let (kit, boss, digger) = (Kit::default(), caller("boss", &[&round]), caller("digger", rounds));
        let mut hooks = Hooks::default();
        hooks.acting.pre(|mut acting: Acting| {
            (acting.tool, acting.args) = ("digger".to_owned(), json!({"task": "dig"}));
            ready(Ok(Some(acting)))
        });
        let patient = ReactConfig { loops: Vec::new(), ..preset() };
        let own = sub("digger", agent(&digger, &kit, &["echo"]).config(patient.clone()));
        let budget = Budget { tokens: Some(450), reserve_final: true, ..Budget::default() };
        let config = ReactConfig { budget, tool_mode: ToolMode::Parallel { max: 4 }, ..patient };
        let agent = agent(&boss, &kit, &["echo"]).config(config).sub_agent(own).hooks(hooks);
        agent.build().unwrap().ask("go").await.unwrap();
        asked.push(digger.asked());
    }
    // Each has 100, which two requests exhaust.
    assert_eq!(asked, [6, 6]);
}

#[tokio::test]
async fn a_failure_of_a_sub_agent_is_a_result_for_the_callers_model() {
    let kit = Kit::default();
    let (boss, digger) =
        (caller("boss", &[&[DIG, ("digger", r#"{"work":1}"#)]]), caller("digger", &[&[ECHO]]));
    let limit = superstep::agent::config::Limit {
        max: 0,
        at: superstep::agent::config::AtLimit::Fail,
        ..preset().limit
    };
    let failing = || agent(&digger, &kit, &["echo"]).config(ReactConfig { limit: limit.clone(), ..preset() });
    let caller = || agent(&boss, &kit, &[]).sub_agent(sub("digger", failing()));
    let agent = caller().build().unwrap();
    let state = agent.without_thread().run(agent.input("go")).await.unwrap().state;
    let results: Vec<_> = state.tool_result_history.iter().map(String::as_str).collect();
    assert!(
        results[0].starts_with("Error executing 'digger': ") && results[0].contains("limit of 0"),
        "{}",
        results[0]
    );
    assert!(results[1].starts_with("Error: invalid args for 'digger': "), "{}", results[1]);
    assert_eq!((state.outcome, digger.asked()), (Some(AgentOutcome::Completed), 0));
    // It is a failure of a tool.
    let config = ReactConfig { tool_errors: superstep::agent::config::ToolErrors::Fail, ..preset() };
    let agent = caller().config(config).build().unwrap();
    let state = agent.without_thread().run(agent.input("go")).await.unwrap().state;
    assert_eq!(state.outcome, Some(AgentOutcome::ToolFailed));
}

const IN_DOUBT: &str = "Error: the outcome of this call is unknown";

#[tokio::test]
async fn a_crash_at_any_write_leaves_a_usable_thread() {
    for n in 1.. {
        let (kit, boss, digger) =
            (Kit::default(), caller("boss", &[&[ECHO, DIG]]), caller("digger", &[&[ECHO]]));
        let store = Arc::new(MemoryCheckpointer::new());
        let (stops, now) = watched(store.clone(), At::HangsBefore, n);
        let first = office(&kit, &boss, &digger).checkpointer(stops).build().unwrap();
        let ended = tokio::select! {
            reply = first.thread("t").ask("go") => Some(reply.unwrap()),
            () = now.notified() => None,
        };
        drop(first);
        let crashed = ended.is_none();
        let agent = office(&kit, &boss, &digger).checkpointer(store).build().unwrap();
        let reply = match ended {
            Some(reply) => reply,
            None if n == 1 => agent.thread("t").ask("go").await.unwrap(),
            None => agent.thread("t").resume().await.unwrap(),
        };
        assert_eq!(reply.outcome, AgentOutcome::Completed, "{n}");
        let doubtful = reply.text.contains(IN_DOUBT);
        assert!(doubtful || reply.text == "boss: r:1, digger: r:1", "{n}: {}", reply.text);
        assert!(kit.n("echo") <= 2, "{n}: no effect happens twice");
        valid(&agent.graph().thread("t").state().await.unwrap().values);
        if !crashed {
            assert!(n > 15, "there were writes of both agents: {n}");
            break;
        }
    }
}

#[tokio::test]
async fn a_cancel_at_any_write_leaves_a_usable_conversation() {
    let mut cancelled = 0;
    for n in 1.. {
        let (kit, boss, digger) =
            (Kit::default(), caller("boss", &[&[ECHO, DIG]]), caller("digger", &[&[ECHO]]));
        let store = Arc::new(MemoryCheckpointer::new());
        let reader = sub("digger", agent(&digger, &kit, &["echo"]));
        let (tells, now) = watched(store.clone(), At::Tells, n);
        let agent = office(&kit, &boss, &digger).checkpointer(tells).build().unwrap();
        let config = t();
        let token = config.get_cancel().clone();
        let run = agent.configured(config).ask("go");
        tokio::pin!(run);
        let told = tokio::select! {
            biased;
            reply = &mut run => { reply.unwrap(); false }
            () = now.notified() => { token.cancel(); true }
        };
        if !told {
            // The last writes are reported after the run ended.
            assert!(n > 10 && cancelled > 5, "there were writes of both agents: {n}, {cancelled} cancelled");
            break;
        }
        let reply = run.await.unwrap();
        cancelled += usize::from(reply.outcome == AgentOutcome::Cancelled);
        let ended = [AgentOutcome::Cancelled, AgentOutcome::Completed, AgentOutcome::Stopped];
        assert!(ended.contains(&reply.outcome), "{n}: {:?}", reply.outcome);
        let state = agent.graph().thread("t").state().await.unwrap();
        if state.next.is_empty() {
            valid(&state.values);
        }
        let reply = agent.thread("t").resume().await.unwrap();
        assert_eq!(reply.outcome, AgentOutcome::Completed, "{n}");
        valid(&agent.graph().thread("t").state().await.unwrap().values);
        let next = agent.thread("t").ask("more").await.unwrap();
        assert_eq!(next.outcome, AgentOutcome::Completed, "{n}");
        let children = store.children(&"t".into()).await.unwrap();
        assert!(!children.is_empty(), "{n}: the digger was called");
        for child in children {
            let graph = reader.graph().clone().with_checkpointer(store.clone());
            let state = graph.thread(&child).state().await.unwrap();
            // That of a call which was given up stays as it was then.
            if state.next.is_empty() {
                valid(&state.values);
            }
        }
    }
}

#[tokio::test]
async fn the_graph_of_graphs_can_be_drawn() {
    let (kit, boss, digger) = (Kit::default(), caller("boss", &[]), caller("digger", &[]));
    let agent = office(&kit, &boss, &digger).build().unwrap();
    let flat = agent.graph().topology().text();
    assert!(!flat.contains("digger"), "{flat}");
    let text = agent.graph().topology().expanded().text();
    for line in [
        "tools ┄┄▶ tools/digger  (call)",
        "tools/digger ──▶ tools/digger/init_state",
        "tools/digger/agent ┄┄▶ tools/digger/tools  (Tools)",
        "tools/digger/finalize ──▶ tools",
    ] {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(text.lines().any(|drawn| words(drawn) == words(line)), "no `{line}` in\n{text}");
    }
    assert!(agent.graph().topology().expanded().svg().contains("tools/digger/agent"));
}

#[test]
fn a_sub_agent_is_offered_like_any_other_tool() {
    let (kit, boss, digger) = (Kit::default(), caller("boss", &[]), caller("digger", &[]));
    let deps = office(&kit, &boss, &digger).deps().unwrap();
    let specs = deps.tools.specs();
    let spec = specs.iter().find(|spec| spec.name == "digger").unwrap();
    assert_eq!((spec.description.as_str(), &spec.parameters["required"]), ("Knows more.", &json!(["task"])));
    let twice = office(&kit, &boss, &digger).sub_agent(sub("digger", agent(&digger, &kit, &[]))).build();
    assert!(twice.is_err_and(|error| error.to_string().contains("`digger`")));
}
