//! Compiles a plan for a reader schema: Avro's section "Schema Resolution".
//!
//! The writer's schema is followed in the order of its bytes. Beside it goes the reader's type, or
//! rather the [`Shape`] of its column. Where a rule is open, it is Java's, because Spark decodes
//! by it: a record is read whatever its name is, and a union's branch of the very type is taken
//! before an earlier one to which the value could be promoted.

use super::default;
use super::error::{PlanError, PlanProblem};
use super::layout::Layout;
use super::program::{At, Builder, NO_COLUMN, Node, Op, Program, Step};
use super::schema::{Enum, Field, Kind, Logical, Named, Record, Schema, TypeId};
use super::shape::{Body, MAX_PARTS, Member, Shape, Slot};

pub(super) type Planned<T = Node> = Result<T, PlanError>;

pub(super) fn compile(
    writer: &Schema,
    reader: &Schema,
    recursion: usize,
    layout: &Layout,
) -> Planned<Program> {
    let shape = reader.shape(recursion).map_err(|e| at_root(PlanProblem::Reader(e.to_string())))?;
    check_columns(reader, recursion, layout)?;
    let mut resolver = Resolver { reader, builder: Builder::default(), path: Vec::new() };
    let root = resolver.root(At::root(writer), &shape, layout)?;
    let mut program = resolver.builder.program;
    program.root = root;
    Ok(program)
}

fn at_root(problem: PlanProblem) -> PlanError {
    PlanError { path: String::new(), problem }
}

/// Checks that the layout's columns are those of the reader schema.
fn check_columns(reader: &Schema, recursion: usize, layout: &Layout) -> Planned<()> {
    let made = reader.columns(recursion);
    let made = made.map_err(|e| at_root(PlanProblem::Reader(e.to_string())))?;
    let columns = layout.columns().fields();
    if columns.len() != made.fields().len() {
        let expected = format!("count of {}", made.fields().len());
        return Err(at_root(PlanProblem::Columns { expected }));
    }
    for (at, expected) in made.fields().iter().enumerate() {
        let fits = columns.get(at).is_some_and(|column| {
            column.name() == expected.name()
                && column.data_type() == expected.data_type()
                && (column.is_nullable() || !expected.is_nullable())
        });
        if !fits {
            let null = if expected.is_nullable() { "" } else { " NOT NULL" };
            let expected = format!("`{}` {}{null}", expected.name(), expected.data_type());
            return Err(at_root(PlanProblem::Columns { expected }));
        }
    }
    Ok(())
}

struct Resolver<'s> {
    reader: &'s Schema,
    builder: Builder,
    path: Vec<String>,
}

impl<'s> Resolver<'s> {
    fn error(&self, problem: PlanProblem) -> PlanError {
        PlanError { path: self.path.join("."), problem }
    }

    fn incompatible(&self, writer: At<'_>, reader: impl Into<String>) -> PlanError {
        let (writer, reader) = (writer.describe(), reader.into());
        self.error(PlanProblem::Incompatible { writer, reader })
    }

    fn within<T>(
        &mut self,
        part: &str,
        resolve: impl FnOnce(&mut Self) -> Planned<T>,
    ) -> Planned<T> {
        self.path.push(part.to_owned());
        let resolved = resolve(self);
        self.path.pop();
        resolved
    }

    /// A whole record: its fields are the columns, so that there is no column for itself.
    fn root(&mut self, writer: At<'s>, shape: &Shape, layout: &Layout) -> Planned {
        let Body::Record { id, fields } = &shape.body else {
            return self.value_root(writer, shape, layout);
        };
        if shape.nullable {
            return self.value_root(writer, shape, layout);
        }
        match writer.kind() {
            Kind::Union(branches) => {
                let roots = branches.iter().map(|&id| self.root(writer.part(id), shape, layout));
                let roots: Vec<_> = roots.collect();
                let null = None;
                self.settle(roots, null)
            }
            Kind::Record(record) => {
                let place = |at: usize| layout.place(at);
                self.record(writer, record, *id, fields, &place)
            }
            _ => Err(self.incompatible(writer, self.reader.describe(*id))),
        }
    }

    /// A whole record that is no record: one column.
    fn value_root(&mut self, writer: At<'s>, shape: &Shape, layout: &Layout) -> Planned {
        let name = self.builder.name("value");
        let step = match layout.place(0) {
            Some(column) => Step { node: self.node(writer, shape)?, column, name },
            None => {
                let node = Op::Skip(self.builder.skip(writer)).node();
                Step { node, column: NO_COLUMN, name }
            }
        };
        Ok(Op::Record(self.builder.record(&[step])).node())
    }

    /// One instruction of a union's branches. A branch that cannot be read makes those records
    /// malformed that have it, but if no branch can, neither can the union.
    fn settle(&mut self, branches: Vec<Planned>, null: Option<usize>) -> Planned {
        let good = |(at, branch): (usize, &Planned)| branch.is_ok() && Some(at) != null;
        let none = !branches.iter().enumerate().any(good);
        let mut nodes = Vec::with_capacity(branches.len());
        let only_null = branches.len() == 1 && null.is_some();
        for (at, branch) in branches.into_iter().enumerate() {
            match branch {
                Ok(node) => nodes.push(node),
                Err(error) if none && !only_null && Some(at) != null => return Err(error),
                Err(error) if matches!(error.problem, PlanProblem::TooLarge(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    let is_here = error.path == self.path.join(".");
                    let reason =
                        if is_here { error.problem.to_string() } else { error.to_string() };
                    nodes.push(self.builder.fail(reason).node());
                }
            }
        }
        Ok(self.builder.choose(&nodes, null))
    }

    fn node(&mut self, writer: At<'s>, shape: &Shape) -> Planned {
        if !self.builder.visit() {
            return Err(self.error(PlanProblem::TooLarge(MAX_PARTS)));
        }
        let Kind::Union(branches) = writer.kind() else {
            return self.single(writer, shape);
        };
        let null = branches.iter().position(|&id| matches!(writer.part(id).kind(), Kind::Null));
        let resolved = branches.iter().map(|&id| self.node(writer.part(id), shape)).collect();
        self.settle(resolved, null)
    }

    fn single(&mut self, writer: At<'s>, shape: &Shape) -> Planned {
        let op = match (writer.kind(), &shape.body) {
            (Kind::Null, _) if shape.nullable => Op::Null,
            (Kind::Null, _) => return Err(self.incompatible(writer, self.reader_type(shape))),
            (_, Body::Choice(members)) => self.choice(writer, members, shape)?,
            (_, Body::Wide(branches)) => self.wide(writer, branches, shape)?,
            (Kind::Array(item), Body::List(items)) => {
                let node = self.within("element", |s| s.node(writer.part(*item), items))?;
                Op::List(self.builder.push(node))
            }
            (Kind::Map(of), Body::Map(values)) => {
                let node = self.within("value", |s| s.node(writer.part(*of), values))?;
                Op::Map(self.builder.push(node))
            }
            (Kind::Record(record), Body::Record { id, fields }) => {
                let place = |at: usize| Some(at as u32);
                return self.record(writer, record, *id, fields, &place);
            }
            (_, Body::Leaf(id)) => self.leaf(writer, *id)?,
            _ => return Err(self.incompatible(writer, self.reader_type(shape))),
        };
        Ok(op.node())
    }

    fn reader_type(&self, shape: &Shape) -> String {
        match &shape.body {
            Body::Leaf(id) | Body::Record { id, .. } => self.reader.describe(*id),
            Body::List(_) => "array".to_owned(),
            Body::Map(_) => "map".to_owned(),
            Body::Wide(branches) => {
                let names: Vec<_> = branches.iter().map(|&id| self.reader.describe(id)).collect();
                format!("union [{}]", names.join(", "))
            }
            Body::Choice(members) => {
                let names: Vec<_> =
                    members.iter().map(|member| self.reader.describe(member.id)).collect();
                format!("union [{}]", names.join(", "))
            }
        }
    }

    fn wide(&self, writer: At<'s>, branches: &[TypeId], shape: &Shape) -> Planned<Op> {
        let is_long = matches!(self.reader.get(branches[0]).kind, Kind::Int | Kind::Long);
        match (writer.kind(), is_long) {
            (Kind::Int, true) => Ok(Op::IntAsLong),
            (Kind::Long, true) => Ok(Op::Int64),
            (Kind::Int, false) => Ok(Op::IntAsDouble),
            (Kind::Long, false) => Ok(Op::LongAsDouble),
            (Kind::Float, false) => Ok(Op::FloatAsDouble),
            (Kind::Double, false) => Ok(Op::Double),
            _ => Err(self.incompatible(writer, self.reader_type(shape))),
        }
    }

    /// Finds the branch of the reader's union that reads a type: the first of the best rank.
    fn choice(&mut self, writer: At<'s>, members: &[Member], shape: &Shape) -> Planned<Op> {
        let reader = self.reader;
        let mut ranked: Vec<(u8, usize)> = members
            .iter()
            .enumerate()
            .filter_map(|(at, member)| {
                Some((rank(writer.kind(), &reader.get(member.id).kind)?, at))
            })
            .collect();
        ranked.sort_unstable();
        let mut first_error = None;
        for (_, at) in ranked {
            let Some(member) = &members[at].shape else {
                return Ok(Op::Dropped(self.builder.skip(writer)));
            };
            match self.node(writer, member) {
                Ok(node) => {
                    // Dropped members have no column.
                    let column = members[..at].iter().filter(|m| m.shape.is_some()).count();
                    return Ok(Op::Member(column as u32, self.builder.push(node)));
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| self.incompatible(writer, self.reader_type(shape))))
    }

    /// `place` says which column a column of the shape is, if it is decoded.
    fn record(
        &mut self,
        writer: At<'s>,
        record: &Record,
        reader: TypeId,
        slots: &[Slot],
        place: &dyn Fn(usize) -> Option<u32>,
    ) -> Planned {
        let Kind::Record(read) = &self.reader.get(reader).kind else {
            return Err(self.incompatible(writer, self.reader.describe(reader)));
        };
        let matched = match_fields(&record.fields, &read.fields);
        let mut steps = Vec::with_capacity(record.fields.len());
        for (at, field) in record.fields.iter().enumerate() {
            let slot = slots.iter().position(|slot| matched[slot.field] == Some(at));
            let column = slot.and_then(|slot| Some((place(slot)?, &slots[slot])));
            let (node, column) = match column {
                Some((column, slot)) => {
                    let writer = writer.part(field.id);
                    (self.within(&field.name, |s| s.node(writer, &slot.shape))?, column)
                }
                None => (Op::Skip(self.builder.skip(writer.part(field.id))).node(), NO_COLUMN),
            };
            steps.push(Step { node, column, name: self.builder.name(&field.name) });
        }
        for (at, slot) in slots.iter().enumerate() {
            if let (None, Some(column)) = (matched[slot.field], place(at)) {
                let field = &read.fields[slot.field];
                let node = self.within(&field.name, |s| s.default(field, &slot.shape))?;
                steps.push(Step { node, column, name: self.builder.name(&field.name) });
            }
        }
        Ok(Op::Record(self.builder.record(&steps)).node())
    }

    /// A field that the writer lacks: its default is decoded as if the reader had written it.
    fn default(&mut self, field: &Field, shape: &Shape) -> Planned {
        let Some(default) = &field.default else {
            return Err(self.error(PlanProblem::NoDefault));
        };
        let at = At { schema: self.reader, id: field.id };
        let bytes = default::encode(at, default).map_err(|problem| self.error(problem))?;
        let node = self.node(at, shape)?;
        Ok(self.builder.constant(bytes, node).node())
    }

    fn leaf(&mut self, writer: At<'s>, reader: TypeId) -> Planned<Op> {
        let read = self.reader.get(reader);
        let written = writer.schema.get(writer.id).logical;
        let units = read.logical.and_then(Logical::timestamp);
        Ok(match (writer.kind(), &read.kind) {
            (Kind::Boolean, Kind::Boolean) => Op::Boolean,
            (Kind::Int, Kind::Int) if read.logical == Some(Logical::Date) => Op::Date,
            (Kind::Int, Kind::Int) => Op::Int32,
            (Kind::Int, Kind::Long) => match units {
                Some((micros, _)) => Op::IntAsTimestamp(micros),
                None => Op::IntAsLong,
            },
            (Kind::Long, Kind::Long) => match units {
                // The unit is the one in which the value was written, if that is known.
                Some(units) => {
                    let units = written.and_then(Logical::timestamp).unwrap_or(units);
                    Op::Timestamp(units.0)
                }
                None => Op::Int64,
            },
            (Kind::Int, Kind::Float) => Op::IntAsFloat,
            (Kind::Long, Kind::Float) => Op::LongAsFloat,
            (Kind::Float, Kind::Float) => Op::Float,
            (Kind::Int, Kind::Double) => Op::IntAsDouble,
            (Kind::Long, Kind::Double) => Op::LongAsDouble,
            (Kind::Float, Kind::Double) => Op::FloatAsDouble,
            (Kind::Double, Kind::Double) => Op::Double,
            (Kind::String | Kind::Bytes, Kind::String) => Op::Text,
            (Kind::String | Kind::Bytes, Kind::Bytes) => {
                match self.is_decimal(written, read.logical)? {
                    true => Op::Decimal(0),
                    false => Op::Binary,
                }
            }
            (Kind::Fixed(named, size), Kind::Fixed(read_named, read_size))
                if size == read_size && read_named.reads(named) =>
            {
                match self.is_decimal(written, read.logical)? {
                    true => Op::FixedDecimal(*size as u32, 0),
                    false => Op::Fixed(*size as u32),
                }
            }
            (Kind::Enum(of), Kind::Enum(read)) if read.named.reads(&of.named) => {
                self.symbols(writer, of, read, reader)?
            }
            _ => return Err(self.incompatible(writer, self.reader.describe(reader))),
        })
    }

    /// Decimals match if precision and scale do (section "Decimal"); more digits at the same scale
    /// hold every value as well. What was written without being called a decimal is taken as one.
    fn is_decimal(&self, written: Option<Logical>, read: Option<Logical>) -> Planned<bool> {
        match (written, read) {
            (
                Some(Logical::Decimal { precision, scale }),
                Some(Logical::Decimal { precision: wider, scale: same }),
            ) if scale != same || precision > wider => {
                let (writer, reader) = ((precision, scale), (wider, same));
                Err(self.error(PlanProblem::Decimal { writer, reader }))
            }
            (_, Some(Logical::Decimal { .. })) => Ok(true),
            _ => Ok(false),
        }
    }

    fn symbols(&mut self, writer: At<'_>, of: &Enum, read: &Enum, reader: TypeId) -> Planned<Op> {
        let symbols: Vec<Option<Box<str>>> = of
            .symbols
            .iter()
            .map(|symbol| {
                let known = read.symbols.contains(symbol).then_some(symbol);
                known.or(read.default.as_ref()).map(|symbol| symbol.as_str().into())
            })
            .collect();
        if symbols.iter().all(Option::is_none) {
            return Err(self.incompatible(writer, self.reader.describe(reader)));
        }
        Ok(self.builder.symbols(symbols))
    }
}

/// For each of the reader's fields, which of the writer's it reads: the one of its name, else one
/// of its aliases that no field has as its name.
fn match_fields(written: &[Field], read: &[Field]) -> Vec<Option<usize>> {
    let find = |name: &str| written.iter().position(|field| field.name == name);
    let mut matched: Vec<_> = read.iter().map(|field| find(&field.name)).collect();
    for (at, field) in read.iter().enumerate() {
        if matched[at].is_none() {
            let mut found = field.aliases.iter().filter_map(|alias| find(alias));
            matched[at] = found.find(|found| !matched.contains(&Some(*found)));
        }
    }
    matched
}

/// How well a branch of the reader's union reads a type: 0 is best. Whether it really can is found
/// out by resolving it.
fn rank(writer: &Kind, reader: &Kind) -> Option<u8> {
    let by_name = |written: &Named, read: &Named| {
        let is_same = read.name == written.name || read.aliases.contains(&written.name);
        if is_same { 0 } else { 1 }
    };
    match (writer, reader) {
        (Kind::Record(written), Kind::Record(read)) => match by_name(&written.named, &read.named) {
            1 if !read.named.reads(&written.named) => Some(2),
            rank => Some(rank),
        },
        (Kind::Enum(written), Kind::Enum(read)) => Some(by_name(&written.named, &read.named)),
        (Kind::Fixed(written, _), Kind::Fixed(read, _)) => Some(by_name(written, read)),
        (Kind::Int, Kind::Long | Kind::Float | Kind::Double)
        | (Kind::Long, Kind::Float | Kind::Double)
        | (Kind::Float, Kind::Double)
        | (Kind::String, Kind::Bytes)
        | (Kind::Bytes, Kind::String) => Some(3),
        _ => (std::mem::discriminant(writer) == std::mem::discriminant(reader)).then_some(0),
    }
}
