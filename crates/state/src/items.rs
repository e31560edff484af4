//! The items of lists that share structure.
//!
//! Start at [`Items`].

use std::iter::FusedIterator;

use rpds::VectorSync;

/// The items of a [`Log`](crate::Log) or a [`ById`](crate::ById), oldest first.
pub struct Items<'a, T>(<&'a VectorSync<T> as IntoIterator>::IntoIter);

impl<'a, T> Items<'a, T> {
    pub(crate) fn of(list: &'a VectorSync<T>) -> Self {
        Self(list.iter())
    }
}

impl<'a, T> Iterator for Items<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> DoubleEndedIterator for Items<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

impl<T> ExactSizeIterator for Items<'_, T> {}

impl<T> FusedIterator for Items<'_, T> {}
