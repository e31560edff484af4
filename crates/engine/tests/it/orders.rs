//! The commits are equal for every order in which tasks end and for any number of process restarts.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    sample::Index,
};
use superstep_engine::{
    ChannelSet, Control, Edge, EdgeKind, Endpoint, Failure, Finished, Input, NodeIndex, NodeSpec, OnCancel,
    Output, Records, Report, RetryPolicy, Run, RunLimits, SuperstepEnd, Target, Task, TaskId, Topology,
    TopologyBuilder,
};

/// The behaviour of a random graph's nodes. It depends only on the node and its superstep.
#[derive(Clone, Debug)]
struct World {
    nodes: usize,
    /// Plain edges; `0` is START, and a node may lead to itself.
    edges: Vec<(usize, usize)>,
    /// Routes, each with the node that has it.
    routes: Vec<(usize, usize)>,
    /// Routes of the nodes' own commands.
    gotos: Vec<(usize, usize)>,
    /// Error handlers: the node of each, and where an edge leads from it.
    handlers: BTreeMap<usize, usize>,
    seed: u64,
}

fn worlds() -> impl Strategy<Value = World> {
    (2..6_usize).prop_flat_map(|nodes| {
        let edge = move || (0..=nodes, 1..=nodes);
        let own = move || (1..=nodes, 1..=nodes);
        let gotos = vec(own(), 0..5);
        let handlers = btree_map(1..=nodes, 1..=nodes, 0..4);
        let edges = (vec(edge(), 0..8), vec(edge(), 0..5), gotos, handlers, any::<u64>());
        edges.prop_map(move |(mut edges, routes, gotos, handlers, seed)| {
            edges.push((0, 1));
            World { nodes, edges, routes, gotos, handlers, seed }
        })
    })
}

impl World {
    fn topology(&self) -> Arc<Topology> {
        let place = std::panic::Location::caller();
        let named = (0..self.nodes).map(|node| (format!("n{node}"), None));
        let handlers = self.handlers.keys().map(|of| (format!("h{of}"), Some(Endpoint::Node(of - 1))));
        let nodes = named.chain(handlers).map(|(name, handles)| NodeSpec {
            name: name.into(),
            on_cancel: OnCancel::Drop,
            worker: false,
            routing: false,
            handles,
            deferred: false,
            subgraph: None,
            place,
        });
        let end = |node: usize| node.checked_sub(1).map_or(Endpoint::Start, Endpoint::Node);
        let plain = self.edges.iter().map(|&edge| (edge, EdgeKind::Plain));
        let routes = self.routes.iter().enumerate();
        let routes = routes.map(|(number, &edge)| (edge, EdgeKind::Route(number.to_string())));
        let gotos = self.gotos.iter().enumerate();
        let gotos = gotos.map(|(number, &edge)| (edge, EdgeKind::Goto(number.to_string())));
        let handlers = (self.nodes + 1..).zip(self.handlers.values());
        let mended = handlers.map(|(handler, &to)| ((handler, to), EdgeKind::Plain));
        let edges = plain.chain(routes).chain(gotos).chain(mended);
        let edges = edges.map(|((from, to), kind)| Edge { from: end(from), to: end(to), kind, place });
        let builder =
            TopologyBuilder { nodes: nodes.collect(), edges: edges.collect(), ..TopologyBuilder::default() };
        Arc::new(builder.build(place).expect("random graphs are valid").0)
    }

    /// Returns a pseudorandom number for this task and question.
    fn draw(&self, task: TaskId, question: u64) -> u64 {
        let mut z = self.seed ^ (task.step as u64) << 40 ^ u64::from(task.slot) << 20 ^ question;
        for _ in 0..2 {
            z = (z ^ z >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        }
        z >> 7
    }

    fn report(&self, topology: &Topology, task: TaskId, name: &str) -> Report {
        let drawn = self.draw(task, 1);
        // Two exclusive channels that are seldom written, and two shared ones.
        let exclusive: ChannelSet = (0..2).filter(|channel| drawn >> (channel * 4) & 15 == 0).collect();
        let shared: ChannelSet = (2..4).filter(|channel| drawn >> (channel * 4) & 1 == 0).collect();
        let node = match name.split_at(1) {
            ("n", number) => Some(number.parse::<usize>().unwrap() + 1),
            ("h", _) => None,
            _ => Some(0),
        };
        let choose = |edges: &[(usize, usize)], question| {
            let own: Vec<usize> =
                edges.iter().filter(|(from, _)| Some(*from) == node).map(|(_, to)| *to).collect();
            (!own.is_empty()).then(|| own[self.draw(task, question) as usize % own.len()])
        };
        let target = |to: usize| Target::Node(topology.find(&format!("n{}", to - 1)).unwrap());
        let chosen = [choose(&self.gotos, 5), choose(&self.gotos, 6), choose(&self.routes, 2)];
        let targets = chosen.into_iter().flatten().map(target).collect();
        Report { written: exclusive.union(shared), exclusive, targets }
    }

    /// Returns the number of failures before the task succeeds. With a handler, the task may fail
    /// permanently.
    fn failures(&self, topology: &Topology, task: Task) -> u32 {
        let question = if topology.is_handler(task.node) { 4 } else { 3 };
        match [0, 0, 0, 1, 2, u32::MAX][self.draw(task.id, question) as usize % 6] {
            u32::MAX if topology.handler(task.node).is_none() => 0,
            failures => failures,
        }
    }
}

/// The course of a run: its commits and its last output.
type Course = (Vec<(SuperstepEnd, Control)>, Output);

const LIMIT: u32 = 8;

/// The next event while tasks run.
#[derive(Clone, Debug)]
enum Pick {
    /// One task ends.
    End(Index),
    /// The process ends.
    Crash,
    /// The run is drained, and another process continues.
    Drain,
}

/// Ends tasks in the order of `picks`; some picks end the process or the run instead.
fn drive(world: &World, picks: &[Pick]) -> Course {
    let topology = world.topology();
    let start = TaskId { step: 0, slot: 0 };
    let mut control = Control::input(None);
    let mut finished: Vec<(u32, Report)> = vec![(0, world.report(&topology, start, "__start__"))];
    let mut failed: Vec<(u32, u32)> = Vec::new();
    let mut handled: Vec<(u32, NodeIndex)> = Vec::new();
    let mut commits: Vec<(SuperstepEnd, Control)> = Vec::new();
    let mut picks = picks.iter();
    'process: loop {
        let used = u32::try_from(commits.len().saturating_sub(1)).unwrap();
        let records = Records {
            handled: handled.clone(),
            finished: finished.clone(),
            failed: failed.clone(),
            ..Records::default()
        };
        let limits = RunLimits { supersteps: LIMIT - used, ..RunLimits::default() };
        let run = Run::restore(topology.clone(), &control, records, limits);
        let mut run = run.expect("what was recorded fits");
        let mut running: Vec<Task> = Vec::new();
        loop {
            while let Some(output) = run.poll() {
                match output {
                    Output::Execute(task) => running.push(task),
                    Output::Commit(commit) => {
                        control = run.control().expect("a commit is pending");
                        (handled, finished, failed) = (Vec::new(), Vec::new(), Vec::new());
                        commits.push((commit, control.clone()));
                        run.handle(Input::Committed).unwrap();
                    }
                    Output::Drained => continue 'process,
                    end => return (commits, end),
                }
            }
            let pick = match picks.next() {
                Some(Pick::Crash) => continue 'process,
                Some(Pick::Drain) => {
                    run.handle(Input::Drain).unwrap();
                    continue;
                }
                Some(Pick::End(pick)) => pick.index(running.len()),
                None => 0,
            };
            let task = running.swap_remove(pick);
            let slot = task.id.slot;
            if task.attempt <= world.failures(&topology, task) {
                failed.retain(|(other, _)| *other != slot);
                if task.attempt < RetryPolicy::default().max_attempts {
                    failed.push((slot, task.attempt));
                } else {
                    handled.push((slot, topology.handler(task.node).expect("only these fail for good")));
                }
                run.handle(Input::Failed {
                    task: task.id,
                    retry: Some(RetryPolicy::default()),
                    jitter_share: 0.3,
                })
                .unwrap();
            } else {
                let report = world.report(&topology, task.id, topology.name(task.node).as_str());
                failed.retain(|(other, _)| *other != slot);
                finished.push((slot, report.clone()));
                run.handle(Input::Finished(Finished { task: task.id, report })).unwrap();
            }
        }
    }
}

/// Generates picks: of ten, `crashes` end the process and `drains` drain the run.
fn picks(crashes: u32, drains: u32) -> impl Strategy<Value = Vec<Pick>> {
    let pick = prop_oneof![
        10 - crashes - drains => any::<Index>().prop_map(Pick::End),
        crashes => Just(Pick::Crash),
        drains => Just(Pick::Drain),
    ];
    vec(pick, 0..60)
}

proptest! {
    #[test]
    fn completion_order_drains_and_restarts_are_invisible(
        world in worlds(),
        one in picks(0, 0),
        other in picks(2, 1),
    ) {
        let (plain, first, second) = (drive(&world, &[]), drive(&world, &one), drive(&world, &other));
        prop_assert_eq!(&first, &plain);
        prop_assert_eq!(&second, &plain);
    }

    #[test]
    fn equal_inputs_give_equal_outputs(world in worlds(), picks in picks(1, 1)) {
        prop_assert_eq!(drive(&world, &picks), drive(&world, &picks));
    }

    #[test]
    fn a_conflict_is_found_in_any_order(
        writes in vec((0_u8..16, 0_u8..16), 1..6),
        order in any::<Index>(),
    ) {
        let world = World {
            nodes: writes.len(),
            edges: (1..=writes.len()).map(|node| (0, node)).collect(),
            routes: Vec::new(),
            gotos: Vec::new(),
            handlers: BTreeMap::new(),
            seed: 0,
        };
        let set = |bits: u8| (0..4).filter(|bit| bits >> bit & 1 == 1).collect::<ChannelSet>();
        let reports: Vec<Report> = writes
            .iter()
            .map(|&(written, exclusive)| {
                let exclusive = set(exclusive);
                Report { written: set(written).union(exclusive), exclusive, targets: Vec::new() }
            })
            .collect();
        let mut run = {
            let records = Records { finished: vec![(0, Report::default())], ..Records::default() };
            let limits = RunLimits { supersteps: 9, ..RunLimits::default() };
            Run::restore(world.topology(), &Control::input(None), records, limits).unwrap()
        };
        let mut end = None;
        let mut left: Vec<usize> = Vec::new();
        loop {
            while let Some(output) = run.poll() {
                match output {
                    Output::Execute(task) => left.push(task.id.slot as usize),
                    Output::Commit(_) => run.handle(Input::Committed).unwrap(),
                    other => end = Some(other),
                }
            }
            if end.is_some() {
                break;
            }
            let slot = left.swap_remove(order.index(left.len()));
            let task = TaskId { step: 1, slot: u32::try_from(slot).unwrap() };
            run.handle(Input::Finished(Finished { task, report: reports[slot].clone() })).unwrap();
        }
        // Two reports conflict if both wrote a channel and it is exclusive to one of them; of these pairs,
        // the second comes first.
        let clash = |a: &Report, b: &Report| {
            let channels = a.exclusive.intersection(b.written).union(b.exclusive.intersection(a.written));
            channels.iter().next()
        };
        let pairs = (0..reports.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
        let expected = pairs
            .filter(|&(first, second)| clash(&reports[first], &reports[second]).is_some())
            .map(|(_, second)| second)
            .next();
        match (&end, expected) {
            (Some(Output::Done), None) => {}
            (Some(Output::Fail(Failure::Conflict { channel, first, second })), Some(expected)) => {
                prop_assert_eq!(second.slot as usize, expected);
                let (a, b) = (&reports[first.slot as usize], &reports[second.slot as usize]);
                prop_assert!(a.written.contains(*channel) && b.written.contains(*channel));
                let own = a.exclusive.contains(*channel) || b.exclusive.contains(*channel);
                // The named report may share the channel that a third one wrote exclusively.
                prop_assert!(own || reports[..expected].iter().any(|report| report.exclusive.contains(*channel)));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
