//! A Kafka table that is read whole: all records from the table's starting to its ending offsets.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, ReadMode, Table};
use millstream_engine::api::source::{
    Failure, ReadLimit, Records, Source, SourceLog, Split, StaticTable,
};
use tokio::sync::Mutex;

use super::options::SourceOptions;
use crate::client::cluster::{CONNECT_PATIENCE, Cluster};
use crate::client::subscription::Subscription;
use crate::error::SourceError;
use crate::offsets::to_source_offset;
use crate::source::KafkaSource;

/// A Kafka table as the static side of a join.
pub struct KafkaStaticTable {
    table: Table,
    subscription: Subscription,
    schema: SchemaRef,
    context: FlowContext,
    cluster: Arc<Cluster>,
    /// One reading at a time: a second one would fetch the same.
    reading: Mutex<()>,
}

impl KafkaStaticTable {
    /// Connects in the background.
    pub fn new(
        table: &Table,
        options: &SourceOptions,
        schema: SchemaRef,
        context: &FlowContext,
    ) -> Result<Self, SourceError> {
        let cluster = Cluster::new(&options.client, None, &context.env, &table.name)?;
        Ok(Self {
            table: table.clone(),
            subscription: options.subscription.clone(),
            schema,
            context: context.clone(),
            cluster: Arc::new(cluster),
            reading: Mutex::new(()),
        })
    }
}

#[async_trait]
impl StaticTable for KafkaStaticTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The end of every partition.
    async fn fingerprint(&self) -> Result<String, Failure> {
        let (cluster, subscription) = (self.cluster.clone(), self.subscription.clone());
        let asking = move || -> Result<String, SourceError> {
            cluster.serve_events();
            let partitions = cluster.partitions(&subscription, CONNECT_PATIENCE)?;
            Ok(to_source_offset(&cluster.latest(&partitions.found)?).as_str().to_owned())
        };
        Ok(self.context.env.spawn_blocking("kafka-fingerprint", asking).join().await?)
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        self.read_all(|split, rows| {
            for decoded in split.read(&all) {
                rows.push(decoded?);
            }
            Ok(())
        })
        .await
    }

    async fn records(&self) -> Result<Vec<Arc<dyn Records>>, Failure> {
        self.read_all(|split, all| {
            all.extend(split.records());
            Ok(())
        })
        .await
    }
}

impl KafkaStaticTable {
    /// Gives all splits to `add`, one after the other, and gives what that has gathered.
    async fn read_all<T: Send>(
        &self,
        add: impl FnMut(Box<dyn Split>, &mut Vec<T>) -> Result<(), Failure> + Send,
    ) -> Result<Vec<T>, Failure> {
        let _one_at_a_time = self.reading.lock().await;
        let mut source = KafkaSource::from_table(&self.table, ReadMode::Batch, &self.context)?;
        let result = read_all(&mut source, add).await;
        source.close().await;
        result
    }
}

async fn read_all<T: Send>(
    source: &mut dyn Source,
    mut add: impl FnMut(Box<dyn Split>, &mut Vec<T>) -> Result<(), Failure> + Send,
) -> Result<Vec<T>, Failure> {
    let position = source.open(None, SourceLog::in_memory()).await?;
    source.start(&position).await?;
    source.fix_end().await?;
    let mut all = Vec::new();
    while !source.at_end() {
        source.data_available().await;
        let Some(taken) = source.poll(ReadLimit::AllAvailable)? else { continue };
        for split in taken.splits {
            add(split, &mut all)?;
        }
    }
    Ok(all)
}
