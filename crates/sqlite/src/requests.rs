//! The requests to a database, and their execution one after the other.
//!
//! There is one executor at a time. It is the worker, a thread that may wait for other programs and for the disk; or a caller,
//! for as long as that takes microseconds. Writes that wait at the same time share a transaction.
//!
//! Start at [`Requests`].

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::Poll,
    thread::{self, JoinHandle},
};

use superstep_checkpoint::CheckpointError;
use tokio::sync::oneshot;

use crate::{
    database::{Database, Group},
    error,
    location::Location,
    stored::Bytes,
};

/// The maximum size in bytes of the writes that a caller executes.
const SMALL: usize = 64 * 1024;

/// The maximum number of writes that a caller executes before it continues.
const FEW: usize = 64;

/// The maximum number and size of the writes that share a transaction.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 1 << 20;

// Waking another thread costs more than a small commit: about 60 µs against 15. A commit or record of up to 64 KB is executed by
// its caller, if the database is idle at that moment; so is the start of a run whose thread is new or whose state is remembered.
// Everything else, and everything that may wait for another process or the disk, goes to the thread that owns the connection.
// With `synchronous = NORMAL` a commit does not wait for the disk.

/// The queue of a database.
pub(crate) struct Requests {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

struct Shared {
    place: Arc<Location>,
    database: Mutex<Database>,
    queue: Mutex<Queue>,
    /// Notified when the worker becomes the executor, and when the database is closed.
    due: Condvar,
}

#[derive(Default)]
struct Queue {
    writes: VecDeque<Box<dyn Write>>,
    others: VecDeque<Request>,
    executor: Executor,
    /// `true` if a caller waits for a request that the executor must not leave behind.
    has_waiter: bool,
    is_closed: bool,
}

/// A request other than a write, with its answer.
type Request = Box<dyn FnOnce(&mut Database) + Send>;

/// The executor of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Executor {
    #[default]
    Nobody,
    Caller,
    Worker,
    /// The worker has panicked.
    Gone,
}

/// A write that waits, with the channel of its answer.
trait Write: Send {
    /// Returns whether its caller still waits. A write whose future was dropped is not executed: its run may have lost the
    /// lease of the thread by then.
    fn is_wanted(&self) -> bool;

    fn bytes(&self) -> usize;

    /// Executes it, without an answer.
    fn execute(&mut self, database: &mut Database) -> Executed;

    fn answer(self: Box<Self>);
}

/// The result of a write, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executed {
    Done,
    Failed,
    /// Another program has the database locked.
    Busy,
}

struct Waiting<R, T> {
    request: R,
    job: fn(&mut Database, &R) -> Result<T, CheckpointError>,
    done: Option<Result<T, CheckpointError>>,
    answer: oneshot::Sender<Result<T, CheckpointError>>,
}

impl<R: Bytes + Send, T: Send> Write for Waiting<R, T> {
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn bytes(&self) -> usize {
        self.request.bytes()
    }

    fn execute(&mut self, database: &mut Database) -> Executed {
        let done = (self.job)(database, &self.request);
        let executed = match &done {
            Ok(_) => Executed::Done,
            Err(error) if error::is_busy(error) => Executed::Busy,
            Err(_) => Executed::Failed,
        };
        self.done = Some(done);
        executed
    }

    fn answer(self: Box<Self>) {
        let Self { done, answer, .. } = *self;
        // The caller may have dropped its future meanwhile.
        let _ = answer.send(done.expect("a write is answered after its execution"));
    }
}

impl Requests {
    /// Starts the worker of a database.
    pub(crate) fn start(place: Arc<Location>, database: Database) -> Result<Self, CheckpointError> {
        let (database, queue) = (Mutex::new(database), Mutex::default());
        let shared = Arc::new(Shared { place, database, queue, due: Condvar::new() });
        let served = shared.clone();
        let worker = thread::Builder::new().name("superstep-sqlite".into()).spawn(move || served.serve());
        let worker = Some(worker.map_err(|cause| error::no_worker(&shared.place, cause))?);
        Ok(Self { shared, worker })
    }

    /// Executes a request on the worker, in its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Database) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let (answer, answered) = oneshot::channel();
        let request = Box::new(move |database: &mut Database| {
            if !answer.is_closed() {
                let _ = answer.send(job(database));
            }
        });
        self.shared.call_executor(|queue| queue.others.push_back(request));
        answered.await.map_err(|_| error::worker_ended(&self.shared.place))?
    }

    /// Executes a short request on this thread if the database is idle. Returns `None` without an effect otherwise, or if
    /// `job` does so.
    pub(crate) fn at_once<T>(&self, job: impl FnOnce(&mut Database) -> Option<T>) -> Option<T> {
        let turn = self.shared.take_turn()?;
        turn.database().and_then(|mut database| job(&mut database))
    }

    // A transaction costs about ten microseconds, most of it per transaction and not per row. Runs that commit one after the
    // other on the same runtime thread never wait for each other, so that there would be nothing to group. A commit therefore
    // lets the runtime poll the other runs once, and the first one polled again executes all writes that wait, in one
    // transaction, on its own thread: no other thread is woken, and no time passes without work. The worker takes over when
    // there is more than a caller should execute between two polls. A run alone does not yield. The number of leases decides,
    // because it is known without a clock, and a yield without other work costs less than a microsecond.
    //
    // A group needs no savepoints: a commit checks all its conditions before it writes, so that a rejected one has changed
    // nothing. If a write fails after it has changed something, or the transaction fails as a whole, the transaction is undone
    // and each write is repeated in its own. A write whose future is dropped before its turn is not executed: its run may have
    // released the lease by then, and another process may have continued the thread.

    /// Executes a write: on this thread if it is small, in its own transaction if it is the only one. With `several`
    /// writers, it waits until the runtime has polled the others, so that they share a transaction.
    pub(crate) async fn write<T: Send + 'static, R: Bytes + Send + 'static>(
        &self,
        several: bool,
        request: R,
        job: fn(&mut Database, &R) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let is_small = request.bytes() <= SMALL;
        if is_small && !several {
            let done = self.at_once(|database| {
                let done = job(database, &request);
                Some(done).filter(|done| !done.as_ref().is_err_and(error::is_busy))
            });
            if let Some(done) = done {
                return done;
            }
        }
        let (answer, mut answered) = oneshot::channel();
        let write = Box::new(Waiting { request, job, done: None, answer });
        if is_small && several {
            self.shared.queue().writes.push_back(write);
            yield_once().await;
            if let Ok(done) = answered.try_recv() {
                return done;
            }
            self.shared.execute_waiting();
        } else {
            self.shared.call_executor(|queue| queue.writes.push_back(write));
        }
        answered.await.map_err(|_| error::worker_ended(&self.shared.place))?
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.due.notify_one();
        if let Some(worker) = self.worker.take() {
            // Callers have received its panic, if any: their requests failed.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the caller of this function the executor if there is no other.
    fn take_turn(&self) -> Option<Turn<'_>> {
        let mut queue = self.queue();
        (queue.executor == Executor::Nobody).then(|| {
            queue.executor = Executor::Caller;
            Turn(self)
        })
    }

    /// Adds to the waiting requests, and ensures that all are executed.
    fn call_executor(&self, add: impl FnOnce(&mut Queue)) {
        let mut queue = self.queue();
        add(&mut queue);
        match queue.executor {
            Executor::Nobody => self.appoint_worker(queue),
            Executor::Caller => queue.has_waiter = true,
            Executor::Worker => {}
            Executor::Gone => queue.clear(),
        }
    }

    fn appoint_worker(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.executor = Executor::Worker;
        drop(queue);
        self.due.notify_one();
    }

    /// Executes the waiting writes on this thread, or lets the present executor do so.
    fn execute_waiting(&self) {
        let Some(turn) = self.take_turn() else { return self.call_executor(|_| {}) };
        let mut left = FEW;
        loop {
            let mut queue = self.queue();
            if queue.writes.is_empty() || (left < FEW && !queue.has_waiter) {
                return;
            }
            let Some(group) = queue.take_writes(left, SMALL) else {
                queue.has_waiter = true;
                return;
            };
            drop(queue);
            left -= group.len();
            let remaining = match turn.database() {
                Some(mut database) => execute(&mut database, group),
                None => group,
            };
            if !remaining.is_empty() {
                // Only the worker can wait for other programs.
                let mut queue = self.queue();
                remaining.into_iter().rev().for_each(|write| queue.writes.push_front(write));
                queue.has_waiter = true;
                return;
            }
        }
    }

    /// Executes requests until the database is closed.
    fn serve(&self) {
        let end = EndOfWorker(self);
        loop {
            let queue = self.queue();
            let mut queue = self
                .due
                .wait_while(queue, |queue| queue.executor != Executor::Worker && !queue.is_closed)
                .unwrap_or_else(PoisonError::into_inner);
            let group = queue.take_writes(GROUP, GROUP_BYTES).unwrap_or_else(|| queue.take_first());
            let others = mem::take(&mut queue.others);
            if group.is_empty() && others.is_empty() {
                (queue.executor, queue.has_waiter) = (Executor::Nobody, false);
                if queue.is_closed {
                    break;
                }
                continue;
            }
            drop(queue);
            let mut database = self.database();
            database.wait_for_others(true);
            let busy = execute(&mut database, group);
            if !busy.is_empty() {
                // The other program takes too long. The errors follow at once.
                database.wait_for_others(false);
                for mut write in busy {
                    write.execute(&mut database);
                    write.answer();
                }
            }
            others.into_iter().for_each(|request| request(&mut database));
            // After the answers, because a sync takes time.
            database.fold_long_log();
        }
        mem::forget(end);
    }

    fn database(&self) -> MutexGuard<'_, Database> {
        let mut database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        database.end_interrupted_write();
        database
    }
}

impl Queue {
    /// Takes the first writes that are still wanted, within the limits; `None` if the first one is too large.
    fn take_writes(&mut self, mut most: usize, mut bytes: usize) -> Option<Vec<Box<dyn Write>>> {
        let mut taken = Vec::new();
        while let Some(write) = self.writes.front().filter(|_| most > 0) {
            if write.is_wanted() {
                let size = write.bytes();
                if size > bytes {
                    return Some(taken).filter(|taken| !taken.is_empty());
                }
                (most, bytes) = (most - 1, bytes - size);
                taken.extend(self.writes.pop_front());
            } else {
                self.writes.pop_front();
            }
        }
        Some(taken).filter(|taken| !taken.is_empty() || self.writes.is_empty())
    }

    fn take_first(&mut self) -> Vec<Box<dyn Write>> {
        self.writes.pop_front().into_iter().collect()
    }

    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.others.is_empty()
    }

    /// Drops all requests, whose callers then receive an error.
    fn clear(&mut self) {
        self.writes.clear();
        self.others.clear();
    }
}

/// Executes writes in one transaction, and answers them. Returns those that another program prevents.
///
/// A write that fails does not affect the others: if it has changed anything, or the transaction fails as a whole, each is
/// executed in a transaction of its own.
fn execute(database: &mut Database, mut group: Vec<Box<dyn Write>>) -> Vec<Box<dyn Write>> {
    if group.len() > 1 {
        let together = database.group(|database| {
            group.iter_mut().all(|write| {
                let before = database.connection.total_changes();
                write.execute(database) == Executed::Done
                    || (database.connection.total_changes() == before && !database.connection.is_autocommit())
            })
        });
        match together {
            Group::Committed => {
                group.into_iter().for_each(Write::answer);
                return Vec::new();
            }
            Group::Busy => return group,
            Group::Undone => {}
        }
    }
    let mut busy = Vec::new();
    for mut write in group {
        match write.execute(database) {
            Executed::Busy => busy.push(write),
            Executed::Done | Executed::Failed => write.answer(),
        }
    }
    busy
}

/// The turn of a caller to execute requests.
struct Turn<'a>(&'a Shared);

impl Turn<'_> {
    /// Returns the database; `None` if its log is long, which the worker should fold.
    fn database(&self) -> Option<MutexGuard<'_, Database>> {
        let mut database = self.0.database();
        // Another program may lock the file for long. The worker can wait for it, this thread must not.
        database.wait_for_others(false);
        (!database.log_is_long()).then_some(database)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        if mem::take(&mut queue.has_waiter) && !queue.is_empty() {
            self.0.appoint_worker(queue);
        } else {
            queue.executor = Executor::Nobody;
        }
    }
}

/// Fails the requests of a worker that panics.
struct EndOfWorker<'a>(&'a Shared);

impl Drop for EndOfWorker<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.executor = Executor::Gone;
        queue.clear();
    }
}

/// Lets the runtime poll its other tasks once.
async fn yield_once() {
    let mut polled = false;
    poll_fn(|context| {
        if mem::replace(&mut polled, true) {
            Poll::Ready(())
        } else {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
