//! A payroll that runs only while this process leads, with one dependency of the project, and its tests in mock time.
//!
//! Run `cargo run -p embedded -- sqlite:/tmp/leader.db` in two terminals, and end one of them with Ctrl-C or `kill -9`.
#![forbid(unsafe_code)]

use std::{process::ExitCode, sync::Arc, time::Duration};
use vvm_host::{Host, HostOutcome, HostSettings, Problem, Services, clock::Clock, service_fn};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the services of one leadership: `pay` is called once a minute, with the fencing token.
fn services(
    clock: Arc<dyn Clock>,
    pay: impl Fn(u64) + Send + Sync + 'static,
) -> impl FnMut() -> Services + Send {
    let pay = Arc::new(pay);
    move || {
        let (clock, pay) = (Arc::clone(&clock), Arc::clone(&pay));
        vec![service_fn("payroll", async move |cx| {
            while cx.stop.run_until_cancelled(clock.sleep(MINUTE)).await.is_some() {
                pay(cx.standing.epoch().get());
            }
            Ok(())
        })]
    }
}

fn explain(ended: &HostOutcome) -> String {
    match ended {
        HostOutcome::Stopped => "stopped on request; the record is released".into(),
        HostOutcome::Problem(Problem::Lost(loss)) => format!("another process may lead now: {loss}"),
        other => other.to_string(),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    run(std::env::args().nth(1).unwrap_or_else(|| "mem:".into())).await
}

async fn run(storage: String) -> ExitCode {
    let host = match Host::open(HostSettings::new(storage, "payroll")).await {
        Ok(host) => host,
        Err(error) => return error.report(),
    };
    let clock = Arc::clone(&host.env().clock);
    let ended = host.run(services(clock, |epoch| println!("pays, with the token {epoch}"))).await;
    println!("{}", explain(&ended));
    ended.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    };
    use vvm_host::Next;
    use vvm_host::testing::{
        FaultyStorage, Layer as _, MemDatabase, MockClock, MockSysVvmStorage, Outage, Step, StepOutcome,
        WriteError, env, in_mock_time,
    };

    fn settings() -> HostSettings {
        HostSettings::new("not opened", "payroll")
    }

    #[tokio::test]
    async fn ends_with_the_status_of_a_storage_that_it_cannot_open() {
        assert_eq!(run("leader.db".into()).await, ExitCode::from(vvm_host::exit_status::MISUSE));
        let missing = "sqlite:/nowhere/leader.db".into();
        assert_eq!(run(missing).await, ExitCode::from(vvm_host::exit_status::STORAGE));
    }

    #[test]
    fn pays_each_minute_until_it_is_stopped() {
        let clock = MockClock::new();
        in_mock_time(&clock, async {
            let database = MemDatabase::new(Arc::new(clock.clone()));
            let host = Host::on_storage(settings(), env(&clock), database.open()).unwrap();
            let (stop, paid) = (host.stop(), Arc::new(AtomicU64::new(0)));
            let counted = Arc::clone(&paid);
            let pay = move |_| {
                if counted.fetch_add(1, Relaxed) == 1 {
                    stop.cancel();
                }
            };
            let ended = host.run(services(Arc::new(clock.clone()), pay)).await;
            assert_eq!(explain(&ended), "stopped on request; the record is released");
            assert_eq!((paid.load(Relaxed), ended.exit_status()), (2, 0));
        });
    }

    #[test]
    fn pays_nothing_after_a_loss() {
        let mut storage = MockSysVvmStorage::vacant();
        storage.expect_commit().returning(|_, step| match step {
            Step::Renew { .. } => Err(WriteError::NotApplied("the disk is full".into())),
            _ => Ok(StepOutcome::Applied),
        });
        let clock = MockClock::new();
        in_mock_time(&clock, async {
            let host = Host::on_storage(settings(), env(&clock), Arc::new(storage)).unwrap();
            let ended = host.run(services(Arc::new(clock.clone()), |_| panic!("it has paid"))).await;
            assert!(explain(&ended).starts_with("another process may lead now: no renewal was confirmed"));
            assert_eq!(ended.exit_status(), 79);
        });
    }

    #[test]
    fn another_host_pays_during_an_outage_of_the_first() {
        let clock = MockClock::new();
        in_mock_time(&clock, async {
            let database = MemDatabase::new(Arc::new(clock.clone()));
            let faulty = FaultyStorage::over(database.open());
            let first = Host::on_storage(settings(), env(&clock), faulty.clone().into_storage()).unwrap();
            let second = Host::on_storage(settings(), env(&clock), database.open()).unwrap();
            let (stop_first, stop_second) = (first.stop(), second.stop());
            let paid = Arc::new(Mutex::new(Vec::new()));
            let services = |payer| {
                let paid = Arc::clone(&paid);
                services(Arc::new(clock.clone()), move |_| paid.lock().unwrap().push(payer))
            };
            let after = |ended: &HostOutcome| match ended {
                HostOutcome::Problem(Problem::Lost(_)) => Next::CampaignAfter(Duration::from_secs(1)),
                _ => Next::Stop,
            };
            let events = async {
                clock.sleep(MINUTE * 3 / 2).await;
                faulty.set_outage(Some(Outage::Away));
                clock.sleep(MINUTE * 2).await;
                faulty.set_outage(None);
                stop_second.cancel();
                clock.sleep(MINUTE * 3 / 2).await;
                stop_first.cancel();
            };
            let first = first.run_then(services("first"), after);
            let ended = tokio::join!(first, second.run(services("second")), events);
            assert!(matches!(ended, (HostOutcome::Stopped, HostOutcome::Stopped, ())), "{ended:?}");
            assert_eq!(*paid.lock().unwrap(), ["first", "second", "first"]);
        });
    }
}
