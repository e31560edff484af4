//! Access tokens that expire.

use std::{env, fmt, process::Stdio, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::{process::Command, sync::Mutex, time::timeout};

use crate::{
    ApiKey, ModelConfigError, ModelError, ModelErrorKind,
    exchange::server::{Answer, Refusal, Server},
    http::error::excerpt,
};

/// The variable with a token, and that with a command that prints one.
const TOKEN: &str = "GOOGLE_ACCESS_TOKEN";
const COMMAND: &str = "GOOGLE_ACCESS_TOKEN_COMMAND";

/// The maximum time of a command.
const PATIENCE: Duration = Duration::from_secs(60);

/// A source of access tokens that expire. Clones share the current token.
///
/// A token is used until the server refuses it with 401. Then the source is called for another one, and the request is sent once
/// more.
///
/// ```
/// use superstep_llm::{ModelError, auth::AccessToken};
///
/// # async fn from_metadata_server() -> Result<String, ModelError> { Ok(String::new()) }
/// let token = AccessToken::from_fn(|| async { Ok(from_metadata_server().await?.into()) });
/// let token = AccessToken::command("gcloud auth print-access-token");
/// ```
#[derive(Clone)]
pub struct AccessToken {
    source: Arc<dyn Fn() -> BoxFuture<'static, Result<ApiKey, ModelError>> + Send + Sync>,
    current: Arc<Mutex<Option<ApiKey>>>,
}

impl AccessToken {
    /// Creates a source from a function that returns a new token.
    pub fn from_fn<F, Fut>(source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ApiKey, ModelError>> + Send + 'static,
    {
        Self { source: Arc::new(move || Box::pin(source())), current: Arc::default() }
    }

    /// Creates a source of one token.
    pub fn fixed(token: impl Into<ApiKey>) -> Self {
        let token = token.into();
        Self::from_fn(move || std::future::ready(Ok(token.clone())))
    }

    /// Creates a source that runs a command, whose output is a token. It is a program and its arguments, separated by spaces, and
    /// runs without a shell, for at most a minute.
    pub fn command(line: impl Into<String>) -> Self {
        let line = line.into();
        Self::from_fn(move || run(line.clone()))
    }

    /// Creates a source of the token `GOOGLE_ACCESS_TOKEN`, or of those that the command `GOOGLE_ACCESS_TOKEN_COMMAND` prints.
    ///
    /// # Errors
    /// [`ModelConfigError::NotSet`] if neither is set.
    pub fn from_env() -> Result<Self, ModelConfigError> {
        let set = |name| env::var(name).ok().filter(|value| !value.trim().is_empty());
        let hint = "such as `gcloud auth print-access-token` for the command";
        match (set(TOKEN), set(COMMAND)) {
            (Some(token), _) => Ok(Self::fixed(token.trim())),
            (None, Some(command)) => Ok(Self::command(command)),
            (None, None) => Err(ModelConfigError::NotSet { key: TOKEN, server: COMMAND, hint }),
        }
    }

    /// Returns the current token, or another one if that was refused.
    pub(crate) async fn get(&self, refused: Option<&ApiKey>) -> Result<ApiKey, ModelError> {
        let mut current = self.current.lock().await;
        if let Some(token) = current.as_ref().filter(|token| Some(*token) != refused) {
            return Ok(token.clone());
        }
        let token = (self.source)().await?;
        Ok(current.insert(token).clone())
    }

    /// Posts a JSON body to a path of a server, and once more with another token if the server refuses this one.
    pub(crate) async fn post(
        &self,
        server: &Server,
        path: &str,
        headers: &[(&'static str, String)],
        body: &impl serde::Serialize,
    ) -> Result<Answer, Refusal> {
        let send = async |token: &ApiKey| {
            let bearer = ("authorization", format!("Bearer {}", token.reveal()));
            let headers = headers.iter().cloned().chain([bearer]);
            // Errors hide the token in place of the key.
            Server { api_key: token.clone(), ..server.clone() }.post(path, headers, body).await
        };
        let token = self.get(None).await?;
        let refused = match send(&token).await {
            Err(refusal) if refusal.error.status == Some(401) => refusal,
            sent => return sent,
        };
        let next = self.get(Some(&token)).await?;
        if next == token { Err(refused) } else { send(&next).await }
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").finish_non_exhaustive()
    }
}

/// Runs a command and returns its output. Its errors are not repeated: they may have secrets.
async fn run(line: String) -> Result<ApiKey, ModelError> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let failed = |problem: String| {
        let message = format!("the command `{}` for an access token {problem}", excerpt(program));
        ModelError::new(ModelErrorKind::Auth, message)
    };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(cause)) => return Err(failed(format!("cannot be run: {cause}"))),
        Err(_) => return Err(failed(format!("ran longer than {} s", PATIENCE.as_secs()))),
    };
    let token = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), token.trim()) {
        (true, "") => Err(failed("printed nothing".to_owned())),
        (true, token) => Ok(ApiKey::new(token)),
        (false, _) => Err(failed(format!("failed: {}", output.status))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_token_is_used_until_it_is_refused() {
        let n = AtomicUsize::new(0);
        let token = AccessToken::from_fn(move || {
            let n = n.fetch_add(1, Ordering::Relaxed);
            async move { Ok(ApiKey::new(format!("secret-{n}"))) }
        });
        let first = token.get(None).await.unwrap();
        assert_eq!(token.clone().get(None).await.unwrap(), first);
        let second = token.get(Some(&first)).await.unwrap();
        assert_eq!(second.reveal(), "secret-1");
        assert_eq!(token.get(Some(&first)).await.unwrap(), second, "another request has replaced it");
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_command_prints_a_token() {
        let token = |line: &str| {
            let token = AccessToken::command(line);
            async move { token.get(None).await.map(|token| token.reveal().to_owned()) }
        };
        assert_eq!(token("echo  ya29.a").await.unwrap(), "ya29.a");
        for (line, problem) in [("true", "printed nothing"), ("false", "failed"), ("", "cannot be run")] {
            let error = token(line).await.unwrap_err();
            assert!(error.kind == ModelErrorKind::Auth && error.message.contains(problem), "{error}");
        }
    }
}
