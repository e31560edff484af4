//! The tables of a database, in each of their versions.
//!
//! Start at [`SCHEMA`].

/// The tables of a database, as SQL.
///
/// Stable format: databases that this version wrote can be read by later ones.
pub const SCHEMA: &str = concat!(include_str!("schema.sql"), include_str!("inputs.sql"));

/// The index that schema 2 did not have.
pub(crate) const INPUTS: &str = include_str!("inputs.sql");

/// The tables of the first schema, whose rows had no checksums.
pub(crate) const SCHEMA_1: &str = include_str!("schema_1.sql");

/// The tables of a store, as SQL.
///
/// Stable format: databases that this version wrote can be read by later ones.
pub const STORE_SCHEMA: &str = concat!(
    include_str!("store/schema_1.sql"),
    "\n",
    include_str!("store/schema_2.sql"),
    "\n",
    include_str!("store/schema_3.sql")
);

/// The statements that create each schema of a store from the one before. They are never changed; a new schema is a new
/// entry.
pub(crate) const SCHEMAS: [&str; 3] = [
    include_str!("store/schema_1.sql"),
    include_str!("store/schema_2.sql"),
    include_str!("store/schema_3.sql"),
];
