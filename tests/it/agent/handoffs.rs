//! Conversations that one agent transfers to another.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Value, json};
use superstep::{
    Checkpointer, MemoryCheckpointer, OnUnfinished, StreamMode,
    agent::{
        Agent, AgentBuilder, AgentError, AgentEvent, AgentOutcome, AgentState, Approval, ReactConfig,
        config::{AtLimit, ContextLayer, Limit, PermissionRule, Permit, ToolMode},
        deps::{Handoff, HandoffView},
        guards::{Guard, GuardAt, Verdict, View},
    },
    llm::{
        Request, Role, Tool, ToolCx, ToolFuture, ToolRegistry, ToolSpec,
        calls::Sequence,
        toolset::{RefreshFuture, ToolSource},
    },
};

use super::{
    check,
    crash::STOPS,
    kit::{Kit, Person},
    paused, preset,
    scripted_by_request::{Say, Says, says},
    writes::watched,
};
use crate::support::head;

const TO_BILLING: (&str, &str) = ("transfer_to_billing", r#"{"reason":"an invoice"}"#);

/// A text that is worth a summary.
const LONG: &str = include_str!("handoffs.rs");

/// Calls a tool and transfers, until the conversation was transferred; answers questions of later turns.
fn desk(request: &Request) -> Say {
    let last = request.messages.last().unwrap();
    match last.content.as_str() {
        "thanks" | "Transferred." => Say::Text("goodbye"),
        "hello" => Say::Text(LONG),
        _ => Say::Calls(&[TO_BILLING, ("echo", r#"{"x":"desk"}"#)]),
    }
}

/// Calls a tool, then answers; transfers back if the user says so.
fn billing(request: &Request) -> Say {
    let last = request.messages.last().unwrap();
    match (last.role, last.content.as_str()) {
        (Role::User, "something else") => Say::Calls(&[("transfer_back", r#"{"reason":"not mine"}"#)]),
        (Role::Tool, "r:billing") => Say::Text("it is paid"),
        _ => Say::Calls(&[("echo", r#"{"x":"billing"}"#)]),
    }
}

struct Models {
    desk: Says,
    billing: Says,
}

fn models() -> Models {
    Models { desk: says("desk", desk), billing: says("billing", billing) }
}

fn config(prompt: &str) -> ReactConfig {
    ReactConfig { system_prompt: prompt.to_owned(), ..preset() }
}

fn billing_agent(models: &Models, kit: &Kit) -> AgentBuilder {
    Agent::builder(models.billing.clone()).tools(kit.tools(&["echo"])).config(config("You bill."))
}

fn desk_agent(models: &Models, kit: &Kit, handoff: Handoff) -> AgentBuilder {
    let desk = Agent::builder(models.desk.clone()).tools(kit.tools(&["echo"]));
    desk.config(config("You are the desk.")).handoff(handoff)
}

fn to(billing: &Agent) -> Handoff {
    Handoff::new("billing", "when it is about an invoice", billing).back("when it is about something else")
}

fn group(models: &Models, kit: &Kit, store: Arc<dyn Checkpointer>) -> Agent {
    let billing = billing_agent(models, kit).build().unwrap();
    desk_agent(models, kit, to(&billing)).checkpointer(store).build().unwrap()
}

fn contents(state: &AgentState) -> Vec<&str> {
    state.messages.iter().map(|message| message.content.as_str()).collect()
}

#[test]
fn the_active_agent_answers_until_it_transfers_back() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let agent = group(&models, &kit, Arc::new(MemoryCheckpointer::new()));
        let reply = agent.thread("t").ask("my invoice").await.unwrap();
        assert_eq!((reply.outcome, reply.text.as_str()), (AgentOutcome::Completed, "it is paid"));
        let state = head(agent.graph()).await.values;
        assert_eq!(
            contents(&state),
            ["my invoice", "", "Transferred.", "r:desk", "", "r:billing", "it is paid"]
        );
        assert_eq!((state.active.as_str(), state.current_step), ("billing", 2), "a transfer is a step");
        assert_eq!(kit.n("echo"), 2);
        let request = &models.billing.requests()[0];
        assert_eq!(request.messages[0].content, "You bill.");
        assert_eq!(
            request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(),
            ["echo", "transfer_back"]
        );

        let calls = models.desk.requests().len();
        agent.thread("t").ask("and the next one?").await.unwrap();
        assert_eq!(models.desk.requests().len(), calls, "a later turn begins with the active agent");
        let back = agent.thread("t").ask("something else").await.unwrap();
        assert_eq!((back.text.as_str(), head(agent.graph()).await.values.active.as_str()), ("goodbye", ""));
        check::calls_are_answered(head(agent.graph()).await.values.messages.iter());
        check::replays(agent.graph(), &kit).await;
    });
}

#[test]
fn other_calls_come_first_and_a_second_transfer_is_refused() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let both = says("desk", |request| match request.messages.last().unwrap().role {
            Role::User => Say::Calls(&[
                TO_BILLING,
                ("transfer_to_law", r#"{"reason":"a law"}"#),
                ("echo", r#"{"x":"desk"}"#),
            ]),
            _ => Say::Text("?"),
        });
        let [billing, law] = [(); 2].map(|()| billing_agent(&models, &kit).build().unwrap());
        let desk = Agent::builder(both).tools(kit.tools(&["echo"])).config(preset());
        let desk = desk.handoff(to(&billing)).handoff(Handoff::new("law", "when it is about a law", &law));
        let agent = desk.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        agent.thread("t").ask("go").await.unwrap();
        let state = head(agent.graph()).await.values;
        let said = contents(&state);
        assert_eq!((said[2], said[4], state.active.as_str()), ("Transferred.", "r:desk", "billing"));
        assert!(said[3].starts_with("Error: not transferred"), "{said:?}");
        assert!(agent.graph().topology().find("agent_law").is_some());
    });
}

/// A tool of a server that answers one call after the other.
struct OfServer(ToolSpec, Arc<Mutex<Vec<String>>>);

impl Tool for OfServer {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn sequence(&self) -> Option<Sequence<'_>> {
        Some(Sequence { name: "server", overlaps: false })
    }

    fn call(&self, args: Value, _: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            // The first call takes longer.
            tokio::time::sleep(Duration::from_millis(if args["x"] == "1" { 50 } else { 1 })).await;
            self.1.lock().unwrap().push(args["x"].to_string());
            Ok("done".into())
        })
    }
}

#[test]
fn a_transfer_before_calls_in_a_sequence_leaves_their_order() {
    for tool_mode in [ToolMode::Sequential, ToolMode::Parallel { max: 5 }] {
        paused(async {
            let (kit, models, ran) = (Kit::default(), models(), Arc::default());
            let desk = says("desk", |request| match request.messages.last().unwrap().role {
                Role::User => Say::Calls(&[TO_BILLING, ("far", r#"{"x":"1"}"#), ("far", r#"{"x":"2"}"#)]),
                _ => Say::Text("?"),
            });
            let parameters = json!({"type": "object", "properties": {"x": {"type": "string"}}});
            let spec = ToolSpec { name: "far".into(), description: String::new(), parameters };
            let far: Arc<dyn Tool> = Arc::new(OfServer(spec, Arc::clone(&ran)));
            let billing = billing_agent(&models, &kit).build().unwrap();
            let agent = Agent::builder(desk).tools([far]).config(ReactConfig { tool_mode, ..preset() });
            let agent = agent.handoff(to(&billing)).checkpointer(Arc::new(MemoryCheckpointer::new()));
            let agent = agent.build().unwrap();
            let ask = agent.thread("t").ask("go");
            let reply = tokio::time::timeout(Duration::from_secs(60), ask).await.expect("it ends").unwrap();
            assert_eq!(reply.text, "it is paid");
            assert_eq!(*ran.lock().unwrap(), [r#""1""#, r#""2""#]);
            check::replays(agent.graph(), &kit).await;
        });
    }
}

#[test]
fn rules_and_grants_are_those_of_the_active_agent() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let deny = vec![PermissionRule::new("echo", Permit::Deny)];
        let billing = billing_agent(&models, &kit).permissions(deny).build().unwrap();
        let agent = desk_agent(&models, &kit, to(&billing));
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).max_steps(3).build().unwrap();
        let input = agent.input("my invoice").permissions([PermissionRule::new("echo", Permit::Allow)]);
        agent.thread("t").run(input).await.unwrap();
        let state = head(agent.graph()).await.values;
        assert_eq!(kit.n("echo"), 1, "the rules of billing deny what those of the desk allow");
        assert_eq!((state.active.as_str(), state.permissions.len()), ("billing", 0));
        assert_eq!(state.handoffs.others[""].permissions.len(), 1, "the grant stays with the desk");
    });
}

#[test]
fn limits_are_those_of_the_turn() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let billing = billing_agent(&models, &kit).max_steps(50).build().unwrap();
        let limit = Limit { max: 1, at: AtLimit::Fixed("no more".into()), ..preset().limit };
        let desk = desk_agent(&models, &kit, to(&billing)).config(ReactConfig { limit, ..preset() });
        let agent = desk.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        let reply = agent.thread("t").ask("my invoice").await.unwrap();
        assert_eq!((reply.outcome, reply.text.as_str()), (AgentOutcome::Limit, "no more"));
    });
}

#[test]
fn a_view_leaves_tool_rounds_out_and_changes_no_message() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let billing = billing_agent(&models, &kit).build().unwrap();
        let handoff = to(&billing).view(HandoffView::NoToolRounds);
        let agent = desk_agent(&models, &kit, handoff).checkpointer(Arc::new(MemoryCheckpointer::new()));
        let agent = agent.build().unwrap();
        agent.thread("t").ask("my invoice").await.unwrap();
        let read: Vec<_> =
            models.billing.requests()[0].messages.iter().map(|read| read.content.clone()).collect();
        assert_eq!(read, ["You bill.", "my invoice"]);
        assert_eq!(head(agent.graph()).await.values.messages.len(), 7);
        // It calls its own tool then, and reads that round.
        assert_eq!(models.billing.requests()[1].messages.len(), 4);
        agent.thread("t").ask("something else").await.unwrap();
        let back = models.desk.requests().pop().unwrap();
        assert!(back.messages.iter().any(|read| read.content == "r:desk"), "the desk has its own view");
    });
}

#[test]
fn a_summary_is_made_before_the_first_call() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let summary = says("s", |_| Say::Text("The user has an invoice."));
        let consolidate = preset().context.layers.into_iter();
        let has_layer = consolidate.clone().any(|layer| matches!(layer, ContextLayer::Consolidate { .. }));
        let billing = billing_agent(&models, &kit);
        let handoff = |billing: &Agent| to(billing).view(HandoffView::Summary);
        if !has_layer {
            let without = desk_agent(&models, &kit, handoff(&billing.clone().build().unwrap())).build();
            assert!(matches!(without, Err(AgentError::HandoffSummary { name }) if name == "billing"));
        }
        let billing =
            billing.config(ReactConfig { system_prompt: "You bill.".into(), ..ReactConfig::default() });
        let billing = billing.compaction_model(summary).build().unwrap();
        let agent = desk_agent(&models, &kit, handoff(&billing));
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        agent.thread("t").ask("hello").await.unwrap();
        agent.thread("t").ask("my invoice").await.unwrap();
        let read = format!("{:?}", models.billing.requests()[0].messages);
        assert!(read.contains("The user has an invoice."), "{read}");
        assert!(agent.graph().topology().find("compact_billing").is_some());
    });
}

#[test]
fn a_summary_waits_for_the_next_turn_if_the_round_of_the_transfer_ends_its_own() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let summary = says("s", |_| Say::Text("The user has an invoice."));
        let own = ReactConfig { system_prompt: "You bill.".into(), ..ReactConfig::default() };
        let billing = billing_agent(&models, &kit).config(own).compaction_model(summary).build().unwrap();
        let desk = says("desk", |request| match request.messages.last().unwrap().content.as_str() {
            "hello" => Say::Text(LONG),
            _ => Say::Calls(&[TO_BILLING, ("send", r#"{"to":"ann"}"#)]),
        });
        let mut stops = config("You are the desk.");
        stops.approval.stop_on_deny = true;
        let desk = Agent::builder(desk).tools(kit.tools(&["send"])).config(stops);
        let desk = desk.handoff(to(&billing).view(HandoffView::Summary));
        let desk = desk.approver(Person { kit: kit.clone(), decide: |_| Some(Approval::Deny("no".into())) });
        let agent = desk.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        agent.thread("t").ask("hello").await.unwrap();
        let ended = agent.thread("t").ask("my invoice").await.unwrap();
        assert_eq!(ended.outcome, AgentOutcome::Denied);
        assert_eq!(
            (head(agent.graph()).await.values.active.as_str(), models.billing.requests().len()),
            ("billing", 0)
        );
        agent.thread("t").ask("and now?").await.unwrap();
        let read = format!("{:?}", models.billing.requests()[0].messages);
        assert!(read.contains("The user has an invoice."), "{read}");
    });
}

/// A source with one tool.
struct Source(Arc<ToolRegistry>);

impl Source {
    fn of(name: &str) -> Self {
        let spec =
            ToolSpec { name: name.into(), description: String::new(), parameters: json!({"type": "object"}) };
        let mut tools = ToolRegistry::new();
        tools.insert(Arc::new(OfServer(spec, Arc::default())) as Arc<dyn Tool>).unwrap();
        Self(Arc::new(tools))
    }
}

impl ToolSource for Source {
    fn tools(&self) -> Arc<ToolRegistry> {
        self.0.clone()
    }

    fn refresh(&self) -> RefreshFuture<'_> {
        Box::pin(ready(()))
    }
}

#[test]
fn an_agent_that_takes_over_offers_the_tools_of_its_own_sources() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let signing = Agent::builder(models.billing.signing()).config(config("You bill."));
        let billing = signing.tools(kit.tools(&["echo"])).tool_source(Source::of("ledger")).build().unwrap();
        let desk = desk_agent(&models, &kit, to(&billing)).tool_source(Source::of("calendar"));
        let agent = desk.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        assert_eq!(agent.thread("t").ask("my invoice").await.unwrap().text, "it is paid");
        for request in models.billing.requests() {
            let names: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
            assert!(names.contains(&"ledger") && !names.contains(&"calendar"), "{names:?}");
        }
        check::replays(agent.graph(), &kit).await;
    });
}

#[test]
fn a_transferred_turn_ends_alike_after_a_stop_at_each_write() {
    for at in STOPS {
        let mut stops = 0;
        for n in 1.. {
            let stopped = paused(async {
                let (store, models) = (Arc::new(MemoryCheckpointer::new()), models());
                let (watching, now) = watched(store.clone(), at, n);
                let agent = group(&models, &Kit::default(), watching);
                let stopped = tokio::select! {
                    ended = agent.thread("t").ask("my invoice") => { ended.unwrap(); false }
                    () = now.notified() => true,
                };
                drop(agent);
                let kit = Kit::default();
                let agent = group(&models, &kit, store.clone());
                let reply = match store.load(&"t".into(), None).await.unwrap() {
                    Some(_) => agent.thread("t").resume().await.unwrap(),
                    None => agent.thread("t").ask("my invoice").await.unwrap(),
                };
                assert_eq!((reply.outcome, reply.text.as_str()), (AgentOutcome::Completed, "it is paid"));
                let state = head(agent.graph()).await.values;
                check::calls_are_answered(state.messages.iter());
                assert_eq!((state.active.as_str(), state.handoffs.current.as_str()), ("billing", "billing"));
                check::replays(agent.graph(), &kit).await;
                stopped
            });
            if !stopped {
                break;
            }
            stops += 1;
        }
        assert!(stops > 8, "{at:?}: {stops}");
    }
}

#[test]
fn a_fork_from_before_the_transfer_transfers_again() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let agent = group(&models, &kit, Arc::new(MemoryCheckpointer::new()));
        agent.thread("t").ask("my invoice").await.unwrap();
        let history = agent.thread("t").history().checkpoints().await.unwrap();
        let before =
            history.iter().find(|meta| meta.control.next.iter().any(|next| next == "tools")).unwrap();
        let forked = agent.thread("t").at(before.id).resume().await.unwrap();
        assert_eq!(forked.text, "it is paid");
        assert_eq!(head(agent.graph()).await.values.active, "billing");
    });
}

#[test]
fn a_discarded_round_transfers_if_the_call_was_answered() {
    paused(async {
        // The name is repaired.
        let desk = says("desk", |request| match desk(request) {
            Say::Calls(_) => {
                Say::Calls(&[("Transfer-To-Billing", TO_BILLING.1), ("echo", r#"{"x":"desk"}"#)])
            }
            say => say,
        });
        let (kit, models) = (Kit::default(), Models { desk, ..models() });
        let group = |models: &Models, kit: &Kit, store: Arc<dyn Checkpointer>| {
            let billing = billing_agent(models, kit).build().unwrap();
            let desk = desk_agent(models, kit, to(&billing)).config(ReactConfig { repair: true, ..preset() });
            desk.checkpointer(store).build().unwrap()
        };
        let store = Arc::new(MemoryCheckpointer::new());
        let mut transferred = Vec::new();
        for n in 1..40 {
            let store = if n == 1 { store.clone() } else { Arc::new(MemoryCheckpointer::new()) };
            let (watching, now) = watched(store.clone(), STOPS[1], n);
            let first = group(&models, &kit, watching);
            let stopped = tokio::select! {
                ended = first.thread("t").ask("my invoice") => { ended.unwrap(); false }
                () = now.notified() => true,
            };
            if !stopped {
                break;
            }
            drop(first);
            let agent = group(&models, &kit, store);
            agent.thread("t").on_unfinished(OnUnfinished::Discard).ask("thanks").await.unwrap();
            let state = head(agent.graph()).await.values;
            check::calls_are_answered(state.messages.iter());
            let answered = contents(&state).contains(&"Transferred.");
            assert_eq!(state.active == "billing", answered, "{n}: {:?}", contents(&state));
            transferred.push(answered);
        }
        assert!(transferred.contains(&true) && transferred.contains(&false), "{transferred:?}");
    });
}

#[test]
fn a_failed_call_of_the_active_agent_falls_back_or_is_resumed() {
    paused(async {
        let (kit, mut models) = (Kit::default(), models());
        let up = models.billing.clone();
        models.billing = says("down", |_| Say::Fails);
        let store = Arc::new(MemoryCheckpointer::new());
        let with_fallback = billing_agent(&models, &kit).fallback(up.clone()).build().unwrap();
        let agent =
            desk_agent(&models, &kit, to(&with_fallback)).checkpointer(store.clone()).build().unwrap();
        let reply = agent.thread("a").ask("my invoice").await.unwrap();
        assert_eq!((reply.text.as_str(), reply.metadata.model.as_str()), ("it is paid", "billing"));

        let agent = group(&models, &kit, store.clone());
        assert_eq!(agent.thread("t").ask("my invoice").await.unwrap().outcome, AgentOutcome::LlmError);
        assert!(agent.graph().failed_end(&head(agent.graph()).await.values).is_some());
        models.billing = up;
        let desk_calls = models.desk.requests().len();
        let agent = group(&models, &kit, store);
        assert_eq!(agent.thread("t").resume().await.unwrap().text, "it is paid");
        assert_eq!(models.desk.requests().len(), desk_calls, "the transfer is not repeated");
    });
}

#[test]
fn a_guard_of_an_agent_checks_its_own_turns_and_one_of_the_first_agent_all() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let guard = |name: &str, word: &'static str| {
            Guard::new(name, GuardAt::Output, move |view: View| {
                ready(Ok(match view.text.contains(word) {
                    true => Verdict::Block { reply: format!("not {word}") },
                    false => Verdict::Pass,
                }))
            })
        };
        for (of_desk, of_billing, reason) in
            [("paid", "nothing", "guardrail:words"), ("nothing", "paid", "guardrail:billing_words")]
        {
            let billing = billing_agent(&models, &kit).guard(guard("words", of_billing)).build().unwrap();
            let desk = desk_agent(&models, &kit, to(&billing)).guard(guard("words", of_desk));
            let agent = desk.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
            let reply = agent.thread("t").ask("my invoice").await.unwrap();
            assert_eq!((reply.text.as_str(), reply.metadata.stop_reason.as_str()), ("not paid", reason));
            assert_eq!(agent.thread("t").ask("something else").await.unwrap().text, "goodbye");
            check::replays(agent.graph(), &kit).await;
        }
    });
}

#[test]
fn a_guard_of_an_agent_leaves_those_before_it_alone() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let guard = Guard::new("words", GuardAt::Output, |_| {
            ready(Ok(Verdict::Block { reply: "blocked".to_owned() }))
        });
        // `law` is behind `billing`, and only its own turns are guarded and held back.
        let law = billing_agent(&models, &kit).guard(guard.hold()).build().unwrap();
        let billing = billing_agent(&models, &kit).handoff(Handoff::new("law", "a law", &law));
        let desk = desk_agent(&models, &kit, to(&billing.build().unwrap()));
        let agent = desk.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        let mut stream = agent.thread("t").stream(agent.input("my invoice"), [StreamMode::Custom]);
        let mut pieces = Vec::new();
        while let Some(event) = stream.next().await {
            if let Some(AgentEvent::LlmToken { token, .. }) = AgentEvent::of(&event) {
                pieces.push(token);
            }
        }
        let state = stream.outcome().await.unwrap().state;
        assert_eq!(
            (state.outcome, state.final_reply.as_str()),
            (Some(AgentOutcome::Completed), "it is paid")
        );
        assert_eq!(pieces, ["it ", "is ", "paid"], "the text is streamed while it is made");
    });
}

#[test]
fn the_graph_draws_every_transfer_and_no_other() {
    let (kit, models) = (Kit::default(), models());
    let agent = group(&models, &kit, Arc::new(MemoryCheckpointer::new()));
    let drawn = agent.graph().drawing().mermaid();
    for edge in ["agent_billing", "tools_billing"] {
        assert!(drawn.contains(edge), "{drawn}");
    }
    assert!(agent.graph().warnings().is_empty(), "{:?}", agent.graph().warnings());
}

#[test]
fn a_conversation_of_an_agent_that_is_gone_goes_to_the_first_one() {
    paused(async {
        let (kit, models) = (Kit::default(), models());
        let store = Arc::new(MemoryCheckpointer::new());
        group(&models, &kit, store.clone()).thread("t").ask("my invoice").await.unwrap();
        let desk = Agent::builder(models.desk.clone()).config(preset()).checkpointer(store).build().unwrap();
        assert_eq!(desk.thread("t").ask("thanks").await.unwrap().text, "goodbye");
        assert_eq!(head(desk.graph()).await.values.handoffs.current, "");
    });
}

#[test]
fn handoffs_that_cannot_be_used_are_errors() {
    let (kit, models) = (Kit::default(), models());
    let billing = billing_agent(&models, &kit).build().unwrap();
    let build = |handoffs: [Handoff; 2]| {
        let desk = Agent::builder(models.desk.clone()).config(preset());
        handoffs.into_iter().fold(desk, AgentBuilder::handoff).build().unwrap_err()
    };
    let named = |name: &str| Handoff::new(name, "now", &billing);
    let nested = Agent::builder(models.desk.clone()).config(preset()).handoff(named("a")).build().unwrap();
    let error = build([named("a"), Handoff::new("b", "now", &nested)]);
    assert!(matches!(error, AgentError::DuplicateHandoff { name } if name == "a"));
    assert!(matches!(build([named("x"), named("a b")]), AgentError::HandoffName { name } if name == "a b"));
    let custom = Agent::of(billing.graph().clone(), &preset());
    let error = build([named("x"), Handoff::new("own", "now", &custom)]);
    assert!(matches!(error, AgentError::HandoffGraph { name } if name == "own"));
}
