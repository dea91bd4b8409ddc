//! Registration: names and collections are unique.

use crate::{
    probe::{Probe, ProbeTask, Steps},
    rig::run,
};
use async_trait::async_trait;
use primary_only::{BoxError, RegisterError, RegistryBuilder, RegistryConfig, Service};

/// A service with the collection of the probe.
struct Renamed;

impl Service for Renamed {
    type Id = String;
    type Doc = Steps;
    type Task = ProbeTask;

    const NAME: &'static str = "renamed";
    const COLLECTION: &'static str = Probe::NAME;

    fn build(&self, id: &String, doc: &Steps) -> Result<ProbeTask, BoxError> {
        Probe::default().build(id, doc)
    }
}

struct Nameless;

#[async_trait]
impl Service for Nameless {
    type Id = String;
    type Doc = Steps;
    type Task = ProbeTask;

    const NAME: &'static str = "nameless";
    const COLLECTION: &'static str = "";

    fn build(&self, id: &String, doc: &Steps) -> Result<ProbeTask, BoxError> {
        Probe::default().build(id, doc)
    }
}

#[test]
fn double_register_service() {
    run(async |cluster| {
        let process = cluster.process("a");
        let mut builder = RegistryBuilder::new(RegistryConfig::new(&process.env));
        builder.register(Probe::default()).unwrap();
        assert_eq!(builder.register(Probe::default()).unwrap_err(), RegisterError::Name("probe"));
        assert_eq!(builder.register(Renamed).unwrap_err(), RegisterError::Collection("probe"));
        assert!(matches!(builder.register(Nameless).unwrap_err(), RegisterError::NotACollection(_)));
        let services: Vec<_> = builder.build().status().iter().map(|status| status.service).collect();
        assert_eq!(services, ["probe"]);
    });
}
