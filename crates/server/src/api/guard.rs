//! The check of roles, and of the ids in the path of a request, before every endpoint.
//!
//! Endpoints check the ids in the bodies of their requests themselves: they take a [`User`] and filter by
//! [`User::owns`](crate::access::User::owns).
//!
//! Start at [`guard`].

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, RawPathParams, Request, State},
    http::{Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::extract::arrived;
use crate::{
    access::{Role, User, no_user},
    error::ApiError,
    runs::hub::Hub,
};

/// The endpoints that read although their method is `POST`. Each other one writes.
const READS: [&str; 12] = [
    "/assistants/search",
    "/assistants/count",
    "/assistants/{assistant}/versions",
    "/threads/search",
    "/threads/count",
    "/threads/{thread}/state/checkpoint",
    "/threads/{thread}/history",
    "/threads/{thread}/stream/events",
    "/runs/crons/search",
    "/runs/crons/count",
    "/store/items/search",
    "/store/namespaces",
];

/// The endpoints that need no user, if the door lets requests pass without one.
const PUBLIC: [&str; 2] = ["/ok", "/metrics"];

/// Lets a request pass whose user may do this, and owns what its path names.
pub(crate) async fn guard(
    State(hub): State<Arc<Hub>>,
    path: MatchedPath,
    ids: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    match pass(&hub, path.as_str(), &ids, request).await {
        Ok(request) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn pass(hub: &Hub, path: &str, ids: &RawPathParams, request: Request) -> Result<Request, ApiError> {
    let Some(user) = request.extensions().get::<User>().cloned() else {
        return if PUBLIC.contains(&path) { Ok(request) } else { Err(no_user()) };
    };
    check(hub, &user, path, ids, &request)?;
    // While a body comes in, another user may create a thread of this id.
    let (parts, body) = request.into_parts();
    let body = arrived(hub, Request::from_parts(parts.clone(), body)).await?;
    let request = Request::from_parts(parts, body.into());
    check(hub, &user, path, ids, &request)?;
    Ok(request)
}

fn check(hub: &Hub, user: &User, path: &str, ids: &RawPathParams, request: &Request) -> Result<(), ApiError> {
    let forbidden = |detail| Err(ApiError::new(StatusCode::FORBIDDEN, detail));
    if writes(path, request) {
        if hub.read_only {
            return forbidden("this server is read-only");
        }
        if user.role < Role::Write {
            return forbidden("your key reads only");
        }
    }
    for (name, id) in ids {
        let exists = match name {
            "thread" => hub.threads.get(id).is_none_or(|row| user.owns(row.owner.as_ref())),
            "run" => hub.live(id).is_none_or(|live| {
                hub.threads.get(&live.about.thread).is_none_or(|row| user.owns(row.owner.as_ref()))
            }),
            "assistant" => hub.assistant(id).is_none_or(|row| row.is_visible(user)),
            #[cfg(feature = "crons")]
            "cron" => {
                let row = hub.crons.as_ref().and_then(|crons| crons.rows.get(id));
                row.is_none_or(|row| user.owns(row.owner.as_ref()))
            }
            // Names of graphs, checkpoints and subgraphs are in something that is checked, or for everyone.
            _ => true,
        };
        if !exists {
            return Err(ApiError::not_found(name, id));
        }
    }
    Ok(())
}

fn writes(path: &str, request: &Request) -> bool {
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_get {
        return !READS.contains(&path);
    }
    let query = request.uri().query().unwrap_or_default();
    let cancels = url::form_urlencoded::parse(query.as_bytes()).any(|(name, value)| {
        name == "cancel_on_disconnect" && !["", "0", "false", "False"].contains(&&*value)
    });
    // A socket carries commands.
    cancels || request.headers().contains_key(header::UPGRADE)
}
