//! Randomness from the system, and the names that are made of it.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use superstep::{
    Checkpointer, ThreadId,
    clock::{Clock, SystemClock},
};

use crate::error::SessionError;

/// Returns a name that no thread has: the time, and a random suffix, long enough for many sessions that begin in one second.
pub async fn fresh_thread(store: &dyn Checkpointer) -> Result<ThreadId, SessionError> {
    let mut rng = seeded_rng()?;
    loop {
        let thread = thread_name(SystemClock.now_ms(), rng.random()).into();
        if !store.is_stored(&thread).await? {
            return Ok(thread);
        }
    }
}

fn thread_name(now_ms: i64, suffix: u32) -> String {
    let now = jiff::Timestamp::from_millisecond(now_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("t-{}-{suffix:08x}", now.strftime("%Y%m%d-%H%M%S"))
}

/// Seeds a generator from the system.
pub fn seeded_rng() -> Result<StdRng, SessionError> {
    StdRng::try_from_rng(&mut rand::rngs::SysRng).map_err(|cause| SessionError::no_randomness(&cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_named_by_time_and_randomness() {
        assert_eq!(thread_name(1_795_300_215_000, 0x3f2a_91c4), "t-20261121-223015-3f2a91c4");
    }
}
