//! Findings about a successor: whether the support period is wide enough, and whether datagrams pass.

use super::{
    CheckResult, DoctorArgs, Health,
    storage::{ROOM, Trips},
};
use ielections::{ReadError, Timing, Ttl, TtlStorage as _, successor::SupportPeriod};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};
use vvm_clock::{DisplayDuration, Instant};
use vvm_host::operate::{ProbeOutcome, StorageInspector, probe_leader};

pub(super) async fn examine(
    inspector: &StorageInspector,
    args: &DoctorArgs,
    address: SocketAddr,
    writes: &Trips,
) -> Result<[CheckResult; 2], ReadError> {
    let least = inspector.storage.limits().min_ttl;
    Ok([width(args.support, args.ttl, least, writes), way(inspector, address).await?])
}

fn width(period: Duration, ttl: Ttl, least: Duration, writes: &Trips) -> CheckResult {
    const ABOUT: &str = "support";
    let period = match SupportPeriod::new(period, ttl) {
        Ok(period) => period,
        Err(refusal) => return CheckResult::new(ABOUT, Health::Problem, refusal.to_string()),
    };
    let (timing, slow, shown) = (Timing::support(period), writes.quantile(99), DisplayDuration(period.get()));
    let attempt = timing.attempt_timeout();
    let [loss, kill] = [timing.loss_at(Instant::ORIGIN), timing.kill_at(Instant::ORIGIN)]
        .map(|at| at.since(Instant::ORIGIN));
    let fits = (writes.count() > 0).then(|| attempt.as_secs_f64() / slow.as_secs_f64().max(1e-6));
    // An attempt has a tenth of it.
    let wanted = (slow * ROOM * 10).max(least).max(SupportPeriod::LEAST);
    let better = match wanted <= SupportPeriod::MOST.min(ttl.get() / 4) {
        true => format!("a support period of {wanted:.1?}"),
        false => "a quicker storage, or no successor".into(),
    };
    let usual = format!(
        "{shown}: with a successor, lost {loss:?} and killed {kill:?} after neither it nor the storage has answered; \
         a withdrawal may take {attempt:?}"
    );
    let (health, says) = match fits {
        _ if period.get() < least => {
            (Health::Problem, format!("{usual}; not wide enough for this storage: choose {least:?} or more"))
        }
        None => (Health::Problem, format!("{usual}; no write succeeded")),
        Some(fits) if fits < 1.0 => {
            (Health::Problem, format!("{usual}. Not wide enough: a slow write takes longer. Choose {better}"))
        }
        Some(fits) if fits < f64::from(ROOM) => (
            Health::Caution,
            format!("{usual}. Hardly wide enough: a slow write fits in {fits:.1} times. Better {better}"),
        ),
        Some(fits) => (Health::Good, format!("{usual}. Wide enough: a slow write fits in {fits:.0} times")),
    };
    CheckResult::new(ABOUT, health, says).with("fits", fits).with_duration("loss", loss)
}

async fn way(inspector: &StorageInspector, address: SocketAddr) -> Result<CheckResult, ReadError> {
    let finding = |health, says: String| CheckResult::new("successor", health, says);
    let (socket, port) = match UdpSocket::bind(address) {
        Ok(socket) => (socket, ""),
        Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => match UdpSocket::bind((address.ip(), 0)) {
            Ok(socket) => (socket, "; the port is in use, so another one was tried"),
            Err(cause) => return Ok(finding(Health::Problem, format!("can't listen at {address}: {cause}"))),
        },
        Err(cause) => {
            let says = format!("can't listen at {address} ({cause}): choose an address of this machine");
            return Ok(finding(Health::Problem, says));
        }
    };
    let (best, advice) = match address.ip().is_unspecified() {
        true => (
            Health::Caution,
            "; vvm run needs the address that other machines reach, too, as --successor-advertise",
        ),
        false => (Health::Good, ""),
    };
    let finding = |health: Health, says| finding(health.max(best), says);
    let (_, keys) = inspector.keys().await?;
    let [key] = &keys[..] else {
        let says = format!("a successor is for a name with one slot, and this one has {}", keys.len());
        return Ok(finding(Health::Problem, says));
    };
    let slot = inspector.storage.get(key).await?;
    let Some(entry) = slot.entry() else {
        return Ok(finding(Health::Good, format!("no leader to try{port}{advice}")));
    };
    let outcome = probe_leader(&inspector.storage, (key, entry), socket, &*inspector.clock).await?;
    let (health, says) = match outcome {
        ProbeOutcome::NotAsked => (
            Health::Caution,
            format!("the leader {} has no --successor", entry.holder.as_str().escape_debug()),
        ),
        ProbeOutcome::HasSuccessor(successor) => {
            (Health::Good, format!("the leader has a successor, {successor}, so the way to it was not tried"))
        }
        ProbeOutcome::Answered(leader, took) => {
            let says = format!("the leader at {leader} answers after {took:.1?}");
            return Ok(finding(Health::Good, says + port + advice).with_duration("round_trip", took));
        }
        ProbeOutcome::Silent(leader) => (
            Health::Caution,
            format!(
                "no answer from the leader at {leader}: does a firewall let UDP pass in both directions?"
            ),
        ),
    };
    Ok(finding(health, says + port + advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_whether_the_support_period_is_wide_enough() {
        let (ttl, least) = (Ttl::new(Duration::from_secs(300)).unwrap(), Duration::from_secs(2));
        let found = |period, millis: u64| {
            let writes = Trips::from_samples(vec![Duration::from_millis(millis); 50], None);
            width(Duration::from_secs(period), ttl, least, &writes)
        };
        for (period, slow, health, word) in [
            (5, 10, Health::Good, "Wide enough: a slow write fits in 50 times"),
            (
                5,
                200,
                Health::Caution,
                "Hardly wide enough: a slow write fits in 2.5 times. Better a support period of 8.0s",
            ),
            (
                5,
                600,
                Health::Problem,
                "Not wide enough: a slow write takes longer. Choose a support period of 24.0s",
            ),
            (5, 2_000, Health::Problem, "Choose a quicker storage, or no successor"),
            (1, 10, Health::Problem, "it must be between 2 s and 30 s"),
        ] {
            let finding = found(period, slow);
            assert!(finding.health == health && finding.says.contains(word), "{finding:?}");
        }
        let none = width(Duration::from_secs(5), ttl, Duration::from_secs(6), &Trips::default());
        assert!(none.health == Health::Problem && none.says.contains("choose 6s or more"), "{none:?}");
    }
}
