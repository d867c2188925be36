//! Apache Avro.
