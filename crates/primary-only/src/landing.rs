//! One write of one document, tried until it is known to have landed, until it is known that it can't, or
//! until the term ends.

use crate::term::Term;
use ielections::{DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError};
use std::time::Duration;
use vvm_clock::Clock;

/// Between two attempts, on top of the time that the storage has for each.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes, and finds out what came of it (I7), also where an attempt before was not waited for (`in_doubt`).
/// Finite: a term ends (I10).
pub(crate) async fn land(
    term: &Term,
    clock: &dyn Clock,
    write: DocumentWrite,
    in_doubt: bool,
) -> Result<DocumentVersion, DocumentWriteError> {
    let mut may_have_landed = in_doubt;
    loop {
        let error = match term.write(write.clone()).await {
            // Nobody else writes this document: what is in the way is what was written before.
            Err(DocumentWriteError::Conflict { id, found }) if may_have_landed => {
                match stands(term, &write).await {
                    Ok(Some(version)) => return Ok(version),
                    Ok(None) => return Err(DocumentWriteError::Conflict { id, found }),
                    Err(error) => unknown(error),
                }
            }
            Err(error) => error,
            Ok(version) => return Ok(version),
        };
        match &error {
            DocumentWriteError::NotWritten { .. } => {}
            DocumentWriteError::Unknown { .. } => may_have_landed = true,
            _ => return Err(error),
        }
        tracing::warn!(document = %write.id(), %error, "trying again");
        if term.stop.run_until_cancelled(clock.sleep(PAUSE)).await.is_none() {
            return Err(error);
        }
    }
}

/// Whether what is written stands, and with which version. (A deletion has none: its own is as good as any.)
async fn stands(term: &Term, write: &DocumentWrite) -> Result<Option<DocumentVersion>, DocumentReadError> {
    let document = term.get(write.id()).await?;
    Ok(match (write, document) {
        (DocumentWrite::Put { body, .. }, Some(document)) if document.body == *body => Some(document.version),
        (DocumentWrite::Delete { .. }, None) => Some(DocumentVersion::NONE),
        _ => None,
    })
}

fn unknown(error: DocumentReadError) -> DocumentWriteError {
    match error {
        DocumentReadError::Deposed { current } => DocumentWriteError::Deposed { current },
        DocumentReadError::Lost(loss) => DocumentWriteError::Lost(loss),
        DocumentReadError::TooLarge(beyond) => DocumentWriteError::TooLarge(beyond),
        DocumentReadError::Storage(error) => DocumentWriteError::Unknown { cause: error.to_string().into() },
    }
}
