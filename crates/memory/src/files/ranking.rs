//! The search among the entries of a file.
//!
//! Start at [`Ranking`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use superstep_graph::{
    MemoryStore, Store,
    store::{Embed, EmbedError, Namespace, Operation, PutOptions, Query, Search, StoreError, StoreOptions},
};

use crate::stored::MIN_COSINE;

/// The number of vectors that are stored between searches; more only for one file with more entries.
const MAX_VECTORS: usize = 4096;

/// The order of the entries of a file for a query: that of a [`MemoryStore`] with these entries.
#[derive(Clone)]
pub(crate) struct Ranking {
    pub(crate) embed: Option<Arc<CachedEmbed>>,
    /// Minimum cosine of an entry that is found by its meaning.
    pub(crate) at_least: f64,
}

impl Default for Ranking {
    fn default() -> Self {
        Self { embed: None, at_least: MIN_COSINE }
    }
}

impl Ranking {
    /// Returns the first texts for a query with their scores, best first; of equal scores by words, the earlier text is first.
    pub(crate) async fn best(
        &self,
        texts: Vec<String>,
        query: &str,
        limit: usize,
    ) -> Result<Vec<(String, f64)>, StoreError> {
        let options = StoreOptions::new();
        let store = MemoryStore::with(match &self.embed {
            Some(embed) => options.embed(embed.clone()),
            None => options,
        });
        let namespace =
            Namespace::new(["entries"]).expect("the label is not empty, has no dot and is not reserved");
        let put = |(nth, text): (usize, String)| Operation::Put {
            namespace: namespace.clone(),
            key: format!("{nth:010}"),
            value: text.into(),
            options: PutOptions::new(),
        };
        let query = Query::Hybrid { text: query.to_owned(), at_least: self.at_least };
        let search = Operation::Search(Search { limit, query: Some(query), ..Search::within(&namespace) });
        let answers = store.batch(texts.into_iter().enumerate().map(put).chain([search]).collect()).await?;
        let found =
            answers.into_iter().next_back().and_then(|answer| answer.into_found()).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        Ok(found.iter().map(|found| (text(&found.item.value), found.score.unwrap_or_default())).collect())
    }
}

impl fmt::Debug for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranking")
            .field("embed", &self.embed.as_ref().map(|embed| embed.model()))
            .field("at_least", &self.at_least)
            .finish()
    }
}

/// An embedding that is called once for each text, as long as its vector is stored in this process.
pub(crate) struct CachedEmbed {
    embed: Arc<dyn Embed>,
    known: Mutex<BTreeMap<String, Vec<f32>>>,
}

impl CachedEmbed {
    pub(crate) fn new(embed: Arc<dyn Embed>) -> Self {
        Self { embed, known: Mutex::default() }
    }

    async fn vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = {
            let stored = lock();
            let pair = |text: &String| Some((text.clone(), stored.get(text)?.clone()));
            texts.iter().filter_map(pair).collect::<BTreeMap<_, _>>()
        };
        let unknown: BTreeSet<_> = texts.iter().filter(|text| !known.contains_key(*text)).cloned().collect();
        let unknown: Vec<_> = unknown.into_iter().collect();
        if !unknown.is_empty() {
            let vectors = self.embed.embed(&unknown).await?;
            if vectors.len() != unknown.len() {
                let (texts, vectors) = (unknown.len(), vectors.len());
                return Err(format!("expected a vector for each text, {texts} in all, got {vectors}").into());
            }
            known.extend(unknown.into_iter().zip(vectors));
            let mut stored = lock();
            let finite = known.iter().filter(|(_, vector)| vector.iter().all(|x| x.is_finite()));
            stored.extend(finite.map(|(text, vector)| (text.clone(), vector.clone())));
            if stored.len() > MAX_VECTORS {
                stored.retain(|text, _| known.contains_key(text));
            }
        }
        Ok(texts.iter().map(|text| known[text].clone()).collect())
    }
}

impl Embed for CachedEmbed {
    fn model(&self) -> &str {
        self.embed.model()
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        Box::pin(self.vectors(texts))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts letters, and the texts that it was called with.
    #[derive(Default)]
    struct Letters(AtomicUsize);

    impl Embed for Letters {
        fn model(&self) -> &str {
            "letters"
        }

        fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
            self.0.fetch_add(texts.len(), Ordering::Relaxed);
            let vector =
                |text: &String| ('a'..='z').map(|letter| text.matches(letter).count() as f32).collect();
            Box::pin(async move { Ok(texts.iter().map(vector).collect()) })
        }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    async fn best(ranking: &Ranking, entries: &[&str], query: &str) -> Vec<String> {
        let found = ranking.best(texts(entries), query, 2).await.unwrap();
        found.into_iter().map(|(text, _)| text).collect()
    }

    #[tokio::test]
    async fn each_text_is_embedded_once() {
        let letters = Arc::new(Letters::default());
        let embed = Some(Arc::new(CachedEmbed::new(letters.clone())));
        let ranking = Ranking { embed, at_least: 0.8 };
        // The first is the best by words, the second by letters, and the third by both.
        let entries = ["zoo less", "sells sea", "sell seal", "b"];
        assert_eq!(best(&Ranking::default(), &entries, "less seal").await, ["zoo less", "sell seal"]);
        assert_eq!(best(&ranking, &entries, "less seal").await, ["sell seal", "sells sea"]);
        assert_eq!(letters.0.load(Ordering::Relaxed), 5);
        assert_eq!(best(&ranking, &entries[..2], "sells sea").await[0], "sells sea");
        assert_eq!(letters.0.load(Ordering::Relaxed), 5);
        assert!(best(&ranking, &entries, " ").await.is_empty());
    }

    #[tokio::test]
    async fn stored_vectors_are_bounded() {
        let cached = CachedEmbed::new(Arc::new(Letters::default()));
        let many: Vec<_> = (0..MAX_VECTORS).map(|nth| format!("text {nth}")).collect();
        cached.embed(&many).await.unwrap();
        assert_eq!(cached.known.lock().unwrap().len(), MAX_VECTORS);
        cached.embed(&texts(&["one more", "text 1"])).await.unwrap();
        assert_eq!(cached.known.lock().unwrap().keys().collect::<Vec<_>>(), ["one more", "text 1"]);
    }
}
