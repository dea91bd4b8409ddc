//! [`Replicas`]: a primary and its standby at two addresses, and fail-overs between them, on PostgreSQL and MariaDB.

use super::{
    TTL,
    fault::{Deletion, Fault},
    servers::{FaultyServers, Site, listed, text},
};
use servers::{
    mysql::MariaDb,
    owned::StartError,
    postgres::Postgres,
    replicated::{Copy, Replicated},
};
use std::net::SocketAddr;

/// A database server of which fault runs start two.
pub(super) trait Faulty: Replicated {
    /// In the order of the report.
    const FAULTS: &[Fault];

    /// Whether a primary without its standby does not answer, once it was told to wait for it.
    const WAITS_FOR_STANDBY: bool;

    /// What an operator does before a server that was restored accepts writes.
    const AFTER_RESTORE: &str;

    fn start() -> Result<Self, StartError>;

    /// Lets a standby have all that this server has answered.
    fn hand_over(&self, standby: &Self) -> Result<(), StartError>;

    fn url(hosts: &str) -> String;
}

impl Faulty for Postgres {
    const FAULTS: &[Fault] =
        &[Fault::StopOne, Fault::StopMost, Fault::KillOne, Fault::FailOver, Fault::FailOverLagging];

    const WAITS_FOR_STANDBY: bool = true;

    // A restore gives it a timeline of its own.
    const AFTER_RESTORE: &str = "";

    fn start() -> Result<Self, StartError> {
        Self::start(&servers::target(), &[], &[])
    }

    /// Its commits have waited for the standby.
    fn hand_over(&self, _: &Self) -> Result<(), StartError> {
        Ok(())
    }

    fn url(hosts: &str) -> String {
        format!("postgres://postgres@{hosts}/postgres")
    }
}

impl Faulty for MariaDb {
    const FAULTS: &[Fault] = &[
        Fault::StopMost,
        Fault::KillOne,
        Fault::FailOver,
        Fault::FailOverLagging,
        Fault::SwitchBack,
        Fault::Restore,
    ];

    const WAITS_FOR_STANDBY: bool = false;

    // As its page says.
    const AFTER_RESTORE: &str = "UPDATE faults.sysvvm_history SET server = ''";

    fn start() -> Result<Self, StartError> {
        Self::start(&servers::target(), &["faults"], &[])
    }

    fn hand_over(&self, standby: &Self) -> Result<(), StartError> {
        self.statement("SET GLOBAL read_only = 1")?;
        self.catch_up(standby)
    }

    fn url(hosts: &str) -> String {
        format!("mysql://root@{hosts}/faults")
    }
}

/// A primary with one standby, which has all of its writes, except before a fail-over that is to lose some.
pub(super) struct Replicas<S> {
    site: Site,
    primary: S,
    /// `None` after it was promoted.
    standby: Option<S>,
    /// The primary before a fail-over, if it is to be the primary again.
    former: Option<S>,
    copy: Option<Copy>,
    to_repair: Option<Fault>,
}

impl<S: Faulty> Replicas<S> {
    pub(super) fn start() -> Result<Self, String> {
        let mut primary = S::start().map_err(text)?;
        let standby = primary.standby().map_err(text)?;
        primary.wait_for_standby(true).map_err(text)?;
        let addresses = vec![primary.address(), standby.address()];
        let name = format!("{} with a standby", primary.version());
        let bound = TTL.get().as_secs();
        let url =
            move |at: &[SocketAddr]| format!("{}?max_ttl={bound}s&request_timeout=1s", S::url(&listed(at)));
        let site = Site::new(name, addresses, S::FAULTS, url)?;
        let (former, copy, to_repair) = (None, None, None);
        Ok(Self { site, primary, standby: Some(standby), former, copy, to_repair })
    }

    fn fail_over(&mut self) -> Result<Option<S>, StartError> {
        self.primary.kill()?;
        let Some(standby) = self.standby.take() else { return Ok(None) };
        let former = std::mem::replace(&mut self.primary, standby);
        self.primary.promote()?;
        Ok(Some(former))
    }

    /// A new standby, at the address that is free. Its primary is restarted.
    fn replace_standby(&mut self) -> Result<(), StartError> {
        let mut addresses = self.site.addresses.iter().copied();
        let Some(address) = addresses.find(|one| *one != self.primary.address()) else { return Ok(()) };
        self.primary.wait_for_standby(false)?;
        self.standby = Some(self.primary.standby_at(address)?);
        self.primary.wait_for_standby(true)
    }

    fn standby(&mut self) -> Result<&mut S, StartError> {
        self.standby.as_mut().ok_or_else(|| StartError::Failed("there is no standby".into()))
    }

    fn fail_over_complete(&mut self) -> Result<Option<S>, StartError> {
        if let Some(standby) = &self.standby {
            self.primary.hand_over(standby)?;
        }
        self.fail_over()
    }

    fn begin(&mut self, fault: Fault) -> Result<(), StartError> {
        self.to_repair = Some(fault);
        match fault {
            // Without it the primary waits before it answers.
            Fault::StopOne if S::WAITS_FOR_STANDBY => self.standby()?.stop()?,
            Fault::StopMost => {
                self.primary.stop()?;
                self.standby()?.stop()?;
            }
            Fault::KillOne => self.primary.kill()?,
            Fault::FailOver => drop(self.fail_over_complete()?),
            // From now on the standby lags.
            Fault::FailOverLagging => {
                self.primary.wait_for_standby(false)?;
                self.standby()?.kill()?;
            }
            Fault::SwitchBack => self.former = self.fail_over_complete()?,
            Fault::Restore => self.copy = Some(self.primary.copy()?),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), StartError> {
        match self.to_repair.take() {
            Some(Fault::StopOne | Fault::StopMost) => {
                self.primary.go_on()?;
                Ok(self.standby()?.go_on()?)
            }
            Some(Fault::KillOne) => self.primary.restart(),
            Some(Fault::FailOver) => self.replace_standby(),
            Some(Fault::FailOverLagging) => {
                self.primary.kill()?;
                self.standby()?.restart()?;
                self.fail_over()?;
                self.replace_standby()
            }
            Some(Fault::SwitchBack) => {
                self.primary.kill()?;
                if let Some(former) = self.former.take() {
                    self.primary = former;
                }
                self.primary.restart()?;
                self.replace_standby()
            }
            Some(Fault::Restore) => {
                if let Some(copy) = self.copy.take() {
                    self.primary.restore(&copy, S::AFTER_RESTORE)?;
                }
                self.standby = None;
                self.replace_standby()
            }
            _ => Ok(()),
        }
    }
}

impl<S: Faulty> FaultyServers for Replicas<S> {
    fn site(&self) -> &Site {
        &self.site
    }

    fn inject(&mut self, fault: Fault, _: &mut fastrand::Rng) -> Result<(), String> {
        self.begin(fault).map_err(text)
    }

    fn delete(&self, _: Deletion) -> Result<(), String> {
        Err("a table is not edited by hand".into())
    }

    fn repair(&mut self) -> Result<(), String> {
        self.end().map_err(text)
    }
}
