//! [`Names`]: the names of objects below the prefix. Their values are those of [`cells`](crate::cells).

use crate::Partition;
use object_store::path::Path;

/// The longest part of a name, before its ending: servers on files have folders for slashes, with 255 bytes for a part.
const PART_BYTES: usize = 240;

#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn below(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Returns the name of a cell's object. A long key has slashes in between. Only the last part ends with
    /// `.cell`, so no object has the name of another's folder.
    pub(super) fn cell(&self, at: &Partition) -> Path {
        let mut name = self.prefix.clone();
        let encoded = at.encoded();
        let mut rest = &*encoded;
        while let Some((part, after)) =
            rest.split_at_checked(PART_BYTES).filter(|(_, after)| !after.is_empty())
        {
            name.push('/');
            name.push_str(part);
            rest = after;
        }
        Path::from(format!("{name}/{rest}.cell"))
    }

    pub(super) fn key(&self, name: &Path) -> Option<Partition> {
        let below = name.as_ref().strip_prefix(self.folder().as_ref())?.strip_prefix('/')?;
        Partition::decoded(&below.strip_suffix(".cell")?.replace('/', ""))
    }

    pub(super) fn folder(&self) -> Path {
        Path::from(&*self.prefix)
    }

    /// Shows that the prefix was initialised.
    pub(super) fn mark(&self) -> Path {
        Path::from(format!("{}/initialised", self.prefix))
    }

    pub(super) fn probe(&self, which: &str) -> Path {
        Path::from(format!("{}/probe/{which}", self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::objects::MOST_KEY_BYTES;
    use std::collections::HashSet;

    #[test]
    fn longest_name_fits_and_no_object_is_a_folder_of_another() {
        let names = Names::below(&"p".repeat(190));
        let keys = (0..=MOST_KEY_BYTES).map(|length| Partition::from_bytes(vec![1; length]));
        let all: HashSet<String> = keys.map(|at| names.cell(&at).to_string()).collect();
        assert_eq!(all.len(), MOST_KEY_BYTES + 1);
        for name in &all {
            assert!(name.len() <= 1024, "{} bytes", name.len());
            let parts: Vec<_> = name.split('/').collect();
            assert!(parts.iter().all(|part| part.len() <= 255), "{name}");
            let folders = parts.iter().rev().skip(1);
            assert!(folders.clone().all(|folder| !folder.ends_with(".cell")), "{name}");
        }
    }
}
