//! Compiles a plan for declared columns, those of a CREATE TABLE.
//!
//! The writer's fields are matched to columns by name. What a value may become is what Spark's
//! `AvroDeserializer` lets it become, and besides the promotions of Avro's schema resolution that
//! lose nothing but precision (int and long to FLOAT and DOUBLE). An int also becomes a TINYINT or
//! a SMALLINT, where each value is checked.

use arrow::datatypes::{DataType, FieldRef};

use super::error::{PlanError, PlanProblem};
use super::layout::Layout;
use super::program::{At, Builder, NO_COLUMN, Node, Op, Program, Step};
use super::resolve::Planned;
use super::schema::{Kind, Logical, Record, Schema, TypeId};
use super::shape::{MAX_DEPTH, MAX_PARTS, wide};

pub(super) fn compile(writer: &Schema, layout: &Layout) -> Planned<Program> {
    let mut matcher = Matcher { builder: Builder::default(), path: Vec::new() };
    let root = matcher.root(At::root(writer), layout)?;
    let mut program = matcher.builder.program;
    program.root = root;
    Ok(program)
}

struct Matcher {
    builder: Builder,
    path: Vec<String>,
}

impl Matcher {
    fn error(&self, problem: PlanProblem) -> PlanError {
        PlanError { path: self.path.join("."), problem }
    }

    fn within<T>(
        &mut self,
        part: &str,
        compile: impl FnOnce(&mut Self) -> Planned<T>,
    ) -> Planned<T> {
        self.path.push(part.to_owned());
        let compiled = compile(self);
        self.path.pop();
        compiled
    }

    /// A whole record. A record that can be null is one as well, as in Spark: if it is null, so
    /// are all columns. Anything else is matched as a record of one field, `value`.
    fn root(&mut self, writer: At<'_>, layout: &Layout) -> Planned {
        let place = |at: usize| layout.place(at);
        let columns = layout.columns().fields();
        if let Kind::Record(record) = writer.kind() {
            return Ok(self.record(writer, record, columns, &place)?.node());
        }
        if let Kind::Union(branches) = writer.kind()
            && let ([id], Some(null)) = (&*non_null(writer, branches), null_of(writer, branches))
            && let Kind::Record(record) = writer.part(*id).kind()
        {
            let node = self.record(writer, record, columns, &place)?.node();
            let nullable = layout.projected().fields().iter().all(|field| field.is_nullable());
            let missing = match nullable {
                true => Op::Null.node(),
                false => self.null_in_not_null(),
            };
            let branches = if null == 0 { [missing, node] } else { [node, missing] };
            return Ok(self.builder.choose(&branches, Some(null)));
        }
        self.value_root(writer, columns, &place)
    }

    fn value_root(
        &mut self,
        writer: At<'_>,
        columns: &[FieldRef],
        place: &dyn Fn(usize) -> Option<u32>,
    ) -> Planned {
        let fields = [("value", writer)];
        Ok(self.fields(&fields, columns, place)?.node())
    }

    fn record(
        &mut self,
        writer: At<'_>,
        record: &Record,
        columns: &[FieldRef],
        place: &dyn Fn(usize) -> Option<u32>,
    ) -> Planned<Op> {
        let fields = record.fields.iter();
        let fields: Vec<_> =
            fields.map(|field| (field.name.as_str(), writer.part(field.id))).collect();
        self.fields(&fields, columns, place)
    }

    /// `place` says where a column is among the decoded ones, if it is decoded.
    fn fields(
        &mut self,
        fields: &[(&str, At<'_>)],
        columns: &[FieldRef],
        place: &dyn Fn(usize) -> Option<u32>,
    ) -> Planned<Op> {
        let matched = self.matched(fields, columns, place)?;
        let mut steps = Vec::with_capacity(fields.len());
        for (at, (name, writer)) in fields.iter().enumerate() {
            let column = matched.iter().position(|found| *found == Some(at));
            let column = column.and_then(|at| Some((place(at)?, &columns[at])));
            let (node, column) = match column {
                Some((column, field)) => {
                    (self.within(field.name(), |s| s.node(*writer, field))?, column)
                }
                None => (Op::Skip(self.builder.skip(*writer)).node(), NO_COLUMN),
            };
            steps.push(Step { node, column, name: self.builder.name(name) });
        }
        for (at, field) in columns.iter().enumerate() {
            if let (None, Some(column)) = (matched[at], place(at)) {
                if !field.is_nullable() {
                    return self.within(field.name(), |s| Err(s.error(PlanProblem::NotNull)));
                }
                let name = self.builder.name(field.name());
                steps.push(Step { node: Op::Null.node(), column, name });
            }
        }
        Ok(Op::Record(self.builder.record(&steps)))
    }

    /// For each column, the field of its name: the very same, else the only one that differs in
    /// case and is no other column's.
    fn matched(
        &mut self,
        fields: &[(&str, At<'_>)],
        columns: &[FieldRef],
        place: &dyn Fn(usize) -> Option<u32>,
    ) -> Planned<Vec<Option<usize>>> {
        let exact = |column: &FieldRef| fields.iter().position(|(name, _)| name == column.name());
        let mut matched: Vec<Option<usize>> = columns.iter().map(exact).collect();
        for (at, column) in columns.iter().enumerate() {
            if matched[at].is_some() && matched[..at].contains(&matched[at]) {
                let problem = PlanProblem::Twice;
                return self.within(column.name(), |s| Err(s.error(problem)));
            }
            if matched[at].is_some() || place(at).is_none() {
                continue;
            }
            let lower = column.name().to_lowercase();
            let found = fields.iter().enumerate();
            let found: Vec<usize> = found
                .filter(|(at, (name, _))| {
                    name.to_lowercase() == lower && !matched.contains(&Some(*at))
                })
                .map(|(at, _)| at)
                .collect();
            if found.len() > 1 {
                let names = found.iter().map(|&at| fields[at].0.to_owned()).collect();
                let problem = PlanProblem::Ambiguous(names);
                return self.within(column.name(), |s| Err(s.error(problem)));
            }
            matched[at] = found.first().copied();
        }
        Ok(matched)
    }

    fn null_in_not_null(&mut self) -> Node {
        self.builder.fail("null in a column that is NOT NULL".to_owned()).node()
    }

    fn node(&mut self, writer: At<'_>, column: &FieldRef) -> Planned {
        if !self.builder.visit() || self.path.len() > MAX_DEPTH {
            return Err(self.error(PlanProblem::TooLarge(MAX_PARTS)));
        }
        match writer.kind() {
            Kind::Union(branches) => self.union(writer, branches, column),
            Kind::Null => Ok(self.null(column)),
            _ => Ok(self.single(writer, column.data_type())?.node()),
        }
    }

    fn null(&mut self, column: &FieldRef) -> Node {
        match column.is_nullable() {
            true => Op::Null.node(),
            false => self.null_in_not_null(),
        }
    }

    fn union(&mut self, writer: At<'_>, branches: &[TypeId], column: &FieldRef) -> Planned {
        let some = non_null(writer, branches);
        let mut nodes = Vec::with_capacity(branches.len());
        for &id in branches {
            let branch = writer.part(id);
            nodes.push(match some.iter().position(|&other| other == id) {
                None => self.null(column),
                Some(at) => self.branch(writer, branch, at, &some, column.data_type())?.node(),
            });
        }
        Ok(self.builder.choose(&nodes, null_of(writer, branches)))
    }

    /// One branch of a union, the one at `at` of those that are not null.
    fn branch(
        &mut self,
        writer: At<'_>,
        branch: At<'_>,
        at: usize,
        some: &[TypeId],
        data_type: &DataType,
    ) -> Planned<Op> {
        if some.len() == 1 || wide(writer.schema, some).as_ref() == Some(data_type) {
            return self.single(branch, data_type);
        }
        match data_type {
            DataType::Struct(members) if members.len() == some.len() => {
                if let Some(member) = members.iter().find(|member| !member.is_nullable()) {
                    return self.within(member.name(), |s| Err(s.error(PlanProblem::NotNull)));
                }
                let member = &members[at];
                let node = self.within(member.name(), |s| s.node(branch, member))?;
                Ok(Op::Member(at as u32, self.builder.push(node)))
            }
            _ => Err(self.refuse(writer, data_type)),
        }
    }

    fn single(&mut self, writer: At<'_>, data_type: &DataType) -> Planned<Op> {
        Ok(match (writer.kind(), data_type) {
            (Kind::Array(item), DataType::List(field)) => {
                let item = writer.part(*item);
                let node = self.within("element", |s| s.node(item, field))?;
                Op::List(self.builder.push(node))
            }
            (Kind::Map(of), DataType::Map(entries, _)) => match entries.data_type() {
                DataType::Struct(fields) if fields.len() == 2 => {
                    let of = writer.part(*of);
                    let node = self.within("value", |s| s.node(of, &fields[1]))?;
                    Op::Map(self.builder.push(node))
                }
                _ => return Err(self.refuse(writer, data_type)),
            },
            (Kind::Record(record), DataType::Struct(fields)) => {
                let place = |at: usize| Some(at as u32);
                self.record(writer, record, fields, &place)?
            }
            (Kind::Enum(of), DataType::Utf8) => {
                let symbols = of.symbols.iter().map(|symbol| Some(symbol.as_str().into()));
                self.builder.symbols(symbols.collect())
            }
            (kind, _) => {
                let logical = writer.schema.get(writer.id).logical;
                match leaf(kind, logical, data_type) {
                    Some(op) => op,
                    None => return Err(self.refuse(writer, data_type)),
                }
            }
        })
    }

    fn refuse(&self, writer: At<'_>, data_type: &DataType) -> PlanError {
        self.error(PlanProblem::Declared {
            writer: writer.describe(),
            declared: data_type.clone(),
            remedy: remedy(writer.kind(), data_type),
        })
    }
}

fn is_null(writer: At<'_>, id: TypeId) -> bool {
    matches!(writer.part(id).kind(), Kind::Null)
}

fn non_null(writer: At<'_>, branches: &[TypeId]) -> Vec<TypeId> {
    branches.iter().copied().filter(|&id| !is_null(writer, id)).collect()
}

fn null_of(writer: At<'_>, branches: &[TypeId]) -> Option<usize> {
    branches.iter().position(|&id| is_null(writer, id))
}

fn leaf(kind: &Kind, logical: Option<Logical>, data_type: &DataType) -> Option<Op> {
    Some(match (kind, data_type) {
        (Kind::Boolean, DataType::Boolean) => Op::Boolean,
        (Kind::Int, DataType::Int8) => Op::Int8,
        (Kind::Int, DataType::Int16) => Op::Int16,
        (Kind::Int, DataType::Int32) => Op::Int32,
        (Kind::Int, DataType::Int64) => Op::IntAsLong,
        (Kind::Int, DataType::Float32) => Op::IntAsFloat,
        (Kind::Int, DataType::Float64) => Op::IntAsDouble,
        (Kind::Int, DataType::Date32) => Op::Date,
        (Kind::Long, DataType::Int64) => Op::Int64,
        (Kind::Long, DataType::Float32) => Op::LongAsFloat,
        (Kind::Long, DataType::Float64) => Op::LongAsDouble,
        (Kind::Long, DataType::Timestamp(_, zone)) => long_as_timestamp(logical, zone.is_none())?,
        // From the time when Avro had no dates: Spark wrote them as milliseconds.
        (Kind::Long, DataType::Date32) => match logical {
            None | Some(Logical::TimestampMillis | Logical::LocalTimestampMillis) => {
                Op::MillisAsDate
            }
            _ => return None,
        },
        (Kind::Float, DataType::Float32) => Op::Float,
        (Kind::Float, DataType::Float64) => Op::FloatAsDouble,
        (Kind::Double, DataType::Float64) => Op::Double,
        (Kind::String, DataType::Utf8) => Op::Text,
        (Kind::Bytes, DataType::Binary) => Op::Binary,
        (Kind::Fixed(_, size), DataType::Binary) => Op::Fixed(*size as u32),
        (Kind::Bytes, DataType::Decimal128(precision, scale)) => {
            Op::Decimal(power(logical, *precision, *scale)?)
        }
        (Kind::Fixed(_, size), DataType::Decimal128(precision, scale)) => {
            Op::FixedDecimal(*size as u32, power(logical, *precision, *scale)?)
        }
        _ => return None,
    })
}

/// A long without a logical type is taken as milliseconds, as in Spark.
fn long_as_timestamp(logical: Option<Logical>, is_local: bool) -> Option<Op> {
    match logical {
        None => Some(Op::Timestamp(1000)),
        Some(logical) => match logical.timestamp()? {
            (micros, local) if local == is_local => Some(Op::Timestamp(micros)),
            _ => None,
        },
    }
}

/// By which power of ten a decimal's unscaled value becomes one of the column's, if the column has
/// room for all of its digits, before and after the point.
fn power(logical: Option<Logical>, precision: u8, scale: i8) -> Option<u8> {
    let Some(Logical::Decimal { precision: written, scale: places }) = logical else { return None };
    let (precision, scale) = (usize::from(precision), usize::try_from(scale).ok()?);
    let power = scale.checked_sub(places)?;
    let fits = written - places <= precision.checked_sub(scale)?;
    fits.then_some(power as u8)
}

fn remedy(kind: &Kind, data_type: &DataType) -> &'static str {
    match (kind, data_type) {
        (Kind::Union(_), _) => "declare a STRUCT with one nullable member for each branch but null",
        (_, DataType::Utf8) => {
            "declare the column with the field's own type and convert it in the query"
        }
        (Kind::Bytes | Kind::Fixed(..), DataType::Decimal128(..)) => {
            "declare a DECIMAL with as many digits before and after the point, or BINARY"
        }
        (Kind::Long, DataType::Timestamp(..)) => {
            "timestamp-* is TIMESTAMP, local-timestamp-* is TIMESTAMP_NTZ"
        }
        (Kind::Long, DataType::Int8 | DataType::Int16 | DataType::Int32) => {
            "declare BIGINT and cast it in the query"
        }
        (Kind::Double, DataType::Float32) => "declare DOUBLE and cast it in the query",
        _ => "declare the column with the type of the field, or leave all columns out",
    }
}
