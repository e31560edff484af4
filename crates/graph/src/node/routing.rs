//! Routes and targets of nodes.
//!
//! Start at [`Routes`].

use superstep_engine::Target;

use crate::Route;

/// What a router may return: a route, or several.
pub trait Routes {
    /// The enum of routes.
    type Route: Route;

    /// Whether it is always exactly one.
    const ONE: bool = false;

    /// Hands over each route in order.
    fn each(self, take: impl FnMut(Self::Route));
}

/// Where a finished task leads.
#[derive(Clone, Default)]
pub(crate) struct Targets {
    /// What the engine has to know.
    pub(crate) ends: Vec<Target>,
    /// What goes along with each [`Target::Send`] among them, as JSON.
    pub(crate) items: Vec<String>,
}

impl Targets {
    /// These, and then the others.
    pub(crate) fn followed_by(mut self, others: Self) -> Self {
        if self.ends.is_empty() {
            return others;
        }
        self.ends.extend(others.ends);
        self.items.extend(others.items);
        self
    }

    /// Those of them that are to stay.
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
