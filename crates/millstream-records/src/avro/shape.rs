//! Which column a schema's type becomes: Spark's `SchemaConverters.toSqlType`.
//!
//! The columns are a tree where the schema is a graph, so a type may occur in it many times, and
//! a recursive one must end somewhere. The tree keeps which type each part came from, by which
//! records are resolved to it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema as ArrowSchema, TimeUnit};

use super::schema::{Kind, Logical, Schema, SchemaError, SchemaProblem, TypeId};

/// How deep columns may be nested: whatever walks over them does so by recursion.
pub(super) const MAX_DEPTH: usize = 100;
/// How many parts the columns may have. A few records that each use the one before twice expand
/// to billions.
pub(super) const MAX_PARTS: usize = 100_000;
/// Spark's limit of `recursiveFieldMaxDepth`.
const MAX_RECURSION: usize = 15;

/// A type of a schema, as a column.
pub(super) struct Shape {
    pub data_type: DataType,
    pub nullable: bool,
    pub body: Body,
}

pub(super) enum Body {
    Leaf(TypeId),
    List(Box<Shape>),
    Map(Box<Shape>),
    Record {
        id: TypeId,
        fields: Vec<Slot>,
    },
    /// A union of int and long, or of float and double.
    Wide(Vec<TypeId>),
    /// Any other union: a struct of which one member is set.
    Choice(Vec<Member>),
}

/// A record's field that is a column, by its place in the record.
pub(super) struct Slot {
    pub field: usize,
    pub shape: Shape,
}

/// A branch of a union, and the struct's member for it, unless it was dropped for recursion.
pub(super) struct Member {
    pub id: TypeId,
    pub shape: Option<Shape>,
}

impl Schema {
    /// The type of a column that holds what this schema describes, by Spark's rules, and whether
    /// it can be null. `recursion` is Spark's option `recursiveFieldMaxDepth`: how often a record
    /// may occur within itself before the field is dropped; 0 forbids it.
    ///
    /// # Errors
    /// A type that has no column type, recursion, more than [100 levels, 100,000
    /// parts](SchemaProblem::TooLarge).
    pub fn data_type(&self, recursion: usize) -> Result<(DataType, bool), SchemaError> {
        let shape = self.shape(recursion)?;
        Ok((shape.data_type, shape.nullable))
    }

    /// The columns of a table of such records. A schema that is no record makes one column,
    /// `value`.
    ///
    /// # Errors
    /// As [`data_type`](Self::data_type).
    pub fn columns(&self, recursion: usize) -> Result<ArrowSchema, SchemaError> {
        let shape = self.shape(recursion)?;
        Ok(match (&shape.body, shape.data_type) {
            (Body::Record { .. }, DataType::Struct(fields)) if !shape.nullable => {
                ArrowSchema::new(fields)
            }
            (_, data_type) => {
                ArrowSchema::new(vec![Field::new("value", data_type, shape.nullable)])
            }
        })
    }

    pub(super) fn shape(&self, recursion: usize) -> Result<Shape, SchemaError> {
        if recursion > MAX_RECURSION {
            return Err(SchemaProblem::RecursionLimit(recursion).at("$"));
        }
        let mut shaper =
            Shaper { schema: self, recursion, within: HashMap::new(), parts: 0, depth: 0 };
        let shape = shaper.shape(self.root(), "$")?;
        shape.ok_or_else(|| SchemaProblem::Null.at("$"))
    }
}

struct Shaper<'s> {
    schema: &'s Schema,
    recursion: usize,
    /// How often each record is on the way from the root.
    within: HashMap<TypeId, usize>,
    parts: usize,
    depth: usize,
}

/// `None` is a type that was dropped for recursion.
type Shaped = Result<Option<Shape>, SchemaError>;

impl Shaper<'_> {
    fn shape(&mut self, id: TypeId, place: &str) -> Shaped {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(SchemaProblem::TooLarge(MAX_PARTS).at(place));
        }
        if self.depth == MAX_DEPTH {
            return Err(SchemaProblem::TooDeep(MAX_DEPTH).at(place));
        }
        self.depth += 1;
        let shape = match &self.schema.get(id).kind {
            Kind::Array(items) => self.list(*items, place),
            Kind::Map(values) => self.map(*values, place),
            Kind::Record(_) => self.record(id, place),
            Kind::Union(branches) => self.union(branches, place),
            _ => self.leaf(id, place).map(Some),
        };
        self.depth -= 1;
        shape
    }

    fn leaf(&self, id: TypeId, place: &str) -> Result<Shape, SchemaError> {
        let of = self.schema.get(id);
        let data_type = match (&of.kind, of.logical) {
            (Kind::Boolean, _) => DataType::Boolean,
            (Kind::Int, Some(Logical::Date)) => DataType::Date32,
            (Kind::Int, _) => DataType::Int32,
            (Kind::Long, Some(logical)) => match logical.timestamp() {
                Some((_, is_local)) => timestamp(is_local),
                None => DataType::Int64,
            },
            (Kind::Long, None) => DataType::Int64,
            (Kind::Float, _) => DataType::Float32,
            (Kind::Double, _) => DataType::Float64,
            (Kind::String | Kind::Enum(_), _) => DataType::Utf8,
            (_, Some(Logical::Decimal { precision, scale })) => {
                if precision > 38 {
                    return Err(SchemaProblem::DecimalPrecision(precision).at(place));
                }
                DataType::Decimal128(precision as u8, scale as i8)
            }
            (Kind::Bytes | Kind::Fixed(..), _) => DataType::Binary,
            _ => return Err(SchemaProblem::Null.at(place)),
        };
        Ok(Shape { data_type, nullable: false, body: Body::Leaf(id) })
    }

    fn list(&mut self, items: TypeId, place: &str) -> Shaped {
        let items = self.shape(items, &format!("{place}.items"))?;
        Ok(items.map(|items| {
            let item = Field::new("element", items.data_type.clone(), items.nullable);
            let data_type = DataType::List(Arc::new(item));
            Shape { data_type, nullable: false, body: Body::List(Box::new(items)) }
        }))
    }

    fn map(&mut self, values: TypeId, place: &str) -> Shaped {
        let values = self.shape(values, &format!("{place}.values"))?;
        Ok(values.map(|values| {
            let key = Field::new("key", DataType::Utf8, false);
            let value = Field::new("value", values.data_type.clone(), values.nullable);
            let entries = DataType::Struct(Fields::from(vec![key, value]));
            let entries = Arc::new(Field::new("entries", entries, false));
            let data_type = DataType::Map(entries, false);
            Shape { data_type, nullable: false, body: Body::Map(Box::new(values)) }
        }))
    }

    fn record(&mut self, id: TypeId, place: &str) -> Shaped {
        let Kind::Record(record) = &self.schema.get(id).kind else { return Ok(None) };
        let before = self.within.get(&id).copied().unwrap_or(0);
        if before > 0 && self.recursion == 0 {
            return Err(SchemaProblem::Recursive(record.named.name.clone()).at(place));
        }
        if before > 0 && before >= self.recursion {
            return Ok(None);
        }
        self.within.insert(id, before + 1);
        let mut fields = Vec::with_capacity(record.fields.len());
        let mut columns = Vec::with_capacity(record.fields.len());
        for (at, field) in record.fields.iter().enumerate() {
            let place = format!("{place}.fields[{at}].type");
            if let Some(shape) = self.shape(field.id, &place)? {
                columns.push(Field::new(&field.name, shape.data_type.clone(), shape.nullable));
                fields.push(Slot { field: at, shape });
            }
        }
        self.within.insert(id, before);
        let data_type = DataType::Struct(columns.into());
        Ok(Some(Shape { data_type, nullable: false, body: Body::Record { id, fields } }))
    }

    fn union(&mut self, branches: &[TypeId], place: &str) -> Shaped {
        let is_null = |id: TypeId| matches!(self.schema.get(id).kind, Kind::Null);
        let nullable = branches.iter().any(|&id| is_null(id));
        let rest: Vec<(usize, TypeId)> =
            branches.iter().copied().enumerate().filter(|(_, id)| !is_null(*id)).collect();
        let ids: Vec<TypeId> = rest.iter().map(|(_, id)| *id).collect();
        let shape = match (rest.as_slice(), wide(self.schema, &ids)) {
            ([], _) => return Err(SchemaProblem::Null.at(place)),
            ([(at, id)], _) => self.shape(*id, &format!("{place}[{at}]"))?,
            (_, Some(data_type)) => {
                Some(Shape { data_type, nullable: false, body: Body::Wide(ids) })
            }
            (several, None) => Some(self.choice(several, place)?),
        };
        Ok(shape.map(|shape| Shape { nullable: nullable || shape.nullable, ..shape }))
    }

    fn choice(&mut self, branches: &[(usize, TypeId)], place: &str) -> Result<Shape, SchemaError> {
        let mut members = Vec::with_capacity(branches.len());
        let mut columns = Vec::with_capacity(branches.len());
        for (member, &(at, id)) in branches.iter().enumerate() {
            let shape = self.shape(id, &format!("{place}[{at}]"))?;
            if let Some(shape) = &shape {
                columns.push(Field::new(format!("member{member}"), shape.data_type.clone(), true));
            }
            members.push(Member { id, shape });
        }
        let data_type = DataType::Struct(columns.into());
        Ok(Shape { data_type, nullable: false, body: Body::Choice(members) })
    }
}

/// The type that holds the values of both branches, if the two are a narrower and a wider one.
pub(super) fn wide(schema: &Schema, branches: &[TypeId]) -> Option<DataType> {
    let [left, right] = branches else { return None };
    match (&schema.get(*left).kind, &schema.get(*right).kind) {
        (Kind::Int, Kind::Long) | (Kind::Long, Kind::Int) => Some(DataType::Int64),
        (Kind::Float, Kind::Double) | (Kind::Double, Kind::Float) => Some(DataType::Float64),
        _ => None,
    }
}

pub(super) fn timestamp(is_local: bool) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, (!is_local).then(|| "UTC".into()))
}
