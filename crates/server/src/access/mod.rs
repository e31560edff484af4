//! Users: who sends a request, and what they may do and see.
//!
//! ```text
//! request ──▶ Door (hosts, origins, users, rates) ──▶ guard (roles, the ids in the path) ──▶ endpoint (the ids in the body)
//! ```
//!
//! Start at [`Authenticate`].

#[cfg(feature = "jwt")]
pub(crate) mod jwt;
pub(crate) mod keys;
pub(crate) mod rate;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, StatusCode, request::Parts},
    response::{IntoResponse as _, Response},
};
use futures::future::BoxFuture;

use crate::error::ApiError;

/// A check of the user who sends a request. [`Keys`](crate::Keys) and, with the feature `jwt`, [`Jwt`](crate::Jwt) are such checks.
///
/// ```
/// use axum::http::request::Parts;
/// use futures::future::BoxFuture;
/// use superstep_server::{Authenticate, Denied, User};
///
/// /// Trusts the name that a proxy in front of the server has verified.
/// struct Proxy;
///
/// impl Authenticate for Proxy {
///     fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<User, Denied>> {
///         Box::pin(async {
///             let name = request.headers.get("x-forwarded-user").and_then(|name| name.to_str().ok());
///             let name = name.ok_or_else(|| Denied::Unknown("log in at the proxy".to_owned()))?;
///             Ok(User::new(name))
///         })
///     }
/// }
/// # let _ = superstep_server::Server::new().authenticate(Proxy);
/// ```
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the user of a request.
    ///
    /// # Errors
    /// The reason for the client, without secrets.
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<User, Denied>>;
}

/// A user, who owns threads, their runs, assistants, crons and items. Those of others do not exist for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, which owned data stores; not empty.
    pub id: String,
    /// The permissions.
    pub role: Role,
}

/// The permissions of a user; each role has those of the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads own data.
    Read,
    /// Writes own data, and runs graphs.
    #[default]
    Write,
    /// Reads and writes the data of all users, also data without an owner, and assistants for all.
    Admin,
}

/// The reason why a request is refused, for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denied {
    /// The request does not state a known user: status 401.
    Unknown(String),
    /// The user may not use the server: status 403.
    Forbidden(String),
}

impl User {
    /// Creates a user who reads and writes own data.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), role: Role::default() }
    }

    /// Sets the role.
    #[must_use]
    pub fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Returns the user of a server that has no users: all data is theirs.
    pub(crate) fn everyone() -> Self {
        Self { id: String::new(), role: Role::Admin }
    }

    /// Returns the owner of what the user creates; `None` on a server without users.
    pub(crate) fn owner(&self) -> Option<String> {
        (!self.id.is_empty()).then(|| self.id.clone())
    }

    /// Returns whether data of this owner exists for the user.
    pub(crate) fn owns(&self, owner: Option<&String>) -> bool {
        self.role == Role::Admin || owner == Some(&self.id)
    }
}

impl Role {
    /// Returns the role of this name: `read`, `write` or `admin`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "read" => Some(Self::Read),
            "write" => Some(Self::Write),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown(detail) => Self::new(StatusCode::UNAUTHORIZED, detail),
            Denied::Forbidden(detail) => Self::new(StatusCode::FORBIDDEN, detail),
        }
    }
}

/// Returns the key of a request: `x-api-key`, or `Authorization: Bearer`.
pub(crate) fn given_key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let key =
        text("x-api-key").or_else(|| text("authorization").and_then(|value| value.strip_prefix("Bearer ")));
    key.filter(|key| !key.is_empty())
}

impl<S: Sync> FromRequestParts<S> for User {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts.extensions.get().cloned().ok_or_else(|| no_user().into_response())
    }
}

/// Creates the error of a request without a user.
pub(crate) fn no_user() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "this endpoint needs a user")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_administrators_see_data_of_others_and_of_no_owner() {
        let alice = "alice".to_owned();
        for (user, own, other, none) in [
            (User::new("alice"), true, false, false),
            (User::new("bob"), false, false, false),
            (User::new(""), false, false, false),
            (User::new("root").role(Role::Admin), true, true, true),
            (User::everyone(), true, true, true),
        ] {
            let sees = [Some(&alice), Some(&"carol".to_owned()), None].map(|owner| user.owns(owner));
            assert_eq!(sees, [own, other, none], "{user:?}");
        }
    }
}
