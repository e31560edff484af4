//! The checks before every endpoint: hosts, origins, tokens, sizes.
//!
//! | request | without a token | with a token |
//! |---|---|---|
//! | `Host` is not of this machine | 403, because another site's name leads here | allowed |
//! | `Origin` is not of this machine, nor allowed | 403 | 403 |
//! | no or a wrong token | — | 401, 403 |
//!
//! `/ok`, preflights and the files of the studio need no token; what the page reads does.
//!
//! Start at [`Door`].

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};
use url::{Host, Url};

use crate::error::ApiError;

/// The checks of every request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door {
    pub(crate) token: Option<Token>,
    /// Origins of other machines whose pages may use the server.
    pub(crate) origins: Vec<String>,
    /// The maximum size of a body in bytes.
    pub(crate) body: usize,
}

/// A token, which no `Debug` shows.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Door {
    /// Returns the endpoints behind the checks.
    pub(crate) fn before(self, routes: Router) -> Router {
        let door = Arc::new(self);
        let cors = {
            let door = door.clone();
            CorsLayer::new()
                .allow_origin(AllowOrigin::predicate(move |origin, _| door.allows_origin(origin)))
                .allow_methods(AllowMethods::list([
                    Method::GET,
                    Method::POST,
                    Method::PUT,
                    Method::PATCH,
                    Method::DELETE,
                    Method::OPTIONS,
                ]))
                .allow_headers(AllowHeaders::mirror_request())
                .expose_headers([
                    header::CONTENT_LOCATION,
                    header::LOCATION,
                    HeaderName::from_static("x-pagination-total"),
                    HeaderName::from_static("x-pagination-next"),
                ])
                .max_age(Duration::from_secs(600))
        };
        let limit = DefaultBodyLimit::max(door.body);
        let check = middleware::from_fn(move |request: Request, next: Next| {
            let checked = door.check(&request);
            async move {
                match checked {
                    Ok(()) => next.run(request).await,
                    Err(error) => error.into_response(),
                }
            }
        });
        routes.layer(limit).layer(check).layer(cors).layer(middleware::map_response(safe))
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let (headers, path) = (request.headers(), request.uri().path());
        let forbidden = |detail| Err(ApiError::new(StatusCode::FORBIDDEN, detail));
        if let Some(origin) = headers.get(header::ORIGIN)
            && !self.allows_origin(origin)
            && !(self.token.is_some() && is_own(origin, headers))
        {
            return forbidden(
                "pages of this origin may not use the server; allow it with `Server::allow_origin`",
            );
        }
        let Some(Token(token)) = &self.token else {
            let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
            let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
            return if host.is_some_and(is_local) {
                Ok(())
            } else {
                forbidden("the server answers to `localhost` only")
            };
        };
        if path == "/ok" || is_page(path) {
            return Ok(());
        }
        match given_token(headers) {
            None => {
                Err(ApiError::new(StatusCode::UNAUTHORIZED, "send the token of the server as `x-api-key`"))
            }
            Some(given) if is_same(given.as_bytes(), token.as_bytes()) => Ok(()),
            Some(_) => forbidden("the token is wrong"),
        }
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        self.origins.iter().any(|allowed| allowed == origin)
            || Url::parse(origin).is_ok_and(|url| is_loopback(&url))
    }
}

/// Returns whether a path is one of the files of the studio, which contain no data.
fn is_page(path: &str) -> bool {
    (path == "/studio" || path.starts_with("/studio/")) && !path.starts_with("/studio/api/")
}

/// Returns whether an origin is that of the address to which the request was sent.
fn is_own(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    host.is_some() && origin.map(|(_, authority)| authority) == host
}

/// Returns whether a `Host` header names this machine.
fn is_local(host: &str) -> bool {
    Url::parse(&format!("http://{host}/")).is_ok_and(|url| is_loopback(&url))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn given_token(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text("x-api-key").or_else(|| text("authorization").and_then(|value| value.strip_prefix("Bearer ")))
}

/// Compares in a time that depends on the lengths only.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && std::hint::black_box(differences) == 0
}

/// An answer is no page, and nothing may take it for one; the studio has its own policy.
async fn safe(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    response
}
