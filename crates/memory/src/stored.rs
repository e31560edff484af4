//! A memory in a store.

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde_json::{Value, json};
use superstep_graph::convert::IntoShared;
use superstep_graph::{
    Store,
    store::{Filter, Found, Index, Namespace, Operation, PutOptions, Query, Search, StoreError},
};
use superstep_llm::Message;

use superstep_agent::deps::{LongTermMemory, MemoryEntry, MemoryError, MemoryFuture};

use crate::entry_texts::entry_texts;

/// The first label of the namespaces of users.
const ROOT: &str = "memory";

/// The field of an item that contains the text of an entry. A promise, as is the namespace of a user.
const TEXT: &str = "text";

/// Stores memories in a [`Store`], separate for each user. `SqliteStore` stores them in a database and
/// searches words with FTS5.
///
/// Each message is an entry, verbatim, under the key with which it was first added. Adding it twice, also
/// under another key, stores one entry; only two programs that add a text at the same moment store two. The
/// entries of a user are in the namespace `memory.USER`, where each `.` or `%` of the name is replaced by `%`
/// and two hex digits.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::sync::Arc;
/// use superstep_agent::deps::LongTermMemory;
/// use superstep_memory::StoreMemory;
/// use superstep_graph::MemoryStore;
/// use superstep_llm::Message;
///
/// let memory = StoreMemory::new(Arc::new(MemoryStore::new()));
/// memory.add(vec![Message::user("remember that I like tea")], "ada", "k1").await?;
/// assert_eq!(memory.search("which tea?", "ada", 5).await?[0].text, "remember that I like tea");
/// assert!(memory.search("which tea?", "bob", 5).await?.is_empty());
/// # Ok::<(), superstep_agent::deps::MemoryError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StoreMemory {
    store: Arc<dyn Store>,
    root: Namespace,
    /// Minimum score of a semantic search; `None` for a search by words.
    meant: Option<f64>,
}

impl StoreMemory {
    /// Creates a memory that is searched by words.
    pub fn new(store: impl IntoShared<dyn Store>) -> Self {
        let root = Namespace::new([ROOT]).expect("the label is not empty, has no dot and is not reserved");
        Self { store: store.into_shared(), root, meant: None }
    }

    /// Places the users' namespaces below this one instead of `memory`.
    #[must_use]
    pub fn below(self, root: Namespace) -> Self {
        Self { root, ..self }
    }

    /// Searches entries by meaning, for which the store needs an [`Embed`](superstep_graph::store::Embed);
    /// returns those whose score, from -1 to 1, is at least `at_least`.
    #[must_use]
    pub fn by_meaning(self, at_least: f64) -> Self {
        Self { meant: Some(at_least), ..self }
    }

    fn namespace(&self, user_id: &str) -> Result<Namespace, MemoryError> {
        self.root.child(&label(user_id)).map_err(|error| failed(&error))
    }

    async fn found(&self, search: Search) -> Result<Vec<MemoryEntry>, MemoryError> {
        let found = self.store.search(search).await.map_err(|error| failed(&error))?;
        // Items of other programs are not entries.
        Ok(found.into_iter().filter_map(entry).collect())
    }
}

impl LongTermMemory for StoreMemory {
    fn add<'a>(
        &'a self,
        messages: Vec<Message>,
        user_id: &'a str,
        key: &'a str,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(async move {
            let namespace = self.namespace(user_id)?;
            let mut entries = Vec::new();
            for (nth, text) in (1..).zip(entry_texts(&messages)?) {
                let filter = vec![Filter::eq(TEXT, text.as_str())];
                let same = self.found(Search { limit: 1, filter, ..Search::within(&namespace) }).await?;
                let id = same.into_iter().next().map_or_else(|| nth_key(key, nth), |same| same.id);
                entries.push(MemoryEntry { id, text, score: None });
            }
            let mut seen = BTreeSet::new();
            entries.retain(|entry| seen.insert(entry.text.clone()));
            // Existing entries too: their time to live restarts.
            let put = |entry: &MemoryEntry| Operation::Put {
                namespace: namespace.clone(),
                key: entry.id.clone(),
                value: json!({ TEXT: entry.text }),
                options: PutOptions::new().index(Index::Fields(vec![TEXT.to_owned()])),
            };
            if !entries.is_empty() {
                let done = self.store.batch(entries.iter().map(put).collect()).await;
                done.map_err(|error| failed(&error))?;
            }
            Ok(entries)
        })
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        user_id: &'a str,
        limit: usize,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(async move {
            let query = match self.meant {
                Some(_) if query.trim().is_empty() => return Ok(Vec::new()),
                Some(_) => Query::Meaning(query.to_owned()),
                None => Query::Words(query.to_owned()),
            };
            let search = Search { limit, query: Some(query), ..Search::within(&self.namespace(user_id)?) };
            let mut found = self.found(search).await?;
            let least = self.meant.unwrap_or(f64::NEG_INFINITY);
            found.retain(|entry| entry.score.is_some_and(|score| score >= least));
            Ok(found)
        })
    }

    fn list<'a>(&'a self, user_id: &'a str, limit: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        Box::pin(
            async move { self.found(Search { limit, ..Search::within(&self.namespace(user_id)?) }).await },
        )
    }

    fn forget<'a>(&'a self, id: &'a str, user_id: &'a str) -> MemoryFuture<'a, bool> {
        Box::pin(async move {
            let namespace = self.namespace(user_id)?;
            let get = Operation::Get { namespace: namespace.clone(), key: id.to_owned(), refresh: None };
            let delete = Operation::Delete { namespace, key: id.to_owned() };
            let answers = self.store.batch(vec![get, delete]).await.map_err(|error| failed(&error))?;
            Ok(answers.into_iter().next().and_then(|answer| answer.into_item()).flatten().is_some())
        })
    }
}

impl fmt::Debug for StoreMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { root, meant, .. } = self;
        f.debug_struct("StoreMemory").field("root", root).field("meant", meant).finish_non_exhaustive()
    }
}

/// Encodes a user's name as a label: unique, without a dot, and not empty.
fn label(user_id: &str) -> String {
    match user_id {
        "" => "%".to_owned(),
        user_id => user_id.replace('%', "%25").replace('.', "%2e"),
    }
}

/// Returns the key of the nth text added at once.
fn nth_key(key: &str, nth: usize) -> String {
    if nth == 1 { key.to_owned() } else { format!("{key}#{nth}") }
}

fn entry(found: Found) -> Option<MemoryEntry> {
    let Value::String(text) = &found.item.value[TEXT] else { return None };
    Some(MemoryEntry { text: text.clone(), id: found.item.key, score: found.score })
}

fn failed(error: &StoreError) -> MemoryError {
    MemoryError(superstep_graph::error::chain(error))
}

#[cfg(test)]
mod tests {
    use superstep_graph::{
        MemoryStore,
        store::{Embed, EmbedError, StoreOptions},
    };

    use super::*;

    #[test]
    fn different_users_have_different_labels() {
        let users = ["", "%", "%25", ".", "a.b", "a%2eb", "a", "A", "..", "superstep", "é"];
        let labels: BTreeSet<_> = users.iter().map(|user| label(user)).collect();
        assert_eq!(labels.len(), users.len());
        assert!(labels.iter().all(|label| Namespace::new(["memory", label]).is_ok()), "{labels:?}");
    }

    #[tokio::test]
    async fn items_have_their_promised_form() {
        let store = Arc::new(MemoryStore::new());
        let memory = StoreMemory::new(store.clone());
        memory.add(vec![Message::user("tea"), Message::assistant("noted")], "a.b", "t/3").await.unwrap();
        let items = store.search(Search::everywhere()).await.unwrap();
        let items: Vec<_> = items
            .iter()
            .map(|found| format!("{} {} {}", found.item.namespace, found.item.key, found.item.value))
            .collect();
        assert_eq!(items, [r#"memory.a%2eb t/3 {"text":"tea"}"#, r#"memory.a%2eb t/3#2 {"text":"noted"}"#]);
    }

    #[tokio::test]
    async fn a_text_has_one_entry_under_the_key_that_it_had_first() {
        let memory = StoreMemory::new(Arc::new(MemoryStore::new()));
        for key in ["1", "2", "3"] {
            let messages = vec![Message::user("tea"), Message::user("tea"), Message::user("green tea")];
            let added = memory.add(messages, "ada", key).await.unwrap();
            assert_eq!(added.iter().map(|entry| &*entry.id).collect::<Vec<_>>(), ["1", "1#3"]);
        }
        assert_eq!(memory.search("tea", "ada", 2).await.unwrap().len(), 2);
        assert!(memory.forget("1", "ada").await.unwrap());
        assert_eq!(memory.list("ada", 5).await.unwrap().len(), 1);
    }

    struct Vowels;

    impl Embed for Vowels {
        fn model(&self) -> &str {
            "vowels"
        }

        fn embed<'a>(
            &'a self,
            texts: &'a [String],
        ) -> futures::future::BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
            let count = |text: &String, vowel| text.matches(vowel).count() as f32;
            let vector = move |text| ["a", "e", "o"].map(|vowel| count(text, vowel)).to_vec();
            Box::pin(async move { Ok(texts.iter().map(vector).collect()) })
        }
    }

    #[tokio::test]
    async fn entries_are_found_by_their_meaning_if_it_is_near_enough() {
        let store = StoreOptions::new().embed(Vowels);
        let memory = StoreMemory::new(Arc::new(MemoryStore::with(store))).by_meaning(0.9);
        memory.add(vec![Message::user("green tree"), Message::user("old dog")], "u", "k").await.unwrap();
        let found = memory.search("eel", "u", 5).await.unwrap();
        assert_eq!(found.iter().map(|entry| &*entry.text).collect::<Vec<_>>(), ["green tree"]);
        assert!(memory.search(" ", "u", 5).await.unwrap().is_empty());

        let blind = StoreMemory::new(Arc::new(MemoryStore::new())).by_meaning(0.9);
        let error = blind.search("eel", "u", 5).await.unwrap_err().to_string();
        assert!(error.starts_with("SS307: the store has no embedding model"), "{error}");
    }
}
