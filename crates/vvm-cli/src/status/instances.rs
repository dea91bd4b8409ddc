//! The instances of primary-only services, by the documents that their leader wrote.

use ielections::{ReadError, Scan, TtlStorage as _};
use primary_only::{DocumentedInstance, DocumentedState};
use std::io::{self, Write};
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

/// How many characters of a state the table shows. JSON has all.
const SHOWN: usize = 100;

/// Returns all instances in the order of their ids; none if the storage keeps no documents.
pub(super) async fn read(
    storage: &ElectionsTtlStorage,
    key: &ElectionKey,
) -> Result<Vec<DocumentedInstance>, ReadError> {
    let Some(documents) = storage.documents() else { return Ok(Vec::new()) };
    // A scan after this sees every batch (sentence 6 of the contract).
    documents.fence_state(key).await?;
    let mut scan = Scan { limit: usize::MAX, ..Scan::default() };
    let mut instances = Vec::new();
    loop {
        let page = documents.scan_documents(key, &scan).await?;
        instances.extend(page.documents.iter().filter_map(DocumentedInstance::of));
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(instances),
        }
    }
}

/// Prints a table of the instances, if they were read.
pub(super) fn show<'a>(
    out: &mut impl Write,
    slots: impl Iterator<Item = (u32, Option<&'a [DocumentedInstance]>)>,
) -> io::Result<()> {
    let read = slots.filter_map(|(slot, instances)| Some((slot, instances?))).collect::<Vec<_>>();
    if read.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:>4}  {:16}  {:24}  {:>9}  STATE", "SLOT", "COLLECTION", "INSTANCE", "VERSION")?;
    for (slot, instances) in read {
        for DocumentedInstance { collection, instance, version, state, .. } in instances {
            // A document may contain anything, control sequences of terminals included.
            let (collection, instance) = (collection.escape_debug(), instance.escape_debug());
            let state = match state {
                DocumentedState::Readable { state, .. } => state.to_string(),
                DocumentedState::Unreadable { problem } => format!("unreadable: {problem}"),
            };
            let cut = if state.chars().nth(SHOWN).is_some() { "…" } else { "" };
            let state = state.chars().take(SHOWN).collect::<String>();
            writeln!(
                out,
                "{slot:>4}  {:16}  {:24}  {version:>9}  {state}{cut}",
                collection.to_string(),
                instance.to_string()
            )?;
        }
    }
    Ok(())
}
