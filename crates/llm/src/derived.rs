//! Values that are computed from a shared value once and stored with it.
//!
//! Start at [`DerivedFrom`].

use std::{any::Any, fmt, sync::OnceLock};

/// A value that is computed from an `S` alone, such as its fingerprint or its form for a provider.
///
/// [`Message::derived`](crate::Message::derived) and [`ToolSpecs::derived`](crate::toolset::ToolSpecs::derived) compute
/// it once and store it with the message or the tools: a request of a long conversation costs only its new
/// messages. It cannot become outdated, because it depends on nothing else, and a change drops it.
///
/// ```
/// use superstep_llm::{Message, MessageData, convert::DerivedFrom};
///
/// struct Words(usize);
///
/// impl DerivedFrom<MessageData> for Words {
///     fn derive(message: &MessageData) -> Self {
///         Self(message.content.split_whitespace().count())
///     }
/// }
/// let message = Message::user("hello world");
/// assert_eq!(message.derived::<Words>().0, 2);
/// ```
pub trait DerivedFrom<S: ?Sized>: Send + Sync + 'static {
    /// Computes the value.
    fn derive(from: &S) -> Self;
}

/// The derived values of one shared value, at most one of each type. A linked list, because there are few.
#[derive(Default)]
pub(crate) struct Derived(OnceLock<Box<Node>>);

struct Node {
    value: Box<dyn Any + Send + Sync>,
    next: Derived,
}

impl Derived {
    /// Returns the value of type `D`; the first call computes it.
    pub(crate) fn get<S: ?Sized, D: DerivedFrom<S>>(&self, from: &S) -> &D {
        let node =
            self.0.get_or_init(|| Box::new(Node { value: Box::new(D::derive(from)), next: Self::default() }));
        match node.value.downcast_ref() {
            Some(value) => value,
            None => node.next.get(from),
        }
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived").finish_non_exhaustive()
    }
}
