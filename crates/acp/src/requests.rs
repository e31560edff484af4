//! The unanswered requests of the client.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use crate::wire::{RequestId, RpcError};

/// The maximum number of unanswered requests.
const MAX_OPEN: usize = 1024;

/// The unanswered requests of the client. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    next: u64,
    requests: BTreeMap<u64, (RequestId, CancellationToken)>,
}

/// An unanswered request. The value is dropped with the answer.
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) cancel: CancellationToken,
    number: u64,
    requests: Requests,
}

impl Requests {
    /// Registers a request.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn begin(&self, id: RequestId) -> Result<Request, RpcError> {
        let mut open = self.open();
        if open.requests.len() >= MAX_OPEN {
            return Err(RpcError::internal("busy", format!("more than {MAX_OPEN} unanswered requests")));
        }
        let (number, cancel) = (open.next, CancellationToken::new());
        open.next += 1;
        open.requests.insert(number, (id.clone(), cancel.clone()));
        drop(open);
        Ok(Request { id, cancel, number, requests: self.clone() })
    }

    /// Cancels the requests with this id.
    pub(crate) fn cancel(&self, id: &RequestId) {
        self.open().requests.values().filter(|(open, _)| open == id).for_each(|(_, cancel)| cancel.cancel());
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.requests.open().requests.remove(&self.number);
    }
}
