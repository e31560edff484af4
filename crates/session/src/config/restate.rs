//! The threads of a Restate cluster.
//!
//! Start at [`Cluster`].

use std::{
    env,
    sync::{Arc, OnceLock},
};

use superstep::{Checkpointer, checkpoint::CheckpointError, restate::Restate};

use crate::{config::names::DbName, error::SessionError};

/// The variable with the token for the ingress and the admin API.
const TOKEN: &str = "SUPERSTEP_RESTATE_TOKEN";

/// The port of the admin API, unless the URL names another one.
const ADMIN_PORT: u16 = 9070;

/// A namespace of a cluster.
#[derive(Clone)]
pub struct Cluster {
    pub restate: Restate,
    pub namespace: String,
    /// The URL without its query.
    name: String,
    opened: Arc<OnceLock<Arc<dyn Checkpointer>>>,
}

impl Cluster {
    /// Reads the URL of `--db`: `restate://HOST:PORT/NAMESPACE?admin=URL`, or `restate+https://…`.
    ///
    /// # Errors
    /// It is not valid.
    pub fn new(given: &DbName) -> Result<Self, SessionError> {
        let text = given.0.to_string_lossy();
        let unfit = || {
            SessionError::usage(
                "a Restate cluster is named like `restate://127.0.0.1:8080/superstep?admin=http://127.0.0.1:9070`",
            )
        };
        let url = reqwest::Url::parse(&text).map_err(|_| unfit())?;
        let host = url.host_str().ok_or_else(unfit)?;
        let scheme = if url.scheme() == "restate+https" { "https" } else { "http" };
        let namespace = url.path().trim_matches('/');
        let namespace = if namespace.is_empty() { "superstep" } else { namespace };
        let admin = url.query_pairs().find(|(name, _)| name == "admin").map(|(_, admin)| admin.into_owned());
        let admin = admin.unwrap_or_else(|| format!("{scheme}://{host}:{ADMIN_PORT}"));
        let ingress = format!("{scheme}://{host}:{}", url.port().unwrap_or(8080));
        let restate = Restate::connect(&ingress)?.admin(&admin)?.namespace(namespace);
        let token = env::var(TOKEN).ok().filter(|token| !token.is_empty());
        let restate = token.into_iter().fold(restate, Restate::token);
        let name = format!("{}://{host}:{}/{namespace}", url.scheme(), url.port().unwrap_or(8080));
        Ok(Self { restate, namespace: namespace.to_owned(), name, opened: Arc::default() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens its threads.
    pub fn open(&self) -> Result<Arc<dyn Checkpointer>, CheckpointError> {
        if let Some(open) = self.opened.get() {
            return Ok(open.clone());
        }
        let open = self.restate.checkpointer()?;
        Ok(self.opened.get_or_init(|| open).clone())
    }
}
