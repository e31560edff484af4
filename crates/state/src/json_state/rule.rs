//! The reducers of JSON channels.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Number, Value};

use super::JsonChannel;
use crate::{ById, IdOf, Log, Merge, Merges, ReduceError};

/// A reducer of a channel of a [`JsonState`](super::JsonState).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JsonReducer {
    /// The write replaces the value; one write per superstep.
    #[default]
    LastValue,
    /// The same with any number of writes, of which the last task's counts.
    AnyValue,
    /// Like `last_value`, and only the next superstep sees the value.
    Ephemeral,
    /// A written list appends its items, any other value is an item; to a channel whose default is text, text
    /// is appended.
    Append,
    /// Like `append` for lists, and only the next superstep sees the items.
    Topic,
    /// Written objects replace those with the same `id`, or are added; `{"$remove": id}` and
    /// `{"$remove_all": true}` remove.
    MergeById,
    /// Numbers are added up. Integers stay integers; a sum that does not fit 64 bits is an error.
    Sum,
    /// The greatest write is retained, of numbers or of texts.
    Max,
    /// Objects are merged; to a channel whose default is a list, missing items are added.
    Union,
    /// Written names have arrived; the value is the list of arrived names.
    Barrier,
}

impl JsonReducer {
    /// Returns whether a channel accepts one write per superstep.
    pub(super) fn is_exclusive(self) -> bool {
        matches!(self, Self::LastValue | Self::Ephemeral)
    }

    /// Returns whether only the next superstep sees the value.
    pub(super) fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::Topic)
    }
}

/// The kind of JSON that a channel has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Any,
    Text,
    Number,
    Ordered,
    Object,
    List,
}

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Ordered => value.is_null() || value.is_number() || value.is_string(),
            Self::Object => value.is_object(),
            Self::List => value.is_array(),
        }
    }

    /// Returns the value before the first write.
    fn empty(self) -> Value {
        match self {
            Self::Any | Self::Ordered => Value::Null,
            Self::Text => Value::from(""),
            Self::Number => Value::from(0),
            Self::Object => Value::Object(Map::new()),
            Self::List => Value::Array(Vec::new()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Text => "a text",
            Self::Number => "a number",
            Self::Ordered => "a number or a text",
            Self::Object => "an object",
            Self::List => "a list",
        }
    }
}

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

impl JsonChannel {
    fn kind(&self) -> Kind {
        let default = self.default.as_ref();
        match self.reducer {
            JsonReducer::LastValue | JsonReducer::Ephemeral | JsonReducer::AnyValue => Kind::Any,
            JsonReducer::Append if default.is_some_and(Value::is_string) => Kind::Text,
            JsonReducer::Union if !default.is_some_and(Value::is_array) => Kind::Object,
            JsonReducer::Append | JsonReducer::Topic | JsonReducer::MergeById => Kind::List,
            JsonReducer::Union | JsonReducer::Barrier => Kind::List,
            JsonReducer::Sum => Kind::Number,
            JsonReducer::Max => Kind::Ordered,
        }
    }

    /// Returns the value before the first write.
    pub(super) fn initial(&self) -> Result<RuleValue, String> {
        self.read(self.default.clone().unwrap_or_else(|| self.kind().empty()))
    }

    /// Reads a whole value, from a snapshot or a default.
    pub(super) fn read(&self, value: Value) -> Result<RuleValue, String> {
        let wanted = self.kind();
        match (self.reducer, value) {
            (_, value) if !wanted.fits(&value) => {
                Err(format!("it is {} and cannot be {}", kind(&value), wanted.name()))
            }
            (JsonReducer::Append | JsonReducer::Topic, Value::Array(items)) => {
                Ok(RuleValue::List(items.into()))
            }
            (JsonReducer::MergeById, Value::Array(items)) => {
                items.iter().try_for_each(has_id).map_err(|cause| cause.to_string())?;
                Ok(RuleValue::ById(items.into_iter().collect()))
            }
            (JsonReducer::Barrier, value) => {
                self.arrivals(&value).map_err(|cause| cause.to_string())?;
                Ok(RuleValue::from(value))
            }
            (_, value) => Ok(RuleValue::from(value)),
        }
    }

    /// Folds one write.
    pub(super) fn fold(&self, held: &mut RuleValue, write: Value) -> Result<(), ReduceError> {
        match (self.reducer, held) {
            (JsonReducer::LastValue | JsonReducer::Ephemeral | JsonReducer::AnyValue, held) => {
                *held = RuleValue::from(write);
            }
            (JsonReducer::Append | JsonReducer::Topic, RuleValue::List(list)) => list.extend(items(write)),
            (JsonReducer::MergeById, RuleValue::ById(list)) => list.merge(merges(write)?)?,
            (JsonReducer::Max, held) => match held {
                RuleValue::Value(value) if compare(&write, value)?.is_le() => {}
                _ => {
                    compare(&write, &write)?;
                    *held = RuleValue::from(write);
                }
            },
            (
                JsonReducer::Append | JsonReducer::Sum | JsonReducer::Union | JsonReducer::Barrier,
                RuleValue::Value(value),
            ) => self.fold_value(Arc::make_mut(value), write)?,
            (JsonReducer::Append | JsonReducer::Topic | JsonReducer::MergeById, _)
            | (JsonReducer::Sum | JsonReducer::Union | JsonReducer::Barrier, _) => {
                unreachable!("`read` makes the values that a reducer takes")
            }
        }
        Ok(())
    }

    fn fold_value(&self, value: &mut Value, write: Value) -> Result<(), ReduceError> {
        match (self.reducer, value, write) {
            (JsonReducer::Append, Value::String(text), Value::String(write)) => text.push_str(&write),
            (JsonReducer::Sum, Value::Number(sum), Value::Number(write)) => *sum = add(sum, &write)?,
            (JsonReducer::Union, Value::Object(object), Value::Object(write)) => object.extend(write),
            (JsonReducer::Union, Value::Array(set), write) => {
                for item in items(write) {
                    if !set.contains(&item) {
                        set.push(item);
                    }
                }
            }
            (JsonReducer::Barrier, Value::Array(arrived), write) => {
                let new = self.arrivals(&write)?;
                // In name order, independent of the order of the writes.
                let is_there = |name: &&String| {
                    new.contains(&name.as_str()) || arrived.iter().any(|there| there == name.as_str())
                };
                *arrived = self.names.iter().filter(is_there).cloned().map(Value::String).collect();
            }
            (
                JsonReducer::Append | JsonReducer::Sum | JsonReducer::Union | JsonReducer::Barrier,
                _,
                write,
            ) => {
                let wanted = self.kind().name();
                return Err(format!("{} is written, and {wanted} is needed", kind(&write)).into());
            }
            (JsonReducer::LastValue | JsonReducer::Ephemeral | JsonReducer::AnyValue, ..)
            | (JsonReducer::Topic | JsonReducer::MergeById | JsonReducer::Max, ..) => {
                unreachable!("`fold` folds their writes itself")
            }
        }
        Ok(())
    }

    /// Converts a write to the form of the value, which a schema describes.
    pub(super) fn described<'a>(&self, write: &'a Value) -> Cow<'a, Value> {
        if self.reducer == JsonReducer::MergeById {
            let is_item = |item: &&Value| removal(item).is_none();
            Cow::Owned(slice(write).iter().filter(is_item).cloned().collect())
        } else if self.kind() == Kind::List && !write.is_array() {
            Cow::Owned(Value::Array(vec![write.clone()]))
        } else {
            Cow::Borrowed(write)
        }
    }

    /// Returns the names in a write to a barrier.
    fn arrivals<'a>(&self, write: &'a Value) -> Result<Vec<&'a str>, ReduceError> {
        let name = |item: &'a Value| match item.as_str() {
            Some(name) if self.names.iter().any(|known| known == name) => Ok(name),
            _ => Err(format!("the barrier has no name {item}").into()),
        };
        slice(write).iter().map(name).collect()
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
