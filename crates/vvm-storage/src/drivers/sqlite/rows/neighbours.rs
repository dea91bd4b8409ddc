//! Reads slots with one statement for all that are neighbours in the index.
//!
//! The slots of a cluster are neighbours, and every candidate reads all of them. For a thousand candidates
//! and a thousand slots, a million searches took a minute. The requests to a cluster lie elsewhere. A few
//! rows are searched for.

use super::{Rows, damaged};
use crate::{drivers::sqlite::errors::DriverError, key::Partition};
use ielections::{Slot, Vacant};
use rusqlite::params;

const READ_BETWEEN: &str = "
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, pk
    FROM leader WHERE pk BETWEEN ?1 AND ?2 ORDER BY pk";

/// What a standby reads, time and again: its slot and two requests. The last column is the place in the list.
const READ_FEW: &str = "
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, 0
    FROM leader WHERE pk = ?1 UNION ALL
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, 1
    FROM leader WHERE pk = ?2 UNION ALL
    SELECT epoch, incarnation, write, ttl_nanos, holder, issued_at_nanos, boot_id, time_namespace, 2
    FROM leader WHERE pk = ?3";

const FEW: usize = 3;

impl Rows<'_> {
    pub(in super::super) fn slots(&self, at: &[Partition]) -> Result<Vec<Slot>, DriverError> {
        let mut slots = vec![Slot::Vacant(Vacant { last_epoch: None }); at.len()];
        if at.len() <= FEW {
            self.read_few(at, &mut slots)?;
            return Ok(slots);
        }
        let mut asked: Vec<usize> = (0..at.len()).collect();
        asked.sort_unstable_by_key(|&index| &at[index]);
        // Partitions of another kind have another first byte, and all other clusters lie in between. That of
        // a slot is the smallest: requests are read after slots.
        for asked in asked.chunk_by(|&one, &next| at[one].as_bytes().first() == at[next].as_bytes().first()) {
            self.read_neighbours(at, asked, &mut slots)?;
        }
        Ok(slots)
    }

    fn read_few(&self, at: &[Partition], slots: &mut [Slot]) -> Result<(), DriverError> {
        let mut statement = self.connection.prepare_cached(READ_FEW)?;
        // NULL equals no key.
        let key = |place: usize| at.get(place).map(Partition::as_bytes);
        let mut rows = statement.query(params![key(0), key(1), key(2)])?;
        while let Some(row) = rows.next()? {
            slots[usize::from(row.get::<_, u16>(8)?)] = self.decode(row)?;
        }
        Ok(())
    }

    /// Reads those of `at` that are `asked` for, in the order of their keys.
    fn read_neighbours(
        &self,
        at: &[Partition],
        asked: &[usize],
        slots: &mut [Slot],
    ) -> Result<(), DriverError> {
        let (Some(&first), Some(&last)) = (asked.first(), asked.last()) else { return Ok(()) };
        let mut left = asked.iter().copied().peekable();
        let mut statement = self.connection.prepare_cached(READ_BETWEEN)?;
        let mut rows = statement.query(params![at[first].as_bytes(), at[last].as_bytes()])?;
        let mut others = 0;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(8)?.as_blob().map_err(damaged)?;
            while left.next_if(|&index| at[index].as_bytes() < key).is_some() {}
            if left.peek().is_none_or(|&index| at[index].as_bytes() != key) {
                others += 1;
            }
            // One slot may occur twice in `at`.
            while let Some(index) = left.next_if(|&index| at[index].as_bytes() == key) {
                slots[index] = self.decode(row)?;
            }
            if others > asked.len() {
                // They are not neighbours: the scan could read the whole table.
                for &index in asked {
                    slots[index] = self.slot(&at[index])?;
                }
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{drivers::sqlite::rows::SCHEMA, step::Step};
    use ielections::Entry;
    use rusqlite::Connection;
    use vvm_clock::Instant;

    fn partition(number: u16) -> Partition {
        Partition::from_bytes(number.to_be_bytes())
    }

    fn entry(number: u16) -> Entry {
        ielections::testing::entry(7, number.into(), 1)
    }

    #[test]
    fn range_scan_finds_the_same_as_single_searches() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        let rows = Rows { connection: &connection, origin: None, now: Instant::ORIGIN };
        for number in (100..400).step_by(3) {
            rows.put(&partition(number), &entry(number), Instant::ORIGIN).unwrap();
        }
        let released = entry(103);
        let release = Step::release(released.incarnation(), released.epoch);
        rows.commit(&partition(103), &release, Instant::ORIGIN).unwrap();

        let lists: [Vec<u16>; 9] = [
            vec![],
            vec![100],
            vec![99, 401],
            // All, in reverse order; a range with gaps; one slot twice.
            (0..500).rev().collect(),
            (200..260).collect(),
            vec![103, 130, 103, 130, 131],
            // More other rows in between than slots to read.
            vec![397, 100, 250],
            vec![397, 101, 100, 255, 256],
            vec![256, 103, 256],
        ];
        for numbers in lists {
            let asked: Vec<_> = numbers.into_iter().map(partition).collect();
            let expected: Vec<_> = asked.iter().map(|at| rows.slot(at).unwrap()).collect();
            assert_eq!(rows.slots(&asked).unwrap(), expected, "{asked:?}");
        }
    }
}
