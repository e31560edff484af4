//! Any calls of one answer, with or without approval, decided in any order and over any restarts: side
//! effects follow the order of the calls if the mode is sequential or a call is exclusive.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::{collection::vec, option, prelude::*, sample::select, test_runner::Config};
use serde_json::json;
use superstep::{
    Answers, Checkpointer, MemoryCheckpointer, RunOptions,
    agent::{
        Agent, AgentOutcome, Approval, ReactConfig, Reply,
        config::{ApprovalConfig, PermissionRule, Permit, ToolMode},
    },
};
use superstep_testing::{
    script::{Script, calls, txt},
    scripted::ScriptedModel,
};

use super::{
    super::{Kit, Scenario, check, kit::Decide, paused},
    case::Crash,
    life::Stops,
};
use crate::support::{Stuck, head, t};

/// The kind of a call: its tool, and whether it needs approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Asks,
    Alone,
    AloneAsks,
}

impl Kind {
    fn is_alone(self) -> bool {
        matches!(self, Self::Alone | Self::AloneAsks)
    }

    fn asks(self) -> bool {
        matches!(self, Self::Asks | Self::AloneAsks)
    }

    fn call(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain => ("slow", r#"{"x":"c"}"#),
            Self::Asks => ("slow", r#"{"x":"ask"}"#),
            Self::Alone => ("solo", r#"{"x":"c"}"#),
            Self::AloneAsks => ("solo", r#"{"x":"ask"}"#),
        }
    }
}

/// The source of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// External answers, in some order, a few at a time.
    Outside,
    /// A person in the process.
    There,
    /// No decision is needed: everything is approved.
    Yes,
}

#[derive(Clone, Debug)]
struct Case {
    mode: ToolMode,
    hold: bool,
    who: Who,
    calls: Vec<(Kind, Approval)>,
    /// The order of the decisions, and the number of decisions after which each run is resumed.
    order: Vec<u32>,
    at_a_time: usize,
    crash: Option<Crash>,
}

const IDS: [&str; 5] = ["c0", "c1", "c2", "c3", "c4"];

fn case() -> impl Strategy<Value = Case> {
    let mode = select(&[ToolMode::Sequential, ToolMode::Parallel { max: 1 }, ToolMode::Parallel { max: 3 }]);
    let kind = select(&[Kind::Plain, Kind::Asks, Kind::Asks, Kind::Alone, Kind::AloneAsks]);
    let decision = prop_oneof![
        3 => Just(Approval::Approve),
        1 => Just(Approval::Deny("no".into())),
        1 => Just(Approval::Edit(json!({"x": "b"}))),
        1 => Just(Approval::Respond("it is done".into())),
    ];
    let crash = option::of((1..25usize, any::<bool>()).prop_map(|(write, after)| Crash { write, after }));
    (
        (mode, any::<bool>(), select(&[Who::Outside, Who::Outside, Who::There, Who::Yes])),
        (vec((kind, decision), 1..=IDS.len()), vec(any::<u32>(), IDS.len()), 1..3usize),
        crash,
    )
        .prop_map(|((mode, hold, who), (calls, order, at_a_time), crash)| Case {
            mode,
            hold: hold && who != Who::Yes,
            who,
            calls,
            order,
            at_a_time,
            crash,
        })
}

impl Case {
    /// Returns whether the later of two calls must not start before the earlier one is answered.
    fn follows(&self, earlier: usize, later: usize) -> bool {
        let one_by_one = matches!(self.mode, ToolMode::Sequential | ToolMode::Parallel { max: 1 });
        earlier < later && (one_by_one || self.calls[earlier].0.is_alone() || self.calls[later].0.is_alone())
    }

    fn runs(&self, call: usize) -> bool {
        let (kind, decision) = &self.calls[call];
        !kind.asks()
            || self.who == Who::Yes
            || self.who == Who::There
            || matches!(decision, Approval::Approve | Approval::Edit(_))
    }

    fn scenario(&self) -> Scenario {
        let asks = |tool| PermissionRule {
            arguments: [("x".to_owned(), "ask".to_owned())].into(),
            ..PermissionRule::new(tool, Permit::Ask)
        };
        let (tool_mode, hold_batch) = (self.mode, self.hold);
        let there: Decide = |_| Some(Approval::Approve);
        let scenario = Scenario::new([]).tools(&["slow", "solo"]).config(|config| ReactConfig {
            tool_mode,
            permissions: vec![asks("slow"), asks("solo")],
            approval: ApprovalConfig { hold_batch, ..ApprovalConfig::default() },
            loops: Vec::new(),
            ..config
        });
        Scenario { decide: (self.who == Who::There).then_some(there), ..scenario }
    }

    fn program(&self, model: &ScriptedModel, kit: &Kit, store: Arc<dyn Checkpointer>) -> Agent {
        let agent = self.scenario().agent(Arc::new(model.clone()), kit).checkpointer(store);
        match self.who {
            Who::Outside => agent.approve_by_interrupt(),
            Who::There => agent,
            Who::Yes => agent.approve_all(),
        }
        .build()
        .unwrap()
    }
}

/// Returns the calls that ran, in the order of their starts.
fn ran(kit: &Kit) -> Vec<usize> {
    let call = |(_, key): (String, String)| {
        let id = key.rsplit('/').next().unwrap();
        IDS.iter().position(|known| *known == id).unwrap()
    };
    kit.effects().into_iter().map(call).collect()
}

/// Asserts which calls have run while these wait.
fn nothing_runs_past(case: &Case, kit: &Kit, waiting: &BTreeSet<usize>) {
    for call in ran(kit) {
        let overtaken = waiting.iter().find(|earlier| case.follows(**earlier, call));
        assert_eq!(overtaken, None, "call {call} ran before it was decided about: {case:?}");
        assert!(!case.hold, "call {call} ran while others waited: {case:?}");
    }
}

async fn live(case: &Case) -> (Reply, Kit, bool) {
    let (kit, stuck) = (Kit::default(), Stuck::default());
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let round = case.calls.iter().zip(IDS).map(|((kind, _), id)| {
        let (tool, args) = kind.call();
        (id, tool, args)
    });
    let model = ScriptedModel::new(Script::new([calls(round), txt("ok"), txt("ok")]));
    let stops = Stops::new(store.clone(), case.crash, &stuck);
    let mut agent = case.program(&model, &kit, Arc::new(stops));
    let mut order: Vec<usize> = (0..case.calls.len()).collect();
    order.sort_by_key(|call| case.order[*call]);
    let decision: BTreeMap<&str, Approval> =
        case.calls.iter().zip(IDS).map(|((_, decision), id)| (id, decision.clone())).collect();
    let (mut crashed, mut config) = (false, None::<RunOptions>);
    loop {
        let run = async {
            match config.take() {
                None => agent.thread("t").ask("go").await,
                Some(config) => agent.configured(config).resume().await,
            }
        };
        let ended = tokio::select! {
            biased;
            () = stuck.reached() => None,
            ended = run => Some(ended.unwrap()),
        };
        agent = case.program(&model, &kit, store.clone());
        let Some(reply) = ended else {
            crashed = true;
            let is_there = store.load(&"t".into(), None).await.unwrap().is_some();
            config = is_there.then(t);
            continue;
        };
        if reply.outcome != AgentOutcome::AwaitingApproval {
            return (reply, kit, crashed);
        }
        let waits = |id: &str| reply.interrupts.iter().any(|asked| asked.key == id);
        let waiting: BTreeSet<usize> = (0..case.calls.len()).filter(|call| waits(IDS[*call])).collect();
        nothing_runs_past(case, &kit, &waiting);
        let now = order.iter().map(|call| IDS[*call]).filter(|id| waits(id)).take(case.at_a_time);
        let answers = now.fold(Answers::new(), |answers, id| answers.answer(id, decision[id].clone()));
        config = Some(t().answers(answers));
    }
}

fn holds(case: &Case) {
    paused(async {
        let (reply, kit, crashed) = live(case).await;
        assert_eq!((reply.outcome, reply.text.as_str()), (AgentOutcome::Completed, "ok"));
        let ran = ran(&kit);
        for (nth, call) in ran.iter().enumerate() {
            let early = ran[..nth].iter().find(|earlier| case.follows(*call, **earlier));
            assert_eq!(early, None, "call {call} ran too late: {ran:?} of {case:?}");
        }
        for call in 0..case.calls.len() {
            let times = ran.iter().filter(|other| **other == call).count();
            let least = usize::from(case.runs(call) && !crashed);
            assert!((least..=usize::from(case.runs(call))).contains(&times), "{call} of {ran:?}: {case:?}");
        }
    });
}

#[test]
fn a_call_behind_one_that_waits_runs_after_it() {
    let seen = paused(async {
        let round = calls([("c0", "send", r#"{"to":"a"}"#), ("c1", "echo", r#"{"x":"1"}"#)]);
        let (kit, model) = (Kit::default(), ScriptedModel::new(Script::new([round, txt("ok")])));
        let scenario = Scenario::new([]).tools(&["echo", "send"]);
        let agent = scenario.agent(Arc::new(model), &kit).checkpointer(Arc::new(MemoryCheckpointer::new()));
        let agent = agent.approve_by_interrupt().build().unwrap();
        agent.thread("t").ask("go").await.unwrap();
        let before = ran(&kit);
        let answers = Answers::new().answer("c0", Approval::Approve);
        agent.thread("t").answers(answers).resume().await.unwrap();
        check::calls_are_answered(head(agent.graph()).await.values.messages.iter());
        (before, ran(&kit))
    });
    assert_eq!(seen, (vec![], vec![0, 1]));
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn side_effects_follow_the_call_order_with_any_approver(case in case()) {
        holds(&case);
    }
}
