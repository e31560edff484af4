//! The instructions and skills that a thread has read.
//!
//! Start at [`Guidance`].

use std::{ops::Deref, sync::Arc};

use serde::{Deserialize, Serialize};
use superstep_llm::{
    Message,
    instructions::{InstructionFile, Skill},
};

/// The instructions and skills that a thread has read; see [`Instructions`](superstep_llm::instructions::Instructions). A clone shares
/// them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Guidance(Arc<GuidanceData>);

/// The data of a [`Guidance`]. The texts are escaped. The instructions that are in force have at most 32 KiB together, and a skill has
/// at most 64 KiB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GuidanceData {
    /// The files in the system prompt of every request, as they were when they were read first, the weakest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InstructionFile>,
    /// The skills in the system prompt, as they were when the turn began: their names, descriptions, paths and hashes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
    /// The texts that were added to the conversation, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<AddedText>,
}

/// A text that is added to the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedText {
    /// The id of its message.
    pub id: String,
    /// The kind of text.
    pub kind: AddedKind,
    /// The absolute path of the file, or the name of the skill.
    pub of: String,
    /// The hash of the file; empty for a removed one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The size of the instructions in bytes; 0 for a skill and a removed file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: usize,
    /// The text of the message; empty once the conversation has the message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// The kinds of an [`AddedText`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddedKind {
    /// The instructions of a folder below, in which a tool has touched a path.
    Nested,
    /// Instructions that changed since they were read.
    Changed,
    /// Instructions whose file was removed.
    Removed,
    /// A skill that the user named as `$name`.
    Skill,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Guidance {
    /// Returns the hash of the instructions at a path, as the model knows them last.
    pub(crate) fn hash_of(&self, path: &str) -> Option<&str> {
        let added = self.added.iter().rev().find(|added| added.kind != AddedKind::Skill && added.of == path);
        let hash = match added {
            Some(added) => &added.hash,
            None => &self.files.iter().find(|file| file.path == path)?.hash,
        };
        Some(hash.as_str()).filter(|hash| !hash.is_empty())
    }

    /// Returns the paths of the instructions that the model knows.
    pub(crate) fn paths(&self) -> Vec<String> {
        let added = self.added.iter().filter(|added| added.kind != AddedKind::Skill).map(|added| &added.of);
        let mut paths: Vec<String> = self.files.iter().map(|file| &file.path).chain(added).cloned().collect();
        paths.sort();
        paths.dedup();
        paths.retain(|path| self.hash_of(path).is_some());
        paths
    }

    /// Returns the size of the instructions that are in force, without that of `except`, in bytes.
    pub(crate) fn bytes_without(&self, except: &str) -> usize {
        let paths = self.paths().into_iter().filter(|path| path != except);
        let size = |path: String| {
            let added = self.added.iter().rev().find(|added| added.of == path);
            let file = || self.files.iter().find(|file| file.path == path).map(|file| file.text.len());
            added.map(|added| added.bytes).or_else(file).unwrap_or(0)
        };
        paths.map(size).sum()
    }

    /// Returns the newest text of each file and each skill that was added, in their order.
    pub(crate) fn newest_added(&self) -> impl Iterator<Item = &AddedText> {
        let is_newest = |at: usize, added: &AddedText| {
            let is_other = |later: &AddedText| {
                later.of != added.of || (later.kind == AddedKind::Skill) != (added.kind == AddedKind::Skill)
            };
            self.added[at + 1..].iter().all(is_other)
        };
        self.added.iter().enumerate().filter(move |(at, added)| is_newest(*at, added)).map(|(_, added)| added)
    }

    /// Returns the messages that the conversation does not have yet; `has` returns whether it has the message with an id.
    pub(crate) fn unsent(&self, has: impl Fn(&str) -> bool) -> Vec<Message> {
        let unsent = self.added.iter().filter(|added| !added.text.is_empty() && !has(&added.id));
        unsent.map(|added| Message::synthetic(added.text.as_str()).with_id(&added.id)).collect()
    }

    /// Returns the same without the texts that the conversation has; `has` is as for [`unsent`](Self::unsent).
    pub(crate) fn settled(&self, has: impl Fn(&str) -> bool) -> Self {
        let is_there = |added: &AddedText| !added.text.is_empty() && has(&added.id);
        if !self.added.iter().any(is_there) {
            return self.clone();
        }
        self.changed(|data| {
            let there = data.added.iter_mut().filter(|added| is_there(added));
            there.for_each(|added| added.text.clear());
        })
    }

    /// Returns the same with a change.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut GuidanceData)) -> Self {
        let mut data = GuidanceData::clone(&self.0);
        change(&mut data);
        Self(Arc::new(data))
    }
}

impl Deref for Guidance {
    type Target = GuidanceData;

    fn deref(&self) -> &GuidanceData {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(kind: AddedKind, of: &str, hash: &str, bytes: usize) -> AddedText {
        let (of, hash) = (of.to_owned(), hash.to_owned());
        AddedText { id: format!("{of}.{hash}"), kind, of, hash, bytes, text: "text".to_owned() }
    }

    #[test]
    fn the_newest_text_of_a_file_counts() {
        let file = InstructionFile { path: "/a".into(), text: "1234".into(), hash: "h1".into() };
        let guidance = Guidance::default().changed(|data| {
            data.files = vec![file];
            data.added = vec![
                added(AddedKind::Nested, "/b", "h2", 2),
                added(AddedKind::Skill, "/b", "", 0),
                added(AddedKind::Changed, "/b", "h3", 3),
            ];
        });
        assert_eq!(
            (guidance.hash_of("/a"), guidance.hash_of("/b"), guidance.hash_of("/c")),
            (Some("h1"), Some("h3"), None)
        );
        assert_eq!((guidance.bytes_without(""), guidance.bytes_without("/a")), (7, 3));
        assert_eq!(
            guidance.newest_added().map(|added| added.id.as_str()).collect::<Vec<_>>(),
            ["/b.", "/b.h3"]
        );
        let removed = guidance.changed(|data| data.added.push(added(AddedKind::Removed, "/b", "", 0)));
        assert_eq!((removed.hash_of("/b"), removed.paths()), (None, vec!["/a".to_owned()]));
    }

    #[test]
    fn a_text_is_stored_until_the_conversation_has_it() {
        let guidance =
            Guidance::default().changed(|data| data.added = vec![added(AddedKind::Nested, "/b", "h", 4)]);
        let sent = guidance.unsent(|_| false);
        assert_eq!((sent.len(), sent[0].synthetic, guidance.settled(|_| false) == guidance), (1, true, true));
        let is_there = |id: &str| id == sent[0].id;
        assert_eq!(guidance.unsent(is_there).len(), 0);
        let settled = guidance.settled(is_there);
        assert_eq!((settled.added[0].text.as_str(), settled.hash_of("/b")), ("", Some("h")));
        let json = serde_json::to_string(&settled).unwrap();
        assert_eq!(json, r#"{"added":[{"id":"/b.h","kind":"nested","of":"/b","hash":"h","bytes":4}]}"#);
        assert_eq!(serde_json::from_str::<Guidance>(&json).unwrap(), settled);
    }
}
