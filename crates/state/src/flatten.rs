//! States inside states.
//!
//! Start at [`Flattens`].

use std::ops::Range;

// The channels have no prefix: a thread is the same thread whether the inner graph ran alone or inside of another
// one, and nodes written for the inner state work for the outer one. The compiler detects colliding names.
use crate::{Channel, State};

/// A state that has the channels of another one among its own, in a field with `#[channel(flatten)]`.
///
/// The derive implements it for each such field. Nodes written for `T`, such as those of an agent, can then
/// run in a graph of this state. For a state inside a flattened one, implement it yourself:
///
/// ```
/// use superstep_graph::{Log, State, state::{Flattens, reduce}};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Talk {
///     #[channel(append)]
///     log: Log<String>,
/// }
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Chat {
///     #[channel(flatten)]
///     talk: Talk,
///     topic: String,
/// }
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Support {
///     #[channel(flatten)]
///     chat: Chat,
/// }
///
/// impl Flattens<Talk> for Support {
///     fn part(&self) -> &Talk {
///         &self.chat.talk
///     }
///
///     fn lift(update: TalkUpdate) -> SupportUpdate {
///         Support::update().chat(Chat::update().talk(update))
///     }
/// }
///
/// let update = <Support as Flattens<Talk>>::lift(Talk::update().log(["hi"]));
/// let update = update.chat(Chat::update().topic("greetings"));
/// assert_eq!(serde_json::to_string(&update)?, r#"{"topic":"greetings","log":["hi"]}"#);
/// let state = reduce(&Support::default(), [update])?;
/// assert_eq!(Flattens::<Talk>::part(&state).log, ["hi"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not have the channels of `{T}`",
    label = "has no field `#[channel(flatten)]` of type `{T}`",
    note = "add one to the state: `#[channel(flatten)] name: {T}`"
)]
pub trait Flattens<T: State>: State {
    /// Returns the state inside.
    fn part(&self) -> &T;

    /// Converts into the inner state without a copy.
    fn into_part(self) -> T {
        self.part().clone()
    }

    /// Converts an update of the inner state to one of this state.
    fn lift(update: T::Update) -> Self::Update;
}

/// Returns all channels in the order of their positions.
pub fn in_order<const N: usize, const M: usize>(
    own: [(usize, Channel); N],
    flattened: [(Range<usize>, &'static [Channel]); M],
) -> Vec<Channel> {
    let mut channels: Vec<_> = own.into_iter().collect();
    for (positions, inner) in flattened {
        channels.extend(positions.zip(inner.iter().cloned()));
    }
    channels.sort_by_key(|(position, _)| *position);
    channels.into_iter().map(|(_, channel)| channel).collect()
}

/// Joins several lists into one of length `N`.
pub const fn joined<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut all = [""; N];
    let (mut list, mut at) = (0, 0);
    while list < lists.len() {
        let mut item = 0;
        while item < lists[list].len() {
            all[at] = lists[list][item];
            (at, item) = (at + 1, item + 1);
        }
        list += 1;
    }
    all
}

/// An error in a state definition, reported by the compiler.
pub struct Problem {
    text: [u8; 256],
    length: usize,
}

impl Problem {
    /// Returns the first name that two channels claim.
    pub const fn twice(state: &str, names: &[&str]) -> Option<Self> {
        let mut one = 0;
        while one < names.len() {
            let mut other = one + 1;
            while other < names.len() {
                if equal(names[one].as_bytes(), names[other].as_bytes()) {
                    let problem = Self { text: [0; 256], length: 0 }.with("the state `").with(state);
                    let problem = problem.with("` has two channels that are, or were, called `");
                    return Some(problem.with(names[one]).with("`; rename one of them"));
                }
                other += 1;
            }
            one += 1;
        }
        None
    }

    const fn with(mut self, text: &str) -> Self {
        let text = text.as_bytes();
        let mut at = 0;
        while at < text.len() && self.length < self.text.len() {
            self.text[self.length] = text[at];
            (at, self.length) = (at + 1, self.length + 1);
        }
        self
    }

    /// Returns the words.
    pub const fn text(&self) -> &str {
        match std::str::from_utf8(self.text.split_at(self.length).0) {
            Ok(text) => text,
            Err(_) => "two channels have one name; rename one of them",
        }
    }
}

const fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}
