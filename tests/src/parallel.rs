//! Room `tests`: the same call many times, one after another or from many clients at once, told in a line
//! that is the same every time. May touch the network; must not know which server answers.

use crate::call::{self, Metadata};
use crate::schema::Schema;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use tonic::Status;
use tonic::transport::Channel;

/// A method called with a text in which `%i` counts.
#[derive(Clone)]
pub struct Repeated {
    /// Where to.
    pub channel: Channel,
    /// What.
    pub method: MethodDescriptor,
    /// Sent with each call.
    pub metadata: Metadata,
    /// The request with `%i` in it.
    pub text: String,
}

impl Repeated {
    async fn call(&self, i: usize) -> Result<DynamicMessage, Status> {
        let text = self.text.replace("%i", &i.to_string());
        let request = Schema::request(self.method.input(), &text).map_err(Status::internal)?;
        call::unary(&self.channel, &self.method, &self.metadata, request).await
    }

    /// Calls `count` times in turn; the last answer.
    ///
    /// # Errors
    /// The first failed call's status.
    pub async fn in_turn(&self, count: usize) -> Result<DynamicMessage, Status> {
        let mut last = self.call(0).await?;
        for i in 1..count {
            last = self.call(i).await?;
        }
        Ok(last)
    }

    /// Calls `count` times from each of `clients` tasks; the revisions of all answers' headers, sorted.
    ///
    /// # Errors
    /// The first failed call's status.
    pub async fn at_once(&self, clients: usize, count: usize) -> Result<Vec<i64>, Status> {
        let tasks: Vec<_> = (0..clients)
            .map(|client| {
                let this = self.clone();
                tokio::spawn(async move {
                    let mut revisions = Vec::with_capacity(count);
                    for i in 0..count {
                        revisions.push(revision(&this.call(client * count + i).await?));
                    }
                    Ok::<_, Status>(revisions)
                })
            })
            .collect();
        let mut all = Vec::with_capacity(clients * count);
        for task in tasks {
            all.extend(task.await.map_err(|e| Status::internal(e.to_string()))??);
        }
        all.sort_unstable();
        Ok(all)
    }
}

/// The header revision of an answer, 0 without one.
#[must_use]
pub fn revision(answer: &DynamicMessage) -> i64 {
    let header = answer.get_field_by_name("header");
    let header = header.as_deref().and_then(|h| h.as_message());
    header
        .and_then(|h| h.get_field_by_name("revision")?.as_i64())
        .unwrap_or_default()
}

/// `revisions 2..=321, none twice, no gap`, or what is wrong with them.
#[must_use]
pub fn describe(revisions: &[i64]) -> String {
    let (first, last) = (
        revisions.first().unwrap_or(&0),
        revisions.last().unwrap_or(&0),
    );
    let twice = revisions.windows(2).filter(|w| w[0] == w[1]).count();
    let gaps = revisions.windows(2).filter(|w| w[1] > w[0] + 1).count();
    match (twice, gaps) {
        (0, 0) => format!("revisions {first}..={last}, none twice, no gap"),
        _ => format!("revisions {first}..={last}, {twice} twice, {gaps} gaps"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn repeated_and_missing_revisions_are_told() {
        assert_eq!(
            super::describe(&[2, 3, 4]),
            "revisions 2..=4, none twice, no gap"
        );
        assert_eq!(
            super::describe(&[2, 2, 4]),
            "revisions 2..=4, 1 twice, 1 gaps"
        );
    }
}
