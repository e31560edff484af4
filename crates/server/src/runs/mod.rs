pub(crate) mod hub;
mod lane;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod request;
#[cfg(feature = "webhooks")]
pub(crate) mod webhook;
