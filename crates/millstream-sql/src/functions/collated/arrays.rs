//! Arrays of STRINGs as sets, as a collation compares their elements. What stays is the first one
//! of those that are equal.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::builder::{ListBuilder, StringBuilder};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;

use super::super::define::{Arguments, Function, Param, returns_texts, within_column};
use super::keys_of;
use crate::values::collated_text::Keys;

use Param::{Array as Items, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("__collated_array_distinct", &[Items, Text], returns_texts, |args| {
        sets(args, |_, _| true)
    }),
    Function::new("__collated_array_union", &[Items, Items, Text], returns_texts, |args| {
        sets(args, |_, _| true)
    }),
    Function::new("__collated_array_intersect", &[Items, Items, Text], returns_texts, |args| {
        sets(args, |is_first, is_in_other| is_first && is_in_other)
    }),
    Function::new("__collated_array_except", &[Items, Items, Text], returns_texts, |args| {
        sets(args, |is_first, is_in_other| is_first && !is_in_other)
    }),
];

type Key<'a> = Option<Cow<'a, [u8]>>;

/// The elements of all arrays that `stay`, each once. Of an element it is said whether it is the
/// first array's, and whether another array has it.
fn sets(args: &Arguments, stay: fn(bool, bool) -> bool) -> Result<ArrayRef> {
    let keys = keys_of(args)?;
    let arrays = (0..args.len() - 1).map(|at| args.expanded(at));
    let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
    let lists: Vec<_> = arrays.iter().map(|array| array.as_list::<i32>()).collect();
    let texts = lists.iter().map(|list| cast(list.values(), &DataType::Utf8));
    let texts: Vec<ArrayRef> = texts.collect::<std::result::Result<_, _>>()?;
    let (mut out, mut total) = (ListBuilder::new(StringBuilder::new()), 0);
    for row in 0..args.rows {
        if lists.iter().any(|list| list.is_null(row)) {
            out.append(false);
            continue;
        }
        let items = |array: usize| {
            let offsets = lists[array].value_offsets();
            let texts = texts[array].as_string::<i32>();
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            range.map(move |at| texts.is_valid(at).then(|| texts.value(at)))
        };
        let others: HashSet<Key<'_>> =
            (1..lists.len()).flat_map(items).map(|item| own(&keys, item)).collect();
        let mut taken: HashSet<Key<'_>> = HashSet::new();
        for array in 0..lists.len() {
            for item in items(array) {
                let own = own(&keys, item);
                if stay(array == 0, others.contains(&own)) && taken.insert(own) {
                    within_column(&mut total, item.map_or(0, str::len))?;
                    out.values().append_option(item);
                }
            }
        }
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}

fn own<'a>(keys: &Keys, item: Option<&'a str>) -> Key<'a> {
    item.map(|text| keys.key(text))
}
