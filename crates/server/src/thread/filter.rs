//! The selection of events that a client requests.
//!
//! Start at [`Filter`].

use serde::Deserialize;
use serde_json::Value;

use crate::{
    thread::event::{Channel, ThreadEvent},
    wire::ids,
};

/// The maximum number of channels and of namespaces of a filter, and of the levels of a namespace.
const MOST: usize = 256;

/// The channels, namespaces and depth of a stream. Each event is compared with all of them, so there are at most so many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    channels: Vec<Channel>,
    /// Names of events of the channel `custom`, if not all are wanted.
    custom: Vec<String>,
    /// Beginnings of namespaces; none for all.
    namespaces: Vec<Vec<String>>,
    /// The number of levels below such a beginning.
    depth: Option<usize>,
    /// The number of an event that the client has, with all before it.
    pub(crate) since: Option<u64>,
}

#[derive(Deserialize)]
struct Request {
    channels: Vec<String>,
    #[serde(default)]
    namespaces: Option<Vec<Vec<String>>>,
    #[serde(default)]
    depth: Option<usize>,
    #[serde(default)]
    since: Option<u64>,
}

impl Filter {
    /// Reads a request. Unknown fields are ignored.
    ///
    /// # Errors
    /// The channels are missing, unknown or too many, or a field has another type.
    pub(crate) fn read(json: &Value) -> Result<Self, String> {
        let request = Request::deserialize(json).map_err(|error| error.to_string())?;
        let Request { channels: names, namespaces, depth, since } = request;
        let namespaces = namespaces.unwrap_or_default();
        if names.is_empty() {
            return Err("channels: expected one or more".to_owned());
        }
        let longest = namespaces.iter().map(Vec::len).max().unwrap_or(0);
        if names.len().max(namespaces.len()).max(longest) > MOST {
            return Err(format!("at most {MOST} channels, namespaces and levels of each are supported"));
        }
        let (mut channels, mut custom) = (Vec::new(), Vec::new());
        for name in names {
            if let Some(known) = Channel::ALL.iter().find(|known| known.as_str() == name) {
                channels.push(*known);
            } else if let Some(name) = name.strip_prefix("custom:") {
                custom.push(name.to_owned());
            } else {
                let known = Channel::ALL.map(|known| known.as_str().to_owned()).join(", ");
                return Err(format!("channels: unknown channel `{name}`; use {known} or custom:NAME"));
            }
        }
        Ok(Self { channels, custom, namespaces, depth, since })
    }

    pub(crate) fn matches(&self, event: &ThreadEvent) -> bool {
        let is_named = || event.name.as_ref().is_some_and(|name| self.custom.contains(name));
        (self.channels.contains(&event.channel) || is_named()) && self.has_namespace(&event.namespace)
    }

    fn has_namespace(&self, namespace: &[String]) -> bool {
        let fits = |prefix: &Vec<String>| {
            ids::is_within(namespace, prefix)
                && self.depth.is_none_or(|depth| namespace.len() - prefix.len() <= depth)
        };
        match &*self.namespaces {
            [] => self.depth.is_none_or(|depth| namespace.len() <= depth),
            some => some.iter().any(fits),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::thread::event::Draft;

    fn event(channel: Channel, namespace: &[&str], data: Value) -> ThreadEvent {
        let namespace: Vec<_> = namespace.iter().map(|&level| level.to_owned()).collect();
        ThreadEvent::new(1, Draft::new(channel, &namespace, 0, data))
    }

    fn matching(filter: &Value, namespaces: &[&[&str]]) -> Vec<bool> {
        let filter = Filter::read(filter).unwrap();
        namespaces
            .iter()
            .map(|namespace| filter.matches(&event(Channel::Values, namespace, Value::Null)))
            .collect()
    }

    #[test]
    fn namespaces_are_beginnings_with_or_without_tasks() {
        let all: [&[&str]; 4] = [&[], &["helper:1"], &["helper:1", "tool:2"], &["other:3"]];
        let with = |namespaces: Value, depth: Value| {
            matching(&json!({ "channels": ["values"], "namespaces": namespaces, "depth": depth }), &all)
        };
        assert_eq!(with(Value::Null, Value::Null), [true; 4]);
        assert_eq!(with(json!([]), Value::Null), [true; 4]);
        assert_eq!(with(json!([["helper"]]), Value::Null), [false, true, true, false]);
        assert_eq!(with(json!([["helper:1"], ["other"]]), json!(0)), [false, true, false, true]);
        assert_eq!(with(json!([["helper:2"]]), Value::Null), [false; 4]);
        assert_eq!(with(json!([[]]), json!(1)), [true, true, false, true]);
        assert_eq!(with(Value::Null, json!(0)), [true, false, false, false]);
    }

    #[test]
    fn a_named_channel_has_its_events_and_the_channel_custom_has_all() {
        let (named, other) = (json!({ "name": "a", "payload": 1 }), json!({ "name": "b", "payload": 1 }));
        let custom = |channel: &str, data: &Value| {
            let filter = Filter::read(&json!({ "channels": [channel] })).unwrap();
            filter.matches(&event(Channel::Custom, &[], data.clone()))
        };
        assert!(custom("custom", &named) && custom("custom:a", &named));
        assert!(!custom("custom:a", &other) && !custom("values", &named));
    }

    #[test]
    fn what_is_not_a_filter_is_refused() {
        let many: Vec<_> = (0..MOST + 1).map(|n| format!("custom:{n}")).collect();
        for wrong in [
            json!({}),
            json!({ "channels": [] }),
            json!({ "channels": ["value"] }),
            json!({ "channels": ["values"], "since": -1 }),
            json!({ "channels": ["values"], "namespaces": ["helper"] }),
            json!({ "channels": many }),
            json!([]),
        ] {
            assert!(Filter::read(&wrong).is_err(), "{wrong}");
        }
    }
}
