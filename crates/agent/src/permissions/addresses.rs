//! Matching of web addresses against a pattern: `SCHEME://HOST[:PORT][/PATH]`.

use url::Url;

use super::{
    Fit,
    glob::{fits_names, fits_text, is_open},
};

/// Maximum length of a compared address in bytes.
const MAX_LENGTH: usize = 8 << 10;

/// Matches a pattern against an address.
///
/// `*` alone matches every address, and `https://*` every one with that scheme. Elsewhere `*` matches one
/// label of a host, or one segment of a path; at the end of a path, the whole rest. A missing port means the
/// default port.
pub(super) fn fit(pattern: &str, address: &str) -> Fit {
    let Some(url) = (address.len() <= MAX_LENGTH).then(|| Url::parse(address).ok()).flatten() else {
        return Fit::Maybe;
    };
    let is_named = !url.username().is_empty() || url.password().is_some();
    if matches!(pattern, "*" | "**") {
        return if is_named { Fit::Maybe } else { Fit::Yes };
    }
    let Some(pattern) = Pattern::parse(pattern) else {
        // The segment is ambiguous.
        return Fit::of(false, || {
            fits_text(&pattern.to_lowercase(), &address.to_lowercase()) || fits_text(pattern, url.as_str())
        });
    };
    let fit = pattern.of_scheme(&url).min(pattern.of_place(&url)).min(pattern.of_path(&url));
    if is_named { fit.min(Fit::Maybe) } else { fit }
}

struct Pattern<'a> {
    scheme: String,
    /// The normalized host, if the pattern matches one host only.
    host: String,
    port: Option<&'a str>,
    path: Option<&'a str>,
    /// The pattern matches every host and port.
    anywhere: bool,
}

impl<'a> Pattern<'a> {
    fn parse(pattern: &'a str) -> Option<Self> {
        let (scheme, rest) = pattern.split_once("://")?;
        let (place, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(&rest[at..])),
            None => (rest, None),
        };
        let is_strange =
            place.contains(['@', '?', '#', '\\', '{']) || place.rfind('[').is_some_and(|at| at > 0);
        if place.is_empty() || is_strange {
            return None;
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (place, None),
        };
        // A host in its normalized form.
        let host = if !is_open(host) || host.starts_with('[') {
            Url::parse(&format!("http://{host}/")).ok()?.host_str()?.to_owned()
        } else if host.is_ascii() {
            host.to_ascii_lowercase()
        } else {
            return None;
        };
        let anywhere = place == "*";
        Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: plain_host(&host).to_owned(),
            port,
            path,
            anywhere,
        })
    }

    fn of_scheme(&self, url: &Url) -> Fit {
        Fit::of(fits_names(&self.scheme, url.scheme()), || false)
    }

    fn of_place(&self, url: &Url) -> Fit {
        if self.anywhere {
            return Fit::Yes;
        }
        let host = plain_host(url.host_str().unwrap_or_default());
        // A `*` stays within a label, as it stays within a path segment.
        let by_label = |text: &str| text.replace('.', "/");
        let of_host = if is_open(&self.host) && !self.host.starts_with('[') {
            Fit::of(fits_names(&by_label(&self.host), &by_label(host)), || fits_text(&self.host, host))
        } else {
            Fit::of(self.host == host, || false)
        };
        let port = url.port_or_known_default();
        let of_port = match self.port {
            Some(wanted) => Fit::of(port.is_some_and(|port| fits_text(wanted, &port.to_string())), || false),
            // A pattern that names only a host may mean another port.
            None => Fit::of(url.port().is_none(), || true),
        };
        of_host.min(of_port)
    }

    fn of_path(&self, url: &Url) -> Fit {
        let Some(pattern) = self.path else {
            // No path given: matches every path if no host is given either.
            let is_bare = url.path() == "/" && url.query().is_none();
            return Fit::of(self.anywhere || is_bare, || true);
        };
        let path = url.path();
        let strict = match pattern.strip_suffix('*').map(|start| start.trim_end_matches('*')) {
            // The rest of the address.
            Some(start) if !is_open(start) => path.starts_with(start) && is_settled(&path[start.len()..]),
            _ => {
                is_settled(path)
                    && match (url.query(), pattern.split_once('?')) {
                        (None, _) => fits_names(pattern, path),
                        (Some(query), Some((of_path, of_query))) => {
                            fits_names(of_path, path) && fits_names(of_query, query)
                        }
                        // A query is not part of a path segment; it belongs to the rest that a last `*`
                        // matches.
                        (Some(_), None) => pattern.ends_with('*') && fits_names(pattern, path),
                    }
            }
        };
        // Servers treat these as equal, or as a part of the intended address.
        let alike = |text: &str| {
            let mut text = decoded(text).replace('\\', "/").to_lowercase();
            while text.contains("//") {
                text = text.replace("//", "/");
            }
            text
        };
        Fit::of(strict, || {
            let pattern = alike(pattern);
            let below = format!("{}/*", pattern.trim_end_matches('/'));
            let alike = alike(path);
            !is_settled(path) || fits_text(&pattern, &alike) || fits_text(&below, &alike)
        })
    }
}

/// Removes the trailing dot of a host.
fn plain_host(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Returns whether every server interprets a path literally.
fn is_settled(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    !["%2f", "%5c", "%2e", "%25", "\\", "/../", "//"].iter().any(|doubtful| lower.contains(doubtful))
}

/// Decodes percent escapes.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}
