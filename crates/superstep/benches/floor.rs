//! The minimum cost of a superstep: an engine that only runs.
//!
//! Boxed async nodes, a shared state with persistent lists, updates, a router per node. No errors, no
//! retries, no cancellation, no events, no names, and no resumption: a checkpoint is a pointer to the state.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use rpds::VectorSync;
use tokio::task::JoinSet;

use crate::{Message, Stopwatch};

/// The state.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) count: i64,
    pub(crate) items: VectorSync<i64>,
    pub(crate) messages: VectorSync<Message>,
}

/// The writes of a node.
#[derive(Default)]
struct Update {
    count: Option<i64>,
    items: Vec<i64>,
    messages: Vec<Message>,
}

type NodeFn = Box<dyn Fn(Arc<State>) -> BoxFuture<'static, Update> + Send + Sync>;
type Router = Box<dyn Fn(&State) -> Vec<usize> + Send + Sync>;

/// Nodes with their routers; the first node is the entry.
pub(crate) struct Graph(Vec<(NodeFn, Router)>);

/// The checkpoints of a thread: each state and the next nodes.
pub(crate) type Memory = Mutex<Vec<(Arc<State>, Vec<usize>)>>;

/// Runs until no task is left.
pub(crate) async fn run(graph: Arc<Graph>, mut state: Arc<State>, memory: Option<Arc<Memory>>) -> Arc<State> {
    let mut next = vec![0];
    while !next.is_empty() {
        let mut updates = Vec::with_capacity(next.len());
        if let [node] = next[..] {
            updates.push((0, (graph.0[node].0)(state.clone()).await));
        } else {
            let mut tasks = JoinSet::new();
            for (slot, &node) in next.iter().enumerate() {
                let task = (graph.0[node].0)(state.clone());
                tasks.spawn(async move { (slot, task.await) });
            }
            while let Some(update) = tasks.join_next().await {
                updates.push(update.expect("no node panics"));
            }
            updates.sort_by_key(|(slot, _)| *slot);
        }
        let folded = Arc::make_mut(&mut state);
        for (_, update) in updates {
            folded.count = update.count.unwrap_or(folded.count);
            folded.items.extend(update.items);
            folded.messages.extend(update.messages);
        }
        let mut after: Vec<usize> = next.iter().flat_map(|&node| (graph.0[node].1)(&state)).collect();
        after.sort_unstable();
        after.dedup();
        next = after;
        if let Some(memory) = &memory {
            let mut checkpoints = memory.lock().expect("nobody panics while it is locked");
            checkpoints.push((state.clone(), next.clone()));
        }
    }
    state
}

fn node<F: Future<Output = Update> + Send + 'static>(
    run: impl Fn(Arc<State>) -> F + Send + Sync + 'static,
    route: impl Fn(&State) -> Vec<usize> + Send + Sync + 'static,
) -> (NodeFn, Router) {
    (Box::new(move |state| Box::pin(run(state))), Box::new(route))
}

async fn count(state: Arc<State>) -> Update {
    Update { count: Some(state.count + 1), ..Update::default() }
}

/// Builds one node that counts and leads to itself.
pub(crate) fn looped(steps: i64) -> Graph {
    let again = move |state: &State| if state.count < steps { vec![0] } else { vec![] };
    Graph(vec![node(count, again)])
}

/// Builds a chain of one node per step.
pub(crate) fn chain(steps: usize) -> Graph {
    let counter = |position| {
        let after = position + 1;
        let next = move |_: &State| if after < steps { vec![after] } else { vec![] };
        node(count, next)
    };
    Graph((0..steps).map(counter).collect())
}

/// Builds a node, then `width` parallel nodes, then a join.
pub(crate) fn fan_out(width: usize) -> Graph {
    let mut nodes = vec![node(count, move |_| (1..=width).collect())];
    for item in 1..=width {
        let branch = move |_| async move { Update { items: vec![item as i64], ..Update::default() } };
        nodes.push(node(branch, move |_| vec![width + 1]));
    }
    nodes.push(node(count, |_| vec![]));
    Graph(nodes)
}

/// Builds a node that spawns `width` tasks that do nothing and waits for them.
pub(crate) fn bare_tasks(width: usize) -> Graph {
    let spawn = move |_| async move {
        let mut tasks: JoinSet<()> = (0..width).map(|_| async {}).collect();
        while tasks.join_next().await.is_some() {}
        Update::default()
    };
    Graph(vec![node(spawn, |_| vec![])])
}

/// Builds a node that starts the stopwatch, then one that appends a message `steps` times.
pub(crate) fn appends(steps: i64, stopwatch: Stopwatch) -> Graph {
    let begin = move |_| {
        stopwatch.start();
        async { Update::default() }
    };
    let say = |state: Arc<State>| async move {
        Update {
            count: Some(state.count + 1),
            messages: vec![Message::numbered(state.count)],
            ..Update::default()
        }
    };
    let again = move |state: &State| if state.count < steps { vec![1] } else { vec![] };
    Graph(vec![node(begin, |_| vec![1]), node(say, again)])
}
