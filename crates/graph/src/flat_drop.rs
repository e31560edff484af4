//! Drops nested values without recursion on the stack.
//!
//! A graph that calls a graph that calls a graph is a future that holds a future, and a node that holds a
//! graph.
//!
//! Start at [`drop_flat`].

use std::cell::RefCell;

/// The values to drop after the value that is being dropped on this thread.
type Waiting = Option<Vec<Box<dyn Send>>>;

thread_local! {
    static WAITING: RefCell<Waiting> = const { RefCell::new(None) };
}

/// Drops `thing` now, or, if this thread is inside another `drop_flat`, before that one returns.
pub(crate) fn drop_flat(thing: impl Send + 'static) {
    let mut thing: Option<Box<dyn Send>> = Some(Box::new(thing));
    let is_first = WAITING.try_with(|waiting| {
        let mut waiting = waiting.borrow_mut();
        let is_first = waiting.is_none();
        if !is_first {
            waiting.get_or_insert_default().extend(thing.take());
        } else {
            *waiting = Some(Vec::new());
        }
        is_first
    });
    // A thread that is ending has no list any more.
    if let Ok(true) = is_first {
        let _over = DropListEnd;
        drop(thing);
        while let Some(next) = next() {
            drop(next);
        }
    }
}

fn next() -> Option<Box<dyn Send>> {
    WAITING.with(|waiting| waiting.borrow_mut().as_mut()?.pop())
}

/// Ends the list, also after a panic of a drop.
struct DropListEnd;

impl Drop for DropListEnd {
    fn drop(&mut self) {
        let left = WAITING.with(|waiting| waiting.borrow_mut().take());
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    struct Nest(Option<Box<Nest>>, Arc<AtomicUsize>);

    impl Drop for Nest {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if let Some(inner) = self.0.take() {
                drop_flat(inner);
            }
        }
    }

    #[test]
    fn a_deep_nest_is_dropped_before_it_returns() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let nest = (0..1_000_000).fold(None, |inner, _| Some(Box::new(Nest(inner, dropped.clone()))));
        drop_flat(nest);
        assert_eq!(dropped.load(Ordering::Relaxed), 1_000_000);
    }
}
