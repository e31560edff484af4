//! An external update that separates the items of a fan-out changes neither how often a join runs nor what
//! has run before it.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{
    collection::{btree_set, vec},
    prelude::*,
};
use superstep_engine::{
    Before, Control, Edge, EdgeKind, Endpoint, JoinSpec, NodeIndex, NodeName, NodeSpec, OnCancel, Records,
    Report, RestoreError, Run, RunLimits, START, Target, Topology, TopologyBuilder, Withheld,
};

use crate::support::graph;

const WORKERS: usize = 4;

/// `START` and the workers `w1` to `w4`, with fan-outs between them; some have an error handler
/// with fan-outs of its own. A node `p` runs beside them. Joins wait for any of them, and for earlier joins. A plain edge leads
/// from each worker to a node `r1` to `r4`.
#[derive(Clone, Debug)]
struct World {
    /// The fan-outs: the sender, where 0 is the start, and the number of workers to skip after it.
    fan_outs: Vec<(usize, usize)>,
    /// The workers with an error handler, and the worker that it fans out to, if the shape has such an edge.
    handlers: BTreeMap<usize, usize>,
    /// The sources of each join: workers, handlers, `p` and earlier joins, by number.
    joins: Vec<Vec<usize>>,
    shape: Shape,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// A fan-out leads only to the next worker, so that each worker gets all of its items at once.
    Chain,
    /// A fan-out leads to a later worker.
    Later,
    /// A fan-out leads to any worker.
    Cycles,
}

/// The number of times that an item may be sent on, in a shape with cycles.
const HOPS: usize = 4;

fn worlds() -> impl Strategy<Value = World> {
    let fan_outs = vec((0..WORKERS, 0..WORKERS), 1..6);
    let handlers = proptest::collection::btree_map(0..WORKERS, 0..WORKERS, 0..3);
    let joins = vec(btree_set(0..2 * WORKERS + 3, 1..4), 1..4);
    let shapes = prop_oneof![Just(Shape::Chain), Just(Shape::Later), Just(Shape::Cycles)];
    (fan_outs, handlers, joins, shapes, any::<u64>()).prop_map(
        |(mut fan_outs, mut handlers, joins, shape, seed)| {
            fan_outs.push((0, 0));
            match shape {
                Shape::Chain => fan_outs.iter_mut().for_each(|(_, skipped)| *skipped = 0),
                Shape::Later => {}
                // A worker without items reaches its joins, one whose items were all handled does not, and with
                // cycles it may be both in turn.
                Shape::Cycles => handlers.clear(),
            }
            let joins = joins.into_iter().map(|sources| sources.into_iter().collect()).collect();
            World { fan_outs, handlers, joins, shape, seed }
        },
    )
}

impl World {
    /// Returns the workers that a node fans out to; workers are counted from 1.
    fn receivers(&self, from: usize) -> Vec<usize> {
        let mut to: Vec<_> = self
            .fan_outs
            .iter()
            .filter(|(of, _)| *of == from)
            .map(|(of, skipped)| of + skipped + 1)
            .collect();
        if self.shape == Shape::Cycles {
            to.iter_mut().for_each(|to| *to = (*to - 1) % WORKERS + 1);
        }
        to.retain(|to| *to <= WORKERS);
        to.sort_unstable();
        to.dedup();
        to
    }

    /// Returns the worker that the error handler of a worker fans out to.
    fn handler_sends(&self, worker: usize) -> Option<usize> {
        let to = *self.handlers.get(&(worker - 1))? + 1;
        let leads = match self.shape {
            Shape::Chain => to == worker + 1,
            Shape::Later => to > worker,
            Shape::Cycles => true,
        };
        leads.then_some(to)
    }

    /// Returns the topology, and the names of the sources of each join, by its target.
    fn topology(&self) -> (Topology, BTreeMap<String, Vec<String>>) {
        let place = std::panic::Location::caller();
        // Without an item for it, a worker still has to be reachable.
        let mut reached = [false; WORKERS + 1];
        reached[0] = true;
        // Each pass goes at least one edge further.
        for from in (0..=WORKERS).cycle().take((WORKERS + 1).pow(2)) {
            if reached[from] {
                let sends = (from > 0).then(|| self.handler_sends(from)).flatten();
                self.receivers(from).into_iter().chain(sends).for_each(|to| reached[to] = true);
            }
        }
        let workers: Vec<usize> = (1..=WORKERS).filter(|worker| reached[*worker]).collect();
        let mut nodes: Vec<NodeSpec> = Vec::new();
        let mut add = |name: String, worker: bool, handles: Option<Endpoint>| {
            let (on_cancel, name) = (OnCancel::Drop, NodeName::from(name.as_str()));
            nodes.push(NodeSpec {
                name,
                on_cancel,
                worker,
                routing: false,
                handles,
                deferred: false,
                subgraph: None,
                place,
            });
            Endpoint::Node(nodes.len() - 1)
        };
        let mut ends: BTreeMap<usize, Endpoint> = BTreeMap::new();
        for &worker in &workers {
            ends.insert(worker, add(format!("w{worker}"), true, None));
        }
        let mut edges = Vec::new();
        let handled: Vec<_> = workers.iter().filter(|it| self.handlers.contains_key(&(**it - 1))).collect();
        for &&worker in &handled {
            ends.insert(WORKERS + worker, add(format!("h{worker}"), false, Some(ends[&worker])));
        }
        let p = add("p".to_owned(), false, None);
        edges.push(Edge { from: Endpoint::Start, to: p, kind: EdgeKind::Plain, place });
        let kind = EdgeKind::FanOut;
        for from in 0..=WORKERS {
            let start = Endpoint::Start;
            let Some(&source) = (if from == 0 { Some(&start) } else { ends.get(&from) }) else { continue };
            for to in self.receivers(from) {
                edges.push(Edge { from: source, to: ends[&to], kind: kind.clone(), place });
            }
        }
        for &&worker in &handled {
            if let Some(to) = self.handler_sends(worker) {
                edges.push(Edge {
                    from: ends[&(WORKERS + worker)],
                    to: ends[&to],
                    kind: kind.clone(),
                    place,
                });
            }
        }
        let mut sources: Vec<Endpoint> = ends.values().copied().collect();
        sources.push(p);
        for worker in &workers {
            let to = add(format!("r{worker}"), false, None);
            edges.push(Edge { from: ends[worker], to, kind: EdgeKind::Plain, place });
        }
        let mut joins = Vec::new();
        for (nth, of) in self.joins.iter().enumerate() {
            let mut of: Vec<_> = of.iter().filter_map(|source| sources.get(*source).copied()).collect();
            of.sort_unstable();
            of.dedup();
            let takes_item = |end: &Endpoint| workers.iter().any(|worker| ends[worker] == *end);
            if of.len() < 2 && !of.iter().any(takes_item) {
                continue;
            }
            let to = add(format!("j{nth}"), false, None);
            joins.push(JoinSpec { sources: of, to, place });
            sources.push(to);
        }
        let name = |end: &Endpoint| match *end {
            Endpoint::Node(nth) => nodes[nth].name.to_string(),
            _ => panic!("a join is between nodes"),
        };
        let named =
            joins.iter().map(|join| (name(&join.to), join.sources.iter().map(name).collect())).collect();
        let builder = TopologyBuilder { nodes, edges, joins, ..TopologyBuilder::default() };
        (builder.build(place).unwrap_or_else(|problems| panic!("{problems:?}")).0, named)
    }

    /// Returns a pseudorandom number for this item and question.
    fn draw(&self, item: &str, question: u64) -> u64 {
        let mut z = self.seed ^ question;
        for byte in item.bytes().chain([0; 4]) {
            z = (z ^ u64::from(byte) ^ z >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        }
        z >> 7
    }
}

/// The result of a task: the node that ran, its targets, and the items that it sent.
type Ended = (NodeIndex, Vec<Target>, Vec<String>);

/// The course of a thread: each item and each target of a join, in the order in which they ran.
type Course = Vec<String>;

struct Thread<'a> {
    world: &'a World,
    topology: Arc<Topology>,
    control: Control,
}

impl Thread<'_> {
    fn task(&self, slot: u32) -> (String, Ended) {
        let name = self.control.next[slot as usize].as_str();
        let find = |name: &str| self.topology.find(name).expect("the node is in the graph");
        let (nth, item) = match (name, self.control.items.get(&slot)) {
            (START, _) => (Some(0), "i"),
            (_, Some(item)) => (name[1..].parse::<usize>().ok(), item.as_str()),
            _ => (None, name),
        };
        let handler = nth.map(|nth| format!("h{nth}")).filter(|name| self.topology.find(name).is_some());
        let handler = handler.filter(|_| self.world.draw(item, 1).is_multiple_of(2));
        let receivers = match (nth, &handler) {
            (None, _) => Vec::new(),
            (Some(nth), None) => self.world.receivers(nth),
            (Some(nth), Some(_)) => self.world.handler_sends(nth).into_iter().collect(),
        };
        let (mut targets, mut items) = (Vec::new(), Vec::new());
        let sends_on = self.world.shape != Shape::Cycles || item.matches('.').count() < HOPS;
        for to in receivers.into_iter().filter(|_| sends_on) {
            for nth in 0..self.world.draw(item, 2 + to as u64) % 4 {
                targets.push(Target::Send(find(&format!("w{to}"))));
                items.push(format!("{item}.{to}{nth}"));
            }
        }
        let ran = handler.as_deref().unwrap_or(name);
        (format!("{ran} {item}"), (find(ran), targets, items))
    }

    /// Ends the superstep.
    fn end(&mut self, ended: &[Ended]) {
        let report = |targets: &Vec<Target>| Report { targets: targets.clone(), ..Report::default() };
        let handled = (0..).zip(ended).map(|(slot, (node, ..))| (slot, *node)).collect();
        let finished = (0..).zip(ended).map(|(slot, (_, targets, _))| (slot, report(targets))).collect();
        let records = Records { handled, finished, ..Records::default() };
        let limits = RunLimits { supersteps: 9, ..RunLimits::default() };
        let run = Run::restore(self.topology.clone(), &self.control, records, limits);
        self.control = run.expect("the records fit").control().expect("all tasks have ended");
        self.place(ended.iter().flat_map(|(.., items)| items.clone()).collect());
    }

    /// Ends some tasks, and makes an update of the thread.
    fn update(&mut self, done: &[u32], ended: Vec<Ended>) {
        let width = u32::try_from(self.control.next.len()).unwrap();
        let begun: Vec<u32> = (0..width).filter(|slot| !done.contains(slot)).collect();
        let mut items: Vec<_> =
            begun.iter().filter_map(|slot| self.control.items.get(slot).cloned()).collect();
        items.extend(ended.iter().flat_map(|(.., items)| items.clone()));
        let finished: Vec<_> = ended.into_iter().map(|(node, targets, _)| (node, targets)).collect();
        let before = Before { control: &self.control, done, begun: &begun };
        self.control = self.topology.after(Some(before), &[], &[], &finished);
        self.place(items);
    }

    fn place(&mut self, items: Vec<String>) {
        let first = self.control.next.len() - items.len();
        self.control.items = (u32::try_from(first).unwrap()..).zip(items).collect();
        // What is stored is read again.
        let stored = serde_json::to_string(&self.control).unwrap();
        self.control = serde_json::from_str(&stored).unwrap();
    }
}

/// Runs a thread. Each of `updates` is made when the tasks whose bits are set have ended.
fn drive(world: &World, updates: &[u16]) -> Course {
    let topology = Arc::new(world.topology().0);
    let mut thread = Thread { world, topology, control: Control::input(None) };
    let (mut course, mut updates) = (Course::new(), updates.iter());
    for _ in 0..200 {
        if thread.control.is_finished() {
            let Control { withheld, held, .. } = &thread.control;
            assert!(withheld.is_empty() && held.is_empty(), "nothing is withheld at the end");
            return course;
        }
        let width = u32::try_from(thread.control.next.len()).unwrap();
        // The input ends alone.
        let update = updates.next().filter(|_| thread.control.step >= 0);
        let bits = update.copied().unwrap_or(u16::MAX);
        let done: Vec<u32> = (0..width).filter(|slot| bits >> (slot % 16) & 1 == 1).collect();
        let (names, ended): (Vec<_>, Vec<_>) = done.iter().map(|slot| thread.task(*slot)).unzip();
        course.extend(names);
        if done.len() == width as usize { thread.end(&ended) } else { thread.update(&done, ended) }
    }
    panic!("it does not end: {:?}", thread.control)
}

fn sorted(course: &Course) -> Course {
    let mut sorted = course.clone();
    sorted.sort_unstable();
    sorted
}

/// Returns the worker of a task with an item.
fn worker(task: &str) -> Option<&str> {
    let (_, item) = task.split_once(' ')?;
    let (.., last) = item.rsplit_once('.')?;
    last.get(..1)
}

/// Returns the control record after an update of three items of `w`, of which the second is still to run.
fn separated(topology: &Topology) -> Control {
    let mut control = Control::new(0, vec!["w".into(); 3]);
    control.items = (0..3).map(|slot| (slot, slot.to_string())).collect();
    let w = topology.find("w").unwrap();
    let done = Before { control: &control, done: &[0, 2], begun: &[1] };
    let after = topology.after(Some(done), &[], &[], &[(w, Vec::new()), (w, Vec::new())]);
    assert_eq!((after.next.len(), after.withheld.get(&"w".into())), (1, Some(&Withheld::Reached)));
    Control { items: [(0, "1".to_owned())].into(), ..after }
}

fn next(topology: Topology, control: &Control, ended: (NodeIndex, Vec<Target>)) -> String {
    let report = Report { targets: ended.1, ..Report::default() };
    let records = Records { handled: vec![(0, ended.0)], finished: vec![(0, report)], ..Records::default() };
    let limits = RunLimits { supersteps: 9, ..RunLimits::default() };
    let run = Run::restore(Arc::new(topology), control, records, limits).unwrap();
    let next = run.control().unwrap().next;
    next.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_worker_reaches_its_join_with_its_last_item_also_if_that_is_handled() {
    let topology = graph("START => w; w !> h; h -> x; w >> j");
    let (control, h) = (separated(&topology), topology.find("h").unwrap());
    assert_eq!(next(topology, &control, (h, Vec::new())), "j x");
}

#[test]
fn a_worker_that_sends_items_to_itself_reaches_its_join_in_each_round() {
    let topology = graph("START => w; w => w; w >> j");
    let (control, w) = (separated(&topology), topology.find("w").unwrap());
    assert_eq!(next(topology, &control, (w, vec![Target::Send(w)])), "j w");
}

/// Returns the record after an update of `a` and `b`, of which only `a` has ended.
fn updated(topology: &Topology, targets: &[Target]) -> Control {
    let control = Control::new(0, vec!["a".into(), "b".into()]);
    let a = topology.find("a").unwrap();
    let before = Before { control: &control, done: &[0], begun: &[1] };
    topology.after(Some(before), &[], &[], &[(a, targets.to_vec())])
}

#[test]
fn a_node_waits_for_each_task_that_may_lead_to_it() {
    let names =
        |control: &Control| control.next.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>();
    // By a plain edge, a route, a route of its own, and an error handler.
    for edges in ["b -> j", "b -Go-> j; b -Stop-> END", "b +Go+> j; b +Stop+> END", "b !> h; h -> j"] {
        let topology = graph(&format!("START -> a; START -> b; a -> j; a -> c; {edges}"));
        let control = updated(&topology, &[]);
        assert_eq!(names(&control), ["b", "c"], "{edges}");
        assert_eq!(control.held, [("j".into(), vec!["a".into()])].into());
        // A second update changes nothing.
        let before = Before { control: &control, done: &[], begun: &[0, 1] };
        let again = topology.after(Some(before), &[], &[], &[]);
        assert_eq!((names(&again), again.held), (vec!["b".to_owned(), "c".to_owned()], control.held));
    }
    // By a route of the finished task.
    let topology = graph("START -> a; START -> b; a -Go-> j; a -Stop-> END; b -> j");
    let control = updated(&topology, &[Target::Node(topology.find("j").unwrap())]);
    assert_eq!((names(&control), control.held.len()), (vec!["b".to_owned()], 1));
    // Nothing else leads to it.
    let topology = graph("START -> a; START -> b; a -> j; b -> c");
    assert_eq!(
        (names(&updated(&topology, &[])), updated(&topology, &[]).held.len()),
        (vec!["b".to_owned(), "j".to_owned()], 0)
    );
}

#[test]
fn a_node_that_waits_runs_also_if_the_last_task_does_not_lead_to_it() {
    let topology = graph("START -> a; START -> b; a -> j; b -Go-> j; b -Stop-> END");
    let (control, b) = (updated(&topology, &[]), topology.find("b").unwrap());
    assert_eq!(next(topology, &control, (b, vec![Target::End])), "j");
}

#[test]
fn a_graph_without_a_node_that_waits_is_refused() {
    let control = updated(&graph("START -> a; START -> b; a -> j; b -> j"), &[]);
    let error = graph("START -> a; START -> b").fits(&control).unwrap_err();
    assert_eq!(error, RestoreError::UnknownNodes { step: 1, nodes: vec!["j".into()] });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn an_update_between_the_items_of_a_fan_out_is_invisible_to_joins(
        world in worlds(),
        updates in vec(any::<u16>(), 0..12),
    ) {
        let (plain, course) = (drive(&world, &[]), drive(&world, &updates));
        if world.shape != Shape::Chain {
            // Items that a worker gets in different supersteps may reach a join together.
            let (mut plain, mut course) = (sorted(&plain), sorted(&course));
            plain.dedup();
            course.dedup();
            prop_assert_eq!(plain, course);
            return Ok(());
        }
        prop_assert_eq!(sorted(&plain), sorted(&course));
        let (_, joins) = world.topology();
        for (nth, join) in course.iter().enumerate().filter(|(_, task)| task.starts_with('j')) {
            let sources = &joins[join.split(' ').next().unwrap()];
            let waits = |task: &&String| worker(task).is_some_and(|worker| {
                sources.iter().any(|source| source[1..] == *worker && !source.starts_with('j'))
            });
            prop_assert_eq!(course[nth..].iter().find(waits), None, "{} ran early: {:?}", join, course);
        }
        for (nth, task) in course.iter().enumerate().filter(|(_, task)| task.starts_with('r')) {
            let is_item = |other: &&String| worker(other) == task.get(1..2);
            prop_assert_eq!(course[nth..].iter().find(is_item), None, "{} ran early: {:?}", task, course);
        }
    }
}
