//! The situation as metrics. What each of them says stands in its help text.

use super::open_metrics::{Exposition, Kind};
use crate::situation::{Readiness, Role, Situation};
use vvm_clock::{SystemWallClock, WallClock as _};

/// Adds all of `situation`.
pub(super) fn of(situation: &Situation, out: &mut Exposition) {
    let name = situation.candidate().name.clone();
    let named = [("name", name.as_str())];
    of_the_moment(situation, &named, out);
    of_the_leadership(situation, &named, out);
    of_all_time(situation, &named, out);
}

type Named<'a> = [(&'a str, &'a str); 1];

fn of_the_moment(situation: &Situation, named: &Named<'_>, out: &mut Exposition) {
    let [name] = *named;
    out.family("vvm_build", Kind::Info, None, "Which program this is.");
    out.sample("vvm_build_info", &[name, ("version", env!("CARGO_PKG_VERSION"))], 1);

    out.family("vvm_role", Kind::StateSet, None, "What this process does now.");
    let role = situation.role();
    for word in Role::WORDS {
        out.sample("vvm_role", &[name, ("vvm_role", word)], u8::from(role.word() == word));
    }

    out.family("vvm_ready", Kind::Gauge, None, "1 while this process leads, or could if a slot were free.");
    out.sample("vvm_ready", named, u8::from(situation.readiness() == Readiness::Ready));

    out.family(
        "vvm_leading",
        Kind::Gauge,
        None,
        "1 only while the work runs and time is left of the leadership.",
    );
    out.sample("vvm_leading", named, u8::from(situation.leads().is_some()));

    out.family(
        "vvm_ttl_seconds",
        Kind::Gauge,
        Some("seconds"),
        "The leadership duration that this process campaigns with.",
    );
    out.sample("vvm_ttl_seconds", named, situation.candidate().ttl.get().as_secs_f64());

    let help =
        "How long ago the storage was last of use; without an answer yet, how long it has been waited for.";
    out.family("vvm_storage_useless_seconds", Kind::Gauge, Some("seconds"), help);
    out.sample("vvm_storage_useless_seconds", named, situation.useless_for().as_secs_f64());
}

/// Only while there is one: a number that means nothing would be an alarm, or would hide one.
fn of_the_leadership(situation: &Situation, named: &Named<'_>, out: &mut Exposition) {
    let [name] = *named;
    let role = situation.role();
    let leading = role.leadership();
    let slot = leading.map(|leading| leading.slot.to_string()).unwrap_or_default();
    let of_slot = [name, ("slot", slot.as_str())];

    out.family(
        "vvm_epoch",
        Kind::Gauge,
        None,
        "The fencing token of the leadership that this process holds.",
    );
    if let Some(leading) = leading {
        out.sample("vvm_epoch", &of_slot, leading.standing.epoch().get());
    }

    let help = "How long this process would live without another renewal; 0 once leadership is lost.";
    out.family("vvm_margin_seconds", Kind::Gauge, Some("seconds"), help);
    if let Some(leading) = leading {
        out.sample("vvm_margin_seconds", &of_slot, leading.standing.remaining().as_secs_f64());
    }

    let help =
        "When this process is dead unless a renewal comes before, in Unix time by this machine's clock.";
    out.family("vvm_kill_deadline_timestamp_seconds", Kind::Gauge, Some("seconds"), help);
    if let Some(leading) = leading {
        let at = SystemWallClock.since_unix_epoch() + situation.now().until(leading.standing.kill_at());
        out.sample("vvm_kill_deadline_timestamp_seconds", &of_slot, at.as_secs_f64());
    }
}

fn of_all_time(situation: &Situation, named: &Named<'_>, out: &mut Exposition) {
    let [name] = *named;
    let telemetry = situation.telemetry();

    let help = "Renewals that the storage confirmed, by how long that took from the moment each was sent.";
    out.family("vvm_renewal_latency_seconds", Kind::Histogram, Some("seconds"), help);
    out.histogram("vvm_renewal_latency_seconds", named, &telemetry.renewals().read());

    out.family("vvm_storage_failures", Kind::Counter, None, "Calls to the storage that failed.");
    for (call, failure, count) in telemetry.failures() {
        let labels = [name, ("call", call.word()), ("failure", failure.word())];
        out.sample("vvm_storage_failures_total", &labels, count);
    }

    out.family("vvm_leaderships", Kind::Counter, None, "Leaderships that this process has had.");
    out.sample("vvm_leaderships_total", named, telemetry.leaderships());

    let help = "Records of others that this process took over, because nobody had renewed them.";
    out.family("vvm_take_overs", Kind::Counter, None, help);
    out.sample("vvm_take_overs_total", named, telemetry.take_overs());

    out.family("vvm_losses", Kind::Counter, None, "Leaderships that were lost.");
    for (reason, count) in telemetry.losses() {
        out.sample("vvm_losses_total", &[name, ("reason", reason)], count);
    }
}
