//! The calls of nodes to their [`Cx`], as an observer receives them.

use crate::{Cx, node::call_observer::CxCall};

impl Cx {
    fn at<'a>(&'a self, place: &'static str, name: &'a str) -> CxCall<'a> {
        CxCall { path: self.path(), node: self.node(), place, name }
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.0.run.scope.config.call_observer.is_some()
    }

    /// Reports a call that does not wait.
    pub(crate) fn passes(&self, place: &'static str, name: &str) {
        if let Some(observer) = &self.0.run.scope.config.call_observer {
            observer.passes(self.at(place, name));
        }
    }

    /// Reports a place where the node can wait.
    pub(crate) async fn waits(&self, place: &'static str, name: &str) {
        if let Some(observer) = &self.0.run.scope.config.call_observer {
            observer.waits(self.at(place, name)).await;
        }
    }
}
