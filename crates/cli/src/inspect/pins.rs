//! Pins as text.

use superstep::agent::state::Pins;
use superstep_session::text::printable_line;

/// Formats pins, each with its name, by which it is replaced and removed.
pub(crate) fn list(pins: &Pins) -> String {
    if pins.is_empty() {
        return "no pins\n".to_owned();
    }
    let pins = pins.iter().map(|pin| {
        let text = pin.text.trim().lines().map(printable_line).collect::<Vec<_>>().join("\n  ");
        format!("{} `{}`\n  {text}\n", pin.kind.as_str(), printable_line(&pin.id))
    });
    pins.collect()
}
