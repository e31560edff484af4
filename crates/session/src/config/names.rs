//! Names of databases; and those of threads, users and schedules, which can be shown, typed and found again.

use std::{ffi::OsString, fmt};

use superstep::llm::text::is_printable;

/// The environment variable with the database of commands without `--db`.
pub const VARIABLE: &str = "SUPERSTEP_DB";

/// The name of a database: a path or a URL. A URL has a password, so that no output contains it.
#[derive(Clone)]
pub struct DbName(pub OsString);

impl fmt::Debug for DbName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_server() { f.write_str("a PostgreSQL database") } else { self.0.fmt(f) }
    }
}

impl DbName {
    pub(crate) fn is_server(&self) -> bool {
        let text = self.0.to_string_lossy();
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    pub fn is_cluster(&self) -> bool {
        let text = self.0.to_string_lossy();
        text.starts_with("restate://") || text.starts_with("restate+https://")
    }
}

/// Checks a name that can be shown, typed and found again.
pub fn thread_name(name: &str) -> Result<String, String> {
    name_of("thread", name)
}

/// Validates the name of a possibly new thread. It appears in suggested commands, so it must not look like a
/// flag.
pub fn new_thread_name(name: &str) -> Result<String, String> {
    if name.starts_with('-') {
        return Err("a thread's name does not begin with `-`, which is for flags".to_owned());
    }
    if name.chars().any(|c| !is_printable(c)) {
        return Err("a thread's name has no characters that cannot be seen".to_owned());
    }
    thread_name(name)
}

/// Validates a name that can be displayed in a line.
fn name_of(whose: &str, name: &str) -> Result<String, String> {
    if name.trim().is_empty() {
        return Err(format!("a {whose} needs a name"));
    }
    if name.len() > 200 || name.chars().any(char::is_control) {
        return Err(format!("a {whose}'s name has at most 200 bytes and no control characters"));
    }
    Ok(name.to_owned())
}

/// Validates the name of a user, which can be displayed and typed.
pub fn user_name(name: &str) -> Result<String, String> {
    name_of("user", name)
}

/// Validates the name of a schedule, which can be displayed and typed.
pub fn schedule_name(name: &str) -> Result<String, String> {
    if name.starts_with('-') || name.chars().any(|c| !is_printable(c)) {
        let rule = "a schedule's name has only characters that can be seen, and does not begin with `-`";
        return Err(rule.to_owned());
    }
    name_of("schedule", name)
}
