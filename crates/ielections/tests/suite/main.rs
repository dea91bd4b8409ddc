//! The public suites on the model of the contract, which proves no ages; and on the model with each fault that a storage
//! may have, where the cases that are named for it have to fail.
#![allow(clippy::unwrap_used, reason = "clippy knows tests, but not their helpers")]

mod hostile;

use async_trait::async_trait;
use hostile::{
    Shared,
    faults::{FAULTS, StorageFault},
};
use ielections::{
    Ttl, TtlStorage,
    testing::{
        contract::{self, StorageUnderTest},
        document_contract,
        elections_suite::{self, ElectionsTestSuite},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fmt, fs,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};
use testing_time::MockClock;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Name(Vec<u8>);

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(out)
    }
}

/// Names the fault of the storage in this run of the program.
const VARIABLE: &str = "VVM_STORAGE_FAULT";

struct ModelUnderTest {
    shared: Arc<Shared>,
    fault: StorageFault,
    clock: MockClock,
}

impl ModelUnderTest {
    fn fresh() -> Self {
        let name = env::var(VARIABLE).unwrap_or_default();
        let named = FAULTS.iter().find(|(fault, _)| format!("{fault:?}") == name);
        let fault = named.map_or(StorageFault::NoFault, |(fault, _)| *fault);
        Self { shared: Shared::new(), fault, clock: MockClock::new() }
    }
}

#[async_trait]
impl StorageUnderTest for ModelUnderTest {
    type Key = Name;

    async fn open(&self) -> Arc<dyn TtlStorage<Name>> {
        self.shared.open(self.fault)
    }

    fn key(&self, name: &[u8]) -> Name {
        Name(name.to_vec())
    }
}

impl ElectionsTestSuite for ModelUnderTest {
    fn ttl(&self) -> Ttl {
        Ttl::DEFAULT
    }

    fn mock_clock(&self) -> Option<MockClock> {
        Some(self.clock.clone())
    }
}

mod records {
    ielections::storage_contract_suite!(crate::ModelUnderTest::fresh());
}

mod documents {
    ielections::document_contract_suite!(crate::ModelUnderTest::fresh());
}

mod elections {
    ielections::elections_test_suite!(crate::ModelUnderTest::fresh());
}

mod fenced {
    ielections::fenced_elections_suite!(crate::ModelUnderTest::fresh());
}

#[test]
fn storage_without_limits_passes() {
    let fresh = async || ModelUnderTest { fault: StorageFault::NoLimits, ..ModelUnderTest::fresh() };
    contract::run(fresh, async |storage| contract::a_scan_takes_more_keys_than_a_batch(&storage).await);
    elections_suite::run(fresh, async |scene| {
        elections_suite::a_ttl_too_short_for_the_storage_is_refused(&scene).await;
    });
}

#[test]
fn every_case_is_in_the_list_of_its_suite() {
    let elections = [elections_suite::CASES, elections_suite::FENCED_CASES].concat();
    for (folder, cases) in [
        ("contract", contract::CASES),
        ("document_contract", document_contract::CASES),
        ("elections_suite", &elections),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testing").join(folder);
        let sources = fs::read_dir(folder).unwrap();
        let sources: String = sources.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        let written = sources.split("\npub async fn ").skip(1);
        let written: BTreeSet<_> = written.map(|rest| rest.split(['(', '<']).next().unwrap()).collect();
        assert_eq!(cases.iter().copied().collect::<BTreeSet<_>>(), written);
        assert_eq!(cases.len(), written.len(), "a case is listed twice");
    }
}

/// Most of a run is spent waiting.
const RUNS_AT_ONCE: usize = 8;

fn run(fault: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    // A trace of each panic takes longer than the case.
    command.args(arguments).env(VARIABLE, fault).env("RUST_BACKTRACE", "0");
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn tests_of_cases(listed: &str) -> BTreeMap<&str, &str> {
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    tests.filter_map(|test| Some((test.split_once("::")?.1, test))).collect()
}

#[test]
fn each_fault_of_a_storage_fails_its_cases() {
    let listed = run("", &["--list"]);
    let tests = tests_of_cases(&listed);
    let passing = |fault: StorageFault, cases: &[&str]| -> Vec<String> {
        let of_fault: Vec<_> = cases.iter().map(|case| tests[case]).collect();
        let printed = run(&format!("{fault:?}"), &[&["--exact"], &of_fault[..]].concat());
        let has_failed = |test: &&str| printed.contains(&format!("test {test} ... FAILED"));
        of_fault
            .into_iter()
            .filter(|test| !has_failed(test))
            .map(|test| format!("{test} on {fault:?}"))
            .collect()
    };
    let (left, passed) = (Mutex::new(FAULTS.iter()), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..RUNS_AT_ONCE {
            scope.spawn(|| {
                while let Some((fault, cases)) = next() {
                    let of_fault = passing(*fault, cases);
                    passed.lock().unwrap().extend(of_fault);
                }
            });
        }
    });
    let passed = passed.into_inner().unwrap();
    assert!(passed.is_empty(), "these pass: {passed:#?}");
}

/// The bugs are those that `cargo xtask sim --broken` plants.
#[test]
fn each_case_fails_on_a_fault_or_a_bug() {
    let bugs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/src/broken/variants.txt");
    let bugs =
        fs::read_to_string(bugs).expect("the list of bugs: it is in the repository, and in no package");
    let by_bugs =
        bugs.lines().filter_map(|line| line.strip_prefix("cases ")).flat_map(|cases| cases.split(' '));
    let by_faults = FAULTS.iter().flat_map(|(_, cases)| cases.iter().copied());
    let failing: BTreeSet<_> = by_faults.chain(by_bugs).collect();
    let listed = run("", &["--list"]);
    let idle: Vec<_> = tests_of_cases(&listed).into_keys().filter(|case| !failing.contains(case)).collect();
    assert!(idle.is_empty(), "these find nothing: {idle:#?}");
}
