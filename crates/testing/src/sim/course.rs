//! The course of a thread, as far as it must not depend on the seed.

use superstep_graph::{
    Checkpointer, CompiledGraph, History, RunError, State, ThreadId,
    checkpoint::{CheckpointMeta, Loaded, Source},
    error::chain,
    node::NodeName,
    state::{Channel, StoredUpdate},
    topology::Control,
};

use super::store::at_once;

/// The course of a finished thread.
#[derive(Default)]
pub(super) struct Course {
    /// The state by channel: name and value.
    state: Vec<(String, String)>,
    /// Oldest first.
    checkpoints: Vec<(Source, Control)>,
    /// The updates of each commit in fold order, after the last stored full state.
    folded: Vec<Vec<String>>,
    /// The state, if there is one.
    snapshot: Vec<String>,
    /// The courses of subgraphs, each with its path in front.
    subgraphs: Vec<String>,
}

impl Course {
    /// Reads the data of a thread. `left` is the final state of its last run in this process, if there was
    /// one.
    ///
    /// # Errors
    /// An inconsistency, or the error of a read.
    pub(super) async fn read<S: State>(
        graph: &CompiledGraph<S>,
        store: &dyn Checkpointer,
        thread: &ThreadId,
        left: Option<&S>,
    ) -> Result<Self, String> {
        let history = at_once(store.history(thread, History::default())).map_err(|error| chain(&error))?;
        check_ids(&history)?;
        let loaded = at_once(store.load(thread, None)).map_err(|error| chain(&error))?;
        let Some(Loaded { snapshot, commits, .. }) = loaded else {
            return Err(format!("thread `{thread}` is gone"));
        };
        let state = graph.thread(thread).state().await.map_err(|error: RunError| chain(&error))?.values;
        let state = channels(&state)?;
        if let Some(left) = left
            && let Some(lost) = differing_channel(&channels(left)?, &state, "and in the store")
        {
            return Err(lost);
        }
        let mut subgraphs = Vec::new();
        for child in at_once(store.children(thread)).map_err(|error| chain(&error))? {
            let history =
                at_once(store.history(&child, History::default())).map_err(|error| chain(&error))?;
            check_ids(&history)?;
            let loaded = at_once(store.load(&child, None)).map_err(|error| chain(&error))?;
            let commits = loaded.map(|loaded| loaded.commits).unwrap_or_default();
            let commits: Vec<Vec<String>> = commits.into_iter().map(texts).collect();
            let checkpoints: Vec<_> = history.iter().rev().map(|meta| (meta.source, &meta.control)).collect();
            subgraphs.push(format!("{}: {checkpoints:?}, {commits:?}", child.path()));
        }
        Ok(Self {
            subgraphs,
            state,
            checkpoints: history.into_iter().rev().map(|meta| (meta.source, meta.control)).collect(),
            folded: commits.into_iter().map(texts).collect(),
            snapshot: match &snapshot {
                Some(snapshot) => {
                    let channels = snapshot.channels().map_err(|error| error.to_string())?;
                    channels.iter().map(|value| value.json.to_string()).collect()
                }
                None => Vec::new(),
            },
        })
    }

    /// Returns the differences from the `plain` run. States come first, because they are the most
    /// informative.
    pub(super) fn difference(&self, plain: &Self) -> Option<String> {
        differing_channel(&self.state, &plain.state, "in the plain run").or_else(|| {
            let show = |it: &(Source, Control)| {
                let next: Vec<&str> = it.1.next.iter().map(NodeName::as_str).collect();
                format!("({}, {}, [{}])", it.0.as_str(), it.1.step, next.join(" "))
            };
            let folded = |updates: &Vec<String>| format!("[{}]", updates.join(", "));
            first("checkpoint", &self.checkpoints, &plain.checkpoints, show)
                .or_else(|| first("commit", &self.folded, &plain.folded, folded))
                .or_else(|| first("stored channel", &self.snapshot, &plain.snapshot, String::clone))
                .or_else(|| first("subgraph", &self.subgraphs, &plain.subgraphs, String::clone))
        })
    }
}

/// Returns the values of a state, channel by channel.
///
/// # Errors
/// If a value has no JSON form.
fn channels<S: State>(state: &S) -> Result<Vec<(String, String)>, String> {
    let stored = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let channel = |(position, Channel { name, .. }): (usize, &Channel)| {
        let json = state.encode(position).map_err(|error| format!("channel `{name}`: {error}"))?;
        Ok((name.to_string(), text(json)))
    };
    stored.map(channel).collect()
}

fn differing_channel(here: &[(String, String)], there: &[(String, String)], at: &str) -> Option<String> {
    here.iter().zip(there).find_map(|((name, here), (_, there))| {
        (here != there).then(|| format!("channel `{name}` is {here}, {at} {there}"))
    })
}

fn first<T: PartialEq>(what: &str, here: &[T], there: &[T], show: impl Fn(&T) -> String) -> Option<String> {
    let longer = here.len().max(there.len());
    let shown = |it: Option<&T>| it.map_or_else(|| "missing".to_owned(), &show);
    (0..longer).find(|&at| here.get(at) != there.get(at)).map(|at| {
        format!("{what} {at} is {}, in the plain run {}", shown(here.get(at)), shown(there.get(at)))
    })
}

/// Checks that a thread without forks is one line.
fn check_ids(newest_first: &[CheckpointMeta]) -> Result<(), String> {
    let mut before = None;
    for meta in newest_first.iter().rev() {
        if before.is_some_and(|before| meta.id <= before) {
            return Err(format!("checkpoint {} does not ascend", meta.id));
        }
        if meta.parent != before {
            let named = |id: Option<_>| id.map_or_else(|| "none".to_owned(), |id| format!("{id}"));
            let (parent, before) = (named(meta.parent), named(before));
            return Err(format!("the parent of checkpoint {} is {parent}, not {before}", meta.id));
        }
        before = Some(meta.id);
    }
    Ok(())
}

fn texts(updates: Vec<StoredUpdate>) -> Vec<String> {
    updates.into_iter().map(|update| update.to_string()).collect()
}

fn text(json: Vec<u8>) -> String {
    String::from_utf8(json).expect("JSON is UTF-8")
}
