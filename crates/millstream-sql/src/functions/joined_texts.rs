//! `array_join`: NULL where the delimiter or the text for NULLs is.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion::common::Result;

use super::define::{Arguments, Function, Param, returns_text, within_column};

pub(super) const FUNCTIONS: &[Function] = &[
    // What DataFusion calls it.
    Function::new(
        "array_to_string",
        &[Param::Array, Param::Text, Param::Text],
        returns_text,
        array_join,
    )
    .required(2)
    .aliases(&["array_join"]),
];

fn array_join(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let list = values.as_list::<i32>();
    let items = super::cast::cast(list.values(), &DataType::Utf8, true)?;
    let items = items.as_string::<i32>();
    let delimiters = args.text(1);
    let for_nulls = (args.len() > 2).then(|| args.text(2));
    let offsets = list.value_offsets();
    // A row may be far longer than all that it is made of.
    let mut total = 0;
    args.write(|row, out| {
        let Some(delimiter) = delimiters.get(row).filter(|_| list.is_valid(row)) else {
            return Ok(false);
        };
        // Without the third argument NULLs are left out.
        let for_null = for_nulls.as_ref().map(|texts| texts.get(row));
        if for_null == Some(None) {
            return Ok(false);
        }
        let text = |at: i32| {
            let at = at as usize;
            if items.is_valid(at) { Some(items.value(at)) } else { for_null.flatten() }
        };
        let texts = (offsets[row]..offsets[row + 1]).filter_map(text);
        for (count, text) in texts.enumerate() {
            let between = if count > 0 { delimiter } else { "" };
            within_column(&mut total, between.len() + text.len())?;
            out.push_str(between);
            out.push_str(text);
        }
        Ok(true)
    })
}
