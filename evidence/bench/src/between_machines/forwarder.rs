//! Forwards connections from an address that a network namespace reaches to servers on loopback.

use std::{io, net::SocketAddr};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    task::JoinSet,
};

/// Dropping it ends all connections.
pub(super) struct Forwarder {
    tasks: Runtime,
}

impl Forwarder {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { tasks: Builder::new_multi_thread().worker_threads(1).enable_all().build()? })
    }

    /// Forwards connections from the port of `server` at `gateway` to `server`.
    pub(super) fn forward(&self, gateway: &str, server: SocketAddr) -> io::Result<()> {
        let listener = self.tasks.block_on(TcpListener::bind((gateway, server.port())))?;
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            // An error ends the measurement, since no candidate connects any more.
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        let _ended = client.set_nodelay(true).and(server.set_nodelay(true));
                        let _ended = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(())
    }
}
