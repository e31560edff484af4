//! Inputs as JSON.
//!
//! Start at [`read_update`].

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use superstep_state::{State, WriteError};

/// JSON that is not an input of a graph. The text of the error has no value of the input.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the input does not fit the state: {reason}{}", if .place == WHOLE { String::new() } else { format!(" at `{}`", .place) })]
#[non_exhaustive]
pub struct InputError {
    /// The place in the input, such as `items[1].price`; `.` for the whole.
    pub place: String,
    /// The reason.
    pub reason: String,
    /// The reason with the value, for the author of the input only.
    pub reason_with_value: String,
}

superstep_state::debug_by_chain!(InputError);

/// The place of the whole input.
const WHOLE: &str = ".";

impl InputError {
    fn new(place: String, reason: String) -> Self {
        Self { place, reason: without_value(&reason), reason_with_value: reason }
    }
}

/// The conversion of inputs that are not updates of the state.
pub(super) type ReadInput<S> = Arc<dyn Fn(&Value) -> Result<<S as State>::Update, InputError> + Send + Sync>;

/// Reads an input by its conversion; without one, as an update of the state.
pub(super) fn read_update<S: State>(
    initial: &S,
    convert: Option<&ReadInput<S>>,
    json: &Value,
) -> Result<S::Update, InputError> {
    if let Some(convert) = convert {
        return convert(json);
    }
    let of_whole = |reason: String| InputError::new(WHOLE.to_owned(), reason);
    let read = serde_json::to_vec(json).and_then(|json| initial.read_update(&json));
    // The other error has no place.
    let unfit = |error: serde_json::Error| {
        read_as::<S::Update>(json).err().unwrap_or_else(|| of_whole(error.to_string()))
    };
    let update = read.map_err(unfit)?;
    initial.check(&update).map_err(|error| match error {
        WriteError::Unfit { channel, place, reason } => {
            let place = format!("{channel}{}", place.replace('/', "."));
            InputError { place, reason: reason.clone(), reason_with_value: reason }
        }
        other => of_whole(other.to_string()),
    })?;
    Ok(update)
}

/// Reads JSON as any type.
pub(super) fn read_as<I: DeserializeOwned>(json: &Value) -> Result<I, InputError> {
    serde_path_to_error::deserialize(json)
        .map_err(|error| InputError::new(error.path().to_string(), error.inner().to_string()))
}

/// Returns the text of an error of serde without the value of the input, which is for no log.
fn without_value(error: &str) -> String {
    for begin in ["invalid type: ", "invalid value: ", "unknown variant "] {
        let Some((before, rest)) = error.split_once(begin) else { continue };
        // The value may have the words too, but what was expected comes last.
        let (found, expected) = rest.rsplit_once(", expected ").unwrap_or((rest, "another one"));
        let kind = found.split(['`', '"']).next().unwrap_or_default();
        return format!("{before}{}, expected {expected}", format!("{begin}{kind}").trim_end());
    }
    error.to_owned()
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;
    use superstep_state::{Log, Update as _};

    use super::*;

    #[derive(Debug, Deserialize)]
    enum Size {
        Small,
    }

    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Item {
        name: String,
        price: u32,
    }

    #[derive(superstep_macros::State, Clone, Debug, Default)]
    struct Order {
        #[channel(append)]
        items: Log<Item>,
        customer: String,
    }

    fn error(json: Value) -> InputError {
        read_update(&Order::default(), None, &json).unwrap_err()
    }

    #[test]
    fn a_wrong_input_is_refused_with_its_place_and_without_its_value() {
        let price = error(json!({"items": [{"name": "tea", "price": 3}, {"name": "mug", "price": "x"}]}));
        let text = "the input does not fit the state: invalid type: string, expected u32 at `items[1].price`";
        assert_eq!((&*price.to_string(), &*format!("{price:?}")), (text, text));
        assert_eq!(price.reason_with_value, "invalid type: string \"x\", expected u32");
        let missing = error(json!({"items": [{"name": "tea"}]}));
        assert_eq!((&*missing.place, &*missing.reason), ("items[0]", "missing field `price`"));
        let unknown = "unknown field `custmer`, expected `items` or `customer`";
        assert_eq!(error(json!({"custmer": "Ada"})).reason, unknown);
        let unknown = "the input does not fit the state: no channel is named `item`";
        assert_eq!(error(json!({"clear": ["item"]})).to_string(), unknown);
    }

    #[test]
    fn an_update_is_read_as_it_is_serialized() {
        let tea = Item { name: "tea".to_owned(), price: 3 };
        let update = Order::update().customer("Ada").then(Order::update().items([tea]).customer("Bob"));
        let json = serde_json::to_value(&update).unwrap();
        assert_eq!(json["$then"][0]["customer"], "Bob");
        let read = read_update(&Order::default(), None, &json).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), json);
        let cleared = json!({"customer": "Ada", "clear": ["items"]});
        assert!(read_update(&Order::default(), None, &cleared).is_ok());
    }

    #[cfg(feature = "json-schema")]
    #[test]
    fn a_state_that_is_json_is_checked_against_its_schemas() {
        let channels =
            json!({"total": {"schema": {"type": "integer"}}, "log": {"reducer": "append", "was": ["list"]}});
        let channels: superstep_state::JsonChannels = serde_json::from_value(channels).unwrap();
        let state = superstep_state::JsonState::new(&channels).unwrap();
        let refused = |json: Value| read_update(&state, None, &json).unwrap_err().to_string();
        assert_eq!(refused(json!({"totl": 1})), "the input does not fit the state: unknown channel `totl`");
        let unfit = refused(json!({"total": "secret"}));
        assert!(unfit.ends_with(" at `total`") && !unfit.contains("secret"), "{unfit}");
        assert!(read_update(&state, None, &json!({"list": [1]})).is_ok());
    }

    #[test]
    fn an_error_of_an_input_has_no_value() {
        fn error<T: DeserializeOwned + std::fmt::Debug>(input: Value) -> String {
            without_value(&serde_json::from_value::<T>(input).unwrap_err().to_string())
        }
        assert_eq!(error::<i64>(json!("a, expected b")), "invalid type: string, expected i64");
        assert_eq!(error::<u8>(json!(4711)), "invalid value: integer, expected u8");
        assert_eq!(error::<String>(json!({"a": 1})), "invalid type: map, expected a string");
        assert_eq!(error::<Size>(json!("secret")), "unknown variant, expected `Small`");
        assert!(matches!(serde_json::from_value(json!("Small")), Ok(Size::Small)));
        assert_eq!(without_value("unknown field `a`, expected `b`"), "unknown field `a`, expected `b`");
    }
}
