//! Messages of a conversation: repair before they are sent, and recognition of those sent while a turn ran.
//!
//! Start at [`conversation::repaired`].

pub(crate) mod conversation;
pub(crate) mod msg;
pub(crate) mod repaired_call;
pub(crate) mod steering;
