//! Inputs and updates that a user writes as JSON.
//!
//! Start at [`check`].

use serde_json::Value;
use superstep::{
    __private::keys::CLEAR,
    erased::{InputError, JsonGraph},
};
use superstep_session::{error::SessionError, suggest::closest};

/// Checks that JSON is an input of a graph. `what` names it in the error.
///
/// # Errors
/// It is not an object, has an unknown channel, or has a value of the wrong type; the error has the place in
/// the JSON.
pub(crate) fn check(graph: &dyn JsonGraph, what: &str, json: &Value) -> Result<(), SessionError> {
    let Value::Object(entries) = json else {
        return Err(SessionError::usage(format!(
            "the {what} is {}, and must be an object with an entry for each written channel",
            kind(json)
        )));
    };
    let written = entries.keys().map(String::as_str).filter(|name| *name != CLEAR);
    let cleared = entries.get(CLEAR).and_then(Value::as_array).into_iter().flatten();
    for name in written.chain(cleared.filter_map(Value::as_str)) {
        if !graph.channels().iter().any(|channel| channel.is_called(name)) {
            let known: Vec<&str> = graph.channels().iter().map(|channel| &*channel.name).collect();
            let hint = match closest(name, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => "the state has no channels".to_owned(),
                None => format!("the channels are `{}`", known.join("`, `")),
            };
            return Err(SessionError::usage(format!("the {what} has the unknown channel `{name}`; {hint}")));
        }
    }
    graph.check(json).map_err(|error| unfit(what, &error))
}

/// Returns the failure for JSON that does not fit, with its value.
pub(crate) fn unfit(what: &str, InputError { place, reason_with_value, .. }: &InputError) -> SessionError {
    SessionError::usage(format!("the {what} does not fit the state: `{place}`: {reason_with_value}"))
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
    use std::sync::Arc;

    use serde_json::json;
    use superstep::{END, START, State, StateGraph};

    use super::*;

    #[derive(State, Clone, Debug, Default)]
    struct Order {
        items: Vec<u32>,
        customer: String,
    }

    #[test]
    fn a_wrong_input_is_refused_with_its_place() {
        let mut graph = StateGraph::<Order>::new("orders");
        let pay = graph.add_node("pay", async |_: Order, _| ());
        graph.add_edge(START, pay);
        graph.add_edge(pay, END);
        let graph: Arc<dyn JsonGraph> = graph.compile().unwrap().into();
        for (json, wanted) in [
            (
                json!({"custmer": "A"}),
                "the input has the unknown channel `custmer`; did you mean `customer`?",
            ),
            (json!({"x": 1}), "the input has the unknown channel `x`; the channels are `items`, `customer`"),
            (
                json!({"$then": []}),
                "the input has the unknown channel `$then`; the channels are `items`, `customer`",
            ),
            (json!({"clear": ["item"]}), "the input has the unknown channel `item`; did you mean `items`?"),
            (json!([1]), "the input is a list, and must be an object with an entry for each written channel"),
            (
                json!({"items": ["x"]}),
                "the input does not fit the state: `items[0]`: invalid type: string \"x\", expected u32",
            ),
        ] {
            assert_eq!(check(&*graph, "input", &json).unwrap_err().message, wanted, "{json}");
        }
        check(&*graph, "input", &json!({"customer": "Ada", "clear": ["items"]})).unwrap();
    }
}
