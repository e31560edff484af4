//! Parts shared by clients that send a key to a server.

use std::{error::Error, sync::Arc, time::Duration};

use reqwest::{Client, ClientBuilder, Url, redirect::Policy};
use rustls::{
    ClientConfig,
    crypto::{CryptoProvider, ring},
};
use rustls_platform_verifier::BuilderVerifierExt as _;

use crate::http::error::excerpt;

/// Parses the address of a server, to which paths are appended.
///
/// # Errors
/// The problem, as the end of a sentence that begins with the name of the address.
pub fn base_url(text: &str) -> Result<Url, String> {
    let url = match Url::parse(text.trim()) {
        Ok(url) => url,
        Err(cause) => return Err(format!("`{}` cannot be read ({cause})", excerpt(text))),
    };
    if !["http", "https"].contains(&url.scheme()) {
        return Err(format!("has the scheme `{}`, only http and https work", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("carries a user name or password, which would show in errors".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or fragment, and a path is added to its end".into());
    }
    Ok(url)
}

/// The failure to create an HTTP client, of TLS or of the client.
pub type ClientError = Box<dyn Error + Send + Sync>;

/// Begins an HTTP client with the certificate authorities of the operating system, and the process's default cryptography, or ring if
/// there is none. `reqwest::Client::builder` panics without a default.
///
/// # Errors
/// TLS is not available, for example because the system has no certificate authorities.
pub fn client_builder() -> Result<ClientBuilder, ClientError> {
    let provider = CryptoProvider::get_default().cloned();
    let tls =
        ClientConfig::builder_with_provider(provider.unwrap_or_else(|| Arc::new(ring::default_provider())))
            .with_safe_default_protocol_versions()?
            .with_platform_verifier()?
            .with_no_client_auth();
    #[expect(clippy::disallowed_methods, reason = "the others use this one")]
    let client = Client::builder();
    Ok(client.tls_backend_preconfigured(tls))
}

/// Creates a client for a server. It follows no redirects, and uses the proxies of the environment except for
/// loopback addresses.
///
/// # Errors
/// If TLS is not available.
pub fn client(url: &Url, connect_timeout: Duration) -> Result<Client, ClientError> {
    let client = client_builder()?
        .connect_timeout(connect_timeout)
        // A redirect turns a POST into a GET, or sends the key elsewhere.
        .redirect(Policy::none())
        // A few compressed bytes could become any number of bytes.
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .user_agent(concat!("superstep/", env!("CARGO_PKG_VERSION")));
    let client = if is_loopback(url) { client.no_proxy() } else { client };
    Ok(client.build()?)
}

/// Returns the last cause of an error, which is the informative one; those above it repeat the address.
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns whether `url` is a loopback address.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_work_is_refused() {
        let problem = |text| base_url(text).unwrap_err();
        assert_eq!(problem("localhost"), "`localhost` cannot be read (relative URL without a base)");
        assert_eq!(problem("ftp://h/v1"), "has the scheme `ftp`, only http and https work");
        assert!(problem("https://me:secret@h/v1").contains("carries a user name or password"));
        assert!(problem("https://h/v1?x=1").contains("has a query or fragment"));
        assert!(!problem("https://me:secret@h/v1").contains("secret"));
    }

    #[test]
    fn loopback_is_detected_by_name_and_number() {
        let is = |url| is_loopback(&Url::parse(url).unwrap());
        assert!(is("http://localhost:1/v1") && is("http://127.0.0.9/v1") && is("http://[::1]:2/v1"));
        assert!(!is("http://example.com/v1") && !is("http://10.0.0.1/v1"));
    }
}
