//! The updates of a [`JsonState`](super::JsonState).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeMap};
use serde_json::Value;

use crate::{
    Update,
    stored_update::keys::{self, CLEAR, RECORDED, THEN},
    update_chain::Later,
};

/// A partial [`JsonState`](crate::JsonState): writes by the names of their channels.
///
/// Its JSON form is an object with an entry for each write, and `clear` with the names of cleared channels. A
/// node may also return such an object.
#[derive(Clone, Debug, Default)]
pub struct JsonUpdate {
    pub(super) writes: BTreeMap<String, Value>,
    pub(super) clear: BTreeSet<String>,
    later: Later<JsonUpdate>,
}

/// JSON that is not a valid update.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("an update has to be an object with an entry for each written channel, not {found}")]
pub struct BadUpdate {
    /// A description of the JSON.
    pub found: String,
}

crate::debug_by_chain!(BadUpdate);

impl JsonUpdate {
    /// Creates an update without writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes to a channel. A second call replaces the write of the first.
    #[must_use]
    pub fn write(mut self, channel: impl Into<String>, value: impl Into<Value>) -> Self {
        self.last().writes.insert(channel.into(), value.into());
        self
    }

    /// Clears a channel: it starts from its default before this update's write is folded.
    #[must_use]
    pub fn clear(mut self, channel: impl Into<String>) -> Self {
        self.last().clear.insert(channel.into());
        self
    }

    /// Overwrites a channel: it starts from its default, then `value` is folded. No other task may write it
    /// in the same superstep.
    #[must_use]
    pub fn set(self, channel: impl Into<String>, value: impl Into<Value>) -> Self {
        let channel = channel.into();
        self.clear(channel.clone()).write(channel, value)
    }

    /// Returns the part that is folded last.
    fn last(&mut self) -> &mut Self {
        if self.later.is_empty() { self } else { self.later.last_mut() }
    }

    /// Returns the parts in the order in which they are folded.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.later.iter())
    }

    pub(super) fn into_parts(mut self) -> impl Iterator<Item = Self> {
        let later = std::mem::take(&mut self.later);
        std::iter::once(self).chain(later)
    }

    /// Drops all channels for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: &impl Fn(&String) -> bool) {
        self.writes.retain(|name, _| keep(name));
        self.clear.retain(keep);
        for mut part in std::mem::take(&mut self.later) {
            part.retain(keep);
            *self = std::mem::take(self).then(part);
        }
    }

    /// Renames its channels to their current names.
    pub(super) fn renamed(self, name: &impl Fn(&str) -> Option<String>) -> serde_json::Result<Self> {
        let find = |old: &str| {
            name(old).ok_or_else(|| serde_json::Error::custom(format!("unknown channel `{old}`")))
        };
        let mut renamed = Self::default();
        for (old, write) in self.writes {
            let name = find(&old)?;
            if renamed.writes.insert(name, write).is_some() {
                let twice = format!("channel `{old}` is written under two of its names");
                return Err(serde_json::Error::custom(twice));
            }
        }
        for old in self.clear {
            renamed.clear.insert(find(&old)?);
        }
        for part in self.later {
            renamed.later.push(part.renamed(name)?);
        }
        Ok(renamed)
    }

    fn touches(&self, channel: &String) -> bool {
        self.writes.contains_key(channel) || self.clear.contains(channel)
    }
}

impl Update for JsonUpdate {
    fn then(mut self, mut later: Self) -> Self {
        let more = std::mem::take(&mut later.later);
        let last = self.last();
        if later.writes.keys().chain(&later.clear).any(|channel| last.touches(channel)) {
            self.later.push(later);
        } else {
            last.writes.extend(later.writes);
            last.clear.extend(later.clear);
        }
        more.into_iter().fold(self, Self::then)
    }
}

impl TryFrom<Value> for JsonUpdate {
    type Error = BadUpdate;

    fn try_from(value: Value) -> Result<Self, BadUpdate> {
        let shown: String = value.to_string().chars().take(80).collect();
        serde_json::from_value(value).map_err(|_| BadUpdate { found: shown })
    }
}

impl Serialize for JsonUpdate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, write) in &self.writes {
            map.serialize_entry(name, write)?;
        }
        if !self.clear.is_empty() {
            map.serialize_entry(CLEAR, &self.clear)?;
        }
        if !self.later.is_empty() {
            map.serialize_entry(THEN, &self.later)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for JsonUpdate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut writes = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let clear = writes.remove(CLEAR).map(serde_json::from_value).transpose().map_err(D::Error::custom)?;
        let mut update = Self { clear: clear.unwrap_or_default(), ..Self::default() };
        writes.remove(RECORDED);
        if let Some(Value::Array(parts)) = writes.remove(THEN) {
            for part in parts {
                // A part cannot contain parts, so that stored data does not control recursion.
                if part.get(THEN).is_some() {
                    return Err(D::Error::custom("a part of an update has no parts of its own"));
                }
                update.later.push(serde_json::from_value(part).map_err(D::Error::custom)?);
            }
        }
        if let Some(name) = writes.keys().find(|name| keys::is_own(name)) {
            return Err(D::Error::custom(format!("`{name}` is not a valid channel name")));
        }
        update.writes = writes;
        Ok(update)
    }
}
