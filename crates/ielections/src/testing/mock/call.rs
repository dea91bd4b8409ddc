//! One call: draws its fault and carries it out.

use super::{
    Fault, FaultyStorage, Injected, Verb,
    network::{Landing, Outcome},
};
use crate::{Key, ReadError, WriteError};
use futures_util::future::{Either, select};
use std::pin::pin;
use tokio::sync::oneshot;
use vvm_clock::Instant;

impl<K: Key> FaultyStorage<K> {
    async fn strike(&self, verb: Verb) -> Option<Fault> {
        self.deliver_due().await;
        let mut state = self.state();
        let fault = state.plan.strike(verb);
        let counts = &mut state.counts;
        *counts.calls.entry(verb).or_default() += 1;
        match fault {
            Some(Fault::NotApplied) => counts.not_applied += 1,
            Some(Fault::Fatal | Fault::Replaced) => counts.fatal += 1,
            Some(Fault::LostRequest) => counts.lost_requests += 1,
            Some(Fault::Late(_) | Fault::HeldBack) if verb.reads() => counts.lost_requests += 1,
            Some(Fault::SlowRequest(_)) => counts.slow_requests += 1,
            Some(Fault::SlowAnswer(_)) => counts.slow_answers += 1,
            Some(Fault::Hang) => counts.hung += 1,
            // Counted when their effect is known.
            Some(Fault::LostAnswer | Fault::Late(_) | Fault::HeldBack) | None => {}
        }
        fault
    }

    /// Sends a write. The future owns all that it needs, because it may outlive this call.
    pub(super) async fn write<T: Outcome>(
        &self,
        verb: Verb,
        write: impl Future<Output = Result<T, WriteError>> + Send + 'static,
    ) -> Result<T, WriteError> {
        let Some(fault) = self.strike(verb).await else { return write.await };
        let unknown = || WriteError::Unknown(Injected(fault).into());
        match fault {
            Fault::NotApplied => Err(WriteError::NotApplied(Injected(fault).into())),
            Fault::Fatal => Err(WriteError::Fatal(Injected(fault).into())),
            Fault::Replaced => Err(WriteError::Replaced(Injected(fault).into())),
            Fault::LostRequest => Err(unknown()),
            Fault::LostAnswer => {
                if write.await?.applied() {
                    self.state().counts.lost_answers += 1;
                }
                Err(unknown())
            }
            Fault::SlowAnswer(delay) => {
                let outcome = write.await;
                self.clock.sleep(delay).await;
                outcome
            }
            Fault::Late(delay) => {
                drop(self.send(self.clock.now().after(delay), write));
                Err(unknown())
            }
            Fault::HeldBack => {
                drop(self.send(Instant::NEVER, write));
                Err(unknown())
            }
            Fault::SlowRequest(delay) => {
                let arrives_at = self.clock.now().after(delay);
                let answer = self.send(arrives_at, write);
                // Another call may carry it out first.
                match select(answer, self.clock.sleep_until(arrives_at)).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(((), answer)) => {
                        self.deliver_due().await;
                        answer.await
                    }
                }
                .unwrap_or_else(|_lost| Err(unknown()))
            }
            Fault::Hang => self.send(Instant::NEVER, write).await.unwrap_or_else(|_lost| Err(unknown())),
        }
    }

    /// Sends a write. Dropping its answer does not cancel it.
    fn send<T: Outcome>(
        &self,
        arrives_at: Instant,
        write: impl Future<Output = Result<T, WriteError>> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, WriteError>> {
        let (sender, answer) = oneshot::channel();
        let parcel = async move {
            let outcome = write.await;
            let applied = outcome.as_ref().is_ok_and(Outcome::applied);
            match sender.send(outcome) {
                Ok(()) => Landing::InTime,
                Err(_) if applied => Landing::AppliedLate,
                Err(_) => Landing::RefusedLate,
            }
        };
        self.state().network.send(arrives_at, Box::pin(parcel));
        answer
    }

    pub(super) async fn read<T>(
        &self,
        verb: Verb,
        read: impl Future<Output = Result<T, ReadError>> + Send,
    ) -> Result<T, ReadError> {
        let Some(fault) = self.strike(verb).await else { return read.await };
        let unavailable = || ReadError::Unavailable(Injected(fault).into());
        let read = pin!(read);
        match fault {
            Fault::Fatal => Err(ReadError::Fatal(Injected(fault).into())),
            Fault::Replaced => Err(ReadError::Replaced(Injected(fault).into())),
            Fault::NotApplied | Fault::LostRequest | Fault::Late(_) | Fault::HeldBack => Err(unavailable()),
            Fault::LostAnswer => {
                read.await?;
                self.state().counts.lost_answers += 1;
                Err(unavailable())
            }
            Fault::SlowRequest(delay) => {
                self.clock.sleep(delay).await;
                read.await
            }
            Fault::SlowAnswer(delay) => {
                let answer = read.await;
                self.clock.sleep(delay).await;
                answer
            }
            Fault::Hang => {
                let (word, heard) = oneshot::channel();
                let parcel = async move {
                    // A dropped read has no effect.
                    let _gone = word.send(());
                    Landing::InTime
                };
                self.state().network.send(Instant::NEVER, Box::pin(parcel));
                heard.await.map_err(|_lost| unavailable())?;
                read.await
            }
        }
    }
}
