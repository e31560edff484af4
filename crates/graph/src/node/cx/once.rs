//! Effects that are not done twice.

use std::{error::Error, future::Future, iter};

use serde::{Serialize, de::DeserializeOwned};
use superstep_state::internal::encode;

use crate::{
    Cx, NodeError,
    journal::{
        divergence::Astray,
        effects::{Failed, Told},
        recorder::{self, Given},
    },
};

/// What is wrong with a use of [`Cx::once`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum OnceError {
    #[error(
        "SS167: what `once` did as `{name}` is stored, but does not fit the type it has now; read it as it was stored, or \
         use another name to do it again"
    )]
    Unfit { name: String, source: serde_json::Error },
    #[error("SS168: the result of `{name}` cannot be stored as JSON and read back, so `once` cannot keep it")]
    Unstorable { name: String, source: serde_json::Error },
    #[error(
        "SS169: `{name}` was to be done once, but its task is over and keeps no more results; wait for it in the node"
    )]
    Over { name: String },
}

impl Cx {
    /// Does something outside once, however often the node runs: its result is stored before this returns, and given
    /// instead of doing it again when the task is tried again, or is resumed after an interrupt, a cancel or a crash.
    ///
    /// `name` tells apart what one task does; two calls under one name at the same time do it once. `effect` is handed a key
    /// that is the same for every time this task may do it and for nothing else: give it to services that take an
    /// idempotency key. They need it, because a crash after the effect and before its result is stored cannot be told from
    /// one before the effect. The result is kept with the update, for a [`Replay`](crate::Replay), unless the run does not record.
    ///
    /// An error of `effect` is not stored. To a node that went on all the same a replay gives one with the same words, causes
    /// and data, which is as fatal, but not of its type. A fork of the thread does everything afresh. Without a checkpointer
    /// results live as long as the run.
    ///
    /// # Errors
    /// Those of `effect`. Fatal: a result that has no JSON form or cannot be read back as a `T`, so it is not stored; a
    /// stored result that an older program stored and that is no `T` any more; and use by work that outlives its task, which
    /// has nowhere to store it.
    ///
    /// # Example: a charge that is not made twice although the node asks somebody in between
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
        let (ledger, task) = (&self.run.ledger, self.task);
        match self.run.tape.given(task) {
            Given::Nothing | Given::Live(_) => self.run.tape.did_once(task, name),
            Given::Recorded(recorded) => {
                if let Some(error) = recorded.errors.get(name) {
                    self.run.tape.learn(task, |learned| {
                        learned.errors.insert(name.to_owned(), error.clone());
                    });
                    return Err(error.clone().into());
                }
                let did = recorded.results.get(name);
                let given = Box::pin(self.given_result(name, did)).await;
                self.run.tape.learn(task, |learned| {
                    learned.results.extend(did.map(|did| (name.to_owned(), did.clone())))
                });
                return Ok(given);
            }
            Given::Unknown => return self.astray(Astray::Unknown).await,
        }
        let over = || NodeError::new(OnceError::Over { name: name.to_owned() }).fatal();
        let turn = ledger.turn(task, name).ok_or_else(over)?;
        let _turn = turn.lock().await;
        let result = match ledger.result(task, name) {
            Some(json) => serde_json::from_str(&json).map_err(|source| {
                NodeError::new(OnceError::Unfit { name: name.to_owned(), source }).fatal()
            })?,
            None => {
                // The key is named after the checkpoint.
                self.settle().await;
                let key = format!("{}/{name}", self.key());
                let result = recorder::effect(Box::pin(effect(key))).await.map_err(|error| {
                    let error: NodeError = error.into();
                    self.run.tape.learn(task, |learned| {
                        learned.errors.insert(name.to_owned(), Failed::from(&error));
                    });
                    error
                })?;
                let unstorable = |source| OnceError::Unstorable { name: name.to_owned(), source };
                // Read back, so that the first time is like every other.
                let read = encode::read_back(&result);
                let (read, json) = read.map_err(|source| NodeError::new(unstorable(source)).fatal())?;
                ledger.put(task, name, json);
                read
            }
        };
        // Not lost if this is dropped meanwhile: every later record of the task has it.
        ledger.store(task, name).await.ok_or_else(over)?;
        Ok(result)
    }
}

impl Cx {
    /// Waits until everything that the thread has stored survives a power failure as well as a crash: before an effect that must
    /// not happen again unsaid, and of which the thread has noted that it begins.
    ///
    /// That takes as long as the disk takes; several tasks, or parts of one, that wait at the same time wait once. It returns at
    /// once without a checkpointer, if everything is written at once anyway, and in a [`Replay`](crate::Replay).
    pub async fn durable(&self) {
        if let Given::Nothing | Given::Live(_) = self.run.tape.given(self.task) {
            // Work that outlives its task has nothing stored to wait for.
            let _ = self.run.ledger.sync(self.task).await;
        }
    }
}

impl From<&NodeError> for Failed {
    fn from(error: &NodeError) -> Self {
        let first: &(dyn Error + 'static) = error.cause();
        let causes = iter::successors(Some(first), |&error| error.source());
        let mut says: Vec<String> = causes.map(ToString::to_string).collect();
        match (error.is_fatal(), error.data().cloned()) {
            (false, None) if says.len() == 1 => Self::Said(says.remove(0)),
            (fatal, data) => Self::Whole { says, fatal, data },
        }
    }
}

impl From<Failed> for NodeError {
    fn from(failed: Failed) -> Self {
        let (says, fatal, data) = match failed {
            Failed::Said(text) => (vec![text], false, None),
            Failed::Whole { says, fatal, data } => (says, fatal, data),
        };
        let told = says.into_iter().rev().fold(None, |source, says| Some(Box::new(Told { says, source })));
        let error = Self::new(told.map_or_else(Told::default, |told| *told));
        let error = if fatal { error.fatal() } else { error };
        match data {
            Some(data) => error.with_data(data),
            None => error,
        }
    }
}
