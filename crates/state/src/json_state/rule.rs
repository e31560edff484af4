//! The reducers of JSON channels.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::{JsonChannel, JsonReducer};
use crate::{ById, IdOf, Log, Merge, Merges, ReduceError};

/// The value of a channel. Cheap to clone.
#[derive(Clone)]
pub(super) enum RuleValue {
    Nothing,
    Value(Arc<Value>),
    List(Log<Value>),
    ById(ById<Value, IdField>),
}

/// The id of an object is its field `id`.
pub(super) enum IdField {}

impl IdOf<Value> for IdField {
    fn id(item: &Value) -> &str {
        item.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    fn set_id(item: &mut Value, id: String) {
        if let Value::Object(item) = item {
            item.insert("id".to_owned(), Value::String(id));
        }
    }
}

impl RuleValue {
    pub(super) fn to_value(&self) -> Option<Value> {
        match self {
            Self::Nothing => None,
            Self::Value(value) => Some((**value).clone()),
            Self::List(list) => Some(list.iter().cloned().collect()),
            Self::ById(list) => Some(list.iter().cloned().collect()),
        }
    }
}

impl From<Value> for RuleValue {
    fn from(value: Value) -> Self {
        if value.is_null() { Self::Nothing } else { Self::Value(Arc::new(value)) }
    }
}

impl Serialize for RuleValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing => serializer.serialize_unit(),
            Self::Value(value) => value.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::ById(list) => list.serialize(serializer),
        }
    }
}

/// A reducer with its parameters.
pub(super) enum Rule {
    Replace,
    Any,
    List,
    Text,
    ById,
    Sum,
    Max,
    Object,
    Set,
    Barrier(Vec<String>),
}

impl Rule {
    pub(super) fn new(channel: &JsonChannel) -> Self {
        let default = channel.default.as_ref();
        match channel.reducer {
            JsonReducer::LastValue | JsonReducer::Ephemeral => Self::Replace,
            JsonReducer::AnyValue => Self::Any,
            JsonReducer::Append if default.is_some_and(Value::is_string) => Self::Text,
            JsonReducer::Append | JsonReducer::Topic => Self::List,
            JsonReducer::MergeById => Self::ById,
            JsonReducer::Sum => Self::Sum,
            JsonReducer::Max => Self::Max,
            JsonReducer::Union if default.is_some_and(Value::is_array) => Self::Set,
            JsonReducer::Union => Self::Object,
            JsonReducer::Barrier => Self::Barrier(channel.names.clone()),
        }
    }

    /// Returns whether it accepts one write per superstep.
    pub(super) fn is_exclusive(&self) -> bool {
        matches!(self, Self::Replace)
    }

    /// Returns the value of a channel without writes.
    pub(super) fn initial(&self, default: Option<Value>) -> Result<RuleValue, String> {
        let default = default.unwrap_or_else(|| match self {
            Self::Replace | Self::Any | Self::Max => Value::Null,
            Self::Text => Value::from(""),
            Self::Sum => Value::from(0),
            Self::Object => Value::Object(Map::new()),
            Self::List | Self::ById | Self::Set | Self::Barrier(_) => Value::Array(Vec::new()),
        });
        self.read(default)
    }

    /// Reads a whole value, from a snapshot or a default.
    pub(super) fn read(&self, value: Value) -> Result<RuleValue, String> {
        let fits = match self {
            Self::Replace | Self::Any => true,
            Self::Max => value.is_null() || value.is_number() || value.is_string(),
            Self::Text => value.is_string(),
            Self::Sum => value.is_number(),
            Self::Object => value.is_object(),
            Self::List | Self::ById | Self::Set | Self::Barrier(_) => value.is_array(),
        };
        match (self, value) {
            (_, value) if !fits => Err(format!("it is {} and cannot be {}", kind(&value), self.wants())),
            (Self::List, Value::Array(items)) => Ok(RuleValue::List(items.into())),
            (Self::ById, Value::Array(items)) => {
                for item in &items {
                    has_id(item).map_err(|cause| cause.to_string())?;
                }
                Ok(RuleValue::ById(items.into_iter().collect()))
            }
            (Self::Barrier(names), value) => {
                self.names(names, &value).map_err(|cause| cause.to_string())?;
                Ok(RuleValue::from(value))
            }
            (_, value) => Ok(RuleValue::from(value)),
        }
    }

    /// Folds one write.
    pub(super) fn fold(&self, held: &mut RuleValue, write: Value) -> Result<(), ReduceError> {
        match (self, held) {
            (Self::Replace | Self::Any, held) => *held = RuleValue::from(write),
            (Self::List, RuleValue::List(list)) => list.extend(items(write)),
            (Self::ById, RuleValue::ById(list)) => list.merge(merges(write)?)?,
            (Self::Max, held) => match held {
                RuleValue::Value(value) if compare(&write, value)?.is_le() => {}
                _ => {
                    compare(&write, &write)?;
                    *held = RuleValue::from(write);
                }
            },
            (_, RuleValue::Value(value)) => self.fold_value(Arc::make_mut(value), write)?,
            (_, RuleValue::Nothing | RuleValue::List(_) | RuleValue::ById(_)) => {
                unreachable!("`read` makes the values that a rule takes")
            }
        }
        Ok(())
    }

    fn fold_value(&self, value: &mut Value, write: Value) -> Result<(), ReduceError> {
        match (self, value, write) {
            (Self::Text, Value::String(text), Value::String(write)) => text.push_str(&write),
            (Self::Sum, Value::Number(sum), Value::Number(write)) => *sum = add(sum, &write)?,
            (Self::Object, Value::Object(object), Value::Object(write)) => object.extend(write),
            (Self::Set, Value::Array(set), write) => {
                for item in items(write) {
                    if !set.contains(&item) {
                        set.push(item);
                    }
                }
            }
            (Self::Barrier(names), Value::Array(arrived), write) => {
                let new = self.names(names, &write)?;
                // In name order, independent of the order of the writes.
                let is_there = |name: &&String| {
                    new.contains(&name.as_str()) || arrived.iter().any(|there| there == name.as_str())
                };
                *arrived = names.iter().filter(is_there).cloned().map(Value::String).collect();
            }
            (_, _, write) => {
                return Err(format!("{} is written, and {} is needed", kind(&write), self.wants()).into());
            }
        }
        Ok(())
    }

    /// Converts a write to the form of the value, which a schema describes.
    pub(super) fn described<'a>(&self, write: &'a Value) -> Cow<'a, Value> {
        match self {
            Self::ById => {
                let is_item = |item: &&Value| removal(item).is_none();
                Cow::Owned(slice(write).iter().filter(is_item).cloned().collect())
            }
            Self::List | Self::Set | Self::Barrier(_) if !write.is_array() => {
                Cow::Owned(Value::Array(vec![write.clone()]))
            }
            _ => Cow::Borrowed(write),
        }
    }

    /// Returns the names in a write to a barrier.
    fn names<'a>(&self, names: &[String], write: &'a Value) -> Result<Vec<&'a str>, ReduceError> {
        let name = |item: &'a Value| match item.as_str() {
            Some(name) if names.iter().any(|known| known == name) => Ok(name),
            _ => Err(format!("the barrier has no name {item}").into()),
        };
        slice(write).iter().map(name).collect()
    }

    fn wants(&self) -> &'static str {
        match self {
            Self::Replace | Self::Any => "anything",
            Self::List | Self::ById | Self::Set | Self::Barrier(_) => "a list",
            Self::Text => "a text",
            Self::Sum => "a number",
            Self::Max => "a number or a text",
            Self::Object => "an object",
        }
    }
}

fn items(write: Value) -> Vec<Value> {
    match write {
        Value::Array(items) => items,
        item => vec![item],
    }
}

fn slice(write: &Value) -> &[Value] {
    write.as_array().map_or(std::slice::from_ref(write), Vec::as_slice)
}

fn merges(write: Value) -> Result<Merges<Value>, ReduceError> {
    let merge = |item: Value| match removal(&item) {
        Some(removal) => Ok(removal),
        None => has_id(&item).map(|()| Merge::Put(item)),
    };
    items(write).into_iter().map(merge).collect::<Result<_, _>>().map(Merges)
}

/// Returns the operation that an object encodes, if it is not an item.
fn removal(item: &Value) -> Option<Merge<Value>> {
    let (key, value) = item.as_object().filter(|object| object.len() == 1)?.iter().next()?;
    match (key.as_str(), value) {
        ("$remove", Value::String(id)) => Some(Merge::remove(id.clone())),
        ("$remove_all", Value::Bool(true)) => Some(Merge::remove_all()),
        _ => None,
    }
}

fn has_id(item: &Value) -> Result<(), ReduceError> {
    match item {
        Value::Object(item) if item.get("id").is_none_or(Value::is_string) => Ok(()),
        Value::Object(_) => Err("the `id` of an item is a text".into()),
        _ => Err(format!("an item is an object with an `id`, and this is {}", kind(item)).into()),
    }
}

/// Adds two numbers. Integers stay integers.
fn add(sum: &Number, write: &Number) -> Result<Number, ReduceError> {
    let total = match (sum.as_i128(), write.as_i128()) {
        (Some(sum), Some(write)) => Number::from_i128(sum + write),
        _ => sum.as_f64().zip(write.as_f64()).and_then(|(sum, write)| Number::from_f64(sum + write)),
    };
    total.ok_or_else(|| format!("{sum} + {write} does not fit 64 bits").into())
}

fn compare(write: &Value, value: &Value) -> Result<Ordering, ReduceError> {
    let order = match (write, value) {
        (Value::String(write), Value::String(value)) => Some(write.cmp(value)),
        (Value::Number(write), Value::Number(value)) => match (write.as_i128(), value.as_i128()) {
            (Some(write), Some(value)) => Some(write.cmp(&value)),
            _ => write.as_f64().zip(value.as_f64()).and_then(|(write, value)| write.partial_cmp(&value)),
        },
        _ => None,
    };
    order.ok_or_else(|| format!("{} cannot be compared with {}", kind(write), kind(value)).into())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "`null`",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
