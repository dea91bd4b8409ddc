//! [`Standing`](crate::Standing): the state of a leadership, for its work.

use super::{ElectionsTestSuite, Scene};
use crate::{
    InsufficientTime, Loss,
    testing::mock::{Fault, Verb},
};
use std::time::Duration;

/// At most the time until the deadline, and none once it is handed back.
pub async fn a_standing_shows_how_much_time_is_left(scene: &Scene<impl ElectionsTestSuite>) {
    let process = scene.process().await;
    let leadership = scene.lead(&process, "leader").await;
    let standing = leadership.standing().clone();
    let remaining = standing.remaining();
    assert!(remaining <= scene.percent(80) && remaining + scene.slack >= scene.percent(70), "{remaining:?}");
    assert_eq!(standing.ensure(Duration::from_millis(1)), Ok(()));
    let too_much = standing.ensure(scene.ttl.get());
    assert!(matches!(too_much, Err(InsufficientTime::TooShort { .. })), "{too_much:?}");
    leadership.release().await;
    assert_eq!(standing.remaining(), Duration::ZERO);
    assert_eq!(standing.ensure(Duration::ZERO), Err(InsufficientTime::Lost(Loss::HandedBack)));
    assert_eq!(standing.lost().await, Loss::HandedBack);
}

/// At half a TTL without a renewal, and before the loss.
pub async fn a_standing_at_risk_is_a_warning(scene: &Scene<impl ElectionsTestSuite>) {
    let (process, storage) = scene.faulty().await;
    let leadership = scene.lead(&process, "leader").await;
    let sent_at = scene.sent_at(leadership.standing(), scene.ttl);
    storage.fail_always(Verb::CompareAndSwap, Fault::NotApplied);
    leadership.standing().at_risk().await;
    let at_risk_at = scene.timing.at_risk_at(sent_at);
    assert!(scene.now() >= at_risk_at && scene.now() <= at_risk_at.after(scene.slack));
    leadership.lost().await;
    assert!(scene.now() >= scene.timing.loss_at(sent_at));
    assert_eq!(leadership.standing().at_risk().await, Duration::ZERO);
    storage.heal();
    leadership.release().await;
}
