//! What a plan is compiled to: a flat program that reads a writer's bytes into columns.
//!
//! Instructions are small values in vectors and refer to each other by index, so that following
//! them needs no pointers and no calls through tables. Each instruction reads one Avro value and
//! appends exactly one row to the column it is given.

use std::collections::HashMap;

use super::schema::{Kind, Schema, TypeId};
use super::shape::MAX_PARTS;

/// An instruction, and whether its value is one branch of a union with null.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub op: Op,
    pub null: NullBranch,
}

/// Which branch of a union of two is null. Such unions are so common that they are no instruction
/// of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NullBranch {
    Never,
    First,
    Second,
}

/// How a value is read, and what it becomes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Reads nothing, appends null.
    Null,
    Boolean,
    /// An int into TINYINT.
    Int8,
    /// An int into SMALLINT.
    Int16,
    Int32,
    Date,
    /// A long of milliseconds since the epoch, into DATE.
    MillisAsDate,
    Int64,
    IntAsLong,
    IntAsFloat,
    LongAsFloat,
    Float,
    IntAsDouble,
    LongAsDouble,
    FloatAsDouble,
    Double,
    /// A long, of this many microseconds each, into TIMESTAMP.
    Timestamp(i64),
    /// An int, of this many microseconds each, into TIMESTAMP.
    IntAsTimestamp(i64),
    Text,
    Binary,
    /// A fixed of so many bytes.
    Fixed(u32),
    /// Bytes into DECIMAL, times ten to this power.
    Decimal(u8),
    /// A fixed into DECIMAL, times ten to this power.
    FixedDecimal(u32, u8),
    /// An index into this table of symbols.
    Enum(u32),
    /// Items by this node.
    List(u32),
    /// Values by this node.
    Map(u32),
    /// These steps, into a struct.
    Record(Span),
    /// A branch, by these nodes.
    Union(Span),
    /// By a node into one member of a struct, all others null.
    Member(u32, u32),
    /// Skips by this table entry; a struct of nulls.
    Dropped(u32),
    /// Reads nothing, appends a default.
    Constant(u32),
    /// Skips by this table entry, appends nothing: only as a step without a column.
    Skip(u32),
    /// A value that has no place in the column, for this reason.
    Fail(u32),
}

impl Default for Node {
    fn default() -> Self {
        Op::Null.node()
    }
}

impl Op {
    pub fn node(self) -> Node {
        Node { op: self, null: NullBranch::Never }
    }
}

/// A range of a vector of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub start: u32,
    pub len: u32,
}

impl Span {
    pub fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.start as usize..][..self.len as usize]
    }
}

/// A field of a record, as the writer has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub node: Node,
    /// Which column of the struct, or [`NO_COLUMN`] with [`Op::Skip`].
    pub column: u32,
    /// The field's name.
    pub name: u32,
}

pub(super) const NO_COLUMN: u32 = u32::MAX;

/// How a value is skipped. Entries refer to each other by index, in cycles if the type does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Skip {
    /// So many bytes.
    Bytes(u32),
    Varint,
    /// A length and so many bytes.
    Counted,
    Items(u32),
    Entries(u32),
    Record(Span),
    Union(Span),
}

/// A default, as the bytes that a writer would have written.
pub(super) struct Constant {
    pub bytes: Box<[u8]>,
    pub node: Node,
}

#[derive(Default)]
pub(super) struct Program {
    pub nodes: Vec<Node>,
    pub steps: Vec<Step>,
    pub names: Vec<Box<str>>,
    /// For each of an enum's symbols, what it becomes.
    pub symbols: Vec<Vec<Option<Box<str>>>>,
    pub constants: Vec<Constant>,
    pub failures: Vec<Box<str>>,
    pub skips: Vec<Skip>,
    pub skip_lists: Vec<u32>,
    /// What a whole record is: a record into the columns, or a union of such.
    pub root: Node,
}

/// A type of a schema.
#[derive(Clone, Copy)]
pub(super) struct At<'s> {
    pub schema: &'s Schema,
    pub id: TypeId,
}

impl<'s> At<'s> {
    pub fn root(schema: &'s Schema) -> Self {
        Self { schema, id: schema.root() }
    }

    pub fn kind(self) -> &'s Kind {
        &self.schema.get(self.id).kind
    }

    pub fn part(self, id: TypeId) -> Self {
        Self { id, ..self }
    }

    pub fn describe(self) -> String {
        self.schema.describe(self.id)
    }
}

/// The program under construction.
#[derive(Default)]
pub(super) struct Builder {
    pub program: Program,
    /// Where each schema's types begin in the table of skips.
    skips: HashMap<usize, u32>,
    /// How many types were visited: trying branches of unions against each other could take
    /// exponential time.
    visits: usize,
    names: HashMap<Box<str>, u32>,
}

impl Builder {
    /// Counts a visit; false if there were too many.
    pub fn visit(&mut self) -> bool {
        self.visits += 1;
        self.visits <= MAX_PARTS
    }

    pub fn push(&mut self, node: Node) -> u32 {
        self.program.nodes.push(node);
        self.program.nodes.len() as u32 - 1
    }

    pub fn union(&mut self, branches: &[Node]) -> Span {
        let start = self.program.nodes.len() as u32;
        self.program.nodes.extend_from_slice(branches);
        Span { start, len: branches.len() as u32 }
    }

    pub fn record(&mut self, steps: &[Step]) -> Span {
        let start = self.program.steps.len() as u32;
        self.program.steps.extend_from_slice(steps);
        Span { start, len: steps.len() as u32 }
    }

    pub fn name(&mut self, name: &str) -> u32 {
        if let Some(&at) = self.names.get(name) {
            return at;
        }
        let at = self.program.names.len() as u32;
        self.program.names.push(name.into());
        self.names.insert(name.into(), at);
        at
    }

    pub fn symbols(&mut self, symbols: Vec<Option<Box<str>>>) -> Op {
        self.program.symbols.push(symbols);
        Op::Enum(self.program.symbols.len() as u32 - 1)
    }

    pub fn constant(&mut self, bytes: Vec<u8>, node: Node) -> Op {
        self.program.constants.push(Constant { bytes: bytes.into(), node });
        Op::Constant(self.program.constants.len() as u32 - 1)
    }

    pub fn fail(&mut self, reason: String) -> Op {
        self.program.failures.push(reason.into());
        Op::Fail(self.program.failures.len() as u32 - 1)
    }

    /// The union of these branches, of which `null` is null.
    pub fn choose(&mut self, branches: &[Node], null: Option<usize>) -> Node {
        let is_plain = |node: &Node| node.null == NullBranch::Never;
        match (branches, null) {
            ([Node { op: Op::Null, .. }, other], Some(0)) if is_plain(other) => {
                Node { op: other.op, null: NullBranch::First }
            }
            ([other, Node { op: Op::Null, .. }], Some(1)) if is_plain(other) => {
                Node { op: other.op, null: NullBranch::Second }
            }
            _ => Op::Union(self.union(branches)).node(),
        }
    }

    /// The entry that skips a type. All types of a schema get theirs at once and in order, so
    /// that neither depth nor cycles matter.
    pub fn skip(&mut self, at: At<'_>) -> u32 {
        let key = std::ptr::from_ref(at.schema.types()).addr();
        let base = match self.skips.get(&key) {
            Some(&base) => base,
            None => {
                let base = self.program.skips.len() as u32;
                for of in at.schema.types() {
                    let skip = self.skip_of(&of.kind, base);
                    self.program.skips.push(skip);
                }
                self.skips.insert(key, base);
                base
            }
        };
        base + at.id.0
    }

    fn skip_of(&mut self, kind: &Kind, base: u32) -> Skip {
        match kind {
            Kind::Null => Skip::Bytes(0),
            Kind::Boolean => Skip::Bytes(1),
            Kind::Float => Skip::Bytes(4),
            Kind::Double => Skip::Bytes(8),
            Kind::Fixed(_, size) => Skip::Bytes(*size as u32),
            Kind::Int | Kind::Long | Kind::Enum(_) => Skip::Varint,
            Kind::Bytes | Kind::String => Skip::Counted,
            Kind::Array(id) => Skip::Items(base + id.0),
            Kind::Map(id) => Skip::Entries(base + id.0),
            Kind::Union(ids) => Skip::Union(self.skip_list(ids.iter().map(|id| base + id.0))),
            Kind::Record(of) => {
                Skip::Record(self.skip_list(of.fields.iter().map(|field| base + field.id.0)))
            }
        }
    }

    fn skip_list(&mut self, entries: impl Iterator<Item = u32>) -> Span {
        let start = self.program.skip_lists.len();
        self.program.skip_lists.extend(entries);
        Span { start: start as u32, len: (self.program.skip_lists.len() - start) as u32 }
    }
}
