//! [`Watch`]: a connection of its own, on which a member tells what changes.

use super::{
    super::{
        errors::DriverError,
        rows::messages::{WatchCreateRequest, WatchRequest, WatchResponse},
    },
    Connections,
    session::{Path, Session, Streaming},
};
use vvm_clock::{Clock as _, Span};

const WATCH: Path = "/etcdserverpb.Watch/Watch";

/// Ranges of keys that a member watches for us.
#[derive(Debug)]
pub(in super::super) struct Watch {
    session: Session,
    call: Streaming,
}

impl Connections {
    /// Has a member watch these ranges, and returns once it does.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub(in super::super) async fn watch(
        &self,
        ranges: Vec<WatchCreateRequest>,
    ) -> Result<Watch, DriverError> {
        let mut session = self.connected().await?;
        let within = self.address().request_timeout;
        let beginning = async {
            let token = self.token(&mut session).await?;
            let requests: Vec<_> =
                ranges.into_iter().map(|create| WatchRequest { create: Some(create) }).collect();
            let mut call = session.stream(WATCH, token.as_ref(), &requests).await?;
            let mut created = 0;
            while created < requests.len() {
                let answer: WatchResponse = session.next(&mut call).await?;
                if answer.canceled {
                    return Err(DriverError::Refused(format!("a watch: {}", answer.cancel_reason)));
                }
                created += usize::from(answer.created);
            }
            Ok(call)
        };
        let call = tokio::select! {
            biased;
            call = beginning => call?,
            () = self.clock().sleep(within) => {
                return Err(DriverError::NotBegun(format!("no answer within {}", Span(within))));
            }
        };
        Ok(Watch { session, call })
    }
}

impl Watch {
    /// Waits for the next changes. After an error the watch has ended.
    ///
    /// # Cancel safety
    /// May be dropped and called again at will.
    pub(in super::super) async fn next(&mut self) -> Result<WatchResponse, DriverError> {
        Ok(self.session.next(&mut self.call).await?)
    }
}
