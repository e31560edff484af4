//! Routes and targets of nodes.
//!
//! Start at [`Routes`].

use superstep_engine::Target;
use superstep_state::RawJson;

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

/// A return type of a router: a route, or several.
pub trait Routes {
    /// The enum of routes.
    type Route: Route;

    /// `true` if it is always exactly one.
    const ONE: bool = false;

    /// Passes each route to `take`, in order.
    fn each(self, take: impl FnMut(Self::Route));
}

impl<R: Route> Routes for R {
    type Route = R;
    const ONE: bool = true;

    fn each(self, mut take: impl FnMut(R)) {
        take(self);
    }
}

impl<R: Route> Routes for Vec<R> {
    type Route = R;

    fn each(self, take: impl FnMut(R)) {
        self.into_iter().for_each(take);
    }
}

/// The targets of a finished task.
#[derive(Clone, Default)]
pub(crate) struct Targets {
    /// The targets for the engine.
    pub(crate) ends: Vec<Target>,
    /// The items of each [`Target::Send`] among them.
    pub(crate) items: Vec<RawJson>,
}

impl Targets {
    /// Appends the other targets.
    #[inline]
    pub(crate) fn followed_by(mut self, others: Self) -> Self {
        if self.ends.is_empty() {
            return others;
        }
        self.ends.extend(others.ends);
        self.items.extend(others.items);
        self
    }

    /// Retains the targets for which `stays` returns true.
    pub(crate) fn only(self, stays: impl Fn(Target) -> bool) -> Self {
        let (mut only, mut items) = (Self::default(), self.items.into_iter());
        for end in self.ends {
            let item = if let Target::Send(_) = end { items.next() } else { None };
            if stays(end) {
                only.ends.push(end);
                only.items.extend(item);
            }
        }
        only
    }
}
