//! Hints, by notifications of PostgreSQL.

use super::PostgresStorage;
use crate::{key::Partition, sysvvm::SysVvmHints};
use async_trait::async_trait;

#[async_trait]
impl SysVvmHints for PostgresStorage {
    async fn announce(&self, topic: &Partition) {
        self.connections.announce(&channel(topic)).await;
    }

    async fn hinted(&self, topic: &Partition) {
        self.connections.notified(&channel(topic)).await;
    }

    fn listens(&self, topic: &Partition) -> bool {
        self.connections.listens(&channel(topic))
    }
}

/// The channel of a topic: a name of at most 63 letters, so a digest (FNV-1a, 64 bits). A channel that two
/// topics share costs looks.
fn channel(topic: &Partition) -> String {
    let digest = topic.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("vvm_{digest:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_is_the_same_in_every_release() {
        assert_eq!(channel(&Partition::from_bytes(*b"a")), "vvm_af63dc4c8601ec8c");
        assert_eq!(channel(&Partition::from_bytes(*b"foobar")), "vvm_85944171f73967e8");
    }
}
