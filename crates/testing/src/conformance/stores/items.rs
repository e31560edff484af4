//! Items: put, changed, deleted, expired.

use std::time::Duration;

use serde_json::{Value, json};
use superstep_graph::store::{Answer, ListNamespaces, Operation, PutOptions, Search, StoreError, Ttl};

use super::{
    Kit, cases,
    kit::{get, keys, ns, put},
};

cases![
    a_value_is_replaced_and_not_merged,
    missing_items_are_none,
    versions_within_a_millisecond_are_distinguished,
    a_deleted_item_is_gone_and_begins_anew,
    values_are_stored_exactly,
    any_text_is_a_key,
    a_batch_is_done_in_order,
    a_batch_is_done_whole_or_not_at_all,
    namespaces_are_listed,
    an_item_lives_for_its_ttl,
    a_read_refreshes_the_ttl_if_configured,
    expired_items_are_hidden_before_they_are_swept,
    many_at_once_all_arrive,
];

async fn a_value_is_replaced_and_not_merged(kit: Kit) {
    let store = kit.plain;
    put(&store, &["a"], "k", json!({"x": 1, "y": 2})).await;
    kit.clock.pass(50);
    put(&store, &["a"], "k", json!({"x": 3})).await;
    let item = get(&store, &["a"], "k").await.expect("it is there");
    assert_eq!((&item.namespace, item.key.as_str(), item.value), (&ns(&["a"]), "k", json!({"x": 3})));
    assert_eq!((item.created_ms, item.updated_ms, item.expires_ms), (1000, 1050, None));
}

async fn missing_items_are_none(kit: Kit) {
    put(&kit.plain, &["a", "b"], "k", json!(1)).await;
    for (labels, key) in [(&["a"][..], "k"), (&["a", "b"], "K"), (&["a", "b", "c"], "k"), (&["b"], "k")] {
        assert_eq!(get(&kit.plain, labels, key).await, None);
    }
    kit.plain.delete(&ns(&["a"]), "k").await.expect("there is nothing to delete, which is no error");
}

async fn versions_within_a_millisecond_are_distinguished(kit: Kit) {
    for version in 0..3 {
        put(&kit.plain, &["a"], "k", json!("same")).await;
        let item = get(&kit.plain, &["a"], "k").await.expect("it is there");
        assert_eq!((item.created_ms, item.updated_ms), (1000, 1000 + version));
    }
}

async fn a_deleted_item_is_gone_and_begins_anew(kit: Kit) {
    put(&kit.plain, &["a"], "k", json!("word")).await;
    kit.plain.delete(&ns(&["a"]), "k").await.expect("it can be deleted");
    assert_eq!(get(&kit.plain, &["a"], "k").await, None);
    assert_eq!(keys(&kit.plain, Search::everywhere()).await, "");
    assert_eq!(keys(&kit.plain, Search::everywhere().words("word")).await, "");
    assert_eq!(kit.plain.list_namespaces(ListNamespaces::default()).await.expect("a list"), []);
    kit.clock.pass(5);
    put(&kit.plain, &["a"], "k", json!(1)).await;
    assert_eq!(get(&kit.plain, &["a"], "k").await.expect("it is there").created_ms, 1005);
}

async fn values_are_stored_exactly(kit: Kit) {
    let values = [
        Value::Null,
        json!(false),
        json!(""),
        json!([]),
        json!({}),
        json!(0.1 + 0.2),
        json!(5e-324),
        json!(u64::MAX),
        json!(i64::MIN),
        json!("'\"\\\n\u{0}\u{1f980} ;--"),
        json!({"": {"a.b": [null, [1.5, "x"]]}, "z": 1, "a": 2}),
    ];
    for (n, value) in values.iter().enumerate() {
        put(&kit.plain, &["values"], &n.to_string(), value.clone()).await;
    }
    for (n, value) in values.iter().enumerate() {
        let kept = get(&kit.plain, &["values"], &n.to_string()).await.expect("it is there").value;
        assert_eq!(kept.to_string(), value.to_string());
    }
}

async fn any_text_is_a_key(kit: Kit) {
    let odd = [
        "",
        " ",
        "a.b",
        "a\u{0}b",
        "a\u{0}c",
        "'; DROP TABLE store_items; --",
        "%",
        "é",
        "e\u{301}",
        "K",
        "k",
    ];
    for key in odd {
        put(&kit.plain, &["odd label; --", "*"], key, json!(key)).await;
    }
    for key in odd {
        let kept = get(&kit.plain, &["odd label; --", "*"], key).await.expect("it is there");
        assert_eq!((kept.key.as_str(), kept.value), (key, json!(key)));
    }
    let mut sorted = odd;
    sorted.sort_unstable();
    let all = Search { limit: 100, ..Search::everywhere() };
    assert_eq!(keys(&kit.plain, all).await, sorted.join(" "));
}

async fn a_batch_is_done_in_order(kit: Kit) {
    let (namespace, key) = (ns(&["a"]), "k".to_owned());
    let read = || Operation::Get { namespace: namespace.clone(), key: key.clone(), refresh: None };
    let write = |value| Operation::Put {
        namespace: namespace.clone(),
        key: key.clone(),
        value,
        options: PutOptions::default(),
    };
    let delete = Operation::Delete { namespace: namespace.clone(), key: key.clone() };
    let find = Operation::Search(Search::within(&namespace).words("two"));
    let list = Operation::ListNamespaces(ListNamespaces::default());
    let all = vec![read(), write(json!("one")), read(), write(json!("two")), find, list, delete, read()];
    let answers = kit.plain.batch(all).await.expect("a batch is done");
    let value = |answer: &Answer| match answer {
        Answer::Item(item) => item.as_ref().map(|item| item.value.clone()),
        other => panic!("not the answer to a read: {other:?}"),
    };
    assert_eq!(answers.len(), 8);
    assert_eq!(
        (value(&answers[0]), value(&answers[2]), value(&answers[7])),
        (None, Some(json!("one")), None)
    );
    assert_eq!((&answers[1], &answers[3], &answers[6]), (&Answer::Done, &Answer::Done, &Answer::Done));
    assert!(matches!(&answers[4], Answer::Found(found) if found[0].item.value == json!("two")));
    assert_eq!(answers[5], Answer::Namespaces(vec![namespace.clone()]));
    assert_eq!(kit.plain.batch(Vec::new()).await.expect("nothing is done"), []);
}

async fn a_batch_is_done_whole_or_not_at_all(kit: Kit) {
    let put = Operation::Put {
        namespace: ns(&["a"]),
        key: "k".into(),
        value: json!(1),
        options: PutOptions::default(),
    };
    let refused = kit.plain.batch(vec![put, Operation::Search(Search::everywhere().meaning("sea"))]).await;
    assert!(matches!(refused, Err(StoreError::NoEmbedding)), "{refused:?}");
    assert_eq!(get(&kit.plain, &["a"], "k").await, None);
}

async fn namespaces_are_listed(kit: Kit) {
    for labels in [&["z"][..], &["a", "b"], &["a", "b", "c"], &["a", "b"], &["a-x", "y", "c"]] {
        put(&kit.plain, labels, &format!("{}", labels.len()), json!(1)).await;
    }
    let list = async |which: ListNamespaces| {
        let found = kit.plain.list_namespaces(which).await.expect("namespaces can be listed");
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let all = ListNamespaces::default;
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
    assert_eq!(list(all()).await, "a-x.y.c a.b a.b.c z");
    assert_eq!(list(ListNamespaces { prefix: labels(&["a"]), ..all() }).await, "a.b a.b.c");
    assert_eq!(list(ListNamespaces { prefix: labels(&["*", "b"]), ..all() }).await, "a.b a.b.c");
    assert_eq!(list(ListNamespaces { suffix: labels(&["c"]), ..all() }).await, "a-x.y.c a.b.c");
    assert_eq!(list(ListNamespaces { suffix: labels(&["b", "*"]), ..all() }).await, "a.b.c");
    assert_eq!(list(ListNamespaces { prefix: labels(&["a", "b", "c", "d"]), ..all() }).await, "");
    assert_eq!(list(ListNamespaces { max_depth: Some(2), ..all() }).await, "a-x.y a.b z");
    assert_eq!(list(ListNamespaces { max_depth: Some(1), ..all() }).await, "a a-x z");
    assert_eq!(list(ListNamespaces { max_depth: Some(0), ..all() }).await, "a a-x z");
    assert_eq!(list(ListNamespaces { limit: 2, offset: 1, ..all() }).await, "a.b a.b.c");
    assert_eq!(list(ListNamespaces { offset: 9, ..all() }).await, "");
}

async fn an_item_lives_for_its_ttl(kit: Kit) {
    let store = kit.brief;
    let options = |ttl| PutOptions::new().ttl(ttl);
    for (key, ttl) in [
        ("usual", Ttl::Usual),
        ("never", Ttl::Never),
        ("short", Ttl::After(Duration::from_micros(1))),
        ("none", Ttl::After(Duration::ZERO)),
        ("long", Ttl::After(Duration::MAX)),
    ] {
        store.put_with(&ns(&["a"]), key, json!("word"), options(ttl)).await.expect("it can be put");
    }
    let unread = || Search { refresh: Some(false), ..Search::everywhere() };
    assert_eq!(keys(&store, unread()).await, "long never short usual");
    kit.clock.pass(1);
    assert_eq!(keys(&store, unread()).await, "long never usual");
    kit.clock.pass(98);
    assert_eq!(keys(&store, unread()).await, "long never usual");
    kit.clock.pass(1);
    assert_eq!(keys(&store, unread()).await, "long never");
    assert_eq!(keys(&store, unread().words("word")).await, "long never");
    // Its lifetime restarts, independent of the earlier one.
    put(&store, &["a"], "usual", json!("again")).await;
    let item = get(&store, &["a"], "usual").await.expect("it is there");
    assert_eq!((item.created_ms, item.updated_ms, item.expires_ms), (1100, 1100, Some(1200)));
}

async fn a_read_refreshes_the_ttl_if_configured(kit: Kit) {
    let (store, clock) = (kit.brief, kit.clock);
    put(&store, &["a"], "get", json!("one")).await;
    put(&store, &["a"], "search", json!("two")).await;
    put(&store, &["a"], "left", json!("three")).await;
    clock.pass(60);
    assert_eq!(get(&store, &["a"], "get").await.expect("it is there").expires_ms, Some(1160));
    assert_eq!(keys(&store, Search::everywhere().words("two")).await, "search");
    let unread = Operation::Get { namespace: ns(&["a"]), key: "left".into(), refresh: Some(false) };
    store.batch(vec![unread]).await.expect("it can be read");
    clock.pass(60);
    assert_eq!(get(&store, &["a"], "left").await, None);
    let item = get(&store, &["a"], "get").await.expect("it is there");
    assert_eq!((item.updated_ms, item.expires_ms), (1000, Some(1220)));
    assert_eq!(keys(&store, Search { refresh: Some(false), ..Search::everywhere() }).await, "get search");
}

async fn expired_items_are_hidden_before_they_are_swept(kit: Kit) {
    let store = kit.brief;
    for key in ["one", "two"] {
        put(&store, &["a"], key, json!("word")).await;
    }
    let never = PutOptions::new().ttl(Ttl::Never);
    store.put_with(&ns(&["b"]), "three", json!("word"), never).await.expect("it can be put");
    assert_eq!(store.sweep().await.expect("a sweep"), 0);
    kit.clock.pass(100);
    assert_eq!(get(&store, &["a"], "one").await, None);
    assert_eq!(store.list_namespaces(ListNamespaces::default()).await.expect("a list"), [ns(&["b"])]);
    assert_eq!(store.sweep().await.expect("a sweep"), 2);
    assert_eq!(store.sweep().await.expect("a sweep"), 0);
    assert_eq!(keys(&store, Search::everywhere().words("word")).await, "three");
}

async fn many_at_once_all_arrive(kit: Kit) {
    let puts = (0..50).map(|n| {
        let store = kit.plain.clone();
        async move { put(&store, &["many"], &format!("{n:02}"), json!("x".repeat(n * 3000))).await }
    });
    futures::future::join_all(puts).await;
    let all = Search { limit: 100, ..Search::everywhere() };
    assert_eq!(keys(&kit.plain, all).await.split(' ').count(), 50);
}
