//! A Kafka table that is read whole: all records from the table's starting to its ending offsets.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, ReadMode, Table};
use millstream_engine::api::drained::{DrainedSource, records_to_end};
use millstream_engine::api::snapshot::{Snapshot, read_all};
use millstream_engine::api::source::{Failure, Records, Source, StaticTable};
use millstream_formats::schema::Registries;
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
    registries: Registries,
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
        registries: &Registries,
    ) -> Result<Self, SourceError> {
        let cluster = Cluster::new(&options.client, None, &context.env, &table.name)?;
        Ok(Self {
            table: table.clone(),
            subscription: options.subscription.clone(),
            schema,
            context: context.clone(),
            registries: registries.clone(),
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
        let _one_at_a_time = self.reading.lock().await;
        read_all(&*self.snapshot().await?, self.schema.fields().len()).await
    }

    async fn records(&self) -> Result<Vec<Arc<dyn Records>>, Failure> {
        let _one_at_a_time = self.reading.lock().await;
        records_to_end(source(&self.table, &self.context, &self.registries)?).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, Failure> {
        let (table, context) = (self.table.clone(), self.context.clone());
        let registries = self.registries.clone();
        Ok(Arc::new(DrainedSource::new(move || source(&table, &context, &registries))))
    }
}

fn source(
    table: &Table,
    context: &FlowContext,
    registries: &Registries,
) -> Result<Box<dyn Source>, Failure> {
    Ok(Box::new(KafkaSource::from_table(table, ReadMode::Batch, context, registries)?))
}
