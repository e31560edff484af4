//! A network between clients and their server that loses connections in the middle of requests, and changes them if it is to.
//!
//! Start at [`Network`].

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf, unix::OwnedWriteHalf},
};

/// The name of a server's socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// The longest message that is forwarded.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The check of the fencing token in a write.
const FENCE: &[u8] = b"EXISTS (SELECT FROM fence)";

/// A condition of the same length that always holds.
const NO_FENCE: &[u8] = b"true                      ";

/// A network until it is dropped.
pub(crate) struct Network {
    folder: tempfile::TempDir,
    faults: Arc<Faults>,
}

pub(crate) struct Faults {
    /// The number of messages of 10,000 after or before which their connection is lost.
    pub(crate) losses: AtomicU32,
    /// The number of lost connections.
    pub(crate) lost: AtomicU64,
    /// Takes the check of the fencing token out of each statement.
    has_no_fence: bool,
    rng: Mutex<StdRng>,
}

impl Network {
    /// Starts a network before the server with its socket in a folder.
    pub(crate) fn start(server: &Path, seed: u64, has_no_fence: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("superstep-nw").tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let rng = Mutex::new(StdRng::seed_from_u64(seed));
        let faults =
            Arc::new(Faults { losses: AtomicU32::new(0), lost: AtomicU64::new(0), has_no_fence, rng });
        let (server, weak) = (server.join(SOCKET), Arc::downgrade(&faults));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Some(faults) = weak.upgrade() else { return };
                tokio::spawn(forward(client, server.clone(), faults));
            }
        });
        Self { folder, faults }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// The time of a loss, before or after a message has reached the server.
#[derive(PartialEq)]
enum Loss {
    Before,
    After,
}

impl Faults {
    fn draw(&self) -> Option<Loss> {
        let losses = self.losses.load(Ordering::Relaxed);
        if losses == 0 {
            return None;
        }
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost = rng.random_range(0..10_000) < losses;
        is_lost.then(|| if rng.next_u32() & 1 == 0 { Loss::Before } else { Loss::After })
    }
}

async fn forward(client: UnixStream, server: PathBuf, faults: Arc<Faults>) {
    let Ok(server) = UnixStream::connect(server).await else { return };
    let ((from_client, mut to_client), (mut from_server, to_server)) =
        (client.into_split(), server.into_split());
    // Both ends are closed when either direction ends.
    tokio::select! {
        _ = requests(from_client, to_server, &faults) => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

/// Forwards the messages of a client until the connection is lost.
async fn requests(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, faults: &Faults) -> io::Result<()> {
    let mut is_first = true;
    loop {
        // The first message has no byte with its kind.
        let head = if is_first { 4 } else { 5 };
        let mut message = vec![0; head];
        client.read_exact(&mut message).await?;
        let length = u32::from_be_bytes(message[head - 4..].try_into().unwrap()) as usize;
        if !(4..=MAX_MESSAGE_BYTES).contains(&length) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        message.resize(head + length - 4, 0);
        client.read_exact(&mut message[head..]).await?;
        // `P` prepares a statement.
        if faults.has_no_fence && !is_first && message[0] == b'P' {
            remove_fence(&mut message);
        }
        is_first = false;
        let loss = faults.draw();
        if loss != Some(Loss::Before) {
            server.write_all(&message).await?;
        }
        if loss.is_some() {
            faults.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    }
}

fn remove_fence(message: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = message[from..].windows(FENCE.len()).position(|window| window == FENCE) {
        from += at;
        message[from..from + FENCE.len()].copy_from_slice(NO_FENCE);
    }
}
