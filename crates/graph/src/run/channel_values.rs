//! The values of a state by channel.

use serde_json::{Map, Value};
use superstep_state::Channel;

use crate::{RunError, State};

/// Returns the stored channels of a state with their values.
///
/// # Errors
/// [`RunError::Unstorable`].
pub fn values<S: State>(state: &S) -> Result<Map<String, Value>, RunError> {
    let channels = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let value = |(position, channel): (usize, &Channel)| {
        let json = state.encode(position).and_then(|json| serde_json::from_slice(&json));
        let what = || format!("the value of channel `{}`", channel.name);
        let json = json.map_err(|source| RunError::Unstorable { what: what(), source })?;
        Ok((channel.name.to_string(), json))
    };
    channels.map(value).collect()
}
