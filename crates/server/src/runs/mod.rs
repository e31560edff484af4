pub(crate) mod hub;
pub(crate) mod journal;
mod lane;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod origins;
mod repeated;
pub(crate) mod request;
#[cfg(feature = "webhooks")]
pub(crate) mod webhook;
mod writer;
