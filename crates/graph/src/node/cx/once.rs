//! Effects that are not repeated.

use std::{error::Error, future::Future, iter};

use serde::{Serialize, de::DeserializeOwned};
use superstep_engine::TaskId;
use superstep_state::{RawJson, internal::encode};

use crate::{
    Cx, NodeError,
    journal::{
        divergence::Deviation,
        effects::{Failed, StoredError},
        outer_effects::OuterEffects,
        recorder::{self, ReplayMode},
    },
};

/// An invalid use of [`Cx::once`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum OnceError {
    #[error(
        "SS167: the stored result of `once` for `{name}` does not fit its current type; read it in its \
         stored form, or use another name to repeat the effect"
    )]
    Unfit { name: String, source: serde_json::Error },
    #[error(
        "SS168: the result of `{name}` cannot be stored as JSON and read back, so `once` cannot store it"
    )]
    Unstorable { name: String, source: serde_json::Error },
    #[error(
        "SS169: `once` was called for `{name}` after its task was over, so its result cannot be stored; \
         wait for it in the node"
    )]
    Over { name: String },
}

impl Cx {
    /// Runs an effect once, for any number of runs of the node: its result is stored before this returns. It
    /// is then returned instead of running the effect again, when the task is retried, or resumed after an
    /// interrupt, a cancellation or a crash.
    ///
    /// `name` distinguishes the effects of one task; two concurrent calls under one name run it once.
    /// `effect` receives a unique key that is the same for every repetition: pass it to services with
    /// idempotency keys. It is needed, because a crash between the effect and the storage of its result looks
    /// like a crash before the effect. The result is stored with the update, for a [`Replay`](crate::replay::Replay),
    /// unless the run does not record.
    ///
    /// An error of `effect` is not stored as a result. If the node continued after it, a replay returns an
    /// error with the same messages, causes, data and fatality, but not of its type. A fork of the thread
    /// runs all effects again. Without a checkpointer results live as long as the run. In a called graph that is
    /// not stored ([`Persistence::Ephemeral`](crate::node::Persistence::Ephemeral), or no checkpointer) they
    /// belong to the calling task, by the path to this one: when that task runs again, a task at the same
    /// superstep and slot, of the same node, gets them.
    ///
    /// # Errors
    /// Those of `effect`. Fatal: a result that has no JSON form or cannot be read back as a `T`, and is not
    /// stored; a stored result of an older program that is not a `T`; and use by work that outlives its task,
    /// which cannot store it.
    ///
    /// # Example: a charge that is not repeated after an interrupt
    /// ```
    /// # use superstep_graph::*;
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Order { receipt: String }
    /// # async fn charge(amount: u32, idempotency_key: &str) -> Result<String, std::io::Error> { Ok("r-1".to_owned()) }
    /// async fn pay(_: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
    ///     let receipt = cx.once("charge", async |key: String| charge(20, &key).await).await?;
    ///     let _seen: bool = cx.interrupt("show", &receipt).await;
    ///     Ok(Order::update().receipt(receipt))
    /// }
    /// # let mut graph = StateGraph::<Order>::new("orders");
    /// # graph.add_node("pay", pay);
    /// ```
    pub async fn once<T, E, F>(&self, name: &str, effect: impl FnOnce(String) -> F) -> Result<T, NodeError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<NodeError>,
        F: Future<Output = Result<T, E>>,
    {
        let (effects, task) = (&self.0.run.effects, self.0.task);
        match self.0.run.recorder.mode(task) {
            ReplayMode::Nothing | ReplayMode::Live(_) => self.0.run.recorder.did_once(task, name),
            ReplayMode::Recorded(recorded) | ReplayMode::Adopted(recorded) => {
                if let Some(error) = recorded.errors.get(name) {
                    self.0.run.recorder.record_inputs(task, |inputs| {
                        inputs.errors.insert(name.to_owned(), error.clone());
                    });
                    return Err(error.clone().into());
                }
                let did = recorded.results.get(name);
                let result = Box::pin(self.given_result(name, did)).await;
                self.0.run.recorder.record_inputs(task, |inputs| {
                    inputs.results.extend(did.map(|did| (name.to_owned(), did.clone())))
                });
                return Ok(result);
            }
            ReplayMode::Unknown => return self.deviate(Deviation::Unknown).await,
        }
        let over = || NodeError::new(OnceError::Over { name: name.to_owned() }).fatal();
        let turn = effects.turn(task, name).ok_or_else(over)?;
        let _turn = turn.lock().await;
        let (outer, outermost) = (self.0.run.scope.effects.as_ref(), self.0.run.scope.outermost.as_ref());
        let result = match self.known_result(name) {
            Some(json) => serde_json::from_str(&json).map_err(|source| {
                NodeError::new(OnceError::Unfit { name: name.to_owned(), source }).fatal()
            })?,
            None => {
                // The key is derived from the checkpoint.
                self.settle().await;
                self.waits("before once", name).await;
                let key = format!("{}/{name}", self.key());
                let result = recorder::effect(Box::pin(effect(key))).await;
                self.waits("after once", name).await;
                let result = result.map_err(|error| {
                    let error: NodeError = error.into();
                    self.0.run.recorder.record_inputs(task, |inputs| {
                        inputs.errors.insert(name.to_owned(), Failed::from(&error));
                    });
                    error
                })?;
                let unstorable = |source| OnceError::Unstorable { name: name.to_owned(), source };
                // Read back, so that the first result equals later ones.
                let read = encode::read_back(&result);
                let (read, json) = read.map_err(|source| NodeError::new(unstorable(source)).fatal())?;
                self.put(name, &json);
                read
            }
        };
        // Not lost if this is dropped meanwhile: every later record of the task contains it.
        let stored = match outer {
            Some(outer) => outer.store(&self.task_name(), name).await,
            None => effects.store(task, name).await,
        };
        stored.ok_or_else(over)?;
        if let Some(outermost) = outermost {
            outermost.take_back(&self.task_name(), name);
        }
        Ok(result)
    }
}

impl Cx {
    /// Returns whether [`once`](Self::once) has a result under this name, so that it would return that and not run its effect.
    ///
    /// `false` in a [`Replay`](crate::replay::Replay), except for live nodes: pass it through [`noted`](Self::noted).
    pub fn has_result(&self, name: &str) -> bool {
        let mode = self.0.run.recorder.mode(self.0.task);
        matches!(mode, ReplayMode::Nothing | ReplayMode::Live(_)) && self.known_result(name).is_some()
    }

    fn known_result(&self, name: &str) -> Option<RawJson> {
        self.0.run.effects.result(self.0.task, name).or_else(|| {
            // A graph without storage runs again from its beginning, and the run of one with storage may have been dropped.
            let of = |effects: &OuterEffects| effects.result(&self.task_name(), name);
            let (outer, outermost) = (self.0.run.scope.effects.as_ref(), self.0.run.scope.outermost.as_ref());
            let known = outer.and_then(of).or_else(|| outermost.and_then(of))?;
            self.put(name, &known);
            Some(known)
        })
    }

    /// Adds a result to the effects of this task, and to those of outer ones.
    fn put(&self, name: &str, json: &RawJson) {
        let (effects, scope) = (&self.0.run.effects, &self.0.run.scope);
        if let Some(outermost) = &scope.outermost {
            outermost.lend(&self.task_name(), name, json.clone());
        }
        if let Some(outer) = &scope.effects {
            outer.put(&self.task_name(), name, json.clone());
        }
        effects.put(self.0.task, name, json.clone());
    }

    /// Returns the name of the task among those of its run, also after an external update that leaves it pending.
    pub(crate) fn task_name(&self) -> String {
        let TaskId { step, slot } = self.first_task();
        format!("{}:{step}.{slot}", self.node_at_begin())
    }

    /// Waits until all stored data of the thread survives a power failure as well as a crash. Use it before
    /// an effect that must not be repeated silently and whose start the thread has recorded.
    ///
    /// It takes the time of a disk sync; concurrent waits share one sync. It returns immediately without a
    /// checkpointer, if every write is synced anyway, and in a [`Replay`](crate::replay::Replay).
    pub async fn durable(&self) {
        if let ReplayMode::Nothing | ReplayMode::Live(_) = self.0.run.recorder.mode(self.0.task) {
            self.waits("durable", "").await;
            // Work that outlives its task has no stored data to wait for.
            let _ = match &self.0.run.scope.effects {
                Some(outer) => outer.sync().await,
                None => self.0.run.effects.sync(self.0.task).await,
            };
        }
    }
}

impl From<&NodeError> for Failed {
    fn from(error: &NodeError) -> Self {
        let first: &(dyn Error + 'static) = error.cause();
        let causes = iter::successors(Some(first), |&error| error.source());
        let mut says: Vec<String> = causes.map(ToString::to_string).collect();
        match (error.is_fatal(), error.data().cloned()) {
            (false, None) if says.len() == 1 => Self::Message(says.remove(0)),
            (fatal, data) => Self::Whole { says, fatal, data },
        }
    }
}

impl From<Failed> for NodeError {
    fn from(failed: Failed) -> Self {
        let (says, fatal, data) = match failed {
            Failed::Message(text) => (vec![text], false, None),
            Failed::Whole { says, fatal, data } => (says, fatal, data),
        };
        let error =
            says.into_iter().rev().fold(None, |source, says| Some(Box::new(StoredError { says, source })));
        let error = Self::new(error.map_or_else(StoredError::default, |error| *error));
        let error = if fatal { error.fatal() } else { error };
        match data {
            Some(data) => error.with_data(data),
            None => error,
        }
    }
}
