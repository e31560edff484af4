//! Notes that are shown once, and not by each command.
//!
//! The state folder has the hash of each such note, by its subject. Another note on the same subject is shown again.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use crate::config::state_folder;

/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of subjects; with more of them all notes are printed once again.
const MAX_SUBJECTS: usize = 1_024;

pub struct Note {
    /// The subject, such as a thread of a database; empty for a note that is never an old one.
    subject: Vec<String>,
    pub text: String,
    /// A quiet command does not show it.
    is_hint: bool,
}

impl Note {
    /// Creates a note that every command shows.
    pub fn new(subject: &[&str], text: impl Into<String>) -> Self {
        let subject = subject.iter().map(ToString::to_string).collect();
        Self { subject, text: text.into(), is_hint: false }
    }

    /// Creates a note that quiet commands do not show.
    pub fn hint(subject: &[&str], text: impl Into<String>) -> Self {
        Self { is_hint: true, ..Self::new(subject, text) }
    }

    /// Creates a note that every command shows each time.
    pub fn always(text: impl Into<String>) -> Self {
        Self::new(&[], text)
    }

    /// Returns whether quiet commands do not show it.
    pub(crate) fn is_hint(&self) -> bool {
        self.is_hint
    }

    /// Returns whether it is to be shown: no earlier command has done so, and a quiet one omits hints.
    pub fn is_new(&self, is_quiet: bool) -> bool {
        let subject: Vec<&str> = self.subject.iter().map(String::as_str).collect();
        !(is_quiet && self.is_hint) && (subject.is_empty() || is_new(&subject, Some(&self.text)))
    }
}

/// Returns whether no earlier command had this note about a subject. `None` if there is nothing to note, so that a later note is new.
pub fn is_new(subject: &[&str], note: Option<&str>) -> bool {
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
    // Without it a note is shown again.
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
