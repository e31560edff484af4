//! Searches: by place, by filter, by words.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use superstep_graph::{
    Store,
    store::{Filter, Index, MAX_CANDIDATES, Operation, PutOptions, Search, Ttl},
};

use super::{
    Kit, cases,
    kit::{keys, ns, put, search},
};

cases![
    a_search_goes_below_its_namespace_and_not_beside_it,
    the_default_limit_is_ten,
    filters_all_have_to_be_true,
    words_are_found_whatever_their_case,
    the_best_match_is_first,
    equal_scores_are_ordered_by_key,
    any_text_is_a_query,
    other_namespaces_do_not_affect_scores,
    items_stored_before_the_model_are_not_found,
    filters_do_not_change_the_score,
    only_indexed_items_are_found,
    very_common_words_count_but_find_nothing,
    expired_items_are_not_counted,
];

async fn a_search_goes_below_its_namespace_and_not_beside_it(kit: Kit) {
    let store = &kit.plain;
    for (labels, key) in [
        (&["a", "b"][..], "k1"),
        (&["a", "b", "c"], "k2"),
        (&["a", "bc"], "beside"),
        (&["a", "b-c"], "before"),
        (&["a", "b/c"], "after"),
        (&["a", "\u{10ffff}"], "last"),
        (&["a"], "above"),
    ] {
        put(store, labels, key, json!({"word": "same"})).await;
    }
    let within = || Search::within(&ns(&["a", "b"]));
    assert_eq!(keys(store, within()).await, "k1 k2");
    assert_eq!(keys(store, within().words("same")).await, "k1 k2");
    assert_eq!(keys(store, Search::within(&ns(&["a", "b", "c"]))).await, "k2");
    assert_eq!(keys(store, Search::within(&ns(&["b"]))).await, "");
    assert_eq!(keys(store, Search::everywhere()).await, "above k1 before k2 after beside last");
    assert!(search(store, within()).await.iter().all(|found| found.score.is_none()));
}

async fn the_default_limit_is_ten(kit: Kit) {
    for n in 0..12 {
        put(&kit.plain, &["a"], &format!("{n:02}"), json!("same word")).await;
    }
    for query in [Search::everywhere(), Search::everywhere().words("word")] {
        assert_eq!(search(&kit.plain, query.clone()).await.len(), 10);
        assert_eq!(keys(&kit.plain, Search { offset: 10, ..query.clone() }).await, "10 11");
        assert_eq!(keys(&kit.plain, Search { limit: 2, offset: 3, ..query.clone() }).await, "03 04");
        assert_eq!(keys(&kit.plain, Search { limit: 0, ..query.clone() }).await, "");
        assert_eq!(keys(&kit.plain, Search { offset: usize::MAX, limit: usize::MAX, ..query }).await, "");
    }
}

async fn filters_all_have_to_be_true(kit: Kit) {
    put(&kit.plain, &["a"], "k1", json!({"kind": "fact", "n": 1, "deep": {"x": true}})).await;
    put(&kit.plain, &["a"], "k2", json!({"kind": "fact", "n": 2.5, "a.b": "dotted"})).await;
    put(&kit.plain, &["a"], "k3", json!({"kind": "guess", "n": "2"})).await;
    put(&kit.plain, &["a"], "k4", json!(["kind"])).await;
    let with = async |filter| keys(&kit.plain, Search { filter, ..Search::everywhere() }).await;
    assert_eq!(with(vec![Filter::eq("kind", "fact")]).await, "k1 k2");
    assert_eq!(with(vec![Filter::eq("kind", "fact"), Filter::gt("n", 1)]).await, "k2");
    assert_eq!(with(vec![Filter::gte("n", 1.0)]).await, "k1 k2");
    assert_eq!(with(vec![Filter::lt("n", 2)]).await, "k1");
    assert_eq!(with(vec![Filter::lte("n", "2")]).await, "k3");
    assert_eq!(with(vec![Filter::ne("kind", "fact")]).await, "k3 k4");
    assert_eq!(with(vec![Filter::eq("deep.x", true)]).await, "k1");
    assert_eq!(with(vec![Filter::eq("a.b", "dotted")]).await, "k2");
    assert_eq!(with(vec![Filter::eq("deep", serde_json::Value::Null)]).await, "k2 k3 k4");
    let second = Search { filter: vec![Filter::eq("kind", "fact")], offset: 1, ..Search::everywhere() };
    assert_eq!(keys(&kit.plain, second).await, "k2");
}

async fn words_are_found_whatever_their_case(kit: Kit) {
    put(&kit.plain, &["a"], "k1", json!({"text": "Ärger mit O'Neill", "n": 4711})).await;
    put(&kit.plain, &["a"], "k2", json!({"deep": ["im 東京都", {"x": "ÄRGER?"}]})).await;
    for (query, expected) in [
        ("ärger", "k1 k2"),
        ("neill!", "k1"),
        ("oneill", ""),
        ("4711", "k1"),
        ("東京", "k2"),
        ("ärge", ""),
        ("text", ""),
        ("nothing O'", "k1"),
    ] {
        assert_eq!(keys(&kit.plain, Search::everywhere().words(query)).await, expected, "{query}");
    }
}

async fn the_best_match_is_first(kit: Kit) {
    put(&kit.plain, &["a"], "both", json!("green tea with a lot of other words in it")).await;
    put(&kit.plain, &["a"], "common", json!("green green apples")).await;
    put(&kit.plain, &["a"], "long", json!("green in a text with many more words than the others have")).await;
    put(&kit.plain, &["a"], "rare", json!("black tea")).await;
    put(&kit.plain, &["a"], "none", json!("coffee")).await;
    let found = search(&kit.plain, Search::everywhere().words("green tea")).await;
    let order: Vec<_> = found.iter().map(|found| found.item.key.as_str()).collect();
    assert_eq!(order, ["rare", "both", "common", "long"]);
    let scores: Vec<f64> = found.iter().map(|found| found.score.expect("a score")).collect();
    assert!(scores.is_sorted_by(|a, b| a > b) && scores[3] > 0.0, "{scores:?}");
    // Computed manually, for `rare`: two of five items have `tea`; it has 2 of their 28 words.
    let rarity = (1.0_f64 + (5.0 - 2.0 + 0.5) / (2.0 + 0.5)).ln();
    let expected = rarity * 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * 2.0 / (28.0 / 5.0)));
    assert!((scores[0] - expected).abs() < 1e-12, "{} is not {expected}", scores[0]);
}

async fn equal_scores_are_ordered_by_key(kit: Kit) {
    for (labels, key) in [(&["b"][..], "1"), (&["a"], "3"), (&["a"], "2"), (&["c"], "0")] {
        put(&kit.plain, labels, key, json!("same words")).await;
    }
    assert_eq!(keys(&kit.plain, Search::everywhere().words("same")).await, "2 3 1 0");
}

async fn any_text_is_a_query(kit: Kit) {
    put(&kit.plain, &["a"], "k", json!("and or not near text rowid")).await;
    let long = "word ".repeat(10_000) + &(0..5_000).map(|n| format!("w{n} ")).collect::<String>();
    for query in [
        "",
        "\"",
        "'; DROP TABLE store_items; --",
        "AND",
        "a AND",
        "NOT",
        "(",
        "text:",
        "text : and",
        "near(",
        "NEAR(a b, 2)",
        "and*",
        "^and",
        "{text}: and",
        "-",
        "\u{0}",
        "a\u{0}b\"",
        "+ + +",
        &long,
        &"x".repeat(100_000),
    ] {
        // The result does not matter.
        search(&kit.plain, Search::everywhere().words(query)).await;
    }
    for nothing in ["", " \" ' ( * ^ : - ", "\u{0}", "rowi*", "andor"] {
        assert_eq!(keys(&kit.plain, Search::everywhere().words(nothing)).await, "", "{nothing}");
    }
    assert_eq!(keys(&kit.plain, Search::everywhere().words("x AND rowid")).await, "k");
}

async fn other_namespaces_do_not_affect_scores(kit: Kit) {
    put(&kit.plain, &["a"], "k", json!("green tea")).await;
    put(&kit.plain, &["a"], "l", json!("black tea with milk")).await;
    let query = || Search::within(&ns(&["a"])).words("tea milk");
    let before = search(&kit.plain, query()).await;
    for n in 0..20 {
        put(&kit.plain, &["other"], &n.to_string(), json!("tea tea milk and words")).await;
    }
    assert_eq!(search(&kit.plain, query()).await, before);
}

async fn items_stored_before_the_model_are_not_found(kit: Kit) {
    put(&kit.plain, &["a"], "k", json!("old words")).await;
    put(&kit.plain, &["a"], "k", json!("new words")).await;
    assert_eq!(keys(&kit.plain, Search::everywhere().words("old")).await, "");
    assert_eq!(keys(&kit.plain, Search::everywhere().words("new")).await, "k");
}

async fn filters_do_not_change_the_score(kit: Kit) {
    put(&kit.plain, &["a"], "k", json!({"text": "tea", "n": 1})).await;
    put(&kit.plain, &["a"], "l", json!({"text": "tea tea", "n": 2})).await;
    let all = search(&kit.plain, Search::everywhere().words("tea")).await;
    let one = Search { filter: vec![Filter::eq("n", 1)], ..Search::everywhere().words("tea") };
    let one = search(&kit.plain, one).await;
    assert_eq!(one.len(), 1);
    assert!(all.contains(&one[0]), "{all:?}");
}

async fn only_indexed_items_are_found(kit: Kit) {
    let value = json!({"a": "one", "b": {"c": "two"}, "d": "three"});
    let with = |index| PutOptions::new().index(index);
    let fields = Index::Fields(vec!["a".into(), "b.c".into(), "missing".into()]);
    kit.plain.put_with(&ns(&["a"]), "some", value.clone(), with(fields)).await.expect("it can be put");
    kit.plain.put_with(&ns(&["a"]), "none", value, with(Index::Nothing)).await.expect("it can be put");
    for (query, expected) in [("one", "some"), ("two", "some"), ("three", "")] {
        assert_eq!(keys(&kit.plain, Search::everywhere().words(query)).await, expected, "{query}");
    }
    let filter = vec![Filter::eq("d", "three")];
    assert_eq!(keys(&kit.plain, Search { filter, ..Search::everywhere() }).await, "none some");
}

/// Puts an item for each text, in order, with its number as the key.
async fn put_all(store: &Arc<dyn Store>, label: &str, texts: impl Iterator<Item = String>) {
    let put = |(nth, text): (usize, String)| Operation::Put {
        namespace: ns(&[label]),
        key: format!("{nth:04}"),
        value: json!(text),
        options: PutOptions::default(),
    };
    store.batch(texts.enumerate().map(put).collect()).await.expect("they are put");
}

async fn very_common_words_count_but_find_nothing(kit: Kit) {
    let store = &kit.plain;
    let most = usize::try_from(MAX_CANDIDATES).expect("it is a small number");
    let text = |nth: usize| match nth {
        7 | 900 => "the tea".to_owned(),
        8 => "tea alone".to_owned(),
        nth => format!("the n{nth}"),
    };
    put_all(store, "a", (0..most + 200).map(text)).await;
    put_all(store, "b", (0..most * 3).map(|_| "the tea".to_owned())).await;
    let a = || Search { limit: most * 2, ..Search::within(&ns(&["a"])) };
    // The rarer of two words selects items; the other one still affects the order.
    assert_eq!(keys(store, a().words("the tea")).await, "0007 0900 0008");
    assert_eq!(keys(store, a().words("tea")).await, "0007 0008 0900");
    assert_eq!(keys(store, Search { offset: 1, limit: 1, ..a() }.words("the tea")).await, "0900");
    // Alone it finds the items that were put last.
    let found = search(store, a().words("the")).await;
    assert_eq!(found.len(), most);
    assert!(found.iter().all(|found| *found.item.key > *"0199"), "these were put before the others");
    put(store, &["a"], "0000", json!("the first, once more")).await;
    let found = search(store, a().words("the")).await;
    assert!(found.iter().any(|found| found.item.key == "0000") && found.len() == most);
    // Deleted items no longer count.
    for nth in 0..=200 {
        store.delete(&ns(&["a"]), &format!("{nth:04}")).await.expect("it is deleted");
    }
    assert_eq!(search(store, a().words("the tea")).await.len(), most - 1);
    let score = search(store, a().words("tea")).await[0].score;
    store.delete(&ns(&["b"]), "0000").await.expect("it is deleted");
    assert_eq!(search(store, a().words("tea")).await[0].score, score);
}

async fn expired_items_are_not_counted(kit: Kit) {
    let store = &kit.plain;
    for (key, text) in [("1", "green tea"), ("2", "black tea"), ("3", "coffee")] {
        put(store, &["a"], key, json!(text)).await;
    }
    let scores = async || {
        let found = search(store, Search::within(&ns(&["a"])).words("green tea")).await;
        found.into_iter().map(|found| (found.item.key, found.score)).collect::<Vec<_>>()
    };
    let before = scores().await;
    let brief = PutOptions::new().ttl(Ttl::After(Duration::from_millis(50)));
    for key in ["4", "5"] {
        let done = store.put_with(&ns(&["a"]), key, json!("green tea in the morning"), brief.clone()).await;
        done.expect("it is put");
    }
    assert_ne!(scores().await, before);
    kit.clock.pass(50);
    assert_eq!(scores().await, before);
    assert_eq!(store.sweep().await.expect("it is swept"), 2);
    assert_eq!(scores().await, before);
}
