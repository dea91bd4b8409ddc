//! What the documents of a slot say of its instances: whoever leads writes them, and anybody may look.

use ielections::{ReadError, Scan, TtlStorage as _};
use primary_only::{DocumentedInstance, DocumentedState};
use std::io::{self, Write};
use vvm_storage::{ElectionKey, ElectionsTtlStorage};

/// How much of a state a line shows, in characters; JSON has all of it.
const SHOWN: usize = 100;

/// All of them, in the order of their ids. None where the storage keeps no documents.
pub(super) async fn read(
    storage: &ElectionsTtlStorage,
    key: &ElectionKey,
) -> Result<Vec<DocumentedInstance>, ReadError> {
    let Some(documents) = storage.documents() else { return Ok(Vec::new()) };
    // Only after this every batch is to be seen (the contract's sentence 6).
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

/// A table of its own, if they were asked for.
pub(super) fn show<'a>(
    out: &mut impl Write,
    slots: impl Iterator<Item = (u32, Option<&'a [DocumentedInstance]>)>,
) -> io::Result<()> {
    let asked_for = slots.filter_map(|(slot, instances)| Some((slot, instances?))).collect::<Vec<_>>();
    if asked_for.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:>4}  {:16}  {:24}  {:>9}  STATE", "SLOT", "COLLECTION", "INSTANCE", "VERSION")?;
    for (slot, instances) in asked_for {
        for DocumentedInstance { collection, instance, version, state, .. } in instances {
            // What stands in a storage may hold anything, terminals' own commands too.
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
