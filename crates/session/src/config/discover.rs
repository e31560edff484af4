//! Discovery of model servers on this machine.

use std::time::Duration;

use futures::{StreamExt, stream};
use serde::Deserialize;
use superstep::llm::http::client_builder;

use crate::text::printable_line;

/// Default addresses of servers, in order of preference.
const USUAL: &str =
    "Ollama=http://127.0.0.1:11434/v1,LM Studio=http://127.0.0.1:1234/v1,llama.cpp=http://127.0.0.1:8080/v1";

/// Time limit of each response. A missing server is detected at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum size of a list of models; a server with a longer one is skipped.
const MAX_LIST_LENGTH: usize = 1024 * 1024;

/// A server that responded and has a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    pub name: String,
    pub base_url: String,
    /// The first model of the server that can chat.
    pub model: String,
    pub models: Vec<String>,
}

impl Local {
    /// Returns whether it lists the model `name`; the tag of Ollama's names is optional.
    pub fn has(&self, name: &str) -> bool {
        self.models.iter().any(|own| own == name || own.strip_suffix(":latest") == Some(name))
    }
}

/// Queries every server of `list`, a text `NAME=URL,...`, or the default ones. Returns those that have a
/// model, in its order.
///
/// # Errors
/// An invalid entry of the list.
pub async fn find(list: Option<&str>) -> Result<Vec<Local>, String> {
    let entries = list.unwrap_or(USUAL).split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let servers: Vec<_> =
        entries.map(|entry| server(entry).ok_or(entry.to_owned())).collect::<Result<_, _>>()?;
    let Ok(client) = client_builder() else { return Ok(Vec::new()) };
    let client = client.no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(PATIENCE);
    let Ok(client) = client.build() else { return Ok(Vec::new()) };
    // Collected, so that the future is `Send`: a stream of the closure would not be (rust-lang/rust#102211).
    let asked: Vec<_> = servers.into_iter().map(|(name, url)| ask(&client, name, url)).collect();
    let answers: Vec<_> = stream::iter(asked).buffered(8).collect().await;
    Ok(answers.into_iter().flatten().collect())
}

fn server(entry: &str) -> Option<(&str, &str)> {
    let (name, url) = entry.split_once('=')?;
    let parsed = reqwest::Url::parse(url.trim()).ok()?;
    matches!(parsed.scheme(), "http" | "https").then_some((name.trim(), url.trim()))
}

async fn ask(client: &reqwest::Client, name: &str, url: &str) -> Option<Local> {
    let base_url = url.trim_end_matches('/');
    let response = client.get(format!("{base_url}/models")).send().await.ok()?;
    let mut response = response.error_for_status().ok()?;
    let mut list = Vec::new();
    while let Some(bytes) = response.chunk().await.ok()? {
        if list.len() + bytes.len() > MAX_LIST_LENGTH {
            return None;
        }
        list.extend_from_slice(&bytes);
    }
    let models = names(&list)?;
    // Servers also list embedding models, which cannot chat.
    let model = models.iter().find(|id| !id.to_lowercase().contains("embed"))?.clone();
    Some(Local { name: name.to_owned(), base_url: base_url.to_owned(), model, models })
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

fn names(json: &[u8]) -> Option<Vec<String>> {
    let models: Models = serde_json::from_slice(json).ok()?;
    // The names are reported, so that one with line breaks or hidden characters is left out.
    Some(models.data.into_iter().map(|model| model.id).filter(|id| printable_line(id) == *id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_listed_with_its_tag_or_without() {
        let models =
            names(br#"{"object":"list","data":[{"id":"text-embedding-3"},{"id":"llama3.2:latest"}]}"#);
        let (name, base_url, model) = Default::default();
        let local = Local { name, base_url, model, models: models.unwrap() };
        let has = |name| local.has(name);
        assert!(has("llama3.2") && has("llama3.2:latest") && has("text-embedding-3"));
        assert!(!has("llama3") && !has("llama3.2:1b") && !has(""));
        assert_eq!(names(b"<html>"), None);
        assert_eq!(names(br#"{"data":[{"id":"m\nerror: forged"},{"id":"m"}]}"#), Some(vec!["m".to_owned()]));
    }

    #[tokio::test]
    async fn discovery_without_servers_finds_nothing() {
        assert_eq!(find(Some("")).await, Ok(Vec::new()));
        assert_eq!(find(Some("a=http://127.0.0.1:1/v1, ,")).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn an_invalid_server_entry_is_reported() {
        for entry in ["http://127.0.0.1:1/v1", "bogus", "x=notaurl", "x=ftp://127.0.0.1"] {
            assert_eq!(find(Some(&format!("a=http://127.0.0.1:1/v1,{entry}"))).await, Err(entry.to_owned()));
        }
    }
}
