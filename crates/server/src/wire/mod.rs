//! The JSON of the API: ids, times, messages, states and graphs.

pub(crate) mod channels;
pub(crate) mod graph;
pub(crate) mod ids;
pub(crate) mod media;
pub(crate) mod messages;
pub(crate) mod state;
pub(crate) mod time;
