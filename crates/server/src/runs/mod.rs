pub(crate) mod execute;
pub(crate) mod hub;
mod lane;
pub(crate) mod lanes;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod request;
pub(crate) mod threads;
