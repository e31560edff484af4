//! File tools that cannot leave one directory: list, read, search, edit and write.
//!
//! Start at [`Workspace`].

pub(crate) mod content;
pub(crate) mod edit;
pub(crate) mod files;
pub(crate) mod journal;
pub(crate) mod omitted;
pub(crate) mod read;
pub(crate) mod root;
pub(crate) mod search;
pub(crate) mod store;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod walk;
pub(crate) mod write;

use std::{io, path::Path, sync::Arc};

use serde_json::Value;
use superstep_llm::{Subject, Tool};

pub use self::{
    edit::edit_file,
    files::list_files,
    read::read_file,
    root::{RESULTS, Workspace},
    search::search_files,
    write::write_file,
};

/// Returns a function that makes the tool for another folder.
pub(crate) fn made_by<T: Tool + 'static>(
    make: fn(&Workspace) -> T,
) -> impl Fn(&Path) -> io::Result<Arc<dyn Tool>> {
    move |folder| Ok(Arc::new(make(&Workspace::open_real(folder)?)))
}

/// Returns the permission subject of a tool's argument: a path for `path`, otherwise its text.
pub(crate) fn path(workspace: &Workspace, argument: &str, args: &Value, whole: bool) -> Option<Subject> {
    let given = args.get(argument).and_then(Value::as_str);
    match (argument, given) {
        ("path", given) => Some(workspace.subject(given.unwrap_or("."), whole)),
        (_, text) => text.map(|text| Subject::Text(text.to_owned())),
    }
}
