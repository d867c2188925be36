//! Whatever a section of the state log contains is read or refused.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use millstream_fuzz::{Target, outcome};

use super::codec;

#[test]
fn fuzz_sections() {
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("t", DataType::Utf8, true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None])),
        Arc::new(StringArray::from(vec![Some("a"), None])),
    ];
    let rows = RecordBatch::try_new(Arc::new(schema.clone()), columns).expect("rows");
    let seed = codec::encode(&schema, &[rows.clone(), rows]).expect("bytes");
    Target::bytes("state_section").seeds([seed]).run(move |input| {
        let rows = codec::decode(input);
        let own = |rows: &&RecordBatch| rows.schema().fields() == schema.fields();
        for rows in rows.iter().flatten().filter(own) {
            let again = codec::encode(&schema, std::slice::from_ref(rows)).expect("bytes");
            let again = codec::decode(&again).expect("they were encoded");
            assert_eq!(again.iter().map(RecordBatch::num_rows).sum::<usize>(), rows.num_rows());
        }
        outcome(&rows)
    });
}
