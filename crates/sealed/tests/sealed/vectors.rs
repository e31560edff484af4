//! Searches by meaning on a server whose extension for vectors comes and goes.

use std::{path::Path, sync::Arc};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::json;
use superstep_graph::{
    Store,
    store::{Embed, EmbedError, Namespace, Search, StoreOptions},
};
use superstep_postgres::{PostgresOptions, PostgresStore};
use superstep_sealed::SealedStore;

use crate::{server::Server, support::with_keys};

/// Embeds a text by its numbers of the letters `a` and `b`.
#[derive(Debug)]
struct Letters;

impl Embed for Letters {
    fn model(&self) -> &str {
        "letters"
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        let count = |text: &str, letter| f32::from(u8::try_from(text.matches(letter).count()).unwrap());
        let vectors = texts.iter().map(move |text| vec![count(text, 'a'), count(text, 'b')]).collect();
        async move { Ok(vectors) }.boxed()
    }
}

/// The layer leaves no vector to the server, so its extension does not matter.
#[tokio::test]
async fn encrypted_items_are_found_by_meaning_with_and_without_the_extension() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pgvector/programs");
    let Ok(programs) = programs.canonicalize() else {
        superstep_testing::skipped("pgvector is not installed; `just pgvector` installs it");
        return;
    };
    let Some(server) = Server::start_from(Some(&programs), &["fsync=off"]) else { return };
    server.sql("CREATE EXTENSION vector");
    let options = PostgresOptions::new(server.url()).schema(server.schema());
    // The store behind has an embedding of its own, which must not matter.
    let embed: Arc<dyn Embed> = Arc::new(Letters);
    let inner = StoreOptions::new().embed(embed.clone());
    let inner = PostgresStore::open(options, inner).unwrap();
    let store = SealedStore::new(inner, with_keys(&[1])).with_embed(embed);
    let notes = Namespace::new(["notes"]).unwrap();
    for (key, text) in [("a", "aaaab"), ("b", "abbbb")] {
        store.put(&notes, key, json!({ "text": text })).await.unwrap();
    }
    let nearest = async |text: &str| {
        let found = store.search(Search { limit: 1, ..Search::within(&notes).meaning(text) }).await.unwrap();
        found[0].item.key.clone()
    };
    assert_eq!((nearest("aa").await, nearest("bb").await), ("a".to_owned(), "b".to_owned()));
    server.sql("DROP EXTENSION vector CASCADE");
    assert_eq!((nearest("aa").await, nearest("bb").await), ("a".to_owned(), "b".to_owned()));
    store.put(&notes, "c", json!({ "text": "bbbbbb" })).await.unwrap();
    assert_eq!(nearest("b").await, "c");
}
