//! The routes of conditional edges.

/// An enum without fields whose variants are the routes of a node. Write `#[derive(Route)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a route",
    label = "does not implement `Route`",
    note = "derive it, on an enum without fields: `#[derive(Route, Clone, Copy)]`"
)]
pub trait Route: Copy + Send + Sync + 'static {
    /// Every route, in the order of the variants.
    const ALL: &'static [Self];

    /// Returns the position of this route in [`Route::ALL`].
    fn index(self) -> usize;

    /// Returns the variant's name, for drawings.
    fn label(self) -> &'static str;
}
