//! The scenarios of the agent, each under its number.
//!
//! Start at [`Scenario`]: it plays a script in process, on a paused clock, and over loopback, on the real one.

#![allow(clippy::unwrap_used, reason = "what fails here fails a test")]

pub(crate) mod check;
pub(crate) mod crash;
mod kit;
mod show;
pub(crate) mod writes;

mod approvals;
mod budget;
mod cancel;
mod cancel_everywhere;
mod changes;
mod context;
mod decided;
mod doubt;
mod dreams;
mod edited;
mod events;
mod extension;
mod facades;
mod fallback;
mod faults;
mod finish;
mod finished;
mod folder;
mod foreign;
mod guards;
mod handoffs;
mod hints;
mod history;
mod hooks;
mod limits;
mod media;
mod mem0;
mod memory;
mod memory_stores;
mod messages;
mod neighbours;
mod pairs;
mod partial_output;
mod parts;
mod power;
mod presets;
mod property;
mod questions;
mod react;
mod real_replay;
mod real_thread;
mod remembers;
mod replay;
mod resume;
mod retrieve;
mod rules;
mod scripted_by_request;
mod second_opinion;
mod shared;
mod snapshots;
mod spill;
mod splits;
mod start;
mod steer;
mod stream;
mod structured;
mod sub_agents;
mod summaries;
mod timers;
mod tool_cx;
mod tools;
mod transcripts;
mod treatment;
mod trust;
mod turns;
mod waiting_approvals;
mod wired;

use std::{future::Future, sync::Arc, time::Duration};

use futures::StreamExt;
use kit::{Decide, Kit, Memory, Person, Store};
use serde_json::Value;
use show::Told;
use superstep::{
    END, Event, MemoryCheckpointer, RunOptions, START, State, StateGraph, Status, StreamMode,
    agent::{
        Agent, AgentBuilder, AgentOutcome, AgentState, HasAgent, ReactConfig,
        deps::MemoryTrigger,
        graph::{ReactNodes, should_continue},
        hooks::Hooks,
        state::AgentStateUpdate,
    },
    clock::TokioClock,
    llm::{
        ApiKey, ChatModel, Message, ModelRetry, OpenAiConfig, OpenAiModel, Request, ResponseStream, Role,
        retries::Jitter,
        wire::{WireConfig, WirePolicy, split_thinking},
    },
};
use superstep_testing::{
    provider::Rules,
    script::{Answer, Script},
    scripted::ScriptedModel,
    wire::WireServer,
};
use tokio::{runtime, time::Instant};

/// Returns the preset `graph` with five rounds and exact delays.
pub(crate) fn preset() -> ReactConfig {
    let preset = ReactConfig::graph(5);
    ReactConfig { retry: ModelRetry { jitter: Jitter::None, ..preset.retry }, ..preset }
}

/// Connects the nodes of an agent as its own graph does.
fn usual_edges<S: HasAgent>(graph: &mut StateGraph<S>, nodes: ReactNodes) {
    graph.add_edge(START, nodes.init_state);
    graph.add_edge(nodes.init_state, nodes.memory_trigger);
    graph.add_edge(nodes.memory_trigger, nodes.agent);
    graph.add_conditional_edges(nodes.agent, should_continue, |next| nodes.target(next));
    graph.add_edge(nodes.tools, nodes.agent);
    graph.add_edge(nodes.finalize, END);
}

/// A script, and everything else that makes up a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) config: ReactConfig,
    pub(crate) wire: WireConfig,
    pub(crate) script: Script,
    /// The answers of the fallback models `f1`, `f2`, ….
    pub(crate) fallbacks: Vec<Script>,
    pub(crate) tools: Vec<&'static str>,
    /// The results of `search`.
    pub(crate) found: Vec<&'static str>,
    /// The conversation before the first turn.
    pub(crate) history: Vec<Message>,
    /// The token count of a message; the vocabulary's if `None`.
    pub(crate) tokens: Option<fn(&Message) -> u64>,
    /// The user's messages, turn by turn.
    pub(crate) turns: Vec<&'static str>,
    /// The one-time hints of the first turn.
    pub(crate) hints: Vec<&'static str>,
    pub(crate) user_id: &'static str,
    pub(crate) cancel: Cancel,
    pub(crate) decide: Option<Decide>,
    pub(crate) memory: Option<Memory>,
    pub(crate) knowledge: Option<Memory>,
    /// The result of a search in either.
    pub(crate) knows: Vec<&'static str>,
    /// The hooks of the program.
    pub(crate) hooks: fn(&Kit) -> Hooks,
    /// `true` if exactly all answers must be used.
    pub(crate) exact: bool,
}

/// The time of the cancellation of the first turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cancel {
    Never,
    /// At this number of milliseconds after its start.
    At(u64),
    /// At this event of this call.
    On(&'static str, &'static str),
}

/// The result of a scenario.
pub(crate) struct Ran {
    pub(crate) turns: Vec<Turn>,
    /// The bodies of all requests.
    pub(crate) requests: Vec<Value>,
    /// Their times, on a paused clock.
    pub(crate) times: Vec<u64>,
    /// The bodies of all requests to each of the fallbacks.
    pub(crate) fell_back: Vec<Vec<Value>>,
    pub(crate) kit: Kit,
}

/// The result of one turn.
pub(crate) struct Turn {
    pub(crate) told: Vec<Told>,
    pub(crate) events: Vec<Event<AgentState>>,
    pub(crate) state: AgentState,
    /// The time of its end, in milliseconds since its start.
    pub(crate) ended: u64,
}

impl Scenario {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            config: preset(),
            wire: WireConfig { model: "m".to_owned(), ..WireConfig::default() },
            script: Script::new(answers),
            fallbacks: Vec::new(),
            tools: vec!["add", "echo"],
            found: Vec::new(),
            history: Vec::new(),
            tokens: None,
            turns: vec!["go"],
            hints: Vec::new(),
            user_id: "",
            cancel: Cancel::Never,
            decide: None,
            memory: None,
            knowledge: None,
            knows: Vec::new(),
            hooks: |_| Hooks::default(),
            exact: true,
        }
    }

    pub(crate) fn tools(self, tools: &[&'static str]) -> Self {
        Self { tools: tools.to_vec(), ..self }
    }

    /// Adds a fallback model after the others.
    pub(crate) fn fallback(mut self, answers: impl IntoIterator<Item = Answer>) -> Self {
        self.fallbacks.push(Script::new(answers));
        self
    }

    pub(crate) fn turns(self, turns: &[&'static str]) -> Self {
        Self { turns: turns.to_vec(), ..self }
    }

    pub(crate) fn config(self, change: impl FnOnce(ReactConfig) -> ReactConfig) -> Self {
        Self { config: change(self.config), ..self }
    }

    /// Plays it at both levels, which must not differ, and returns the run in process.
    pub(crate) fn play(&self) -> Ran {
        let (here, wired) = (self.play_here(), self.play_wired());
        assert_eq!(here.requests, wired.requests, "the levels differ in their requests");
        assert_eq!(here.fell_back, wired.fell_back, "the levels differ in their requests to fallbacks");
        assert_eq!(here.kit.ran(), wired.kit.ran(), "the levels differ in what was executed");
        assert_eq!(here.kit.notes(), wired.kit.notes(), "the levels differ in what hooks saw");
        for (here, wired) in here.turns.iter().zip(&wired.turns) {
            assert_eq!(here.shown(), wired.shown(), "the levels differ in their events");
            assert_eq!(
                comparable(&here.state),
                comparable(&wired.state),
                "the levels differ in their states"
            );
        }
        here
    }

    /// Plays it in process, on a paused clock.
    pub(crate) fn play_here(&self) -> Ran {
        paused(async {
            let models: Vec<_> =
                self.models().map(|(_, script)| ScriptedModel::with_rules(script, self.rules())).collect();
            let named = self.models().zip(&models).map(|((wire, _), model)| -> Arc<dyn ChatModel> {
                Arc::new(Wired { model: model.clone(), wire })
            });
            let (turns, kit) = self.run(named.collect(), Kit::new(&self.found)).await;
            let told = turns.iter().flat_map(|turn| &turn.told);
            let compacted = told.filter(|told| told.name == "compacted").count();
            let requests = |(wire, _): (WireConfig, Script), model: &ScriptedModel| {
                assert_eq!(model.refused(), [], "a provider would refuse a request");
                if self.exact {
                    model.check().unwrap();
                }
                let sent = model.requests();
                check::requests_extend(&sent, compacted);
                sent.iter().map(|request| serde_json::to_value(wire.body(request)).unwrap()).collect()
            };
            let mut sent: Vec<_> =
                self.models().zip(&models).map(|(wire, model)| requests(wire, model)).collect();
            Ran { turns, requests: sent.remove(0), times: models[0].times(), fell_back: sent, kit }
        })
    }

    /// Plays it over loopback.
    pub(crate) fn play_wired(&self) -> Ran {
        real(async {
            let (mut servers, mut models) = (Vec::new(), Vec::<Arc<dyn ChatModel>>::new());
            for (wire, script) in self.models() {
                let rules = Rules {
                    alternates: wire.alternates,
                    needs_tools: wire.lists_called_tools,
                    ..self.rules()
                };
                let server = WireServer::start_with(script, rules).await.unwrap();
                let config = OpenAiConfig::new(server.base_url(), ApiKey::new("sk-test"), "");
                models.push(Arc::new(OpenAiModel::new(OpenAiConfig { wire, ..config }).unwrap()));
                servers.push(server);
            }
            let (turns, kit) = self.run(models, Kit::new(&self.found).without_time()).await;
            for server in &servers {
                assert_eq!(server.refused(), [], "a provider would refuse a request");
                if self.exact {
                    server.check().unwrap();
                }
            }
            let mut sent: Vec<_> = servers.iter().map(WireServer::requests).collect();
            Ran { turns, requests: sent.remove(0), times: Vec::new(), fell_back: sent, kit }
        })
    }

    /// Returns the rules of its provider.
    pub(crate) fn rules(&self) -> Rules {
        Rules { verbatim: self.wire.arguments == WirePolicy::Verbatim, ..Rules::default() }
    }

    /// Returns the wire and the script of each model, the main one first.
    fn models(&self) -> impl Iterator<Item = (WireConfig, Script)> {
        let fallbacks = self.fallbacks.iter().enumerate().map(|(at, script)| {
            (WireConfig { model: format!("f{}", at + 1), ..self.wire.clone() }, script.clone())
        });
        [(self.wire.clone(), self.script.clone())].into_iter().chain(fallbacks)
    }

    /// Creates the agent of the scenario around any model.
    pub(crate) fn agent(&self, model: Arc<dyn ChatModel>, kit: &Kit) -> AgentBuilder {
        let mut agent = Agent::builder(model).tools(kit.tools(&self.tools)).config(self.config.clone());
        agent = agent.hooks((self.hooks)(kit));
        if let Some(tokens) = self.tokens {
            agent = agent.counter(Arc::new(kit::Tokens(tokens)));
        }
        if let Some(decide) = self.decide {
            agent = agent.approver(Arc::new(Person { kit: kit.clone(), decide }));
        }
        if let Some(how) = self.memory {
            let memory = Arc::new(self.store(how, kit));
            agent = agent.memory(match how {
                Memory::Puzzled => {
                    MemoryTrigger::asking(memory, |_| std::panic::resume_unwind(Box::new("what is this?")))
                }
                _ => MemoryTrigger::new(memory),
            });
        }
        if let Some(how) = self.knowledge {
            agent = agent.knowledge(Arc::new(self.store(how, kit)));
        }
        agent
    }

    fn store(&self, how: Memory, kit: &Kit) -> Store {
        Store { kit: kit.clone(), how, knows: self.knows.clone() }
    }

    async fn run(&self, mut models: Vec<Arc<dyn ChatModel>>, kit: Kit) -> (Vec<Turn>, Kit) {
        let checkpointer = Arc::new(MemoryCheckpointer::new());
        let agent = self.agent(models.remove(0), &kit).checkpointer(checkpointer);
        let agent = models.into_iter().fold(agent, AgentBuilder::fallback).build().unwrap();
        assert!(agent.graph().warnings().is_empty(), "the lints raise no false alarm");
        let mut turns = Vec::new();
        for (at, text) in self.turns.iter().enumerate() {
            let cancel = if at == 0 { self.cancel } else { Cancel::Never };
            let turn = self.turn(&agent, self.input(at == 0, text), cancel).await;
            check::turn(&turn);
            turns.push(turn);
        }
        check::replays(agent.graph(), &kit).await;
        (turns, kit)
    }

    /// Returns the user's message with the program's additions.
    fn input(&self, is_first: bool, text: &str) -> AgentStateUpdate {
        let before = if is_first { self.history.as_slice() } else { &[] };
        let messages: Vec<_> = before.iter().cloned().chain([Message::user(text)]).collect();
        let mut input = AgentState::update().messages(messages);
        if !self.user_id.is_empty() {
            input = input.user_id(self.user_id);
        }
        if is_first && !self.hints.is_empty() {
            input = input.hints(self.hints.iter().map(|hint| hint.to_string()).collect::<Vec<_>>());
        }
        input
    }

    async fn turn(&self, agent: &Agent, input: AgentStateUpdate, cancel: Cancel) -> Turn {
        let config = RunOptions::new().thread("t").clock(TokioClock::starting_at(0));
        let (token, began) = (config.get_cancel().clone(), Instant::now());
        if let Cancel::At(ms) = cancel {
            let token = token.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                token.cancel();
            });
        }
        let modes = [StreamMode::Custom, StreamMode::Updates];
        let mut stream = agent.configured(config).stream(input, modes);
        let (mut told, mut events) = (Vec::new(), Vec::new());
        while let Some(event) = stream.next().await {
            if let Event::Custom { name, data, .. } = &event {
                let at = u64::try_from(began.elapsed().as_millis()).unwrap();
                told.push(Told { at, name, data: data.clone() });
                if let Cancel::On(cancels, id) = cancel
                    && cancels == *name
                    && data["id"] == id
                {
                    token.cancel();
                }
            }
            events.push(event);
        }
        let ended = u64::try_from(began.elapsed().as_millis()).unwrap();
        let outcome = stream.outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Completed);
        Turn { told, events, state: outcome.state, ended }
    }
}

impl Ran {
    /// Returns the last turn.
    pub(crate) fn turn(&self) -> &Turn {
        self.turns.last().unwrap()
    }

    pub(crate) fn state(&self) -> &AgentState {
        &self.turn().state
    }

    pub(crate) fn events(&self) -> String {
        self.turn().shown()
    }

    /// Returns all messages of the thread.
    pub(crate) fn messages(&self) -> String {
        show::messages(self.state().messages.iter())
    }

    pub(crate) fn reply(&self) -> &str {
        &self.state().final_reply
    }

    pub(crate) fn outcome(&self) -> AgentOutcome {
        self.state().outcome.unwrap()
    }

    /// Returns the result of a call, as the model reads it.
    pub(crate) fn result(&self, call: &str) -> &str {
        let answer = self.state().messages.iter().find(|message| message.tool_call_id == call);
        &answer.expect("the call was answered").content
    }
}

impl Turn {
    pub(crate) fn shown(&self) -> String {
        show::events(&self.told)
    }

    /// Returns the messages since the user's message.
    pub(crate) fn of_this_turn(&self) -> impl Iterator<Item = &Message> {
        let messages = &self.state.messages;
        let asked = messages.iter().rposition(begins_a_turn).unwrap();
        messages.iter().skip(asked + 1).filter(|message| !message.synthetic)
    }

    /// Returns the times of events with this name.
    pub(crate) fn times(&self, name: &str) -> Vec<u64> {
        self.told.iter().filter(|told| told.name == name).map(|told| told.at).collect()
    }

    /// Returns the updates of a node, as they are stored.
    pub(crate) fn updates(&self, of: &str) -> Vec<Value> {
        let update = |event: &Event<AgentState>| match event {
            Event::Update { node, update, .. } if node.as_str() == of => {
                Some(serde_json::to_value(update).unwrap())
            }
            _ => None,
        };
        self.events.iter().filter_map(update).collect()
    }

    /// Returns the nodes that ran, in their order.
    pub(crate) fn nodes(&self) -> String {
        let node = |event: &Event<AgentState>| match event {
            Event::Update { node, .. } => Some(node.to_string()),
            _ => None,
        };
        self.events.iter().filter_map(node).collect::<Vec<_>>().join(" ")
    }
}

/// Returns whether it is a user message that begins a turn: neither synthetic nor sent during a turn.
pub(crate) fn begins_a_turn(message: &Message) -> bool {
    message.role == Role::User && !message.synthetic && !message.id.starts_with("steered.")
}

/// A scripted model with the behaviour of this wire.
struct Wired {
    model: ScriptedModel,
    wire: WireConfig,
}

impl ChatModel for Wired {
    fn name(&self) -> &str {
        &self.wire.model
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let deltas = self.model.stream(request);
        if self.wire.think_tags { split_thinking(deltas) } else { deltas }
    }
}

/// Removes the transport's texts and the time from a state.
fn comparable(state: &AgentState) -> AgentState {
    let mut state = state.clone();
    if let Some(error) = &mut state.error {
        error.message.clear();
        error.retry_at_ms = None;
        state.final_reply.clear();
    }
    state
}

/// Runs on a paused clock, which advances when all tasks wait for it.
pub(crate) fn paused<T>(run: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(run)
}

pub(crate) fn real<T>(run: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run)
}
