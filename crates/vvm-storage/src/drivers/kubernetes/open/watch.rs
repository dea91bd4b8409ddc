//! [`Watch`]: an answer of the API server that does not end, with a line for each change of a Lease.

use super::{
    super::{
        errors::{Answer, DriverError},
        rows::{self, Lease},
    },
    connections::Connections,
    session::Session,
};
use hyper::{
    Method,
    body::{Body as _, Incoming},
};
use serde::Deserialize;
use std::pin::Pin;
use vvm_clock::{Clock as _, Span};

/// More than any Lease has.
const LONGEST_LINE: usize = 4 << 20;

/// A stream of changes, on a connection of its own.
pub(in super::super) struct Watch {
    session: Session,
    body: Incoming,
    /// What has arrived of the next line.
    part: Vec<u8>,
}

/// A change.
#[derive(Deserialize, Debug)]
pub(in super::super) struct Change {
    /// `ADDED`, also of what was there at the beginning; `MODIFIED`, `DELETED`, `ERROR`.
    #[serde(rename = "type")]
    pub(in super::super) kind: String,
    pub(in super::super) object: Lease,
}

impl Connections {
    /// Watches the Leases with a label.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub(in super::super) async fn watch(&self, label: &str) -> Result<Watch, DriverError> {
        let path = format!("{}?watch=1&labelSelector={}%3D{label}", self.leases(), rows::NAME);
        let mut session = self.session().await?;
        let silence = self.clock().sleep(self.request_timeout());
        let request = self.request(Method::GET, &path, None)?;
        let answer = tokio::select! {
            biased;
            answer = session.begin(request) => answer?,
            () = silence => {
                let why = format!("no answer within {}", Span(self.request_timeout()));
                return Err(DriverError::Unanswered(why));
            }
        };
        let status = answer.status().as_u16();
        let mut watch = Watch { session, body: answer.into_body(), part: Vec::new() };
        if status == 200 {
            return Ok(watch);
        }
        // The words of a refusal are one line.
        let body = watch.line().await.unwrap_or_default().into();
        Err(DriverError::of(&Answer { status, body }))
    }
}

impl Watch {
    /// Waits for the next change. `None` if the stream has ended, or can't be read.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(in super::super) async fn next(&mut self) -> Option<Change> {
        serde_json::from_slice(&self.line().await?).ok()
    }

    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
                let rest = self.part.split_off(end + 1);
                return Some(std::mem::replace(&mut self.part, rest));
            }
            let Self { session, body, part } = self;
            let frame = session.driving(|context| Pin::new(&mut *body).poll_frame(context)).await;
            match frame {
                Some(Ok(frame)) if part.len() < LONGEST_LINE => {
                    part.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                }
                _ => return None,
            }
        }
    }
}
