//! Namespaces of items: labels, from general to specific.

use std::{fmt, sync::Arc};

use super::StoreError;

/// The first label, reserved for superstep.
pub const RESERVED_LABEL: &str = "superstep";

/// The namespace of items: one label or more, as in `users.ada.facts`. Cheap to clone.
///
/// The order of namespaces is that of their labels joined with `.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(
    /// The labels, joined with `.`, which no label contains.
    Arc<str>,
);

impl Namespace {
    /// Creates a namespace from its labels.
    ///
    /// # Errors
    /// [`StoreError::Namespace`] if there is no label, one is empty or has a `.`, or the first one is
    /// [`RESERVED_LABEL`].
    ///
    /// # Example
    /// ```
    /// use superstep_graph::store::Namespace;
    ///
    /// assert_eq!(Namespace::new(["users", "ada"])?.to_string(), "users.ada");
    /// assert!(Namespace::new(["users", "ada.l"]).is_err());
    /// # Ok::<(), superstep_graph::store::StoreError>(())
    /// ```
    pub fn new<L: AsRef<str>>(labels: impl IntoIterator<Item = L>) -> Result<Self, StoreError> {
        let labels: Vec<L> = labels.into_iter().collect();
        let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
        let wrong = if labels.is_empty() {
            Some("it has no label; give it at least one")
        } else if labels.iter().any(|label| label.is_empty()) {
            Some("one of its labels is empty; leave it out or name it")
        } else if labels.iter().any(|label| label.contains('.')) {
            Some(
                "one of its labels has a `.`, which separates labels; make two labels of it or replace the `.`",
            )
        } else if labels[0] == RESERVED_LABEL {
            Some("its first label is reserved for superstep; choose another")
        } else {
            None
        };
        let joined = labels.join(".");
        match wrong {
            Some(why) => Err(StoreError::Namespace { namespace: joined, why }),
            None => Ok(Self(joined.into())),
        }
    }

    /// Parses the output of [`as_str`](Self::as_str).
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn parse(joined: &str) -> Result<Self, StoreError> {
        if joined.is_empty() { Self::new::<&str>([]) } else { Self::new(joined.split('.')) }
    }

    /// Returns the namespace with one more label.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn child(&self, label: &str) -> Result<Self, StoreError> {
        Self::new(self.labels().chain([label]))
    }

    /// Returns the labels, the general ones first.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Returns the labels, joined with `.`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is `outer` or below it.
    pub fn is_within(&self, outer: &Self) -> bool {
        self.0.strip_prefix(&*outer.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Returns whether the first labels match; `*` matches any label.
    pub fn begins_like(&self, pattern: &[String]) -> bool {
        let mut labels = self.labels();
        pattern.iter().all(|wanted| labels.next().is_some_and(|label| wanted == "*" || wanted == label))
    }

    /// Returns whether the last labels match; `*` matches any label.
    pub fn ends_like(&self, pattern: &[String]) -> bool {
        let mut labels = self.labels().rev();
        pattern.iter().rev().all(|wanted| labels.next().is_some_and(|label| wanted == "*" || wanted == label))
    }

    /// Returns the first `depth` labels, which are at least one.
    pub(super) fn cut(&self, depth: usize) -> Self {
        match self.0.match_indices('.').nth(depth - 1) {
            Some((end, _)) => Self(self.0[..end].into()),
            None => self.clone(),
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
