//! One write of one document, repeated until its result is known or the term ends.

use crate::term::Term;
use ielections::{DocumentReadError, DocumentVersion, DocumentWrite, DocumentWriteError};
use std::time::Duration;
use vvm_clock::Clock;

/// The pause between two attempts. The storage limits each attempt itself.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes until the result is known (I7), and returns the version of the document.
///
/// `in_doubt` says that an earlier attempt was dropped and may have been applied. Ends with the term at the
/// latest (I10).
pub(crate) async fn write_until_known(
    term: &Term,
    clock: &dyn Clock,
    write: DocumentWrite,
    in_doubt: bool,
) -> Result<DocumentVersion, DocumentWriteError> {
    let mut may_be_applied = in_doubt;
    loop {
        let error = match term.write(write.clone()).await {
            // The instance is the document's only writer, so its own earlier attempt may be in the way.
            Err(DocumentWriteError::Conflict { id, found }) if may_be_applied => {
                match applied(term, &write).await {
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
            DocumentWriteError::Unknown { .. } => may_be_applied = true,
            _ => return Err(error),
        }
        tracing::warn!(document = %write.id(), %error, "a document was not written; trying again");
        if term.stop.run_until_cancelled(clock.sleep(PAUSE)).await.is_none() {
            return Err(error);
        }
    }
}

/// Returns the document's version if the write was applied.
async fn applied(term: &Term, write: &DocumentWrite) -> Result<Option<DocumentVersion>, DocumentReadError> {
    let document = term.get(write.id()).await?;
    Ok(match (write, document) {
        (DocumentWrite::Put { body, .. }, Some(document)) if document.body == *body => Some(document.version),
        // A deleted document has no version, and no caller reads it.
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
