//! Requests to the addresses that clients name, at the ends of their runs.
//!
//! An address may come from anyone who may run a graph, so it must not lead into the network of the server: names are resolved here,
//! and private addresses are dropped from the result of which one is used.
//!
//! Start at [`Webhooks`].

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use reqwest::{
    Client,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};
use serde_json::Value;
use superstep_llm::http::{ClientError, client_builder, root_cause};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use crate::{error::ApiError, wire::time};

/// The time for one attempt.
const LIMIT: Duration = Duration::from_secs(10);

/// The pauses between attempts.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The number of requests at the same time.
const PARALLEL: usize = 32;

/// Sends the results of runs.
pub(crate) struct Webhooks {
    allows_private: bool,
    /// Made for the first webhook: it needs the certificate authorities of the system.
    client: OnceLock<Client>,
    parallel: Semaphore,
}

impl Webhooks {
    pub(crate) fn new(allows_private: bool) -> Self {
        Self { allows_private, client: OnceLock::new(), parallel: Semaphore::new(PARALLEL) }
    }

    fn client(&self) -> Result<&Client, ClientError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = client_builder()?
            .timeout(LIMIT)
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(Resolver { allows_private: self.allows_private }))
            .user_agent(concat!("superstep/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Returns the client for an address. Where its name leads is checked when it is used.
    ///
    /// # Errors
    /// 422; 500 if the server cannot send at all.
    pub(crate) fn client_for(&self, address: &str) -> Result<&Client, ApiError> {
        let invalid = |detail: &str| Err(ApiError::invalid(format!("webhook: {detail}")));
        let Ok(url) = Url::parse(address) else { return invalid("expected an address with http or https") };
        if !["http", "https"].contains(&url.scheme()) {
            return invalid("expected an address with http or https");
        }
        let is_private = match url.host() {
            Some(Host::Ipv4(ip)) => !is_public(ip.into()),
            Some(Host::Ipv6(ip)) => !is_public(ip.into()),
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            None => true,
        };
        if is_private && !self.allows_private {
            return invalid("this server does not send to private addresses");
        }
        let failed = |error: ClientError| ApiError::internal(format!("webhook: {}", root_cause(&*error)));
        self.client().map_err(failed)
    }

    /// Sends a body to an address, in several attempts. When the server stops, none begins.
    pub(crate) async fn send(&self, run: &str, address: &str, mut body: Value, stopping: &CancellationToken) {
        let Ok(_permit) = self.parallel.acquire().await else { return };
        // Again: the settings may have changed since the run was accepted.
        let client = match self.client_for(address) {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(run, problem = error.detail, "the webhook of a run cannot be called");
                return;
            }
        };
        let mut pauses = PAUSES.into_iter();
        loop {
            body["webhook_sent_at"] = time::text(time::now_us()).into();
            let sent = client.post(address).header("content-type", "application/json").body(body.to_string());
            let problem = match sent.send().await.and_then(reqwest::Response::error_for_status) {
                Ok(_) => return,
                // The address may have a secret.
                Err(error) => root_cause(&error.without_url()),
            };
            let Some(pause) = pauses.next() else {
                tracing::warn!(run, problem, "the webhook of a run has failed in all attempts");
                return;
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stopping.cancelled() => {
                    tracing::warn!(run, problem, "the server stops before another attempt of a webhook");
                    return;
                }
            }
        }
    }
}

/// Resolves names to public addresses.
struct Resolver {
    allows_private: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allows_private = self.allows_private;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let usable: Vec<SocketAddr> =
                found.filter(|address| allows_private || is_public(address.ip())).collect();
            if usable.is_empty() {
                return Err("the name leads to private addresses only".into());
            }
            Ok(Box::new(usable.into_iter()) as Addrs)
        })
    }
}

/// Returns whether an address is one of the public internet.
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_special = a == 0 || a >= 240 || (a, b, c) == (192, 0, 0) || (a == 198 && (b == 18 || b == 19));
    !(ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation()
        || is_shared
        || is_special)
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [a, b, ..] = ip.segments();
    // The addresses in use, without those that contain others: Teredo, 6to4, and documentation.
    let is_global = a & 0xe000 == 0x2000;
    is_global && !(a == 0x2001 && (b < 0x0200 || b == 0x0db8)) && a != 0x2002
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_own_network_is_private() {
        for (ip, expected) in [
            ("93.184.216.34", true),
            ("2606:2800:220:1::1", true),
            ("127.0.0.1", false),
            ("10.1.2.3", false),
            ("172.16.0.1", false),
            ("192.168.0.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("0.0.0.0", false),
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("::1", false),
            ("::", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:93.184.216.34", true),
            ("64:ff9b::a00:1", false),
            ("2002:7f00:1::", false),
            ("2001::1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_public(ip.parse().unwrap()), expected, "{ip}");
        }
    }

    #[tokio::test]
    async fn only_public_addresses_with_http_are_allowed() {
        let (public, private) = (Webhooks::new(false), Webhooks::new(true));
        for (address, of_public, of_private) in [
            ("https://example.org/hook?a=b", true, true),
            ("http://127.0.0.1:8080/", false, true),
            ("http://localhost/", false, true),
            ("http://[::1]/", false, true),
            ("http://2130706433/", false, true),
            ("file:///etc/passwd", false, false),
            ("ftp://example.org/", false, false),
            ("example.org", false, false),
        ] {
            let allowed = [&public, &private].map(|webhooks| webhooks.client_for(address).is_ok());
            assert_eq!(allowed, [of_public, of_private], "{address}");
        }
        let name = || "localhost".parse().unwrap();
        assert!(Resolver { allows_private: false }.resolve(name()).await.is_err());
        assert!(Resolver { allows_private: true }.resolve(name()).await.is_ok());
    }
}
