//! A service that runs only while this process leads.
//!
//! Run `cargo run -p vvm-orch --example only_while_leading` in two terminals, and end one with Ctrl-C or `kill -9`.
#![forbid(unsafe_code)]

use ielections::{Elections, Env, Holder, Ttl};
use std::{error::Error, num::NonZeroU32, sync::Arc};
use vvm_orch::{AcquireTimeout, Vvm, VvmConfig, service_fn};
use vvm_storage::{ElectionKey, ElectionsTtlStorage, SlotNumber};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = Env::this_process()?;
    let storage = vvm_storage::open("sqlite:/var/lib/payroll/leader.db", env.clock.clone()).await?;
    let elections = Elections::new(Arc::new(ElectionsTtlStorage::new(storage)), env.clone());
    let slot = ElectionKey { cluster: "payroll".into(), slot: SlotNumber::new(NonZeroU32::MIN) };

    let payroll = service_fn("payroll", async |cx| {
        println!("this process leads, with epoch {}", cx.standing.epoch());
        cx.stop.cancelled().await;
        Ok(())
    });
    let config = VvmConfig::new(vec![slot], Holder::new("one of us")?, &env);
    let vvm = Vvm::provide(config, elections, vec![payroll]).launch(Ttl::DEFAULT, AcquireTimeout::Forever);
    tokio::select! {
        biased;
        _ = vvm.problem() => {}
        interrupt = tokio::signal::ctrl_c() => interrupt?,
    }
    Ok(vvm.shutdown().await?)
}
