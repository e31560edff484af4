//! A server on loopback.

use std::{io, net::SocketAddr};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A server on a free loopback port, until it is dropped.
#[derive(Debug)]
pub(crate) struct Loopback {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Loopback {
    /// Starts a server that serves each connection in a task of its own: a client that disconnects ends only its own connection.
    ///
    /// # Errors
    /// If no loopback port is free.
    pub(crate) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection));
            }
        });
        Ok(Self { address, accepting })
    }

    /// Returns the address, as in `http://127.0.0.1:4711`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
