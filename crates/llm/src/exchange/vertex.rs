//! The addresses of models on Vertex AI, and in the API of Gemini.

use std::env;

use reqwest::Url;

use crate::ModelConfigError;

/// The variable with a project of Google Cloud, and that with its location.
const PROJECT: &str = "GOOGLE_CLOUD_PROJECT";
const LOCATION: &str = "GOOGLE_CLOUD_LOCATION";

/// Returns the address of a publisher's models on Vertex AI.
pub(crate) fn url(project: &str, location: &str, publisher: &str) -> String {
    let region = if location == "global" { String::new() } else { format!("{location}-") };
    format!(
        "https://{region}aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/publishers/{publisher}"
    )
}

/// Returns the path of a method of a model, behind an address.
pub(crate) fn path(model: &str, method: &str) -> String {
    let mut url = Url::parse("http://h").expect("the address is valid");
    if let Ok(mut parts) = url.path_segments_mut() {
        // A name is one segment, of any characters.
        parts.push("models").push(&format!("{model}:{method}"));
    }
    url.path().to_owned()
}

/// Returns the project and the location of the environment.
pub(crate) fn place() -> Result<(String, String), ModelConfigError> {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let hint = "Vertex AI needs the project of the models";
    let project = set(PROJECT).ok_or(ModelConfigError::NotSet { key: PROJECT, server: PROJECT, hint })?;
    Ok((project, set(LOCATION).unwrap_or_else(|| "global".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_the_path() {
        for (model, name) in [("claude@2026", "claude@2026"), ("a/../b?c#d", "a%2F..%2Fb%3Fc%23d")] {
            assert_eq!(path(model, "m"), format!("/models/{name}:m"));
        }
    }

    #[test]
    fn a_location_has_its_own_host() {
        let path = |location| format!("/v1/projects/p/locations/{location}/publishers/google");
        let host = "aiplatform.googleapis.com";
        assert_eq!(url("p", "global", "google"), format!("https://{host}{}", path("global")));
        let europe = format!("https://europe-west4-{host}{}", path("europe-west4"));
        assert_eq!(url("p", "europe-west4", "google"), europe);
    }
}
