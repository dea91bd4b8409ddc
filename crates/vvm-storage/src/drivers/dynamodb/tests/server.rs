//! A server with scripted answers that counts its requests.

use crate::drivers::scripted::{Scripted, answer};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// An answer: status and body. With `None` the connection is closed without an answer.
pub(super) type Answer = Option<(u16, String)>;

/// The bodies of the requests, by operation.
type Requests = BTreeMap<String, Vec<String>>;

/// The server. Dropping it ends it.
pub(super) struct Server {
    scripted: Scripted,
    requests: Arc<Mutex<Requests>>,
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
    /// Starts one. `script` returns the answer to an operation, given how often it was requested before.
    pub(super) async fn start(script: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Requests::new()));
        let received = Arc::clone(&requests);
        let scripted = Scripted::start(move |asked| {
            let target = asked.header("x-amz-target").unwrap_or_default();
            let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
            let asked_before = {
                let mut requests = received.lock().unwrap();
                let bodies = requests.entry(operation.clone()).or_default();
                bodies.push(asked.body);
                bodies.len() - 1
            };
            let (status, text) = script(&operation, asked_before)?;
            Some(answer(status, "Content-Type: application/x-amz-json-1.0\r\n", &text))
        });
        Self { scripted: scripted.await, requests }
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.scripted.endpoint
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
