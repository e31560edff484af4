//! The extension pgvector, as it was found in a database.

use superstep_checkpoint::store::Vector;

/// The extension, as this role can use it.
pub(super) struct Pgvector {
    /// The schema of the extension, quoted.
    pub(super) schema: String,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// The table is missing, or is left of a removed extension, and this role may make it.
    pub(super) is_creatable: bool,
}

/// Returns the number of dimensions of a vector.
pub(super) fn dimensions(vector: &Vector) -> i64 {
    i64::try_from(vector.direction.len()).unwrap_or(i64::MAX)
}
