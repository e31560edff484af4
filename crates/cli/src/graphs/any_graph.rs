//! A compiled graph of any state.
//!
//! Start at [`AnyGraph`].

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value};
#[cfg(feature = "postgres")]
use superstep::worker::Worker;
use superstep::{Checkpointer, CompiledGraph, RunOptions, State, drawing::Drawing};

use crate::{
    graphs::{
        any_thread::{AnyThread, OpenThread},
        state_json::{read_update, values},
    },
    output::exit::Failure,
};

/// A compiled graph whose type of state only its methods know.
pub(crate) trait AnyGraph: Send + Sync {
    fn name(&self) -> &str;

    fn nodes(&self) -> Vec<String>;

    fn drawing(&self) -> Drawing;

    /// Returns the JSON Schema of its inputs, or of its states.
    fn schema(&self, of: SchemaOf) -> Value;

    /// Checks that JSON is an update of the state. `what` names it in the error.
    ///
    /// # Errors
    /// It has an unknown channel, or a value of the wrong type.
    fn check(&self, what: &str, update: &Value) -> Result<(), Failure>;

    /// Returns the state with which its threads start.
    ///
    /// # Errors
    /// A value has no JSON form.
    fn initial_state(&self) -> Result<InitialState, Failure>;

    #[cfg(feature = "postgres")]
    fn add_to(&self, worker: Worker, store: Arc<dyn Checkpointer>) -> Worker;

    fn open(&self, store: Arc<dyn Checkpointer>, options: RunOptions) -> Box<dyn AnyThread>;
}

/// The state with which the threads of a graph start.
pub(crate) struct InitialState {
    /// The value of each stored channel.
    pub(crate) values: Map<String, Value>,
    /// The channels whose value is the last write.
    pub(crate) replaced: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaOf {
    Input,
    Output,
}

impl<S: State> AnyGraph for CompiledGraph<S> {
    fn name(&self) -> &str {
        self.name()
    }

    fn nodes(&self) -> Vec<String> {
        self.topology().names().map(ToString::to_string).collect()
    }

    fn drawing(&self) -> Drawing {
        self.drawing()
    }

    fn schema(&self, of: SchemaOf) -> Value {
        match of {
            SchemaOf::Input => self.input_schema(),
            SchemaOf::Output => self.output_schema(),
        }
    }

    fn check(&self, what: &str, update: &Value) -> Result<(), Failure> {
        read_update(self.initial(), what, update).map(drop)
    }

    fn initial_state(&self) -> Result<InitialState, Failure> {
        let channels = self.initial().channels().iter();
        let replaced = channels.filter(|channel| channel.exclusive && !channel.ephemeral);
        let replaced = replaced.map(|channel| channel.name.to_string()).collect();
        Ok(InitialState { values: values(self.initial())?, replaced })
    }

    #[cfg(feature = "postgres")]
    fn add_to(&self, worker: Worker, store: Arc<dyn Checkpointer>) -> Worker {
        worker.graph(self.clone().with_checkpointer(store))
    }

    fn open(&self, store: Arc<dyn Checkpointer>, options: RunOptions) -> Box<dyn AnyThread> {
        Box::new(OpenThread { graph: self.clone().with_checkpointer(store), options })
    }
}
