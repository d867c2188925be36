//! `theta_sketch_agg`, `theta_union_agg` and `theta_intersection_agg`.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};

use super::super::define::{Aggregate, counted};
use super::{Sketching, accumulator, binary, for_each_sketch, int, lg_nominal_of, of_sketches};
use crate::functions::sketches::hashing::{for_each_key, key_type};
use crate::functions::sketches::retained::Gathering;
use crate::functions::sketches::theta::{Theta, read, written};

const OF_VALUES: &str = "theta_sketch_agg";
const UNION: &str = "theta_union_agg";
const INTERSECTION: &str = "theta_intersection_agg";

pub(super) const AGGREGATES: &[Aggregate] = &[
    of_sketches(
        OF_VALUES,
        |given| {
            counted(OF_VALUES, given, 1, 2)?;
            let key = key_type(OF_VALUES, &given[0])?;
            with_size(OF_VALUES, key, given)
        },
        |args| accumulator(Gathered::of_values(lg_nominal_of(OF_VALUES, args, 1)?)),
    ),
    of_sketches(
        UNION,
        |given| {
            counted(UNION, given, 1, 2)?;
            with_size(UNION, binary(UNION, &given[0])?, given)
        },
        |args| {
            let gathering = Gathering::new(lg_nominal_of(UNION, args, 1)?);
            accumulator(Gathered { name: UNION, gathering })
        },
    ),
    of_sketches(
        INTERSECTION,
        |given| {
            counted(INTERSECTION, given, 1, 1)?;
            Ok(vec![binary(INTERSECTION, &given[0])?])
        },
        |_| accumulator(Intersected { common: None }),
    ),
];

/// The types of a call's arguments: the first one's, and of its size.
fn with_size(name: &str, first: DataType, given: &[DataType]) -> Result<Vec<DataType>> {
    let mut types = vec![first];
    if let Some(size) = given.get(1) {
        types.push(int(name, size)?);
    }
    Ok(types)
}

/// The values of a column, or those of its sketches.
#[derive(Debug)]
pub(super) struct Gathered {
    name: &'static str,
    gathering: Gathering<()>,
}

impl Gathered {
    /// For the values of a column.
    pub(super) fn of_values(lg_nominal: u8) -> Self {
        Self { name: OF_VALUES, gathering: Gathering::new(lg_nominal) }
    }

    fn union(&mut self, sketch: &[u8]) -> Result<()> {
        self.gathering.union(&read(self.name, sketch)?, |(), ()| ());
        Ok(())
    }
}

impl Sketching for Gathered {
    fn add(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.name == UNION {
            return for_each_sketch(&values[0], |sketch| self.union(sketch));
        }
        for_each_key(&values[0], |_, hash| {
            self.gathering.add(hash, |_| ());
            Ok(())
        })
    }

    fn join(&mut self, state: &[u8]) -> Result<()> {
        self.union(state)
    }

    fn state(&self) -> Result<Option<Vec<u8>>> {
        written(&self.gathering.retained()).map(Some)
    }

    fn sketch(&self) -> Result<Vec<u8>> {
        written(&self.gathering.trimmed())
    }

    fn size(&self) -> usize {
        self.gathering.size()
    }
}

/// What all sketches have in common; `None` before the first one, of which all values are.
#[derive(Debug)]
struct Intersected {
    common: Option<Theta>,
}

impl Intersected {
    fn intersect(&mut self, sketch: &[u8]) -> Result<()> {
        let other = read(INTERSECTION, sketch)?;
        self.common = Some(match &self.common {
            Some(common) => common.intersection(&other, |(), ()| ()),
            None => other,
        });
        Ok(())
    }
}

impl Sketching for Intersected {
    fn add(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_sketch(&values[0], |sketch| self.intersect(sketch))
    }

    fn join(&mut self, state: &[u8]) -> Result<()> {
        self.intersect(state)
    }

    fn state(&self) -> Result<Option<Vec<u8>>> {
        self.common.as_ref().map(written).transpose()
    }

    fn sketch(&self) -> Result<Vec<u8>> {
        match &self.common {
            Some(common) => written(common),
            None => exec_err!(
                "function '{INTERSECTION}' has no result without a sketch: what no sketches have \
                 in common is everything; leave NULLs out with WHERE, and write GROUP BY"
            ),
        }
    }

    fn size(&self) -> usize {
        self.common.as_ref().map_or(0, |common| common.entries.capacity() * size_of::<(u64, ())>())
    }
}
