//! Step-up of a service with many instances on `mem`: time, and memory of one. A round is a process, as in `held`.

use crate::{
    process,
    report::{Failure, Figure, Unit},
    setup::{Deadline, Scene, in_own_process},
};
use async_trait::async_trait;
use clap::Args;
use ielections::{DocumentId, DocumentWrite, OnlyIf, Standing, TokioSpawn, Ttl, documents::NotAnId};
use primary_only::{BoxError, RegistryBuilder, RegistryConfig, RunContext, Service, Task, TermInterrupted};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Round {
    #[arg(long)]
    instances: NonZeroU32,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Found {
    all_run: Duration,
    bytes: u64,
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Figure>, Failure> {
    let (rounds, number): (u32, u32) = if quick { (1, 10_000) } else { (3, 100_000) };
    let arguments = ["--instances".to_owned(), number.to_string()];
    let found = (0..rounds).map(|_| in_own_process("step-up-round", &arguments));
    let found = found.collect::<Result<Vec<Found>, _>>()?;
    let all_run = found.iter().map(|found| found.all_run.as_secs_f64()).collect();
    let bytes = found.iter().map(|found| found.bytes as f64 / f64::from(number)).collect();
    Ok(vec![
        Figure::new(format!("step-up with {number} instances on mem: all run"), Unit::Seconds, all_run),
        Figure::new("memory of an instance at work, its task included".to_owned(), Unit::Bytes, bytes),
    ])
}

impl Round {
    pub(crate) fn run(self) -> Result<(), Failure> {
        println!("{}", serde_json::to_string(&self.step_up()?)?);
        Ok(())
    }

    fn step_up(self) -> Result<Found, Failure> {
        let (runtime, scene) = Scene::in_memory(Deadline::System)?;
        runtime.block_on(async {
            let before = scene.acquire(scene.key(0), Ttl::DEFAULT).await?;
            self.write_documents(before.standing()).await?;
            before.release().await;

            let jobs = Jobs { running: Arc::new(Semaphore::new(0)) };
            let mut builder = RegistryBuilder::new(RegistryConfig {
                clock: Arc::clone(&scene.clock),
                spawn: Arc::new(TokioSpawn::on(runtime.handle().clone())),
                join_timeout: RegistryConfig::JOIN_TIMEOUT,
            });
            let (running, service) = (Arc::clone(&jobs.running), builder.register(jobs)?);
            let registry = builder.build();
            let leadership = scene.acquire(scene.key(0), Ttl::DEFAULT).await?;
            let (standing, stop) = (leadership.standing().clone(), CancellationToken::new());
            let resident = process::resident_bytes()?;
            let began = scene.clock.now();
            let lead = registry.lead(standing, stop.clone());
            let look = async {
                let found = service.get_all().await?.len();
                if found != self.instances.get() as usize {
                    return Err(format!("{found} of {} documents became instances", self.instances).into());
                }
                let _all = running.acquire_many(self.instances.get()).await?;
                let all_run = scene.clock.now().since(began);
                let bytes = process::resident_bytes()?.saturating_sub(resident);
                Ok::<_, Failure>(Found { all_run, bytes })
            };
            let (ended, found) = tokio::join!(lead, async {
                let found = look.await;
                stop.cancel();
                found
            });
            let found = found?;
            leadership.release().await;
            ended?;
            Ok(found)
        })
    }

    async fn write_documents(self, standing: &Standing) -> Result<(), Failure> {
        let documents = standing.documents().ok_or("`mem` keeps no documents")?;
        let ids: Vec<u32> = (0..self.instances.get()).collect();
        for ids in ids.chunks(documents.limits().max_batch.min(1_000)) {
            let put = |id: &u32| {
                let id = DocumentId::new(format!("primary-only/{}\0{id}", Jobs::NAME))?;
                // The envelope: format 1, schema 1, and the state as JSON.
                let body = b"\x01\x00\x00\x00\x01{\"step\":17,\"of\":1000}".as_slice().into();
                Ok(DocumentWrite::Put { id, body, only_if: OnlyIf::Absent })
            };
            documents.write(ids.iter().map(put).collect::<Result<_, NotAnId>>()?).await?;
        }
        Ok(())
    }
}

struct Jobs {
    running: Arc<Semaphore>,
}

struct Job(Arc<Semaphore>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Progress {
    step: u64,
    of: u64,
}

impl Service for Jobs {
    type Id = u32;
    type Doc = Progress;
    type Task = Job;

    const NAME: &'static str = "jobs";

    fn build(&self, _: &u32, _: &Progress) -> Result<Job, BoxError> {
        Ok(Job(Arc::clone(&self.running)))
    }
}

#[async_trait]
impl Task for Job {
    type Doc = Progress;

    async fn run(&self, cx: RunContext<Progress>) -> Result<(), BoxError> {
        self.0.add_permits(1);
        cx.stop.cancelled().await;
        Err(TermInterrupted.into())
    }
}
