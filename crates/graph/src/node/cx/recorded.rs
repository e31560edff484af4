//! Effects that a replay is given again.

use std::future::{Future, pending};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use superstep_state::internal::encode;

use crate::{
    Cx,
    journal::{
        divergence::Astray,
        interrupts::Asked,
        recorder::{Given, Tape, Use, effect},
    },
};

impl Cx {
    fn tape(&self) -> &Tape {
        &self.run.tape
    }

    /// Does something outside whose outcome the update depends on, and records the outcome with the update: a
    /// [`Replay`](crate::Replay) gives it again instead of doing it. `name` tells apart what one task does; under a name that it
    /// uses several times, as in a loop, the first it begins is the first again, and so on. A name is not also one of
    /// [`once`](Self::once).
    ///
    /// Unlike [`once`](Self::once) it is done again when the node runs again. What it does by way of `cx` inside is part of it
    /// and not recorded for itself.
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
    /// An outcome that cannot be stored as JSON and read back fails the task, if the run records.
    pub async fn recorded<T, F>(&self, name: &str, effect: impl FnOnce() -> F) -> T
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = T>,
    {
        let name = &*self.tape().numbered(self.task, Use::Result, name);
        match self.tape().given(self.task) {
            Given::Nothing | Given::Live(_) => {}
            Given::Recorded(recorded) => {
                let given = Box::pin(self.given_result(name, recorded.results.get(name))).await;
                self.learn_result(name, recorded.results.get(name).cloned().unwrap_or_default());
                return given;
            }
            Given::Unknown => return self.astray(Astray::Unknown).await,
        }
        let outcome = self::effect(Box::pin(effect())).await;
        if self.tape().is_on() {
            match encode::to_value_of(&outcome) {
                Ok(json) => self.learn_result(name, json),
                Err(error) => return self.unstorable(&format!("the outcome of `{name}`"), error).await,
            }
        }
        outcome
    }

    /// Like [`recorded`](Self::recorded), of something that is known at once: returns `value`, or in a replay what it was. The
    /// default value costs nothing.
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
        let name = &*self.tape().numbered(self.task, Use::Result, name);
        let value = match self.tape().given(self.task) {
            Given::Nothing | Given::Live(_) => value,
            Given::Unknown => {
                self.needs_records();
                T::default()
            }
            Given::Recorded(recorded) => {
                let noted = recorded.results.get(name);
                noted.and_then(|noted| T::deserialize(noted).ok()).unwrap_or_default()
            }
        };
        if self.tape().is_on() && value != T::default() {
            let json = encode::to_value_of(&value);
            self.learn_result(
                name,
                json.unwrap_or_else(|error| panic!("what is noted as `{name}`: {error}")),
            );
        }
        value
    }

    /// Records what the node is about to do: a replay in which it is about to do something else says so, and the node goes no
    /// further. `what` gives what tells one from the other, [fingerprints](crate::fingerprint) of what is large; it is not called
    /// if nothing is recorded. What cannot be stored as JSON fails the task.
    pub async fn compared<T: Serialize>(&self, name: &str, what: impl FnOnce() -> T) {
        if !self.tape().is_on() {
            return;
        }
        let got = match encode::to_value(&what()) {
            Ok(got) => got,
            Err(error) => return self.unstorable(&format!("what is compared as `{name}`"), error).await,
        };
        let name = &*self.tape().numbered(self.task, Use::Compared, name);
        let recorded = match self.tape().given(self.task) {
            Given::Nothing => None,
            Given::Recorded(recorded) | Given::Live(recorded) => Some(recorded),
            Given::Unknown => return self.astray(Astray::Unknown).await,
        };
        if let Some(recorded) = recorded {
            let expected = recorded.compared.get(name).cloned().unwrap_or_default();
            if expected != got {
                let effect = name.to_owned();
                return self.astray(Astray::Other { effect, expected, got }).await;
            }
        }
        self.tape().learn(self.task, |learned| {
            learned.compared.insert(name.to_owned(), got);
        });
    }

    /// What was recorded under a name, read as a `T`; the node goes no further if that is not possible.
    pub(crate) async fn given_result<T: DeserializeOwned>(&self, name: &str, recorded: Option<&Value>) -> T {
        let effect = name.to_owned();
        let astray = match recorded {
            Some(json) => match T::deserialize(json) {
                Ok(given) => return given,
                Err(_) => Astray::Unfit { effect, recorded: json.clone() },
            },
            None => Astray::New { effect },
        };
        self.astray(astray).await
    }

    fn learn_result(&self, name: &str, json: Value) {
        self.tape().learn(self.task, |learned| {
            learned.results.insert(name.to_owned(), json);
        });
    }

    /// Says at the desk that a task whose records are not known needs them, so that it is given up when it waits next or
    /// returns. For what cannot wait itself; see [`astray`](Self::astray).
    pub(crate) fn needs_records(&self) {
        if self.tape().replays && matches!(self.tape().given(self.task), Given::Unknown) {
            self.say_at_desk([Asked::Astray(Astray::Unknown)]);
        }
    }

    /// Leaves the node for good: like an interrupt, it is nothing that the node could catch.
    pub(crate) async fn astray<T>(&self, astray: Astray) -> T {
        self.say_at_desk([Asked::Astray(astray)]);
        pending().await
    }
}
