//! States: channels, the reducers that fold writes into them, updates, and how both are stored and read again.
//!
//! It knows nothing of how a graph runs, or of where its threads are kept.
//!
//! Start at [`State`].

mod by_id;
mod channel;
mod derived_update;
mod encode;
mod fingerprint;
mod flatten;
mod into_option;
mod into_update;
mod json_state;
mod log;
mod panicked;
mod reducer;
mod schema_evolution;
mod state;
mod update_chain;
mod view;

pub use by_id::{Always, ById, HasId, IdOf, Merge, Merges, OwnId, UnknownId};
pub use channel::{Channel, ChannelValue, Migrate, Stored};
pub use encode::MAX_DEPTH;
pub use fingerprint::fingerprint;
pub use flatten::Flattens;
pub use into_option::IntoOption;
pub use into_update::IntoUpdate;
pub use json_state::{BadChannels, BadUpdate, JsonChannel, JsonChannels, JsonReducer, JsonState, JsonUpdate};
pub use log::Log;
pub use panicked::Panicked;
pub use reducer::{Append, Ephemeral, LastValue, Max, MergeById, ReduceError, Reducer, Sum, Topic, Union};
pub use state::{FoldError, State, Update, WriteError, reduce};
pub use view::View;

/// What the derives expand to. Not for other use.
#[doc(hidden)]
pub mod __private {
    pub use crate::{
        derived_update::{Comparable, First, Fixed, Incomparable, Pair, deserialize, read, serialize, write},
        flatten::{Problem, in_order, joined},
        state::Cleared,
        update_chain::Later,
    };
}

/// What the other crates of superstep share. Not for other use.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        derived_update::RECORDED,
        encode::{Unencoded, UnencodedChannel, unpanicked},
        fingerprint::outline,
        into_update::Refuses,
        schema_evolution::{Kept, Made, Reader, Unfit},
        state::{clear_ephemeral, fold},
    };

    pub mod encode {
        pub use crate::encode::{
            READABLE, check_depth, encode, is_deeper, read_back, snapshot, to_string, to_value, to_value_of,
        };
    }
}
