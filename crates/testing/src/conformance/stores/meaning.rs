//! Searches by meaning.

use serde_json::json;
use superstep_graph::store::{Filter, Index, PutOptions, Query, Search, StoreError};

use super::{
    Kit, cases,
    kit::{get, keys, ns, put, search},
};

cases![
    the_nearest_match_is_first,
    an_item_without_text_has_no_meaning,
    both_rankings_find_what_each_alone_misses,
    without_a_model_a_hybrid_query_is_one_by_words,
    a_store_without_a_model_reports_it,
    a_model_that_fails_leaves_nothing_behind,
];

async fn the_nearest_match_is_first(kit: Kit) {
    let store = &kit.meant;
    put(store, &["a"], "shore", json!({"text": "sea and stone", "n": 1})).await;
    put(store, &["a"], "deep", json!({"text": "sea sea sea", "n": 2})).await;
    put(store, &["a", "b"], "wood", json!({"text": "tree", "n": 3})).await;
    put(store, &["b"], "far", json!("sea")).await;
    let query = || Search::within(&ns(&["a"])).meaning("the sea");
    let found = search(store, query()).await;
    let scores: Vec<_> =
        found.iter().map(|found| (found.item.key.as_str(), found.score.expect("a score"))).collect();
    let expected = [("deep", 1.0), ("shore", 0.5_f64.sqrt()), ("wood", 0.0)];
    for ((key, score), (expected_key, expected)) in scores.iter().zip(expected) {
        assert_eq!(*key, expected_key);
        assert!((score - expected).abs() < 1e-6, "{key}: {score} is not {expected}");
    }
    assert_eq!(scores.len(), 3);
    assert_eq!(keys(store, Search { limit: 1, offset: 1, ..query() }).await, "shore");
    let filter = vec![Filter::ne("n", 2)];
    assert_eq!(keys(store, Search { filter, ..query() }).await, "shore wood");
    // Search by words works too, and a new value has a new embedding.
    assert_eq!(keys(store, query().words("stone")).await, "shore");
    put(store, &["a"], "deep", json!("tree")).await;
    assert_eq!(keys(store, query()).await, "shore deep wood");
}

async fn an_item_without_text_has_no_meaning(kit: Kit) {
    put(&kit.meant, &["a"], "empty", json!({"n": null})).await;
    let unseen = PutOptions::new().index(Index::Nothing);
    kit.meant.put_with(&ns(&["a"]), "unseen", json!("sea"), unseen).await.expect("it can be put");
    put(&kit.meant, &["a"], "seen", json!("sea")).await;
    assert_eq!(keys(&kit.meant, Search::everywhere().meaning("sea")).await, "seen");
    // A zero vector is equally near to all others.
    let nowhere = search(&kit.meant, Search::everywhere().meaning("?")).await;
    assert_eq!(nowhere[0].score, Some(0.0));
}

async fn both_rankings_find_what_each_alone_misses(kit: Kit) {
    let store = &kit.meant;
    put(store, &["a"], "both", json!({"text": "old seastone log", "n": 1})).await;
    put(store, &["a"], "meant", json!({"text": "seaside seashell", "n": 2})).await;
    put(store, &["a"], "said", json!({"text": "old tree", "n": 3})).await;
    put(store, &["a"], "neither", json!({"text": "tree", "n": 4})).await;
    put(store, &["b"], "far", json!("old sea")).await;
    let first = || Search { limit: 1, ..Search::within(&ns(&["a"])) };
    assert_eq!(keys(store, first().words("old sea")).await, "said");
    assert_eq!(keys(store, first().meaning("old sea")).await, "meant");
    let query = |at_least| Query::Hybrid { text: "old sea".into(), at_least };
    let near = || Search { query: Some(query(0.5)), limit: 10, ..first() };
    // The second and third have equal scores.
    assert_eq!(keys(store, near()).await, "both meant said");
    assert_eq!(search(store, near()).await[0].score, Some(2.0 / 62.0));
    assert_eq!(keys(store, Search { offset: 1, limit: 1, ..near() }).await, "meant");
    let filter = vec![Filter::ne("n", 1)];
    assert_eq!(keys(store, Search { filter, ..near() }).await, "meant said");
    let all = Search { limit: 10, ..first() }.hybrid("old sea");
    assert_eq!(keys(store, all).await, "both said meant neither");
    assert_eq!(keys(store, first().hybrid(" ")).await, "");
}

async fn without_a_model_a_hybrid_query_is_one_by_words(kit: Kit) {
    put(&kit.plain, &["a"], "k", json!("old sea")).await;
    put(&kit.plain, &["a"], "other", json!("seaside")).await;
    let [words, hybrid] = [Search::words, Search::hybrid].map(|query| query(Search::everywhere(), "sea"));
    let found = search(&kit.plain, hybrid).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found, search(&kit.plain, words).await);
}

async fn a_store_without_a_model_reports_it(kit: Kit) {
    put(&kit.plain, &["a"], "k", json!("sea")).await;
    let refused = kit.plain.search(Search::everywhere().meaning("sea")).await;
    assert!(matches!(refused, Err(StoreError::NoEmbedding)), "{refused:?}");
}

async fn a_model_that_fails_leaves_nothing_behind(kit: Kit) {
    for (answer, expected) in [
        (Err("no answer"), "no answer"),
        (Ok(vec![]), "expected a vector for each text, 1 in all, got 0"),
        (Ok(vec![vec![1.0], vec![1.0]]), "expected a vector for each text, 1 in all, got 2"),
        (Ok(vec![vec![]]), "its vectors are empty, or not equally long"),
        (Ok(vec![vec![1.0, f32::NAN]]), "a vector contains a value that is not a finite number"),
    ] {
        kit.embed.answer(answer);
        let refused = kit.meant.put(&ns(&["a"]), "k", json!("sea")).await;
        let refused = refused.expect_err("the model failed").to_string();
        assert_eq!(refused, format!("SS308: the embedding of model `topics` failed: {expected}"));
        assert_eq!(get(&kit.meant, &["a"], "k").await, None);
    }
}
