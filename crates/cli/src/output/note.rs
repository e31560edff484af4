//! Notes on stderr, and errors.

use std::io::Write;

use anstyle::Style;
use superstep_session::{config::notes::Note, error::SessionError, text::printable};

use crate::output::exit::Exit;

/// Prints an escaped line on stderr. A closed stderr is not a failure.
pub(crate) fn print_note(text: &str) {
    print_styled_note(Style::new(), text);
}

/// Prints like [`print_note`], in a style that only a terminal shows.
pub(super) fn print_styled_note(style: Style, text: &str) {
    let _ = writeln!(anstream::stderr(), "{style}{}{style:#}", printable(text));
}

/// Prints notes that no earlier command printed.
pub(crate) fn print_new(notes: impl IntoIterator<Item = Note>, is_quiet: bool) {
    notes.into_iter().filter(|note| note.is_new(is_quiet)).for_each(|note| print_note(&note.text));
}

/// Prints an error.
pub(crate) fn report(error: &SessionError) -> Exit {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    let text = printable(&error.message);
    // If stderr is closed too, only the exit code remains.
    let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {text}");
    error.kind.into()
}
