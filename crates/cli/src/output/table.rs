//! Tables, lines of JSON, and all other output of commands on stdout.

use std::io::{self, IsTerminal, Write};

use anstyle::Style;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;
use superstep_session::{
    error::SessionError,
    text::{json_line, printable, printable_line},
};

use crate::output::exit::{self, Exit};

/// Makes a table without borders.
pub(crate) fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    if let Some(width) = terminal_width() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table
}

/// Formats a table. In a narrow terminal its first column, whose names are copied, is not broken if the half of the width is
/// enough for it.
pub(crate) fn formatted(mut table: Table) -> String {
    let names = table.column_max_content_widths().first().copied().unwrap_or_default();
    if let (Some(width), Some(column)) = (table.width(), table.column_mut(0))
        && names <= width / 2
    {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    format!("{}\n", table.trim_fmt())
}

/// Returns the number of columns of the terminal that is stdout.
pub(crate) fn terminal_width() -> Option<u16> {
    #[cfg(unix)]
    let width = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col);
    #[cfg(not(unix))]
    let width = None;
    width.filter(|width| *width > 0)
}

/// Formats a time in UTC, to the second.
pub(crate) fn time(ms: i64) -> String {
    let second = jiff::Timestamp::from_second(ms.div_euclid(1_000));
    second.map_or_else(|_| ms.to_string(), |second| second.to_string())
}

/// Formats the day of a time in this machine's zone.
pub(crate) fn local_day(ms: i64) -> String {
    local_time(ms).split(' ').next().unwrap_or_default().to_owned()
}

/// Formats a time of this machine's zone, to the minute.
pub(crate) fn local_time(ms: i64) -> String {
    let zone = jiff::tz::TimeZone::system();
    let time = jiff::Timestamp::from_millisecond(ms).map(|time| time.to_zoned(zone));
    time.map_or_else(|_| ms.to_string(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// Serializes each item as a line of JSON.
pub(crate) fn lines<T: Serialize>(items: impl IntoIterator<Item = T>) -> String {
    let line = |item| json_line(&item).expect("what is shown has a JSON form");
    items.into_iter().map(line).collect()
}

/// Prints escaped text on stdout: names and texts in it are from models, files and databases. A closed stdout
/// is not a failure.
pub(crate) fn print(text: &str) -> Result<Exit, SessionError> {
    let mut out = io::stdout();
    written(out.write_all(printable(text).as_bytes()).and_then(|()| out.flush()))
}

/// Writes bytes to stdout, unless that is a terminal. `what` names them in the error.
pub(crate) fn print_bytes(bytes: &[u8], what: &str) -> Result<Exit, SessionError> {
    let mut out = io::stdout();
    if out.is_terminal() {
        return Err(SessionError::usage(format!(
            "{what} is not text; redirect it into a file, with `> FILE`"
        )));
    }
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Prints escaped lines on stdout, in styles that only a terminal shows.
pub(crate) fn print_styled(lines: &[(Style, String)]) -> Result<Exit, SessionError> {
    let mut out = anstream::stdout().lock();
    let mut line =
        |(style, text): &(Style, String)| writeln!(out, "{style}{}{style:#}", printable_line(text));
    let result = lines.iter().try_for_each(&mut line);
    written(result.and_then(|()| out.flush()))
}

/// Ends a command whose output was written, or could not be.
pub(crate) fn written(result: io::Result<()>) -> Result<Exit, SessionError> {
    match result.as_ref().err().and_then(exit::unwritten) {
        Some(failure) => Err(failure),
        None => Ok(Exit::Ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_broken_in_a_narrow_terminal() {
        let shown = |width: u16| {
            let mut table = new_table(&["THREAD", "UPDATED"]);
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            table.add_row(["t-20261127-125354-a3be0d15", "2026-11-27T12:53:54Z"]);
            formatted(table)
        };
        assert!(shown(50).contains("t-20261127-125354-a3be0d15"), "{}", shown(50));
        assert!(shown(20).lines().all(|line| line.len() <= 20), "{}", shown(20));
    }
}
