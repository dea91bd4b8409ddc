//! Establishing a containment: the level that was asked for is tried out before anything is started in it.

use crate::{
    control_group::ControlGroup,
    delegation,
    established::Containment,
    launch,
    level::{Level, Wanted},
    link, namespace, namespace_refusal,
    processes::{Family, ForeignProcFs},
    shim::{self, FromShim, ToShim},
};
use rustix::process::Pid;
use std::{io, path::Path, sync::Arc};

/// The level asked for is not to be had here.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No level is.
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
    /// There is no control group for the command.
    #[error(transparent)]
    ControlGroup(#[from] delegation::Refusal),
    /// There is no PID namespace for it.
    #[error(transparent)]
    Namespace(#[from] namespace_refusal::Refusal),
}

impl Containment {
    /// The level wanted, tried out. A group is there from now on, until it is [dissolved](Self::dissolve).
    ///
    /// # Errors
    /// When it is not to be had here.
    pub fn establish(wanted: Wanted) -> Result<Self, Refusal> {
        let (level, group) = match wanted {
            Wanted::Auto => delegation::own_group()
                .ok()
                .filter(|own| delegation::is_delegated(own))
                .and_then(|own| tried_group(&own).ok())
                .map_or((Level::Guardian, None), |group| (Level::ControlGroup, Some(group))),
            Wanted::Exactly(Level::Guardian) => (Level::Guardian, None),
            Wanted::Exactly(Level::ControlGroup) => {
                let own = delegation::own_group()?;
                let group =
                    tried_group(&own).map_err(|cause| delegation::Refusal::NotDelegated { own, cause })?;
                (Level::ControlGroup, Some(group))
            }
            Wanted::Exactly(Level::PidNamespace) => {
                namespace::try_out()?;
                (Level::PidNamespace, None)
            }
        };
        Ok(Self::of(level, Family::of_this_process()?, group.map(Arc::new)))
    }
}

/// A group that takes processes in: not every one does that lets others be made below it.
fn tried_group(own: &Path) -> io::Result<ControlGroup> {
    let group = ControlGroup::below(own)?;
    let (near, far) = link::pair::<ToShim, FromShim>()?;
    let admitted = launch::command(shim::STAGE, [], far).spawn().and_then(|mut shim| {
        let admitted = group.admit(Pid::from_child(&shim));
        // SignalForCommand nothing, it ends.
        drop(near);
        shim.wait()?;
        admitted
    });
    // No process is in it.
    admitted.inspect_err(|_| drop(group.remove()))?;
    Ok(group)
}
