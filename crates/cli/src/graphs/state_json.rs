//! States and updates as JSON.
//!
//! Start at [`read_update`].

use serde_json::{Map, Value};
use superstep::{
    __private::keys::CLEAR,
    State,
    state::{Channel, WriteError},
};

use crate::output::{
    exit::{Exit, Failure},
    suggest::closest,
};

/// Reads an update: an object with an entry for each written channel. `what` names it in the error.
///
/// # Errors
/// It is not an object, has an unknown channel, or has a value of the wrong type; the error has the place in
/// the JSON.
pub(super) fn read_update<S: State>(initial: &S, what: &str, json: &Value) -> Result<S::Update, Failure> {
    let Value::Object(entries) = json else {
        return Err(Failure::usage(format!(
            "the {what} is {}, and must be an object with an entry for each written channel",
            kind(json)
        )));
    };
    let written = entries.keys().map(String::as_str).filter(|name| *name != CLEAR);
    let cleared = entries.get(CLEAR).and_then(Value::as_array).into_iter().flatten();
    for name in written.chain(cleared.filter_map(Value::as_str)) {
        if !initial.channels().iter().any(|channel| channel.is_called(name)) {
            return Err(unknown(initial, what, name));
        }
    }
    let update: S::Update = serde_path_to_error::deserialize(json).map_err(|error| {
        let place = error.path().to_string();
        Failure::usage(format!("the {what} does not fit the state: `{place}`: {}", error.into_inner()))
    })?;
    match initial.check(&update) {
        Ok(()) => Ok(update),
        Err(WriteError::Undeclared { channel, .. }) => Err(unknown(initial, what, &channel)),
        Err(WriteError::Unfit { channel, place, reason }) => {
            let place = place.replace('/', ".");
            Err(Failure::usage(format!("the {what} does not fit the state: `{channel}{place}`: {reason}")))
        }
        Err(other) => Err(Failure::usage(format!("the {what} does not fit the state: {other}"))),
    }
}

/// Returns the stored channels of a state with their values.
pub(crate) fn values<S: State>(state: &S) -> Result<Map<String, Value>, Failure> {
    let channels = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let value = |(position, channel): (usize, &Channel)| {
        let json = serde_json::from_slice(&state.encode(position)?)?;
        Ok((channel.name.to_string(), json))
    };
    let values: Result<_, serde_json::Error> = channels.map(value).collect();
    values.map_err(|error| Failure::caused(Exit::Failed, &error))
}

/// The error for an unknown channel: with the one that was probably meant, or all.
fn unknown<S: State>(initial: &S, what: &str, name: &str) -> Failure {
    let known: Vec<&str> = initial.channels().iter().map(|channel| &*channel.name).collect();
    let hint = match closest(name, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "the state has no channels".to_owned(),
        None => format!("the channels are `{}`", known.join("`, `")),
    };
    Failure::usage(format!("the {what} has the unknown channel `{name}`; {hint}"))
}

fn kind(json: &Value) -> &'static str {
    match json {
        Value::Null => "`null`",
        Value::Bool(_) => "`true` or `false`",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;
    use superstep::{JsonChannels, JsonState, Log};

    use super::*;

    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Item {
        name: String,
        price: u32,
    }

    #[derive(State, Clone, Debug, Default)]
    struct Order {
        #[channel(append)]
        items: Log<Item>,
        customer: String,
    }

    #[track_caller]
    fn refused(json: Value, wanted: &str) {
        let error = read_update(&Order::default(), "input", &json).unwrap_err();
        assert_eq!(error.message, wanted, "{json}");
    }

    #[test]
    fn a_wrong_input_is_refused_with_its_place() {
        refused(
            json!({"custmer": "Ada"}),
            "the input has the unknown channel `custmer`; did you mean `customer`?",
        );
        refused(
            json!({"x": 1}),
            "the input has the unknown channel `x`; the channels are `items`, `customer`",
        );
        refused(
            json!({"$then": []}),
            "the input has the unknown channel `$then`; the channels are `items`, `customer`",
        );
        refused(
            json!({"clear": ["item"]}),
            "the input has the unknown channel `item`; did you mean `items`?",
        );
        refused(
            json!([1]),
            "the input is a list, and must be an object with an entry for each written channel",
        );
        refused(
            json!({"items": [{"name": "tea", "price": 3}, {"name": "mug", "price": "x"}]}),
            "the input does not fit the state: `items[1].price`: invalid type: string \"x\", expected u32",
        );
        refused(
            json!({"items": [{"name": "tea"}]}),
            "the input does not fit the state: `items[0]`: missing field `price`",
        );
        let update = read_update(&Order::default(), "input", &json!({"customer": "Ada", "clear": ["items"]}));
        assert_eq!(update.unwrap().customer.as_deref(), Some("Ada"));
    }

    #[test]
    fn a_state_that_is_json_is_checked_against_its_schemas() {
        let channels: JsonChannels = serde_json::from_value(
            json!({"total": {"schema": {"type": "integer"}}, "log": {"reducer": "append"}}),
        )
        .unwrap();
        let state = JsonState::new(&channels).unwrap();
        let refused = |json: Value| read_update(&state, "input", &json).unwrap_err().message;
        assert_eq!(
            refused(json!({"totl": 1})),
            "the input has the unknown channel `totl`; did you mean `total`?"
        );
        let unfit = refused(json!({"total": "x"}));
        assert!(unfit.starts_with("the input does not fit the state: `total`: "), "{unfit}");
    }
}
