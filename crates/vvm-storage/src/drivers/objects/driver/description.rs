//! What a bucket shows of itself, and whether its server obeys conditions.

use super::{
    super::{
        errors::{Answer, Failure},
        open::Requests,
    },
    race::race,
};
use crate::Description;

pub(super) async fn describe(requests: &Requests) -> Result<Description, Failure> {
    let answer = requests.get(&requests.names.mark()).await?.answer;
    let software = answer.header("server").unwrap_or("an object store");
    let described = concerns(Description::of(software), &answer);
    Ok(match race(requests).await {
        Ok(raced) => match raced.verdict() {
            Some(why) => described.with("conditions", "not obeyed").concerned(format!(
                "this server accepts conflicting writes, and two candidates would lead: {why}. Use another \
                 server, or a version of it that obeys If-Match and If-None-Match"
            )),
            None => described.with("conditions", raced.summary()),
        },
        Err(failure) => described.with("conditions", "not raced").concerned(format!(
            "whether the server obeys conditions was not tried: {failure}. Run `vvm doctor` with the rights \
             of a candidate"
        )),
    })
}

/// Adds what the headers of an object reveal.
fn concerns(mut described: Description, answer: &Answer) -> Description {
    if let Some(rule) = answer.header("x-amz-expiration") {
        described = described.concerned(format!(
            "a lifecycle rule deletes objects below the prefix, and with them leaderships: exclude the \
             prefix ({rule})"
        ));
    }
    if answer.header("x-amz-version-id").is_some_and(|version| version != "null") {
        described = described.with("versioning", "on").concerned(
            "the bucket keeps each renewal as a version, 720 an hour for each leader with the default TTL: \
             use a bucket without versioning, or a lifecycle rule that deletes noncurrent versions",
        );
    }
    described
}
