//! The tools of a request.
//!
//! Start at [`ToolSpecs`].

use std::{fmt, ops::Deref, sync::Arc};

use super::ToolSpec;
use crate::derived::{Derived, DerivedFrom};

/// The tools of a request, in order. Shared: a clone of any length costs a reference count.
///
/// It reads like a slice of [`ToolSpec`]s.
///
/// ```
/// # use superstep_llm::{Request, ToolSpec};
/// # use serde_json::json;
/// let spec = ToolSpec { name: "now".into(), description: "The time.".into(), parameters: json!({}) };
/// let request = Request { tools: [spec].into(), ..Request::default() };
/// assert_eq!(request.tools[0].name, "now");
/// ```
#[derive(Clone, Default)]
pub struct ToolSpecs(Arc<Shared>);

#[derive(Default)]
struct Shared {
    specs: Vec<ToolSpec>,
    derived: Derived,
}

impl ToolSpecs {
    /// Returns the list for a change, after a copy if it is shared. Its derived values are dropped.
    pub fn to_mut(&mut self) -> &mut Vec<ToolSpec> {
        if Arc::get_mut(&mut self.0).is_none() {
            *self = Self::from(self.0.specs.clone());
        }
        let shared = Arc::get_mut(&mut self.0).expect("a new list has one owner");
        shared.derived = Derived::default();
        &mut shared.specs
    }

    /// Returns the value of type `D` for these tools. The first call computes it; the clones have it too.
    pub fn derived<D: DerivedFrom<[ToolSpec]>>(&self) -> &D {
        self.0.derived.get(&*self.0.specs)
    }
}

impl From<Vec<ToolSpec>> for ToolSpecs {
    fn from(specs: Vec<ToolSpec>) -> Self {
        Self(Arc::new(Shared { specs, derived: Derived::default() }))
    }
}

impl<const N: usize> From<[ToolSpec; N]> for ToolSpecs {
    fn from(specs: [ToolSpec; N]) -> Self {
        Self::from(Vec::from(specs))
    }
}

impl FromIterator<ToolSpec> for ToolSpecs {
    fn from_iter<I: IntoIterator<Item = ToolSpec>>(specs: I) -> Self {
        Self::from(Vec::from_iter(specs))
    }
}

impl Deref for ToolSpecs {
    type Target = [ToolSpec];

    fn deref(&self) -> &[ToolSpec] {
        &self.0.specs
    }
}

impl<'a> IntoIterator for &'a ToolSpecs {
    type Item = &'a ToolSpec;
    type IntoIter = std::slice::Iter<'a, ToolSpec>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for ToolSpecs {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.specs == other.0.specs
    }
}

impl fmt::Debug for ToolSpecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.specs.fmt(f)
    }
}
