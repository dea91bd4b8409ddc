//! Describes a table for `vvm doctor`.

use super::errors::{DriverError, Failure};
use crate::sysvvm::Description;
use aws_sdk_dynamodb::{
    Client,
    types::{BillingMode, TableDescription},
};

/// Returns the location, the billing and the protection of a table.
pub(super) async fn describe(client: &Client, table: &str) -> Result<Description, DriverError> {
    let answer = client.describe_table().table_name(table).send().await.map_err(Failure::of)?;
    let description = match &answer.table {
        Some(table) => of_table(table, Description::of("DynamoDB")),
        None => Description::of("DynamoDB"),
    };
    // Elections do not need this permission, so it may be missing.
    let backups = client.describe_continuous_backups().table_name(table).send().await;
    let backups = backups.ok().and_then(|answer| {
        let description = answer.continuous_backups_description?;
        Some(
            description
                .point_in_time_recovery_description?
                .point_in_time_recovery_status?
                .as_str()
                .to_lowercase(),
        )
    });
    let backups = backups.unwrap_or_else(|| "unknown: needs dynamodb:DescribeContinuousBackups".to_owned());
    Ok(description.with("point-in-time recovery", backups))
}

fn of_table(table: &TableDescription, mut description: Description) -> Description {
    if let Some(arn) = table.table_arn() {
        description = description.with("table", arn);
    }
    if let Some(status) = table.table_status() {
        description = description.with("status", status.as_str().to_lowercase());
    }
    // Old tables have no billing mode.
    let mode = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    let units = table.provisioned_throughput().map(|units| {
        let unit = |units: Option<i64>| units.unwrap_or_default();
        (unit(units.read_capacity_units()), unit(units.write_capacity_units()))
    });
    description = description.with(
        "billing",
        match (mode, units) {
            (Some(BillingMode::PayPerRequest), _) | (_, None) => "per request".to_owned(),
            (_, Some((reads, writes))) => format!("provisioned, {reads} read and {writes} write units"),
        },
    );
    if table.deletion_protection_enabled() == Some(true) {
        return description.with("deletion protection", "on");
    }
    description.with("deletion protection", "off").concerned(
        "deletion protection is off, and a deleted table loses its epochs: run `aws dynamodb update-table \
         --deletion-protection-enabled --table-name NAME`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::types::{BillingModeSummary, ProvisionedThroughputDescription, TableStatus};

    #[test]
    fn billing_and_protection_are_described_and_missing_protection_is_a_concern() {
        let provisioned = ProvisionedThroughputDescription::builder()
            .read_capacity_units(5)
            .write_capacity_units(7)
            .build();
        let open = TableDescription::builder()
            .table_status(TableStatus::Active)
            .provisioned_throughput(provisioned)
            .build();
        let open = of_table(&open, Description::default());
        assert_eq!(open.setting("status"), Some("active"));
        assert_eq!(open.setting("billing"), Some("provisioned, 5 read and 7 write units"));
        assert!(open.concerns[0].contains("--deletion-protection-enabled"), "{open:?}");
        let per_request = BillingModeSummary::builder().billing_mode(BillingMode::PayPerRequest).build();
        let kept = TableDescription::builder()
            .billing_mode_summary(per_request)
            .deletion_protection_enabled(true)
            .build();
        let kept = of_table(&kept, Description::default());
        assert_eq!(kept.setting("billing"), Some("per request"));
        assert_eq!(kept.concerns, Vec::<String>::new());
    }
}
