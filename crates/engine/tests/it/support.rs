//! A manually driven run, with every output as a line of text.

use std::{panic::Location, sync::Arc};

use superstep_engine::{
    ChannelSet, Control, Edge, EdgeKind, Endpoint, EngineError, Failure, Finished, Input, JoinSpec, NodeSpec,
    OnCancel, Output, Records, Report, RetryPolicy, Run, RunLimits, Target, TaskId, Topology,
    TopologyBuilder,
};

/// Builds a graph from one line: `START -> a; a -> b; b -Again-> a; b -Done-> END; a => w`. A route that a
/// node takes itself is `a +Again+> b`, an error handler `a !> h`, a join `a|w >> j`.
pub(crate) fn graph(lines: &str) -> Topology {
    build(lines, |_| {})
}

/// Builds a graph with modified nodes.
pub(crate) fn build(lines: &str, mut change: impl FnMut(&mut NodeSpec)) -> Topology {
    let place = Location::caller();
    let mut builder = TopologyBuilder::default();
    for line in lines.split(';') {
        let [from, arrow, to] =
            line.split_whitespace().collect::<Vec<_>>().try_into().expect("from, arrow, to");
        let kind = match arrow {
            "->" => EdgeKind::Plain,
            "=>" => EdgeKind::FanOut,
            "+=>" => EdgeKind::Sends,
            goto if goto.starts_with('+') => EdgeKind::Goto(goto.trim_matches(['+', '>']).to_owned()),
            route => EdgeKind::Route(route.trim_matches(['-', '>']).to_owned()),
        };
        let mut end = |name: &str| match name {
            "START" => Endpoint::Start,
            "END" => Endpoint::End,
            name => {
                let known = builder.nodes.iter().position(|node| node.name.as_str() == name);
                Endpoint::Node(known.unwrap_or_else(|| {
                    let mut node = NodeSpec {
                        name: name.into(),
                        on_cancel: OnCancel::Drop,
                        worker: arrow.ends_with("=>"),
                        routing: false,
                        handles: None,
                        deferred: false,
                        subgraph: None,
                        place,
                    };
                    change(&mut node);
                    builder.nodes.push(node);
                    builder.nodes.len() - 1
                }))
            }
        };
        if arrow == ">>" {
            let join = JoinSpec { sources: from.split('|').map(&mut end).collect(), to: end(to), place };
            builder.joins.push(join);
            continue;
        }
        let (from, to) = (end(from), end(to));
        if let ("!>", Endpoint::Node(handler)) = (arrow, to) {
            builder.nodes[handler].handles = Some(from);
            continue;
        }
        builder.edges.push(Edge { from, to, kind, place });
    }
    builder.build(place).expect("the graph is valid").0
}

/// Delays of half a second, then one second, without jitter.
pub(crate) fn retry() -> Option<RetryPolicy> {
    Some(RetryPolicy::default().jitter(std::time::Duration::ZERO))
}

pub(crate) fn task(step: i64, slot: u32) -> TaskId {
    TaskId { step, slot }
}

pub(crate) fn finished(task: TaskId, report: Report) -> Input {
    Input::Finished(Finished { task, report })
}

/// Creates a report that wrote these channels; `exclusive` come first.
pub(crate) fn wrote(exclusive: &[usize], shared: &[usize]) -> Report {
    let exclusive: ChannelSet = exclusive.iter().copied().collect();
    let written = exclusive.union(shared.iter().copied().collect());
    Report { written, exclusive, targets: Vec::new() }
}

/// A run with its graph.
pub(crate) struct Machine {
    pub(crate) topology: Arc<Topology>,
    run: Run,
}

impl Machine {
    /// Accepts an input on a fresh thread.
    pub(crate) fn start(topology: Topology, limit: u32) -> Self {
        let input = [(0, Report::default())];
        Self::restore(&Arc::new(topology), &Control::input(None), input, [], limit)
    }

    pub(crate) fn restore(
        topology: &Arc<Topology>,
        control: &Control,
        finished: impl IntoIterator<Item = (u32, Report)>,
        failed: impl IntoIterator<Item = (u32, u32)>,
        limit: u32,
    ) -> Self {
        let (finished, failed) = (finished.into_iter().collect(), failed.into_iter().collect());
        let records = Records { finished, failed, ..Records::default() };
        Self::restore_from(
            topology,
            control,
            records,
            RunLimits { supersteps: limit, ..RunLimits::default() },
        )
    }

    pub(crate) fn restore_from(
        topology: &Arc<Topology>,
        control: &Control,
        records: Records,
        limits: RunLimits,
    ) -> Self {
        let run = Run::restore(topology.clone(), control, records, limits).expect("the record fits");
        Self { topology: topology.clone(), run }
    }

    /// Reports an interrupted task and returns the outputs.
    pub(crate) fn ask(&mut self, step: i64, slot: u32) -> Vec<String> {
        self.run.handle(Input::Interrupted(TaskId { step, slot })).expect("the task is running");
        self.log()
    }

    /// Polls all outputs.
    pub(crate) fn poll(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.run.poll()).collect()
    }

    pub(crate) fn handle(&mut self, input: Input) -> Result<(), EngineError> {
        self.run.handle(input)
    }

    /// Polls all outputs as lines. Commits are acknowledged immediately.
    pub(crate) fn log(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(output) = self.run.poll() {
            lines.push(self.line(&output));
            if let Output::Commit(_) = output {
                self.run.handle(Input::Committed).expect("a commit is pending");
            }
        }
        lines
    }

    /// Passes an input and returns the outputs as lines.
    pub(crate) fn say(&mut self, input: Input) -> Vec<String> {
        self.handle(input).expect("the input fits");
        self.log()
    }

    pub(crate) fn finish(&mut self, step: i64, slot: u32) -> Vec<String> {
        self.say(finished(task(step, slot), Report::default()))
    }

    pub(crate) fn fail(&mut self, step: i64, slot: u32, retry: Option<RetryPolicy>) -> Vec<String> {
        self.say(Input::Failed { task: task(step, slot), retry, jitter_share: 0.0 })
    }

    pub(crate) fn to(&self, node: &str) -> Target {
        Target::Node(self.topology.find(node).expect("the node is in the graph"))
    }

    /// Returns the control record of the pending commit.
    pub(crate) fn control(&self) -> Option<Control> {
        self.run.control()
    }

    fn line(&self, output: &Output) -> String {
        let id = |task: &TaskId| format!("{}.{}", task.step, task.slot);
        match output {
            Output::Execute(task) => {
                let wait =
                    if task.delay.is_zero() { String::new() } else { format!(" after {:?}", task.delay) };
                format!("execute {} {} #{}{wait}", id(&task.id), self.topology.name(task.node), task.attempt)
            }
            Output::Commit(commit) => {
                let order: Vec<_> = commit.order().map(|task| id(&task)).collect();
                let next = self.control().expect("a commit is pending").next;
                assert_eq!(next.len(), commit.next as usize);
                let next: Vec<_> = next.iter().map(|name| name.as_str()).collect();
                format!("commit {}: {} -> [{}]", commit.step, order.join(" "), next.join(" "))
            }
            Output::Drop(task) => format!("drop {}", id(task)),
            Output::Done => "done".to_owned(),
            Output::Drained => "drained".to_owned(),
            Output::Cancelled => "cancelled".to_owned(),
            Output::Suspended => "suspended".to_owned(),
            Output::Fail(Failure::Task(task)) => format!("fail {}", id(task)),
            Output::Fail(Failure::Conflict { channel, first, second }) => {
                format!("conflict on {channel}: {} {}", id(first), id(second))
            }
            Output::Fail(Failure::StepLimit { next }) => {
                format!(
                    "step limit: [{}]",
                    next.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
                )
            }
        }
    }
}
