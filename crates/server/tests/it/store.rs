//! Items that outlive threads.

use reqwest::Method;
use serde_json::{Value, json};
use superstep_server::Server;

use crate::{
    graphs,
    support::{serve, start},
};

#[tokio::test]
async fn items_are_put_found_and_deleted() {
    let server = start().await;
    let put = async |namespace: Value, key: &str, value: Value| {
        let body = json!({ "namespace": namespace, "key": key, "value": value });
        server.send(Method::PUT, "/store/items", body).await.status().as_u16()
    };
    assert_eq!(
        put(json!(["users", "ada"]), "tea", json!({ "likes": "green tea", "since": 1842 })).await,
        204
    );
    assert_eq!(
        put(json!(["users", "ada"]), "music", json!({ "likes": "the harp", "since": 1830 })).await,
        204
    );
    assert_eq!(put(json!(["users", "bob"]), "tea", json!({ "likes": "black tea" })).await, 204);
    for wrong in [json!([]), json!([""]), json!(["a.b"]), json!(["superstep"]), json!(["superstep-server"])] {
        assert_eq!(put(wrong, "x", json!({})).await, 422);
    }
    let body = json!({ "namespace": ["users"], "key": "x", "value": 5 });
    assert_eq!(server.refused(Method::PUT, "/store/items", body).await.0, 422);
    let item = server.get("/store/items?namespace=users.ada&key=tea").await;
    assert_eq!((&item["namespace"], &item["value"]["since"]), (&json!(["users", "ada"]), &json!(1842)));
    assert_eq!(server.get("/store/items?namespace=users.ada&key=none").await, Value::Null);
    let found = async |body: Value| {
        let found = server.post("/store/items/search", body).await;
        let items = found["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        found(json!({ "namespace_prefix": ["users", "ada"], "filter": { "since": { "$gte": 1840 } } })).await,
        ["tea"]
    );
    assert_eq!(found(json!({ "namespace_prefix": ["users"], "query": "harp" })).await, ["music"]);
    // Of all, without the rows of the server.
    assert_eq!(found(json!({ "namespace_prefix": [] })).await.len(), 3);
    let (status, _) = server
        .refused(Method::POST, "/store/items/search", json!({ "filter": { "a": { "$near": 1 } } }))
        .await;
    assert_eq!(status, 422);
    let namespaces = server.post("/store/namespaces", json!({ "prefix": ["users"], "max_depth": 2 })).await;
    assert_eq!(namespaces["namespaces"], json!([["users", "ada"], ["users", "bob"]]));
    let body = json!({ "namespace": ["users", "ada"], "key": "tea" });
    assert_eq!(server.send(Method::DELETE, "/store/items", body).await.status(), 204);
    assert_eq!(server.get("/store/items?namespace=users.ada&key=tea").await, Value::Null);
}

#[tokio::test]
async fn a_server_without_a_store_refuses_items() {
    let server = serve(graphs::all(Server::new())).await;
    let (status, _) = server.refused(Method::GET, "/store/items?namespace=a&key=b", json!({})).await;
    assert_eq!(status, 422);
}
