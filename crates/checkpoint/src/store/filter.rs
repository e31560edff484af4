//! Conditions on a value.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::StoreError;

/// A condition on one field of a value.
///
/// A field is named by its key or, if nested, by its path of keys joined with `.`; a key that contains a `.`
/// itself is tried first. A missing field counts as `null`. Numbers are compared by value, whether they were
/// written `1` or `1.0`, texts by their bytes; greater and less are never true between two different kinds of
/// value.
///
/// # Example
/// ```
/// use serde_json::json;
/// use superstep_graph::store::Filter;
///
/// let filters = Filter::parse(&json!({"kind": "fact", "seen.count": {"$gte": 2, "$lt": 10}}))?;
/// let fits = |value| filters.iter().all(|filter| filter.matches(&value));
/// assert!(fits(json!({"kind": "fact", "seen": {"count": 2.0}})));
/// assert!(!fits(json!({"kind": "fact", "seen": {"count": "2"}})));
/// # Ok::<(), superstep_graph::store::StoreError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The name of the field.
    pub field: String,
    /// The comparison.
    pub compare: Compare,
    /// The value to compare with.
    pub with: Value,
}

/// A comparison of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `$eq`: an equal value.
    Eq,
    /// `$ne`: a different value.
    Ne,
    /// `$gt`: greater.
    Gt,
    /// `$gte`: a greater or equal value.
    Gte,
    /// `$lt`: less.
    Lt,
    /// `$lte`: a less or equal value.
    Lte,
}

const OPERATORS: [(&str, Compare); 6] = [
    ("$eq", Compare::Eq),
    ("$ne", Compare::Ne),
    ("$gt", Compare::Gt),
    ("$gte", Compare::Gte),
    ("$lt", Compare::Lt),
    ("$lte", Compare::Lte),
];

impl Filter {
    /// Creates the condition that the field equals this value.
    pub fn eq(field: impl Into<String>, with: impl Into<Value>) -> Self {
        Self { field: field.into(), compare: Compare::Eq, with: with.into() }
    }

    /// Creates the condition that the field differs from this value.
    pub fn ne(field: impl Into<String>, with: impl Into<Value>) -> Self {
        Self { compare: Compare::Ne, ..Self::eq(field, with) }
    }

    /// Creates the condition that the field is greater than this value.
    pub fn gt(field: impl Into<String>, with: impl Into<Value>) -> Self {
        Self { compare: Compare::Gt, ..Self::eq(field, with) }
    }

    /// Creates the condition that the field is greater than or equal to this value.
    pub fn gte(field: impl Into<String>, with: impl Into<Value>) -> Self {
        Self { compare: Compare::Gte, ..Self::eq(field, with) }
    }

    /// Creates the condition that the field is less than this value.
    pub fn lt(field: impl Into<String>, with: impl Into<Value>) -> Self {
        Self { compare: Compare::Lt, ..Self::eq(field, with) }
    }

    /// Creates the condition that the field is less than or equal to this value.
    pub fn lte(field: impl Into<String>, with: impl Into<Value>) -> Self {
        Self { compare: Compare::Lte, ..Self::eq(field, with) }
    }

    /// Parses filters from JSON: `{"field": value, "other": {"$gt": 3, "$lte": 9}}`.
    ///
    /// # Errors
    /// [`StoreError::Filter`] if it is not an object, or has an unknown operator.
    pub fn parse(json: &Value) -> Result<Vec<Self>, StoreError> {
        let Value::Object(fields) = json else {
            return Err(wrong(format!("a filter is an object with a field each, and not `{json}`")));
        };
        let mut filters = Vec::new();
        for (field, with) in fields {
            match with {
                Value::Object(operators) if operators.keys().any(|key| key.starts_with('$')) => {
                    for (operator, with) in operators {
                        let known = OPERATORS.iter().find(|(name, _)| name == operator);
                        let compare = known.map(|(_, compare)| *compare).ok_or_else(|| {
                            let names = OPERATORS.map(|(name, _)| format!("`{name}`")).join(", ");
                            wrong(format!(
                                "unknown operator `{operator}` in the filter of field `{field}`; use {names}"
                            ))
                        })?;
                        filters.push(Self { field: field.clone(), compare, with: with.clone() });
                    }
                }
                with => filters.push(Self::eq(field, with.clone())),
            }
        }
        Ok(filters)
    }

    /// Returns whether the condition holds for this value.
    pub fn matches(&self, value: &Value) -> bool {
        let found = field(value, &self.field).unwrap_or(&Value::Null);
        let order = || order(found, &self.with);
        match self.compare {
            Compare::Eq => same(found, &self.with),
            Compare::Ne => !same(found, &self.with),
            Compare::Gt => order() == Some(Ordering::Greater),
            Compare::Gte => order().is_some_and(Ordering::is_ge),
            Compare::Lt => order() == Some(Ordering::Less),
            Compare::Lte => order().is_some_and(Ordering::is_le),
        }
    }
}

/// Returns the field of a value with this name; see [`Filter`].
pub(super) fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let fields = value.as_object()?;
    if let Some(found) = fields.get(name) {
        return Some(found);
    }
    name.match_indices('.').find_map(|(dot, _)| field(fields.get(&name[..dot])?, &name[dot + 1..]))
}

fn wrong(what: String) -> StoreError {
    StoreError::Filter { what }
}

/// Returns whether two values are equal, numbers by value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => number_order(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => number_order(a, b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Compares numbers by value. Integers stay integers: 2^53 and 2^53 + 1 differ.
fn number_order(a: &Number, b: &Number) -> Option<Ordering> {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => Some(mixed_order(a, b.as_f64()?)),
        (None, Some(b)) => Some(mixed_order(b, a.as_f64()?).reverse()),
        (None, None) => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Compares a 64-bit integer with a float, which is finite in JSON.
#[expect(
    clippy::cast_possible_truncation,
    reason = "floats beyond the range become its ends, which are right"
)]
fn mixed_order(integer: i128, float: f64) -> Ordering {
    let whole = float.floor();
    integer.cmp(&(whole as i128)).then(if float > whole { Ordering::Less } else { Ordering::Equal })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_compared_by_value_and_exactly() {
        let cmp = |a: Value, b: Value| order(&a, &b);
        assert_eq!(cmp(json!(1), json!(1.0)), Some(Ordering::Equal));
        assert_eq!(
            cmp(json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992.0)),
            Some(Ordering::Greater)
        );
        assert_eq!(cmp(json!(u64::MAX), json!(i64::MIN)), Some(Ordering::Greater));
        assert_eq!(cmp(json!(-2), json!(-1.5)), Some(Ordering::Less));
        assert_eq!(cmp(json!(-1), json!(-1.5)), Some(Ordering::Greater));
        assert_eq!(cmp(json!(1), json!(1e300)), Some(Ordering::Less));
        assert_eq!(cmp(json!(1), json!("1")), None);
    }
}
