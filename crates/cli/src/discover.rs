//! Looks for model servers on this machine.

use std::time::Duration;

use futures::{StreamExt, stream};
use serde::Deserialize;

/// Where servers are by default, in the order in which they are preferred.
const USUAL: &str =
    "Ollama=http://127.0.0.1:11434/v1,LM Studio=http://127.0.0.1:1234/v1,llama.cpp=http://127.0.0.1:8080/v1";

/// How long each may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// A server that answered and has a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) name: String,
    pub(crate) base_url: String,
    /// Its first model that can chat.
    pub(crate) model: String,
}

/// Asks every server of `list`, a text `NAME=URL,...`, or the usual ones; the first in the list that has a model.
///
/// # Errors    An entry of the list is something else, and what it is.
pub(crate) async fn find(list: Option<&str>) -> Result<Option<Local>, String> {
    let entries = list.unwrap_or(USUAL).split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let servers: Vec<_> =
        entries.map(|entry| server(entry).ok_or(entry.to_owned())).collect::<Result<_, _>>()?;
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let Ok(client) = client.timeout(PATIENCE).build() else { return Ok(None) };
    let asked = servers.into_iter().map(|(name, url)| ask(&client, name, url));
    let answers: Vec<_> = stream::iter(asked).buffered(8).collect().await;
    Ok(answers.into_iter().flatten().next())
}

/// The name and the address of a server.
fn server(entry: &str) -> Option<(&str, &str)> {
    let (name, url) = entry.split_once('=')?;
    let parsed = reqwest::Url::parse(url.trim()).ok()?;
    matches!(parsed.scheme(), "http" | "https").then_some((name.trim(), url.trim()))
}

async fn ask(client: &reqwest::Client, name: &str, url: &str) -> Option<Local> {
    let base_url = url.trim_end_matches('/');
    let response = client.get(format!("{base_url}/models")).send().await.ok()?;
    let models = response.error_for_status().ok()?.bytes().await.ok()?;
    let model = first_model(&models)?;
    Some(Local { name: name.to_owned(), base_url: base_url.to_owned(), model })
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

/// Servers list models for embeddings too, which cannot chat.
fn first_model(json: &[u8]) -> Option<String> {
    let models: Models = serde_json::from_slice(json).ok()?;
    models.data.into_iter().map(|model| model.id).find(|id| !id.to_lowercase().contains("embed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_for_embeddings_is_passed_over() {
        let models =
            br#"{"object":"list","data":[{"id":"text-Embedding-3"},{"id":"llama3.2"},{"id":"other"}]}"#;
        assert_eq!(first_model(models), Some("llama3.2".into()));
        assert_eq!(first_model(br#"{"data":[{"id":"nomic-embed-text"}]}"#), None);
        assert_eq!(first_model(b"<html>"), None);
    }

    #[tokio::test]
    async fn nothing_is_found_where_nothing_is_looked_for() {
        assert_eq!(find(Some("")).await, Ok(None));
        assert_eq!(find(Some("a=http://127.0.0.1:1/v1, ,")).await, Ok(None));
    }

    #[tokio::test]
    async fn an_entry_that_is_no_server_is_told() {
        for entry in ["http://127.0.0.1:1/v1", "bogus", "x=notaurl", "x=ftp://127.0.0.1"] {
            assert_eq!(find(Some(&format!("a=http://127.0.0.1:1/v1,{entry}"))).await, Err(entry.to_owned()));
        }
    }
}
