//! The rate of requests of each user.
//!
//! Start at [`Rates`].

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The number of seconds whose requests may come at once.
const BURST: f64 = 10.0;

/// The maximum number of clients in memory. Those that have been quiet are removed first.
const CLIENTS: usize = 10_000;

/// A bucket of tokens for each client: a request takes one, and time brings them back.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: f64,
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Rates {
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        Self { per_second: per_second.get().into(), buckets: Mutex::default() }
    }

    /// Takes a token of a client.
    ///
    /// # Errors
    /// The time until there is one.
    pub(crate) fn take(&self, client: &str, now: Instant) -> Result<(), Duration> {
        let full = self.per_second * BURST;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CLIENTS && !buckets.contains_key(client) {
            buckets.retain(|_, bucket| self.refilled(bucket, now) < full);
            if buckets.len() >= CLIENTS {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(client.to_owned()).or_insert(Bucket { tokens: full, at: now });
        (bucket.tokens, bucket.at) = (self.refilled(bucket, now), now);
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    fn refilled(&self, bucket: &Bucket, now: Instant) -> f64 {
        let passed = now.duration_since(bucket.at).as_secs_f64();
        (bucket.tokens + passed * self.per_second).min(self.per_second * BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(per_second: u32) -> Rates {
        Rates::new(NonZeroU32::new(per_second).unwrap())
    }

    #[test]
    fn a_client_has_a_burst_and_then_its_rate() {
        let (rates, begin) = (rates(2), Instant::now());
        for _ in 0..20 {
            rates.take("alice", begin).unwrap();
        }
        assert_eq!(rates.take("alice", begin), Err(Duration::from_millis(500)));
        rates.take("bob", begin).unwrap();
        let later = begin + Duration::from_millis(500);
        rates.take("alice", later).unwrap();
        rates.take("alice", later).unwrap_err();
    }

    #[test]
    fn the_number_of_clients_in_memory_is_bounded() {
        let (rates, begin) = (rates(1), Instant::now());
        let clients = || rates.buckets.lock().unwrap().len();
        for client in 0..CLIENTS {
            rates.take(&client.to_string(), begin).unwrap();
        }
        rates.take("0", begin).unwrap();
        assert_eq!(clients(), CLIENTS);
        // All but one are full again after a second.
        let later = begin + Duration::from_secs(1);
        rates.take("new", later).unwrap();
        assert_eq!(clients(), 2);
        for client in 0..CLIENTS {
            rates.take(&format!("other {client}"), later).unwrap();
        }
        assert!(clients() <= CLIENTS);
    }
}
