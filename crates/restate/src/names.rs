//! The names of objects. Stable format.
//!
//! Start at [`Names`].

use std::sync::Arc;

use superstep_checkpoint::ThreadId;

/// The longest key of an object that is the name of a thread, in bytes.
const MAX_KEY_BYTES: usize = 1000;

/// The names of the objects of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The object of a thread, whose handlers run its graph.
    pub(crate) thread: Arc<str>,
    /// The object with the threads below it that others write during a run.
    pub(crate) beside: Arc<str>,
}

impl Names {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { thread: format!("{namespace}.Thread").into(), beside: format!("{namespace}.Beside").into() }
    }
}

/// Returns the key of the objects of a root thread: its name, or the hash of a name that is long, or that a URL cannot have.
pub(crate) fn object_key(root: &ThreadId) -> String {
    let name = root.as_str();
    let is_segment = !["", ".", ".."].contains(&name) && !name.contains(char::is_control);
    if !is_segment || name.starts_with('#') || name.len() > MAX_KEY_BYTES {
        return format!("#{}", blake3::hash(name.as_bytes()));
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_name_where_that_is_possible() {
        assert_eq!(object_key(&"order/17 ü".into()), "order/17 ü");
        let hash = "#af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(object_key(&"".into()), hash);
        assert_ne!(object_key(&hash.into()), hash);
        assert_eq!(object_key(&"a".repeat(1001).into()).len(), hash.len());
    }
}
