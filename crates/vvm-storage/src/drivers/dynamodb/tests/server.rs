//! A server with scripted answers that counts its requests.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// An answer: status and body. With `None` the connection is closed without an answer.
pub(super) type Answer = Option<(u16, String)>;

/// Returns the answer to an operation, given how often it was requested before.
type Script = dyn Fn(&str, usize) -> Answer + Send + Sync;

/// The bodies of the requests, by operation.
type Requests = BTreeMap<String, Vec<String>>;

/// The server. Dropping it ends it.
pub(super) struct Server {
    endpoint: String,
    requests: Arc<Mutex<Requests>>,
    _connections: JoinSet<()>,
}

pub(super) fn ok(text: &str) -> Answer {
    Some((200, text.to_owned()))
}

/// A refusal by DynamoDB.
pub(super) fn refusal(status: u16, code: &str) -> Answer {
    let text = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"said so"}}"#);
    Some((status, text))
}

impl Server {
    pub(super) async fn start(
        script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let requests = Arc::new(Mutex::new(Requests::new()));
        let (script, received): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&requests));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let (script, received) = (Arc::clone(&script), Arc::clone(&received));
                connections.spawn(async move {
                    // A client may close its connection at any time.
                    let _gone = serve(connection, &*script, &received).await;
                });
            }
        });
        Ok(Self { endpoint, requests, _connections: accepting })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns how often each operation was requested since the last call of this function.
    pub(super) fn take_counts(&self) -> Vec<(String, usize)> {
        let requests = std::mem::take(&mut *self.requests.lock().unwrap());
        requests.into_iter().map(|(operation, bodies)| (operation, bodies.len())).collect()
    }

    /// Returns the body of the last request for an operation.
    pub(super) fn last_body(&self, operation: &str) -> String {
        self.requests.lock().unwrap()[operation].last().unwrap().clone()
    }
}

async fn serve(connection: TcpStream, script: &Script, requests: &Mutex<Requests>) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let (mut operation, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if connection.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                // The request line, or the empty line after the headers.
                if line.trim_end().is_empty() {
                    break;
                }
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "x-amz-target" => operation = value.rsplit('.').next().unwrap_or_default().to_owned(),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await?;
        let asked_before = {
            let mut requests = requests.lock().unwrap();
            let bodies = requests.entry(operation.clone()).or_default();
            bodies.push(String::from_utf8(body).unwrap());
            bodies.len() - 1
        };
        let Some((status, text)) = script(&operation, asked_before) else { return Ok(()) };
        let answer = format!(
            "HTTP/1.1 {status} Scripted\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: \
             {}\r\n\r\n{text}",
            text.len()
        );
        connection.write_all(answer.as_bytes()).await?;
    }
}
