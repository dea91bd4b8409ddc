//! Checks the copies of a record: refuses what can't work, and returns concerns about what is unwise.

use super::{Address, Levels, OpenError};
use ::scylla::{client::session::Session, cluster::metadata::Strategy};
use std::collections::{BTreeMap, BTreeSet};

/// Fails if the data centre of the URL does not exist.
pub(super) fn check_datacenter(session: &Session, address: &Address) -> Result<(), OpenError> {
    let Some(wanted) = &address.datacenter else { return Ok(()) };
    let state = session.get_cluster_state();
    let there: BTreeSet<&str> =
        state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    if there.contains(wanted.as_str()) {
        return Ok(());
    }
    Err(OpenError::NoDatacenter {
        wanted: wanted.clone(),
        there: there.into_iter().collect::<Vec<_>>().join(", "),
    })
}

/// Returns what is unwise about the keyspace.
///
/// # Errors
/// [`OpenError::NoCopies`]
pub(super) fn check(session: &Session, address: &Address) -> Result<Vec<String>, OpenError> {
    let state = session.get_cluster_state();
    let datacenters: BTreeSet<_> =
        state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    match state.get_keyspace(&address.keyspace) {
        Some(keyspace) => judge(&keyspace.strategy, &address.levels, datacenters.len(), &address.keyspace),
        // It was just dropped. The next request reports that.
        None => Ok(Vec::new()),
    }
}

fn judge(
    strategy: &Strategy,
    levels: &Levels,
    datacenters: usize,
    keyspace: &str,
) -> Result<Vec<String>, OpenError> {
    let mut concerns = Vec::new();
    let copies = match (strategy, levels) {
        (Strategy::NetworkTopologyStrategy { datacenter_repfactors }, Levels::Local(datacenter)) => {
            match datacenter_repfactors.get(datacenter) {
                Some(copies) if *copies > 0 => *copies,
                _ => {
                    let there: BTreeMap<_, _> =
                        datacenter_repfactors.iter().filter(|(_, copies)| **copies > 0).collect();
                    let there = there.into_iter().map(|(name, copies)| format!("{name}: {copies}"));
                    return Err(OpenError::NoCopies {
                        keyspace: keyspace.to_owned(),
                        datacenter: datacenter.clone(),
                        there: there.collect::<Vec<_>>().join(", "),
                    });
                }
            }
        }
        (Strategy::NetworkTopologyStrategy { datacenter_repfactors }, Levels::Global) => {
            datacenter_repfactors.values().sum()
        }
        (Strategy::SimpleStrategy { replication_factor }, _) => {
            if datacenters > 1 {
                concerns.push(
                    "SimpleStrategy puts copies into random data centres: ALTER KEYSPACE to \
                     NetworkTopologyStrategy"
                        .to_owned(),
                );
            }
            *replication_factor
        }
        // An unknown strategy.
        _ => return Ok(Vec::new()),
    };
    match copies {
        1 => concerns.push(
            "there is one copy of each record: while its node is down no candidate leads, and if its disk is \
             lost so are the epochs. Three copies let one node fail: ALTER KEYSPACE"
                .to_owned(),
        ),
        2 => concerns.push(
            "there are two copies of each record, and both nodes must answer: three let one node fail. ALTER \
             KEYSPACE"
                .to_owned(),
        ),
        _ => {}
    }
    Ok(concerns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(each: &[(&str, usize)]) -> Strategy {
        let each = each.iter().map(|(name, copies)| ((*name).to_owned(), *copies));
        Strategy::NetworkTopologyStrategy { datacenter_repfactors: each.collect() }
    }

    #[test]
    fn fewer_than_three_copies_are_a_concern() {
        let concerns = |strategy: &Strategy, datacenters| {
            judge(strategy, &Levels::Global, datacenters, "keyspace").unwrap().join("\n")
        };
        assert_eq!(concerns(&network(&[("dc1", 3)]), 1), "");
        assert!(concerns(&network(&[("dc1", 1)]), 1).contains("one copy"));
        assert!(concerns(&network(&[("dc1", 1), ("dc2", 1)]), 2).contains("two copies"));
        let simple = Strategy::SimpleStrategy { replication_factor: 3 };
        assert_eq!(concerns(&simple, 1), "");
        assert!(concerns(&simple, 2).contains("random data centres"));
    }

    #[test]
    fn local_level_needs_copies_in_its_data_centre() {
        let judge =
            |strategy, datacenter: &str| judge(strategy, &Levels::Local(datacenter.into()), 2, "keyspace");
        let both = network(&[("dc1", 3), ("dc2", 0)]);
        assert_eq!(judge(&both, "dc1").unwrap(), [""; 0]);
        let error = judge(&both, "dc2").unwrap_err().to_string();
        assert!(error.contains("dc1: 3"), "{error}");
    }
}
