//! The requests of documents, as DynamoDB takes them.

use super::super::super::{
    errors::{Cancellation, DriverError, Failure, said},
    open::Requests,
    rows::{self, Batches, Item},
};
use aws_sdk_dynamodb::{
    error::{BuildError, SdkError},
    operation::{transact_get_items::TransactGetItemsError, transact_write_items::TransactWriteItemsError},
    types::{Get, TransactGetItem},
};
use ielections::{BatchOutcome, Document, DocumentId, DocumentWrite, Fence, FenceState, Page, Scan};

/// How often a batch may come between two looks at which one was the last.
const LOOKS: usize = 3;

impl Requests {
    pub(super) async fn write_documents(
        &self,
        partition: &[u8],
        fence: &Fence,
        batch: &[DocumentWrite],
    ) -> Result<BatchOutcome, DriverError> {
        let actions = rows::batch(&self.table, partition, fence, batch);
        let actions = actions.map_err(|error| Failure::of_building(&error))?;
        let error = match self.client.transact_write_items().set_transact_items(Some(actions)).send().await {
            Ok(_) => return Ok(BatchOutcome::Written),
            Err(error) => error,
        };
        if let SdkError::ServiceError(answer) = &error
            && let TransactWriteItemsError::TransactionCanceledException(cancelled) = answer.err()
        {
            return match Cancellation::of(cancelled.cancellation_reasons(), said(&error)) {
                Cancellation::Refused => Ok(BatchOutcome::Refused),
                Cancellation::Failed(failure) => Err(failure.into()),
            };
        }
        Err(Failure::of(error).into())
    }

    /// (I2) What a fence would be compared with, once every batch up to the last shows whole.
    ///
    /// A transaction is decided at one moment, and then carried out item by item. Reads don't wait for that:
    /// behind the decision, one `GetItem` or `Query` may find an item as the transaction left it, and another
    /// one as it was. And a claim succeeds as soon as the leader record is through with it. So who has just
    /// taken over could read a count from before the last batch of the leader before, or the last batch's
    /// count and not yet its documents, and build on what is about to change.
    ///
    /// `TransactGetItems` does tell: it is cancelled if any of its items is part of a transaction that is
    /// under way. So the leader record, the count, and every document that the last batch wrote are read by
    /// one. If that succeeds with the count from which the ids were, then
    /// - no batch is under way: each begins with the leader record and the count;
    /// - the last batch has been carried out on each of its items;
    /// - so have those before: the leader that wrote a batch behind another had the answer to that one, which
    ///   comes when it has been carried out, or had been here since.
    ///
    /// Whatever is still to come is compared with the record that was read here, or a later one.
    pub(super) async fn fence_state(&self, partition: &[u8]) -> Result<FenceState, DriverError> {
        let mut batches = Batches::of(self.get(rows::batches_key(partition)).await?.as_ref())?;
        for _ in 0..LOOKS {
            let items = self.together(partition, &batches.ids).await?;
            let mut items = items.iter().map(Option::as_ref);
            let (leader, count) = (items.next().flatten(), items.next().flatten());
            let stands = Batches::of(count)?;
            if stands == batches {
                return Ok(FenceState { slot: rows::slot(leader)?, last: batches.last });
            }
            batches = stands;
        }
        Err(Failure::Conflict("batches come faster than they can be looked at".into()).into())
    }

    /// The leader record, the count, and these documents, as they are between two transactions. Of the
    /// documents it is enough that they are.
    async fn together(&self, partition: &[u8], ids: &[Vec<u8>]) -> Result<Vec<Option<Item>>, DriverError> {
        let whole = |key: Item| Get::builder().table_name(&self.table).set_key(Some(key));
        let version = |id: &Vec<u8>| {
            let get = whole(rows::document_key(partition, id));
            get.projection_expression("#version").expression_attribute_names("#version", rows::VERSION)
        };
        let gets = [whole(rows::key(partition)), whole(rows::batches_key(partition))].into_iter();
        let gets = gets.chain(ids.iter().map(version));
        let gets: Result<Vec<_>, BuildError> =
            gets.map(|get| Ok(TransactGetItem::builder().get(get.build()?).build())).collect();
        let gets = gets.map_err(|error| Failure::of_building(&error))?;
        let error = match self.client.transact_get_items().set_transact_items(Some(gets)).send().await {
            Ok(answer) => {
                let items = answer.responses.unwrap_or_default();
                let items: Vec<_> = items.into_iter().map(|response| response.item).collect();
                // What was left out would look like an item that is not there.
                let is_whole = items.len() == 2 + ids.len();
                let less = || Failure::Unanswered("an answer with fewer items than were asked for".into());
                return if is_whole { Ok(items) } else { Err(less().into()) };
            }
            Err(error) => error,
        };
        if let SdkError::ServiceError(answer) = &error
            && let TransactGetItemsError::TransactionCanceledException(cancelled) = answer.err()
            && let Cancellation::Failed(failure) =
                Cancellation::of(cancelled.cancellation_reasons(), said(&error))
        {
            return Err(failure.into());
        }
        Err(Failure::of(error).into())
    }

    pub(super) async fn document(
        &self,
        partition: &[u8],
        id: &DocumentId,
    ) -> Result<Option<Document>, DriverError> {
        let item = self.get(rows::document_key(partition, id.as_bytes())).await?;
        Ok(item.as_ref().map(rows::document).transpose()?)
    }

    pub(super) async fn scan_documents(&self, partition: &[u8], scan: &Scan) -> Result<Page, DriverError> {
        let query = self.client.query().table_name(&self.table).consistent_read(true);
        let limit = scan.limit.try_into().unwrap_or(i32::MAX);
        let Some(query) = rows::scanned(query.limit(limit), partition, scan) else {
            return Ok(Page { documents: Vec::new(), next: None });
        };
        let answer = query.send().await.map_err(Failure::of)?;
        let documents = answer.items().iter().map(rows::document).collect::<Result<_, _>>()?;
        Ok(Page { documents, next: answer.last_evaluated_key().map(rows::id_of).transpose()? })
    }
}
