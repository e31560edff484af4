//! Processes that are killed and stopped, connections that are lost, and a server that crashes.
//!
//! Start at [`Chaos`].

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::Ordering,
    time::Duration,
};

use rand::{RngExt as _, rngs::StdRng};
use rustix::process::{Pid, Signal, kill_process};

use super::{FOLDER, LEASE, PROCESS, SCHEMA, URL, network::Network};
use crate::server::{Server, url_of};

/// The processes of the workers.
pub(crate) struct Workers {
    folder: PathBuf,
    url: String,
    schema: String,
    children: Vec<Child>,
    started: usize,
}

impl Workers {
    pub(crate) fn start(count: usize, folder: PathBuf, network: &Network, schema: &str) -> Self {
        let (url, schema) = (url_of(network.folder()), schema.to_owned());
        let mut workers = Self { folder, url, schema, children: Vec::new(), started: 0 };
        for _ in 0..count {
            let child = workers.spawn();
            workers.children.push(child);
        }
        workers
    }

    fn spawn(&mut self) -> Child {
        self.started += 1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "proof::the_worker", "--nocapture"]);
        command.env(URL, &self.url).env(SCHEMA, &self.schema).env(FOLDER, &self.folder);
        // It ends with its input.
        command.env(PROCESS, format!("w{}", self.started)).stdin(Stdio::piped()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    }

    /// Replaces processes that have ended, such as those that found no server at their start.
    pub(crate) fn replace_ended(&mut self) {
        for nth in 0..self.children.len() {
            if self.children[nth].try_wait().unwrap().is_some() {
                self.children[nth] = self.spawn();
            }
        }
    }

    fn kill(&mut self, nth: usize) {
        let _ = self.children[nth].kill();
        self.children[nth].wait().unwrap();
        self.children[nth] = self.spawn();
    }

    fn signal(&self, nth: usize, signal: Signal) {
        // A child that has ended is not yet waited for, so that its id is not another's.
        kill_process(Pid::from_child(&self.children[nth]), signal).unwrap();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The events so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    pub(crate) killed: usize,
    pub(crate) stopped: usize,
    pub(crate) bursts: usize,
    pub(crate) crashes: usize,
}

impl Events {
    pub(crate) fn has_all(&self) -> bool {
        [self.killed, self.stopped, self.bursts, self.crashes].iter().all(|count| *count > 0)
    }
}

/// Causes one random event after the other.
pub(crate) struct Chaos<'a> {
    pub(crate) workers: Workers,
    pub(crate) network: &'a Network,
    pub(crate) server: &'a Server,
    pub(crate) rng: StdRng,
    pub(crate) events: Events,
}

impl Chaos<'_> {
    /// Causes an event, and waits for its end and a pause.
    pub(crate) async fn step(&mut self) {
        let nth = self.rng.random_range(0..self.workers.children.len());
        self.workers.replace_ended();
        match self.rng.random_range(0..10) {
            0..4 => {
                self.workers.kill(nth);
                self.events.killed += 1;
            }
            4..6 => {
                self.workers.signal(nth, Signal::STOP);
                pause(LEASE.mul_f64(self.rng.random_range(1.2..2.5))).await;
                self.workers.signal(nth, Signal::CONT);
                self.events.stopped += 1;
            }
            6..9 => {
                let losses = self.rng.random_range(50..800);
                self.network.faults().losses.store(losses, Ordering::Relaxed);
                pause(Duration::from_millis(self.rng.random_range(200..1000))).await;
                self.network.faults().losses.store(0, Ordering::Relaxed);
                self.events.bursts += 1;
            }
            _ => {
                // Blocks the other tasks of this process only.
                self.server.stop();
                pause(Duration::from_millis(self.rng.random_range(0..500))).await;
                self.server.run();
                self.events.crashes += 1;
            }
        }
        pause(Duration::from_millis(self.rng.random_range(50..800))).await;
    }
}

async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
