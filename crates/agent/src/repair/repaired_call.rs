//! Repair of tool calls that are nearly valid.

use serde::de::IgnoredAny;
use superstep_llm::ToolRegistry;

/// Returns the only one of these names that differs from a wrong one in case and punctuation alone.
pub fn name<'a>(names: impl IntoIterator<Item = &'a str>, wrong: &str) -> Option<&'a str> {
    let plain = |name: &str| -> String {
        name.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let wanted = plain(wrong);
    let mut meant = names.into_iter().filter(|name| !wanted.is_empty() && plain(name) == wanted);
    meant.next().filter(|_| meant.next().is_none())
}

/// Returns the name that a call means: of a tool, or of the finish tool.
pub(crate) fn resolved<'a>(
    tools: &'a ToolRegistry,
    finish: Option<&'a str>,
    repair: bool,
    written: &'a str,
) -> &'a str {
    if !repair || finish == Some(written) || tools.get(written).is_some() {
        return written;
    }
    name(tools.names().chain(finish), written).unwrap_or(written)
}

/// Extracts the JSON object from wrapped arguments: in a code fence, in a JSON string, or in a second pair of
/// braces.
pub(crate) fn arguments(text: &str) -> Option<String> {
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let unfenced =
        fenced.map(|text| text.trim_start_matches(|char: char| char.is_ascii_alphanumeric()).trim());
    let quoted = serde_json::from_str::<String>(text).ok();
    let braced = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).map(str::trim);
    let candidates = [unfenced.map(str::to_owned), quoted, braced.map(str::to_owned)];
    // Without building the value, which may be large.
    let is_object = |json: &String| {
        json.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(json).is_ok()
    };
    candidates.into_iter().flatten().find(is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_arguments_are_unwrapped_and_broken_ones_stay_broken() {
        let object = Some(r#"{"x":"1"}"#.to_owned());
        assert_eq!(arguments("```json\n{\"x\":\"1\"}\n```"), object);
        assert_eq!(arguments("```\n{\"x\":\"1\"}```"), object);
        assert_eq!(arguments(r#""{\"x\":\"1\"}""#), object);
        assert_eq!(arguments(r#"{{"x":"1"}}"#), object);
        for broken in ["{x:1", "", "```json\n[1]\n```", "\"text\"", "{}}", "{{x}}"] {
            assert_eq!(arguments(broken), None, "{broken}");
        }
    }
}
