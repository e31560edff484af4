//! Notes that are printed once, and not by each command.
//!
//! The state folder has the hash of each such note, by its subject. Another note on the same subject is printed again.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use crate::{config::state_folder, output::text::print_note};

/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of subjects; with more of them all notes are printed once again.
const MAX_SUBJECTS: usize = 1_024;

pub(crate) struct Note {
    /// The subject, such as a thread of a database.
    subject: Vec<String>,
    text: String,
    /// A quiet command does not print it.
    is_hint: bool,
}

impl Note {
    /// Creates a note that every command prints.
    pub(crate) fn new(subject: &[&str], text: impl Into<String>) -> Self {
        let subject = subject.iter().map(ToString::to_string).collect();
        Self { subject, text: text.into(), is_hint: false }
    }

    /// Creates a note that quiet commands do not print.
    pub(crate) fn hint(subject: &[&str], text: impl Into<String>) -> Self {
        Self { is_hint: true, ..Self::new(subject, text) }
    }

    /// Prints it, unless an earlier command has done so.
    pub(crate) fn print_once(&self, is_quiet: bool) {
        let subject: Vec<&str> = self.subject.iter().map(String::as_str).collect();
        if !(is_quiet && self.is_hint) && is_new(&subject, Some(&self.text)) {
            print_note(&self.text);
        }
    }
}

/// Returns whether no earlier command had this note about a subject. `None` if there is nothing to note, so that a later note is new.
pub(crate) fn is_new(subject: &[&str], note: Option<&str>) -> bool {
    let Some(folder) = state_folder::folder() else { return true };
    let place = folder.join("notes.json");
    let mut shown = shown(&place);
    let subject = hash(&subject.join("\0"));
    let note = note.map(hash);
    if shown.get(&subject) == note.as_ref() {
        return false;
    }
    if shown.len() >= MAX_SUBJECTS {
        shown.clear();
    }
    match note {
        Some(note) => _ = shown.insert(subject, note),
        None => _ = shown.remove(&subject),
    }
    // Without it a note is printed again.
    let _ = state_folder::make_private(&folder).and_then(|()| write(&place, &shown));
    true
}

fn shown(place: &Path) -> BTreeMap<String, String> {
    let mut text = String::new();
    // Opening a pipe waits for its writer.
    if fs::symlink_metadata(place).is_ok_and(|there| there.is_file())
        && let Ok(file) = File::open(place)
        && file.take(MAX_BYTES).read_to_string(&mut text).is_ok()
    {
        return serde_json::from_str(&text).unwrap_or_default();
    }
    BTreeMap::new()
}

fn write(place: &Path, shown: &BTreeMap<String, String>) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(place.parent().unwrap_or(Path::new(".")))?;
    file.write_all(serde_json::to_string(shown)?.as_bytes())?;
    file.persist(place)?;
    Ok(())
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}
