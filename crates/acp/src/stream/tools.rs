//! Tool calls, as clients show them.

use crate::wire::{ContentBlock, ToolContent, ToolKind};

/// Returns the kind of a tool. Tools of MCP servers and of programs are always `Other`, because some clients allow calls by their
/// kind without a question.
pub fn tool_kind(tool: &str, is_built_in: bool) -> ToolKind {
    match tool {
        _ if !is_built_in => ToolKind::Other,
        "read_file" => ToolKind::Read,
        "list_files" | "search_files" => ToolKind::Search,
        "edit_file" | "write_file" => ToolKind::Edit,
        "shell" => ToolKind::Execute,
        "fetch_url" => ToolKind::Fetch,
        "todo" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// Returns text as a Markdown code block, whose fence is longer than those in the text. `info` is its language, such as `diff`.
pub fn fenced(text: &str, info: &str) -> String {
    let longest = text.split(|sign| sign != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{info}\n{text}{end}{fence}")
}

/// Returns text as a part of a call's output.
pub fn text_content(text: impl Into<String>) -> ToolContent {
    ToolContent::Content { content: ContentBlock::text(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_those_in_the_text() {
        assert_eq!(fenced("a", ""), "```\na\n```");
        assert_eq!(fenced("a\n", "diff"), "```diff\na\n```");
        assert_eq!(fenced("", ""), "```\n```");
        assert_eq!(fenced("x ```` y ``\n```", ""), "`````\nx ```` y ``\n```\n`````");
    }

    #[test]
    fn only_built_in_tools_have_a_kind_that_clients_may_allow() {
        assert_eq!(tool_kind("read_file", true), ToolKind::Read);
        assert_eq!(tool_kind("read_file", false), ToolKind::Other);
        assert_eq!(tool_kind("calculate", true), ToolKind::Other);
    }
}
