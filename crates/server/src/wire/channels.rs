//! The channels that clients see.
//!
//! Start at [`retain`].

use std::collections::BTreeSet;

use serde_json::Value;

/// Removes the channels of a state or an update that clients do not see.
pub(crate) fn retain(channels: &mut Value, shown: &BTreeSet<String>) {
    match channels {
        Value::Object(channels) => channels.retain(|channel, _| shown.contains(channel)),
        // Several updates of one task.
        Value::Array(all) => all.iter_mut().for_each(|channels| retain(channels, shown)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
