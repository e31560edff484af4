//! Frames of a stream of server-sent events.
//!
//! Start at [`Frame`].

use std::fmt::Display;

use axum::body::Bytes;
use serde_json::Value;

/// The frame of a quiet stream.
pub(crate) const HEARTBEAT: Bytes = Bytes::from_static(b": heartbeat\r\n\r\n");

/// One event for a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    /// The name, such as `updates` or `updates|child:UUID`.
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Frame {
    pub(crate) fn new(event: impl Into<String>, data: Value) -> Self {
        Self { event: event.into(), data }
    }

    /// Returns the bytes of the frame. JSON has no line ends, so its data is one line.
    pub(crate) fn encode(&self, id: Option<&str>) -> Bytes {
        let Self { event, data } = self;
        // The name may contain that of a node.
        encode(&event.replace(['\r', '\n'], " "), data, id)
    }
}

/// Returns the bytes of a frame with a name and data of one line each.
pub(crate) fn encode(event: &str, data: &dyn Display, id: Option<&str>) -> Bytes {
    match id {
        None => format!("event: {event}\r\ndata: {data}\r\n\r\n").into(),
        Some(id) => format!("event: {event}\r\ndata: {data}\r\nid: {id}\r\n\r\n").into(),
    }
}
