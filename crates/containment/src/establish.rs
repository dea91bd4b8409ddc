//! Establishing a containment. A level is tried before anything is started in it.

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

/// Why the requested level is not available.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No level is available.
    #[error(transparent)]
    ProcFs(#[from] ForeignProcFs),
    /// This process can't make a control group.
    #[error(transparent)]
    ControlGroup(#[from] delegation::Refusal),
    /// This process can't make a PID namespace.
    #[error(transparent)]
    Namespace(#[from] namespace_refusal::Refusal),
}

impl Containment {
    /// Establishes the wanted level. A control group exists until it is [dissolved](Self::dissolve).
    ///
    /// # Errors
    /// If the level is not available here.
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

/// Makes a control group, and tries that processes can be moved into it, which not every group allows.
fn tried_group(own: &Path) -> io::Result<ControlGroup> {
    let group = ControlGroup::below(own)?;
    let (near, far) = link::pair::<ToShim, FromShim>()?;
    let admitted = launch::command(shim::STAGE, [], far).spawn().and_then(|mut shim| {
        let admitted = group.admit(Pid::from_child(&shim));
        // Without a message, it ends.
        drop(near);
        shim.wait()?;
        admitted
    });
    // No process is in it.
    admitted.inspect_err(|_| drop(group.remove()))?;
    Ok(group)
}
