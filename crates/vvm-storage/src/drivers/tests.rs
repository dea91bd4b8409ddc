//! What the tests of drivers share.
#![allow(dead_code, reason = "each driver's tests need some of it")]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

pub(super) struct ReceivedRequest {
    pub(super) head: Vec<String>,
    pub(super) body: String,
}

impl ReceivedRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.iter().filter_map(|line| line.split_once(": "));
        headers.filter(|(named, _)| named.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// A server of HTTP whose answers a test chooses. Dropping it ends it.
pub(super) struct Scripted {
    pub(super) endpoint: String,
    connected: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
    _connections: JoinSet<()>,
}

impl Scripted {
    /// Each connection has one request and its answer; with `None` it is closed without one.
    pub(super) async fn start(
        script: impl Fn(ReceivedRequest) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::serving(script, false).await
    }

    /// A connection is kept until an answer is `None`. An empty answer is silence.
    pub(super) async fn keeping(
        script: impl Fn(ReceivedRequest) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::serving(script, true).await
    }

    async fn serving(
        script: impl Fn(ReceivedRequest) -> Option<String> + Send + Sync + 'static,
        keeps_connections: bool,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (connected, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (script, connects, serves) = (Arc::new(script), Arc::clone(&connected), Arc::clone(&served));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                connects.fetch_add(1, Ordering::SeqCst);
                let (script, serves) = (Arc::clone(&script), Arc::clone(&serves));
                connections.spawn(async move {
                    let mut connection = BufReader::new(connection);
                    // A client may close its connection at any time.
                    while serve(&mut connection, &*script, &serves).await.unwrap_or(false)
                        && keeps_connections
                    {}
                });
            }
        });
        Self { endpoint, connected, served, _connections: accepting }
    }

    pub(super) fn connected(&self) -> usize {
        self.connected.load(Ordering::SeqCst)
    }

    pub(super) fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

async fn serve(
    connection: &mut BufReader<TcpStream>,
    script: &(impl Fn(ReceivedRequest) -> Option<String> + Sync),
    served: &AtomicUsize,
) -> io::Result<bool> {
    let mut asked = ReceivedRequest { head: Vec::new(), body: String::new() };
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await?;
        match line.trim_end() {
            "" if asked.head.is_empty() => return Ok(false),
            "" => break,
            line => asked.head.push(line.to_owned()),
        }
    }
    let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    asked.body = String::from_utf8(body).unwrap();
    served.fetch_add(1, Ordering::SeqCst);
    let Some(answer) = script(asked) else { return Ok(false) };
    connection.write_all(answer.as_bytes()).await?;
    Ok(true)
}

pub(super) fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Scripted\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}
