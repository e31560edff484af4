//! The list of all tools.

use std::{io, path::Path, sync::Arc};

use superstep_llm::Tool;

use crate::{
    calculate::calculate,
    clock::current_time,
    pin::pin,
    settings::ToolSettings,
    shell::shell_with,
    todo::todo,
    web::fetch_url_with,
    workspace::{Workspace, edit_file, list_files, read_file, search_files, write_file},
};

/// All tools of a workspace: `list_files`, `read_file`, `search_files`, `edit_file`, `write_file`, `shell`, `fetch_url`,
/// `todo`, `pin`, `calculate`, `current_time`.
///
/// `edit_file`, `write_file`, `shell` and `fetch_url` require approval; the others change nothing. Build your
/// own list from the constructors of the single tools.
/// # Units
/// `clock` gives UTC milliseconds since 1970.
/// # Errors
/// `root` is missing, unreadable or not a directory.
/// # Example
/// ```
/// use superstep_tools as tools;
///
/// let dir = tempfile::tempdir()?;
/// let all = tools::all(dir.path(), || 1_767_225_600_000)?;
/// assert_eq!(all[0].spec().name, "list_files");
/// # std::io::Result::Ok(())
/// ```
pub fn all(root: &Path, clock: impl Fn() -> i64 + Send + Sync + 'static) -> io::Result<Vec<Arc<dyn Tool>>> {
    all_with(root, clock, &ToolSettings::default())
}

/// The same tools, with what the user grants to `shell` and `fetch_url`.
///
/// # Errors
/// `root` is missing, unreadable or not a directory.
pub fn all_with(
    root: &Path,
    clock: impl Fn() -> i64 + Send + Sync + 'static,
    settings: &ToolSettings,
) -> io::Result<Vec<Arc<dyn Tool>>> {
    let workspace = Workspace::open(root)?;
    Ok(vec![
        Arc::new(list_files(&workspace)),
        Arc::new(read_file(&workspace)),
        Arc::new(search_files(&workspace)),
        Arc::new(edit_file(&workspace)),
        Arc::new(write_file(&workspace)),
        Arc::new(shell_with(&workspace, settings.shell.clone())),
        Arc::new(fetch_url_with(settings.web.clone())),
        Arc::new(todo()),
        Arc::new(pin()),
        Arc::new(calculate()),
        Arc::new(current_time(clock)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_have_a_fixed_order_and_the_documented_arguments() {
        let dir = tempfile::tempdir().unwrap();
        let tools = all(dir.path(), || 0).unwrap();
        let shapes: Vec<String> = tools
            .iter()
            .map(|tool| {
                let parameters = &tool.spec().parameters;
                let required = parameters["required"].as_array().cloned().unwrap_or_default();
                let mut names: Vec<String> = parameters["properties"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| {
                        let optional = !required.contains(&name.as_str().into());
                        format!("{name}{}", if optional { "?" } else { "" })
                    })
                    .collect();
                names.sort();
                assert_eq!(parameters["additionalProperties"], false, "{}", tool.spec().name);
                format!("{}({})", tool.spec().name, names.join(", "))
            })
            .collect();
        assert_eq!(
            shapes,
            [
                "list_files(glob?, path?)",
                "read_file(limit?, offset?, path)",
                "search_files(path?, pattern)",
                "edit_file(new, old, path)",
                "write_file(content, path)",
                "shell(command, cwd?, timeout_seconds?)",
                "fetch_url(url)",
                "todo(items)",
                "pin(kind, name, text)",
                "calculate(expression)",
                "current_time()",
            ]
        );
    }

    #[test]
    fn every_argument_is_described_to_the_model() {
        let dir = tempfile::tempdir().unwrap();
        for tool in all(dir.path(), || 0).unwrap() {
            for (name, schema) in tool.spec().parameters["properties"].as_object().into_iter().flatten() {
                assert!(schema["description"].is_string(), "{} {name}", tool.spec().name);
            }
        }
    }

    #[test]
    fn a_root_that_is_missing_or_a_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let missing = all(&dir.path().join("missing"), || 0).err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let file = all(&dir.path().join("file"), || 0).err().unwrap();
        assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
        assert_eq!(file.to_string(), "the workspace root is not a directory");
    }

    #[test]
    fn every_tool_declares_whether_it_changes_files() {
        let dir = tempfile::tempdir().unwrap();
        let all = all(dir.path(), || 0).unwrap();
        let declared: Vec<_> =
            all.iter().map(|tool| (tool.spec().name.as_str(), tool.changes_files())).collect();
        let changing = ["edit_file", "write_file", "shell"];
        for (name, changes_files) in declared {
            assert_eq!(changes_files, Some(changing.contains(&name)), "{name}");
        }
    }

    #[test]
    fn tools_with_effects_need_approval() {
        let dir = tempfile::tempdir().unwrap();
        let args = |name: &str| match name {
            "edit_file" => serde_json::json!({"path": "a", "old": "b", "new": "c"}),
            "write_file" => serde_json::json!({"path": "a", "content": ""}),
            "shell" => serde_json::json!({"command": "true"}),
            _ => serde_json::json!({"url": "https://example.com"}),
        };
        let asking: Vec<String> = all(dir.path(), || 0)
            .unwrap()
            .iter()
            .filter(|tool| tool.approval(&args(&tool.spec().name)).is_some())
            .map(|tool| tool.spec().name.clone())
            .collect();
        assert_eq!(asking, ["edit_file", "write_file", "shell", "fetch_url"]);
    }
}
