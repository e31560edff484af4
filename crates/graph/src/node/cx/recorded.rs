//! The recorded inputs of a task: effects whose results are replayed, and the inbox of its thread.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use superstep_checkpoint::CheckpointError;
use superstep_state::internal::encode;

use crate::{
    Cx,
    journal::{
        divergence::{Change, Deviation},
        inbox::{Posted, inbox_of, read},
        interrupts::WaitReason,
        recorder::{NamePurpose, Recorded, Recorder, ReplayMode, effect},
    },
};

/// The stored data of a task that a replay compares: see [`Cx::compared_with`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ComparedTask<'a> {
    /// The recorded data; `null` if there are none of this name.
    pub expected: &'a Value,
    /// The new data.
    pub got: &'a Value,
    /// The update of the stored task, by channel; `null` if it is not known.
    pub update: &'a Value,
    /// The recorded results of effects and the noted values of the task, by name.
    pub noted: &'a BTreeMap<String, Value>,
}

impl Cx {
    /// Returns the items in the thread's inbox after the item with this number, oldest first; 0 returns all.
    /// Empty without a checkpointer, and in a subgraph, which has a thread of its own.
    ///
    /// Items are not removed: store the number of the last one in a channel. Each branch of the thread then
    /// reads it once, and a repeated node reads it again.
    ///
    /// # Errors
    /// Those of the checkpointer.
    pub async fn inbox(&self, after: u64) -> Result<Vec<Posted>, CheckpointError> {
        let Some((checkpointer, thread)) = &self.0.run.scope.place else { return Ok(Vec::new()) };
        self.waits("inbox", "").await;
        self.needs_records();
        let last = self.0.run.recorder.inbox(self.0.task);
        let mut found = match last {
            Some(last) if last <= after => Vec::new(),
            _ => read(&**checkpointer, &inbox_of(thread), after).await?,
        };
        found.retain(|posted| last.is_none_or(|last| posted.number <= last));
        if let Some(posted) = found.last() {
            self.0.run.recorder.found(self.0.task, posted.number);
        }
        Ok(found)
    }

    fn recorder(&self) -> &Recorder {
        &self.0.run.recorder
    }

    /// Returns whether the inputs of the task are recorded or replayed: `false` without a thread, without
    /// [`recording`](crate::Thread::recording), and inside of a recorded effect.
    pub fn is_recorded(&self) -> bool {
        self.recorder().is_on()
    }

    /// Runs an effect and records its result with the update: a [`Replay`](crate::replay::Replay) returns the result
    /// instead of running it. `name` distinguishes the effects of one task; repeated uses of a name, as in a
    /// loop, are matched in the order of their starts. Do not use a name of [`once`](Self::once) here.
    ///
    /// Unlike [`once`](Self::once), it runs again when the node runs again. Its own uses of `cx` are part of
    /// it and not recorded separately.
    ///
    /// ```
    /// # use superstep_graph::*;
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Trip { city: String, weather: String }
    /// # async fn ask_the_service(city: &str) -> String { format!("rain in {city}") }
    /// async fn look_up(trip: Trip, cx: Cx) -> TripUpdate {
    ///     let weather = cx.recorded("weather", async || ask_the_service(&trip.city).await).await;
    ///     Trip::update().weather(weather)
    /// }
    /// # let mut graph = StateGraph::<Trip>::new("trip");
    /// # graph.add_node("look_up", look_up);
    /// ```
    ///
    /// A result that cannot be stored as JSON and read back fails the task, if the run records.
    pub async fn recorded<T, F>(&self, name: &str, effect: impl FnOnce() -> F) -> T
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = T>,
    {
        let name = &*self.recorder().numbered(self.0.task, NamePurpose::Result, name);
        match self.recorder().mode(self.0.task) {
            ReplayMode::Nothing | ReplayMode::Live(_) => {
                if let Some(json) = self.recorder().given_result(name) {
                    let result = Box::pin(self.given_result(name, Some(json))).await;
                    self.record_result(name, json.clone());
                    return result;
                }
            }
            ReplayMode::Recorded(recorded) | ReplayMode::Adopted(recorded) => {
                let result = Box::pin(self.given_result(name, recorded.results.get(name))).await;
                self.record_result(name, recorded.results.get(name).cloned().unwrap_or_default());
                return result;
            }
            ReplayMode::Unknown => return self.deviate(Deviation::Unknown).await,
        }
        self.waits("before recorded", name).await;
        let outcome = self::effect(Box::pin(effect())).await;
        self.waits("after recorded", name).await;
        if self.recorder().is_on() {
            match encode::to_value_of(&outcome) {
                Ok(json) => self.record_result(name, json),
                Err(error) => return self.unstorable(&format!("the outcome of `{name}`"), error).await,
            }
        }
        outcome
    }

    /// Like [`recorded`](Self::recorded), for an immediate value: returns `value`, or the recorded value in a
    /// replay. A default value is not stored.
    ///
    /// ```
    /// # use superstep_graph::Cx;
    /// # fn node(cx: &Cx) {
    /// if cx.noted("cancelled", cx.cancel().is_cancelled()) { /* … */ }
    /// # }
    /// ```
    ///
    /// # Panics
    /// If `value` cannot be stored as JSON and read back, and the run records.
    pub fn noted<T>(&self, name: &str, value: T) -> T
    where
        T: Serialize + DeserializeOwned + Default + PartialEq,
    {
        let name = &*self.recorder().numbered(self.0.task, NamePurpose::Result, name);
        self.passes("noted", name);
        let value = match self.recorder().mode(self.0.task) {
            ReplayMode::Nothing | ReplayMode::Live(_) => match self.recorder().given_result(name) {
                None => value,
                Some(json) => T::deserialize(json).unwrap_or_else(|_| {
                    let effect = name.to_owned();
                    self.wait_for([WaitReason::Deviated(Deviation::Unfit {
                        effect,
                        recorded: json.clone(),
                    })]);
                    value
                }),
            },
            ReplayMode::Unknown => {
                self.needs_records();
                T::default()
            }
            ReplayMode::Recorded(recorded) | ReplayMode::Adopted(recorded) => {
                let noted = recorded.results.get(name);
                noted.and_then(|noted| T::deserialize(noted).ok()).unwrap_or_default()
            }
        };
        if self.recorder().is_on() && value != T::default() {
            let json = encode::to_value_of(&value);
            self.record_result(
                name,
                json.unwrap_or_else(|error| panic!("the noted value `{name}`: {error}")),
            );
        }
        value
    }

    /// Records a description of what the task does, for the `noted` values of [`compared_with`](Self::compared_with). Unlike
    /// [`noted`](Self::noted), it is no input of the task: a replay does not return it, and a thread that is [recorded
    /// again](crate::replay::Replay::rerecord) stores the new one. A default value is not stored.
    ///
    /// # Panics
    /// If `value` cannot be stored as JSON and read back, and the run records.
    pub fn described<T: Serialize + Default + PartialEq>(&self, name: &str, value: &T) {
        let name = &*self.recorder().numbered(self.0.task, NamePurpose::Result, name);
        if self.recorder().is_on() && *value != T::default() {
            let json = encode::to_value(value);
            let json = json.unwrap_or_else(|error| panic!("the description `{name}`: {error}"));
            self.record_result(name, json);
        }
    }

    /// Returns whether the thread is [recorded again](crate::replay::Replay::rerecord): the inputs of the task are recorded ones,
    /// and what it does is stored instead of compared.
    pub fn is_recorded_again(&self) -> bool {
        matches!(self.recorder().mode(self.0.task), ReplayMode::Adopted(_))
    }

    /// Records a planned action: a replay with a different action diverges there, and the node does not
    /// continue. `what` returns the identifying data, with [fingerprints](crate::state::fingerprint) of large parts;
    /// it is not called without recording. Data that cannot be stored as JSON fails the task.
    pub async fn compared<T: Serialize>(&self, name: &str, what: impl FnOnce() -> T) {
        self.compared_with(name, what, |_| Vec::new()).await;
    }

    /// Like [`compared`](Self::compared), with words for a difference. In a replay, `changes` receives the recorded and the new
    /// data and what else is stored of the task, and returns what changed. The replay diverges if there are changes, or if the
    /// data differ; the first change is the [kind](crate::replay::Divergence::kind) of the divergence.
    ///
    /// ```
    /// # use superstep_graph::*;
    /// use superstep_graph::replay::{Change, DivergenceKind};
    ///
    /// # async fn node(cx: &Cx, prompt: &str) {
    /// cx.compared_with("ask", || prompt, |task| {
    ///     let recorded = task.expected.as_str().unwrap_or_default();
    ///     match recorded == prompt {
    ///         true => Vec::new(),
    ///         false => vec![Change::of_text(DivergenceKind::Prompt, "prompt", recorded, prompt)],
    ///     }
    /// })
    /// .await;
    /// # }
    /// ```
    pub async fn compared_with<T: Serialize>(
        &self,
        name: &str,
        what: impl FnOnce() -> T,
        changes: impl FnOnce(ComparedTask<'_>) -> Vec<Change>,
    ) {
        if !self.recorder().is_on() {
            return;
        }
        let got = match encode::to_value(&what()) {
            Ok(got) => got,
            Err(error) => return self.unstorable(&format!("the compared value `{name}`"), error).await,
        };
        let name = &*self.recorder().numbered(self.0.task, NamePurpose::Compared, name);
        self.waits("compared", name).await;
        let recorded = match self.recorder().mode(self.0.task) {
            ReplayMode::Nothing | ReplayMode::Adopted(_) => None,
            ReplayMode::Recorded(recorded) | ReplayMode::Live(recorded) => Some(recorded),
            ReplayMode::Unknown => return self.deviate(Deviation::Unknown).await,
        };
        if let Some(recorded) = recorded {
            let expected = recorded.compared.get(name).cloned().unwrap_or_default();
            let changes = {
                let update = recorded.update.as_ref().and_then(|update| update.split_recorded().ok());
                let update = update.map(|(_, update)| update).unwrap_or_default();
                changes(ComparedTask {
                    expected: &expected,
                    got: &got,
                    update: &update,
                    noted: &recorded.results,
                })
            };
            let unused = self.unused(|inputs| &inputs.compared);
            if expected.is_null() && changes.is_empty() && !unused.is_empty() {
                return self.deviate(Deviation::New { effect: name.to_owned(), unused }).await;
            }
            if expected != got || !changes.is_empty() {
                let effect = name.to_owned();
                return self.deviate(Deviation::Other { effect, expected, got, changes }).await;
            }
        }
        self.recorder().record_inputs(self.0.task, |inputs| {
            inputs.compared.insert(name.to_owned(), got);
        });
    }

    /// Returns the recorded value of a name as a `T`; suspends the node if that is not possible.
    pub(crate) async fn given_result<T: DeserializeOwned>(&self, name: &str, recorded: Option<&Value>) -> T {
        let effect = name.to_owned();
        let deviation = match recorded {
            Some(json) => match T::deserialize(json) {
                Ok(result) => return result,
                Err(_) => Deviation::Unfit { effect, recorded: json.clone() },
            },
            None => Deviation::New { effect, unused: self.unused(|inputs| &inputs.results) },
        };
        self.deviate(deviation).await
    }

    fn unused(&self, of: impl Fn(&Recorded) -> &BTreeMap<String, Value>) -> Vec<String> {
        self.recorder().unused(self.0.task, of)
    }

    fn record_result(&self, name: &str, json: Value) {
        self.recorder().record_inputs(self.0.task, |inputs| {
            inputs.results.insert(name.to_owned(), json);
        });
    }

    /// Reports that a task without recorded inputs needs them, so that it is given up when it waits or
    /// returns. For functions that cannot wait themselves; see [`deviate`](Self::deviate).
    pub(crate) fn needs_records(&self) {
        if self.recorder().replays && matches!(self.recorder().mode(self.0.task), ReplayMode::Unknown) {
            self.wait_for([WaitReason::Deviated(Deviation::Unknown)]);
        }
    }

    /// Leaves the node permanently: like an interrupt, the node cannot catch it.
    pub(crate) async fn deviate<T>(&self, deviation: Deviation) -> T {
        self.wait_for([WaitReason::Deviated(deviation)]);
        pending().await
    }
}
