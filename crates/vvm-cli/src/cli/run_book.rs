//! Checks that `docs/operations.md` lists every loss and every exit status.

use crate::settings;
use ielections::{Epoch, Holder, Incarnation, Loss, Ttl, Version, record::Entry};
use std::{collections::BTreeSet, fs};

fn run_book() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap()
}

/// Returns one of each kind. A new kind does not compile without an arm here.
fn losses() -> Vec<Loss> {
    let epoch = Epoch::new(1).unwrap();
    let entry = Entry {
        holder: Holder::new("web2").unwrap(),
        version: Version { incarnation: Incarnation::from_bytes([1; 16]), write: 0 },
        ttl: Ttl::DEFAULT,
        epoch,
    };
    let mut found = Vec::new();
    let mut next = Some(Loss::Stolen { by: Box::new(entry) });
    while let Some(loss) = next {
        next = match &loss {
            Loss::Stolen { .. } => Some(Loss::Vanished),
            Loss::Vanished => Some(Loss::EpochWentBack { held: epoch, found: None }),
            Loss::EpochWentBack { .. } => Some(Loss::StorageReplaced { cause: "it was".into() }),
            Loss::StorageReplaced { .. } => Some(Loss::StorageUnreachable { last_failure: None }),
            Loss::StorageUnreachable { .. } => Some(Loss::Suspended),
            Loss::Suspended => Some(Loss::Closing),
            Loss::Closing => Some(Loss::HandedBack),
            Loss::HandedBack => Some(Loss::EngineEnded),
            Loss::EngineEnded => Some(Loss::Dropped),
            Loss::Dropped => None,
        };
        found.push(loss);
    }
    found
}

#[test]
fn operations_page_quotes_every_loss() {
    let book = run_book();
    // A quotation has `…` for omitted parts, and HOLDER for a name.
    let quoted = book.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    for loss in losses() {
        let said = loss.to_string();
        let found = quoted.iter().any(|quotation| {
            let quotation = quotation.replace("HOLDER", "web2");
            let mut rest = said.as_str();
            let mut parts = quotation
                .split('…')
                .map(|part| part.trim_matches([' ', ':']))
                .filter(|part| !part.is_empty());
            quotation.len() > 10
                && parts.all(|part| rest.split_once(part).map(|(_, after)| rest = after).is_some())
        });
        assert!(found, "docs/operations.md does not quote: {said}");
    }
}

#[test]
fn operations_page_lists_every_exit_status() {
    let book = run_book();
    // The numbers after `Exit status:` in the help of any command, except 0 and the 128 of `128 + n`.
    let cli = settings::described();
    let help = cli.get_subcommands().filter_map(|command| command.get_after_help()).map(ToString::to_string);
    let help =
        help.filter_map(|help| Some(help.split_once("Exit status:")?.1.to_owned())).collect::<String>();
    let numbers = help.split_whitespace().filter_map(|word| word.parse::<u8>().ok());
    let statuses = numbers.filter(|status| ![0, 128].contains(status)).collect::<BTreeSet<_>>();
    assert!(statuses.len() > 9, "{statuses:?}");
    let rows =
        book.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect::<Vec<_>>();
    for status in statuses {
        let has_row = rows.iter().any(|row| row.split(", ").any(|listed| listed == status.to_string()));
        assert!(has_row, "docs/operations.md has no row for exit status {status}");
    }
}
