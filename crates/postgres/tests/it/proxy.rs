//! A proxy before a server, which loses connections as a network does.

use std::path::{Path, PathBuf};

use tokio::{
    io::copy_bidirectional,
    net::{UnixListener, UnixStream},
    sync::broadcast,
};

/// The name of a server's socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// The ways in which a connection is lost. The server does not notice in either case.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    /// The client sees the end of the connection.
    Cut,
    /// The client sees nothing.
    Silent,
}

/// A proxy until it is dropped.
pub(crate) struct Proxy {
    folder: tempfile::TempDir,
    losses: broadcast::Sender<Loss>,
}

impl Proxy {
    /// Starts a proxy before the server with its socket in a folder.
    pub(crate) fn start(server: &Path) -> Self {
        let folder = tempfile::Builder::new().prefix("superstep-px").tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let losses = broadcast::Sender::new(16);
        let (server, weak) = (server.join(SOCKET), losses.downgrade());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Some(losses) = weak.upgrade() else { return };
                tokio::spawn(forward(client, server.clone(), losses.subscribe()));
            }
        });
        Self { folder, losses }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Cuts all connections: the client sees their end, and the server does not.
    pub(crate) fn cut(&self) {
        let _ = self.losses.send(Loss::Cut);
    }

    /// Forwards nothing any more on the present connections.
    pub(crate) fn silence(&self) {
        let _ = self.losses.send(Loss::Silent);
    }
}

async fn forward(mut client: UnixStream, server: PathBuf, mut losses: broadcast::Receiver<Loss>) {
    let Ok(mut server) = UnixStream::connect(server).await else { return };
    let loss = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        loss = losses.recv() => loss,
    };
    let client = (loss == Ok(Loss::Silent)).then_some(client);
    // Both stay open until the proxy ends.
    while losses.recv().await.is_ok() {}
    drop((client, server));
}
