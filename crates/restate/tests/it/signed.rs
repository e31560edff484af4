//! Requests that are signed, and requests that are not.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use serde_json::json;
use superstep_graph::{CompiledGraph, END, START, State, StateGraph};

use crate::{
    node::{Node, shared},
    service::Service,
};

#[derive(State, Clone, Debug, Default)]
struct Text {
    text: String,
}

fn texts() -> CompiledGraph<Text> {
    let mut graph = StateGraph::<Text>::new("texts");
    let node = graph.add_node("write", async |_: Text, _| Text::update().text("written"));
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn requests_are_accepted_with_the_signature_of_the_server() {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let key = |public: &[u8]| format!("publickeyv1_{}", bs58::encode(public).into_string());
    let own = key(pair.public_key().as_ref());
    let signing = Node::start_with(|folder| {
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            STANDARD.encode(pkcs8.as_ref())
        );
        fs::write(folder.join("key.pem"), pem).unwrap();
        format!("request-identity-private-key-pem-file = \"{}\"", folder.join("key.pem").display())
    });
    let Some(signing) = signing else { return };
    let service = Service::start(&signing, |endpoint| endpoint.graph(texts()).identity_key(&own));
    let end = service.restate.thread("texts", "t").run(json!({})).await.unwrap();
    assert_eq!(end.status, "completed");
    let Some(other) = shared() else { return };
    let error = Service::try_start(other, |endpoint| endpoint.graph(texts()).identity_key(&own));
    let error = error.err().unwrap().to_string();
    assert!(error.contains("401"), "{error}");
    let error = Service::try_start(&signing, |endpoint| endpoint.graph(texts()).identity_key(key(&[7; 32])));
    let error = error.err().unwrap().to_string();
    assert!(error.contains("401"), "{error}");
}
