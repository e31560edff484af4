//! The checks before every endpoint: hosts, origins, users, rates, sizes.
//!
//! | request | without a token and users | with one of them |
//! |---|---|---|
//! | `Host` is not of this machine | 403, because another site's name leads here | allowed |
//! | `Origin` is not of this machine, nor allowed | 403 | 403 |
//! | no or a wrong key | — | 401, 403 |
//! | more requests than the rate | 429 | 429 |
//!
//! `/ok`, preflights and the files of the studio need no key; what the page reads does.
//!
//! Start at [`Door`].

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{ConnectInfo, DefaultBodyLimit, Request},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tokio::time::Instant;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};
use url::{Host, Url};

use crate::{
    access::{Authenticate, Denied, User, given_key, rate::Rates},
    error::ApiError,
};

/// The checks of every request.
#[derive(Default)]
pub(crate) struct Door {
    /// The key of those who may do everything.
    pub(crate) token: Option<Token>,
    pub(crate) users: Option<Box<dyn Authenticate>>,
    pub(crate) rates: Option<Rates>,
    /// `true` if `/metrics` needs no key.
    pub(crate) open_metrics: bool,
    /// Origins of other machines whose pages may use the server.
    pub(crate) origins: Vec<String>,
    /// The maximum size of a body in bytes.
    pub(crate) body: usize,
}

/// A token. It has no `Debug`, so that nothing prints it.
pub(crate) struct Token(pub(crate) String);

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
                    query(),
                ]))
                .allow_private_network(true)
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
            let door = door.clone();
            async move {
                let (mut parts, body) = request.into_parts();
                match door.check(&mut parts).await {
                    Ok(()) => next.run(Request::from_parts(parts, body)).await,
                    Err(refusal) => refusal,
                }
            }
        });
        routes.layer(limit).layer(check).layer(cors).layer(middleware::map_response(safe))
    }

    /// Returns whether requests have users, or a token.
    pub(crate) fn is_locked(&self) -> bool {
        self.token.is_some() || self.users.is_some()
    }

    /// Checks a request, and adds its user to it.
    async fn check(&self, request: &mut Parts) -> Result<(), Response> {
        let user = self.user(request).await;
        if let Some(rates) = &self.rates
            && request.uri.path() != "/ok"
        {
            let client = match &user {
                Ok(Some(User { id, .. })) if !id.is_empty() => format!("user {id}"),
                // Also of those who try keys.
                _ => request
                    .extensions
                    .get()
                    .map_or_else(String::new, |ConnectInfo(address): &ConnectInfo<SocketAddr>| {
                        address.ip().to_string()
                    }),
            };
            rates.take(&client, Instant::now()).map_err(too_many)?;
        }
        if let Some(user) = user.map_err(ApiError::into_response)? {
            request.extensions.insert(user);
        }
        Ok(())
    }

    /// Returns the user of a request; `None` for an endpoint for everyone.
    async fn user(&self, request: &Parts) -> Result<Option<User>, ApiError> {
        let forbidden = |detail| Err(ApiError::new(StatusCode::FORBIDDEN, detail));
        if let Some(origin) = request.headers.get(header::ORIGIN)
            && !self.allows_origin(origin)
            && !(self.is_locked() && is_own(origin, &request.headers))
        {
            return forbidden(
                "pages of this origin may not use the server; allow it with `Server::allow_origin`",
            );
        }
        if !self.is_locked() {
            let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
            let host = host.or_else(|| request.uri.authority().map(|authority| authority.as_str()));
            return if host.is_some_and(is_local) {
                Ok(Some(User::everyone()))
            } else {
                forbidden("the server answers to `localhost` only")
            };
        }
        let path = request.uri.path();
        if path == "/ok" || path == "/metrics" && self.open_metrics || is_page(path) {
            return Ok(None);
        }
        let given = given_key(&request.headers);
        if let (Some(Token(token)), Some(given)) = (&self.token, given)
            && is_same(given.as_bytes(), token.as_bytes())
        {
            return Ok(Some(User::everyone()));
        }
        match (&self.users, given) {
            (Some(users), _) => match users.authenticate(request).await? {
                User { id, .. } if id.is_empty() => {
                    Err(Denied::Unknown("the user has no name".to_owned()).into())
                }
                user => Ok(Some(user)),
            },
            (None, None) => {
                Err(Denied::Unknown("send the token of the server as `x-api-key`".to_owned()).into())
            }
            (None, Some(_)) => forbidden("the token is wrong"),
        }
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        self.origins.iter().any(|allowed| allowed == origin)
            || Url::parse(origin).is_ok_and(|url| is_loopback(&url))
    }
}

/// Returns the method `QUERY`, which clients of the reference may use.
fn query() -> Method {
    Method::from_bytes(b"QUERY").expect("a method is a token")
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

/// Returns the refusal of a request that came before its time.
fn too_many(wait: Duration) -> Response {
    let seconds = wait.as_secs() + 1;
    let detail = format!("too many requests; send the next one in {seconds} s");
    let mut response = ApiError::new(StatusCode::TOO_MANY_REQUESTS, detail).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
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
