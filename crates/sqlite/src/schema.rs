//! The tables of a database, in each of their versions.
//!
//! Start at [`SCHEMA`].

/// The tables of a database, as SQL.
///
/// A promise: databases that this version wrote can be read by later ones.
pub const SCHEMA: &str = include_str!("schema.sql");

/// The tables of the first schema, whose rows had no checksums.
pub(crate) const SCHEMA_1: &str = include_str!("schema_1.sql");
