//! Resources that tools use only if the user grants them: variables, a proxy, hosts of a private network.

use std::env;

use reqwest::{Proxy, Url};
use serde::{Deserialize, Serialize};

/// Variables that show where a proxy is needed.
const PROXIES: [&str; 5] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"];

/// The grants of the user to `shell` and `fetch_url`. The default grants nothing.
///
/// Take it from the user only: a folder or a database may come from someone else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSettings {
    /// The settings of `shell`.
    pub shell: ShellSettings,
    /// The settings of `fetch_url`.
    pub web: WebSettings,
}

/// The settings of `shell`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShellSettings {
    /// The names of the environment variables that commands get although they may be secret.
    pub env: Vec<String>,
}

/// The settings of `fetch_url`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSettings {
    /// The proxy for addresses of the internet, which also resolves their names: `http://host:port`, or `$NAME` for the value of an
    /// environment variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The hosts that may be in a private network: `wiki.example`, or `*.example` for all below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub private_hosts: Vec<String>,
}

impl WebSettings {
    /// Checks the settings without reading variables.
    ///
    /// # Errors
    /// The field, and the problem with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(proxy) = self.proxy.as_deref().filter(|proxy| variable(proxy).is_none()) {
            let url = address(proxy).map_err(|problem| ("proxy", problem))?;
            if !url.username().is_empty() || url.password().is_some() {
                let problem = "it has a user or a password in it; put the address into an environment variable, and its name here: `$NAME`";
                return Err(("proxy", problem.to_owned()));
            }
        }
        let is_host = |host: &String| {
            let name = host.strip_prefix("*.").unwrap_or(host);
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
        };
        match self.private_hosts.iter().find(|host| !is_host(host)) {
            Some(host) => Err((
                "private_hosts",
                format!("`{host}` is not the name of a host, such as `wiki.example` or `*.example`"),
            )),
            None => Ok(()),
        }
    }

    /// Returns whether a host may be in a private network.
    pub(crate) fn may_be_private(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.private_hosts.iter().map(|known| known.to_ascii_lowercase()).any(|known| {
            match known.strip_prefix('*') {
                Some(end) => host.len() > end.len() && host.ends_with(end),
                None => host == known,
            }
        })
    }

    /// Returns the proxy.
    ///
    /// # Errors
    /// Its variable is not set, or is not an address.
    pub(crate) fn proxy(&self) -> Result<Option<Proxy>, String> {
        let Some(proxy) = &self.proxy else { return Ok(None) };
        let wrong = |problem: String| format!("the proxy of `fetch_url` cannot be used: {problem}");
        let value = match variable(proxy) {
            Some(name) => {
                env::var(name).map_err(|_| wrong(format!("the environment variable `{name}` is not set")))?
            }
            None => proxy.clone(),
        };
        let url = address(&value).map_err(wrong)?;
        Proxy::all(url).map(Some).map_err(|error| wrong(error.to_string()))
    }

    /// Returns a hint for a failed connection without a proxy, if the environment has one.
    pub(crate) fn proxy_hint(&self) -> &'static str {
        let has_one = || PROXIES.iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()));
        if self.proxy.is_none() && has_one() {
            "; the proxy of the environment is not used, unless the user names it as `proxy` of `[web]` in the configuration"
        } else {
            ""
        }
    }
}

/// Returns the name of the variable that a value stands for.
fn variable(value: &str) -> Option<&str> {
    let name = value.strip_prefix('$')?;
    Some(name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name))
}

/// Parses the address of a proxy. Its error does not show it, because it may have a password.
fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("it is not an address: {error}"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err("it is not an address that begins with `http://` or `https://`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(proxy: &str, hosts: &[&str]) -> WebSettings {
        let proxy = Some(proxy.to_owned()).filter(|proxy| !proxy.is_empty());
        WebSettings { proxy, private_hosts: hosts.iter().map(|host| (*host).to_owned()).collect() }
    }

    #[test]
    fn settings_are_checked_without_showing_a_password() {
        for proxy in ["http://proxy:3128", "https://proxy", "$PROXY", "${PROXY}"] {
            assert_eq!(web(proxy, &["a", "*.b.c"]).check(), Ok(()), "{proxy}");
        }
        for (settings, field) in [
            (web("http://me:s3cret@proxy", &[]), "proxy"),
            (web("proxy:3128", &[]), "proxy"),
            (web("socks5://s3cret", &[]), "proxy"),
            (web("", &["http://a"]), "private_hosts"),
            (web("", &["*"]), "private_hosts"),
        ] {
            let (of, problem) = settings.check().unwrap_err();
            assert!(of == field && !problem.contains("s3cret"), "{problem}");
        }
        let unset = web("$SUPERSTEP_NO_SUCH_VARIABLE", &[]).proxy().err().unwrap();
        assert!(
            unset.ends_with("the environment variable `SUPERSTEP_NO_SUCH_VARIABLE` is not set"),
            "{unset}"
        );
    }

    #[test]
    fn a_private_host_is_named_as_a_whole_or_by_its_end() {
        let settings = web("", &["wiki.example", "*.Corp"]);
        let private = ["wiki.example", "WIKI.example.", "a.corp", "a.b.corp"];
        assert!(private.iter().all(|host| settings.may_be_private(host)));
        assert!(!["corp", "a.wiki.example", "evilcorp"].iter().any(|host| settings.may_be_private(host)));
    }
}
