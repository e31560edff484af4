//! The built page, which is part of the program.
//!
//! Start at [`file`].

use axum::{
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

/// The rules for the page: it loads from the server only, and no other page shows it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct Asset {
    name: &'static str,
    content: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($name:literal: $content:literal,)*) => {
        &[$(Asset { name: $name, content: $content, bytes: include_bytes!(concat!("../../studio/dist/", $name)) }),*]
    };
}

/// The files of the page, the page itself first.
static ASSETS: &[Asset] = assets! {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "later.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
};

/// Returns the page.
pub(super) async fn page(headers: HeaderMap) -> Response {
    respond(&ASSETS[0], &headers)
}

/// Returns a file of the page; the page itself for its paths.
pub(super) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    let asset = ASSETS.iter().find(|asset| asset.name == path);
    respond(asset.unwrap_or(&ASSETS[0]), &headers)
}

fn respond(asset: &Asset, headers: &HeaderMap) -> Response {
    let tag = etag(asset.bytes);
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response =
        if is_known { StatusCode::NOT_MODIFIED.into_response() } else { asset.bytes.into_response() };
    let mut set = |name, value: &str| {
        response.headers_mut().insert(name, HeaderValue::from_str(value).expect("printable ASCII"));
    };
    set(header::CONTENT_TYPE, asset.content);
    set(header::ETAG, &tag);
    set(header::CACHE_CONTROL, "no-cache");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::REFERRER_POLICY, "no-referrer");
    response
}

/// Returns a tag that differs for other bytes, and for those of another version.
fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", blake3::hash(bytes).to_hex().get(..32).expect("64 digits"))
}
