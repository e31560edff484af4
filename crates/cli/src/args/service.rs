//! The command line of a Restate cluster: of its callers, and of its workers.

#![cfg_attr(not(feature = "restate"), allow(dead_code, reason = "`--restate` is an error in this build"))]

use std::net::SocketAddr;

use clap::Args;
use superstep_session::{config::names::DbName, error::SessionError};

/// The workers of a cluster, as the place of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServiceArgs {
    /// Let a worker of this Restate cluster do it, and wait for the end: the URL of an ingress and the namespace, such as
    /// `http://127.0.0.1:8080/superstep`. It is the database as well.
    #[arg(long, value_name = "URL", value_parser = cluster)]
    pub(crate) restate: Option<DbName>,
}

/// A worker of a cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct EndpointArgs {
    /// Take runs from this Restate cluster, as `--db restate://...`: the URL of an ingress and the namespace, such as
    /// `http://127.0.0.1:8080/superstep`.
    #[arg(long, value_name = "URL", value_parser = cluster)]
    pub(crate) restate: Option<DbName>,
    /// On Restate: the address at which this worker listens; the workers of a machine share it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9080")]
    pub(crate) listen: SocketAddr,
    /// On Restate: the URL at which the cluster reaches this worker, and all others of the namespace [default: that of `--listen`].
    #[arg(long, value_name = "URL")]
    pub(crate) advertise: Option<String>,
}

#[cfg(feature = "restate")]
impl EndpointArgs {
    /// Returns the database of the worker, `given` unless `--restate` names one.
    pub(crate) fn db(&self, given: Option<DbName>) -> Option<DbName> {
        self.restate.clone().or(given)
    }

    /// Returns whether the worker is one of a cluster.
    pub(crate) fn is_for_cluster(&self, given: Option<&DbName>) -> bool {
        self.restate.as_ref().or(given).is_some_and(DbName::is_cluster)
    }
}

/// Reads the URL of an ingress, or that of `--db`.
fn cluster(url: &str) -> Result<DbName, String> {
    if cfg!(not(feature = "restate")) {
        return Err(SessionError::missing_feature("a Restate cluster", "restate").message);
    }
    let url = match url.split_once("://") {
        Some(("http", rest)) => format!("restate://{rest}"),
        Some(("https", rest)) => format!("restate+https://{rest}"),
        _ => url.to_owned(),
    };
    let name = DbName(url.into());
    if name.is_cluster() {
        Ok(name)
    } else {
        Err("write the URL of an ingress, such as `http://127.0.0.1:8080/superstep`".to_owned())
    }
}

#[cfg(all(test, feature = "restate"))]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_the_url_of_an_ingress_or_of_a_database() {
        for (url, db) in [
            ("http://h:8080/shop?admin=http://h:9070", "restate://h:8080/shop?admin=http://h:9070"),
            ("https://h", "restate+https://h"),
            ("restate://h/shop", "restate://h/shop"),
        ] {
            assert_eq!(cluster(url).unwrap().0, *db);
        }
        for wrong in ["", "h:8080", "postgres://h/shop"] {
            assert!(cluster(wrong).is_err(), "{wrong}");
        }
    }
}
