//! The common measurement of all engines: one clock, one allocator, one runtime.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    time::Instant,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

/// Counts the bytes that are in use, but only outside of time measurements.
struct Counting;
static COUNTS: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    if COUNTS.load(Relaxed) {
        LIVE.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of messages before a hundred further ones.
pub const HISTORY: [usize; 4] = [10, 100, 1_000, 5_000];
/// The number of measurements of a run, and of a long run; an odd number has a median.
const TIMES: usize = 9;
const FEW_TIMES: usize = 3;
const LONG_US: f64 = 1e6;

/// Two worker threads, as superstep's own benchmarks have.
pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The content of a message that is some 190 bytes as JSON.
pub fn msg_text(number: usize) -> String {
    let mut text = format!("message {number:06} {}", "lorem ipsum ".repeat(13));
    text.truncate(160);
    text
}

fn cpu_us() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1e3
}

/// A scenario of an engine: a size, and the number by which times are divided.
pub struct Scenario<'a> {
    pub engine: &'a str,
    pub name: &'a str,
    pub saver: &'a str,
    pub size: usize,
    pub steps: usize,
}

impl Scenario<'_> {
    /// Makes everything with `setup`, then times `run`, and prints one JSON line. What `run` returns is dropped once
    /// time and memory were taken. `PEERS_ONLY` leaves out scenarios whose name does not have the word.
    pub fn measure<S, T, F>(self, runtime: &Runtime, setup: impl Fn() -> S, run: impl Fn(S) -> F)
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let Self { engine, name, saver, size, steps } = self;
        let only = std::env::var("PEERS_ONLY").unwrap_or_default();
        if !format!("{name}_{size}/{saver}").contains(&only) {
            return;
        }
        let once = |counted: bool| {
            let work = run(setup());
            LIVE.store(0, Relaxed);
            COUNTS.store(counted, Relaxed);
            let before = cpu_us();
            let (made, wall) = runtime.block_on(async move {
                let timed = async move {
                    let start = Instant::now();
                    let made = work.await;
                    (made, start.elapsed())
                };
                tokio::spawn(timed).await.unwrap()
            });
            let cpu = cpu_us() - before;
            COUNTS.store(false, Relaxed);
            drop(made);
            (wall.as_secs_f64() * 1e6 / steps as f64, cpu / steps as f64)
        };
        // The first run only warms up.
        let (first, _) = once(false);
        let times = if first * steps as f64 > LONG_US { FEW_TIMES } else { TIMES };
        let (mut walls, mut cpus): (Vec<_>, Vec<_>) = (0..times).map(|_| once(false)).unzip();
        walls.sort_by(f64::total_cmp);
        cpus.sort_by(f64::total_cmp);
        once(true);
        let (wall, cpu, kept) = (walls[times / 2], cpus[times / 2], LIVE.load(Relaxed));
        println!(
            r#"{{"engine":"{engine}","workload":"{name}_{size}","saver":"{saver}","wall_us":{wall},"cpu_us":{cpu},"kept_bytes":{kept}}}"#
        );
    }
}
