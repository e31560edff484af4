//! Discarded tasks.
//!
//! Start at [`Discarded`].

use std::{collections::BTreeMap, sync::Arc};

use serde::de::DeserializeOwned;
use superstep_state::RawJson;

use crate::State;

/// A task that will not run again, because a new input [discards](crate::OnUnfinished::Discard) it.
pub struct Discarded<'a> {
    pub(crate) once: &'a BTreeMap<String, RawJson>,
}

impl Discarded<'_> {
    /// Returns the task's [effect result](crate::Cx::once) of this name; `None` if there is none, or if it is
    /// not a `T`.
    pub fn did<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.once.get(name)?).ok()
    }
}

pub(crate) type OnDiscard<S> = Arc<dyn Fn(&S, &Discarded<'_>) -> <S as State>::Update + Send + Sync>;
