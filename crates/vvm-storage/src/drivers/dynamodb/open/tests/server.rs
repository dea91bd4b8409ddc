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

/// The server. Dropped, it ends.
pub(super) struct Server {
    endpoint: String,
    asked: Arc<Mutex<Requests>>,
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
        let asked = Arc::new(Mutex::new(Requests::new()));
        let (script, requests): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&asked));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let (script, requests) = (Arc::clone(&script), Arc::clone(&requests));
                connections.spawn(async move {
                    // A client may close its connection at any time.
                    let _gone = serve(connection, &*script, &requests).await;
                });
            }
        });
        Ok(Self { endpoint, asked, _connections: accepting })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns how often each operation was requested since the last call of this function.
    pub(super) fn asked(&self) -> Vec<(String, usize)> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.into_iter().map(|(operation, texts)| (operation, texts.len())).collect()
    }

    /// Returns the body of the last request for an operation.
    pub(super) fn text(&self, operation: &str) -> String {
        self.asked.lock().unwrap()[operation].last().unwrap().clone()
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
        let mut text = vec![0; length];
        connection.read_exact(&mut text).await?;
        let before = {
            let mut requests = requests.lock().unwrap();
            let texts = requests.entry(operation.clone()).or_default();
            texts.push(String::from_utf8(text).unwrap());
            texts.len() - 1
        };
        let Some((status, text)) = script(&operation, before) else { return Ok(()) };
        let answer = format!(
            "HTTP/1.1 {status} Said\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: \
             {}\r\n\r\n{text}",
            text.len()
        );
        connection.write_all(answer.as_bytes()).await?;
    }
}
