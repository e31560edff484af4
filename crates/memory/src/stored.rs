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

/// The default minimum cosine of an entry that is found by its meaning alone.
///
/// Unrelated texts are below it in most models of sentences; models whose vectors all point in one direction
/// need a higher one.
pub const MIN_COSINE: f64 = 0.3;

/// Stores memories in a [`Store`], separate for each user. `SqliteStore` stores them in a database and
/// searches words with FTS5. If the store has an [`Embed`](superstep_graph::store::Embed), entries are found
/// by meaning as well: see [`Query::Hybrid`].
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
    /// Minimum cosine of an entry that is found by its meaning.
    at_least: f64,
}

impl StoreMemory {
    /// Creates a memory in this store.
    pub fn new(store: impl IntoShared<dyn Store>) -> Self {
        let root = Namespace::new([ROOT]).expect("the label is not empty, has no dot and is not reserved");
        Self { store: store.into_shared(), root, at_least: MIN_COSINE }
    }

    /// Places the users' namespaces below this one instead of `memory`.
    #[must_use]
    pub fn below(self, root: Namespace) -> Self {
        Self { root, ..self }
    }

    /// Sets the minimum cosine, from -1 to 1, of an entry that has none of the words of a query; [`MIN_COSINE`]
    /// by default.
    #[must_use]
    pub fn min_cosine(self, at_least: f64) -> Self {
        Self { at_least, ..self }
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
            let query = Query::Hybrid { text: query.to_owned(), at_least: self.at_least };
            let within = Search::within(&self.namespace(user_id)?);
            self.found(Search { limit, query: Some(query), ..within }).await
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
        let Self { root, at_least, .. } = self;
        f.debug_struct("StoreMemory").field("root", root).field("at_least", at_least).finish_non_exhaustive()
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
        let memory = StoreMemory::new(Arc::new(MemoryStore::with(store))).min_cosine(0.9);
        memory.add(vec![Message::user("green tree"), Message::user("old dog")], "u", "k").await.unwrap();
        let texts = async |query: &str| {
            let found = memory.search(query, "u", 5).await.unwrap();
            found.into_iter().map(|entry| entry.text).collect::<Vec<_>>()
        };
        assert_eq!(texts("eel").await, ["green tree"]);
        assert_eq!(texts("dog eeel").await, ["green tree", "old dog"]);
        assert!(texts(" ").await.is_empty());
    }
}
