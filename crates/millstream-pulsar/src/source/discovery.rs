//! Which partitions there are, now and later, each with a task that reads it.

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::connector::FlowContext;
use millstream_store::env::Task;
use parking_lot::Mutex;

use super::buffer::Buffer;
use super::hold::Hold;
use super::options::{SourceOptions, Topics};
use super::position::Position;
use super::reader::Reader;
use crate::client::Client;
use crate::error::PulsarError;
use crate::protocol::messages::initial_position;
use crate::topic;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(10);

/// All partitions of `topics`, by their full names.
///
/// # Errors
/// A topic that is named is not there; what a broker refuses.
pub(super) async fn partitions(
    client: &Client,
    topics: &Topics,
) -> Result<Vec<String>, PulsarError> {
    let names = match topics {
        Topics::Named(names) => names.clone(),
        Topics::Pattern { namespace, pattern, .. } => {
            let mut names = client.topics(namespace).await?;
            names.retain(|name| {
                let local = topic::local_name(name);
                pattern.is_match(local) && !local.starts_with(topic::PROGRESS)
            });
            names
        }
    };
    let mut found = Vec::new();
    for name in names {
        match client.partitions(&name, false).await {
            // One that is deleted at this moment.
            Err(PulsarError::NoTopic { .. }) if matches!(topics, Topics::Pattern { .. }) => {}
            partitions => found.extend(partitions?),
        }
    }
    Ok(found)
}

/// Notices partitions, and reads them. Cheap to clone.
#[derive(Clone)]
pub(super) struct Discovery {
    client: Arc<Client>,
    options: Arc<SourceOptions>,
    buffer: Arc<Buffer>,
    hold: Arc<Hold>,
    context: FlowContext,
    tasks: Arc<Mutex<Vec<Task<()>>>>,
}

impl Discovery {
    pub(super) fn new(
        client: Arc<Client>,
        options: Arc<SourceOptions>,
        buffer: Arc<Buffer>,
        hold: Arc<Hold>,
        context: FlowContext,
    ) -> Self {
        Self { client, options, buffer, hold, context, tasks: Arc::default() }
    }

    /// Reads a partition from `position` on, unless it is read already.
    pub(super) fn read(&self, partition: &str, position: Position) {
        if !self.buffer.add(partition, position) {
            return;
        }
        let contact = self.context.contacts.with(format!("the broker of {partition}"));
        let reader = Reader::new(
            Arc::clone(&self.client),
            (&self.options.table, partition, self.hold.name()),
            self.options.fails_on_loss,
            position,
            contact,
        );
        let (buffer, partition) = (Arc::clone(&self.buffer), partition.to_owned());
        let reading = read(reader, buffer, partition);
        self.tasks.lock().push(self.context.env.spawn("pulsar-reader", reading));
    }

    /// Looks for partitions until the task is stopped.
    pub(super) async fn run(self) {
        loop {
            self.context.env.sleep(EVERY).await;
            let found = match partitions(&self.client, &self.options.topics).await {
                Ok(found) => found,
                Err(error) => {
                    // The readers say so, if it lasts.
                    tracing::debug!(table = self.options.table, %error, "partitions not known");
                    continue;
                }
            };
            let known = self.buffer.partitions();
            for partition in found.into_iter().filter(|partition| !known.contains(partition)) {
                match self.hold.add(&partition, initial_position::EARLIEST).await {
                    Ok(()) => {
                        tracing::info!(partition, "a new partition is read");
                        self.read(&partition, Position::Earliest);
                    }
                    Err(error) => tracing::debug!(partition, %error, "not subscribed to yet"),
                }
            }
        }
    }

    /// Ends all tasks that read.
    pub(super) async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.stop().await;
        }
    }
}

async fn read(mut reader: Reader, buffer: Arc<Buffer>, partition: String) {
    loop {
        buffer.has_room(&partition).await;
        match reader.next(buffer.share()).await {
            Ok(entry) => buffer.put(&partition, entry),
            Err(error) => return buffer.fail(error.into()),
        }
    }
}
