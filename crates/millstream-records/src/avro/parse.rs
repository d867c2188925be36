//! From the JSON text to the graph of types (section "Schema Declaration").
//!
//! A name may be used before its definition, which the specification does not ask for but Java's
//! parser allows: then references can come in any order. Such a use gets a place in the graph at
//! once, and [`Parser::link`] turns it to the definition when all texts are read.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::schema::{
    Enum, Field, Graph, Kind, Logical, Named, OtherTime, Record, Schema, SchemaError,
    SchemaProblem, Type, TypeId,
};

type Object = Map<String, Value>;

impl Schema {
    /// Parses a schema. Its named types, and those that it uses, may also be defined in
    /// `references`, as a schema registry's references are; each is a schema text of its own, in
    /// any order.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place. Defaults are checked only when a plan needs
    /// them.
    pub fn parse(text: &str, references: &[&str]) -> Result<Self, SchemaError> {
        let mut parser = Parser::default();
        for (index, reference) in references.iter().enumerate() {
            parser.text(reference, &format!("reference {}: $", index + 1))?;
        }
        let root = parser.text(text, "$")?;
        let root = parser.link(root)?;
        parser.check_unions()?;
        Ok(Self::new(Graph { types: parser.types, root, text: text.to_owned() }))
    }
}

#[derive(Default)]
struct Parser {
    types: Vec<Type>,
    /// Defined types by their full names.
    names: HashMap<String, TypeId>,
    /// Uses of names, to be linked.
    uses: Vec<Use>,
    /// Where each union was.
    unions: Vec<(TypeId, String)>,
}

struct Use {
    id: TypeId,
    name: String,
    place: String,
}

impl Parser {
    fn text(&mut self, text: &str, place: &str) -> Result<TypeId, SchemaError> {
        // The JSON parser limits the depth, and so bounds the recursion here.
        let value: Value =
            serde_json::from_str(text).map_err(|e| SchemaProblem::Json(e).at(place))?;
        self.value(&value, "", place)
    }

    fn add(&mut self, kind: Kind) -> TypeId {
        self.types.push(Type { kind, logical: None, other_time: None });
        TypeId(self.types.len() as u32 - 1)
    }

    fn value(&mut self, value: &Value, space: &str, place: &str) -> Result<TypeId, SchemaError> {
        match value {
            Value::String(name) => self.name(name, space, place),
            Value::Array(branches) => self.union(branches, space, place),
            Value::Object(object) => self.object(object, space, place),
            other => Err(SchemaProblem::NotASchema(other.to_string()).at(place)),
        }
    }

    fn name(&mut self, name: &str, space: &str, place: &str) -> Result<TypeId, SchemaError> {
        if let Some(kind) = primitive(name) {
            return Ok(self.add(kind));
        }
        let name = full_name(name, space, place)?;
        let id = self.add(Kind::Null);
        self.uses.push(Use { id, name, place: place.to_owned() });
        Ok(id)
    }

    fn union(
        &mut self,
        branches: &[Value],
        space: &str,
        place: &str,
    ) -> Result<TypeId, SchemaError> {
        let parsed = branches.iter().enumerate();
        let parsed =
            parsed.map(|(at, branch)| self.value(branch, space, &format!("{place}[{at}]")));
        let kind = Kind::Union(parsed.collect::<Result<_, _>>()?);
        let id = self.add(kind);
        self.unions.push((id, place.to_owned()));
        Ok(id)
    }

    fn object(&mut self, object: &Object, space: &str, place: &str) -> Result<TypeId, SchemaError> {
        let name = match object.get("type") {
            Some(Value::String(name)) => name.as_str(),
            Some(nested @ (Value::Object(_) | Value::Array(_))) => {
                return self.value(nested, space, &format!("{place}.type"));
            }
            _ => return Err(member("type", "a string, an object or an array").at(place)),
        };
        let id = match name {
            "record" | "error" => self.record(object, space, place)?,
            "enum" => self.symbols(object, space, place)?,
            "fixed" => self.fixed(object, space, place)?,
            "array" => {
                let items = self.part(object, "items", space, place)?;
                self.add(Kind::Array(items))
            }
            "map" => {
                let values = self.part(object, "values", space, place)?;
                self.add(Kind::Map(values))
            }
            name => self.name(name, space, &format!("{place}.type"))?,
        };
        let of = &mut self.types[id.0 as usize];
        of.logical = logical(object, &of.kind);
        of.other_time = other_time(object, &of.kind);
        Ok(id)
    }

    fn part(
        &mut self,
        object: &Object,
        name: &'static str,
        space: &str,
        place: &str,
    ) -> Result<TypeId, SchemaError> {
        let part = object.get(name).ok_or_else(|| member(name, "a schema").at(place))?;
        self.value(part, space, &format!("{place}.{name}"))
    }

    /// Names the next type of the graph.
    fn define(
        &mut self,
        object: &Object,
        space: &str,
        place: &str,
    ) -> Result<(Named, String), SchemaError> {
        let name = text(object, "name", place)?;
        let own = object.get("namespace").and_then(Value::as_str).unwrap_or(space);
        let name = full_name(name, own, &format!("{place}.name"))?;
        let space = name.rsplit_once('.').map_or("", |(space, _)| space).to_owned();
        let aliases = aliases(object, &space, place)?;
        Ok((Named { name, aliases }, space))
    }

    fn enter(&mut self, named: &Named, place: &str) -> Result<TypeId, SchemaError> {
        let id = self.add(Kind::Null);
        match self.names.insert(named.name.clone(), id) {
            None => Ok(id),
            Some(_) => Err(SchemaProblem::Duplicate(named.name.clone()).at(place)),
        }
    }

    fn record(&mut self, object: &Object, space: &str, place: &str) -> Result<TypeId, SchemaError> {
        let (named, space) = self.define(object, space, place)?;
        let id = self.enter(&named, place)?;
        let Some(Value::Array(written)) = object.get("fields") else {
            return Err(member("fields", "an array of objects").at(place));
        };
        let mut fields = Vec::with_capacity(written.len());
        let mut seen = HashSet::new();
        for (at, field) in written.iter().enumerate() {
            let place = format!("{place}.fields[{at}]");
            let Value::Object(field) = field else {
                return Err(member("fields", "an array of objects").at(place));
            };
            let field = self.field(field, &space, &place)?;
            if !seen.insert(field.name.clone()) {
                return Err(SchemaProblem::Repeated(field.name).at(place));
            }
            fields.push(field);
        }
        self.types[id.0 as usize].kind = Kind::Record(Record { named, fields });
        Ok(id)
    }

    fn field(&mut self, field: &Object, space: &str, place: &str) -> Result<Field, SchemaError> {
        let name = text(field, "name", place)?.to_owned();
        check_name(&name, &format!("{place}.name"))?;
        let aliases = match field.get("aliases") {
            None => Vec::new(),
            Some(_) => texts(field, "aliases", place)?,
        };
        let id = self.part(field, "type", space, place)?;
        Ok(Field { name, aliases, default: field.get("default").cloned(), id })
    }

    fn symbols(
        &mut self,
        object: &Object,
        space: &str,
        place: &str,
    ) -> Result<TypeId, SchemaError> {
        let (named, _) = self.define(object, space, place)?;
        let id = self.enter(&named, place)?;
        let symbols = texts(object, "symbols", place)?;
        let mut seen = HashSet::new();
        if let Some(twice) = symbols.iter().find(|symbol| !seen.insert(symbol.as_str())) {
            let problem = SchemaProblem::Repeated(twice.clone());
            return Err(problem.at(format!("{place}.symbols")));
        }
        let default = match object.get("default") {
            None | Some(Value::Null) => None,
            Some(_) => Some(text(object, "default", place)?.to_owned()),
        };
        if let Some(default) = default.as_ref().filter(|default| !symbols.contains(default)) {
            return Err(SchemaProblem::EnumDefault(default.clone()).at(place));
        }
        self.types[id.0 as usize].kind = Kind::Enum(Enum { named, symbols, default });
        Ok(id)
    }

    fn fixed(&mut self, object: &Object, space: &str, place: &str) -> Result<TypeId, SchemaError> {
        let (named, _) = self.define(object, space, place)?;
        let id = self.enter(&named, place)?;
        let size = object.get("size").and_then(Value::as_u64);
        let size = size.filter(|&size| size <= i32::MAX as u64);
        let size = size.ok_or_else(|| SchemaProblem::Size.at(format!("{place}.size")))?;
        self.types[id.0 as usize].kind = Kind::Fixed(named, size as usize);
        Ok(id)
    }

    /// Turns every use of a name to the definition.
    fn link(&mut self, root: TypeId) -> Result<TypeId, SchemaError> {
        let mut targets = HashMap::with_capacity(self.uses.len());
        for used in &self.uses {
            // A name without a namespace may also mean a type without one, as in Java.
            let short = used.name.rsplit('.').next().unwrap_or_default();
            let target = self.names.get(&used.name).or_else(|| self.names.get(short));
            let Some(&target) = target else {
                let problem = SchemaProblem::Unknown(used.name.clone());
                return Err(problem.at(used.place.clone()));
            };
            targets.insert(used.id, target);
        }
        let linked = |id: &mut TypeId| {
            if let Some(&target) = targets.get(id) {
                *id = target;
            }
        };
        for of in &mut self.types {
            match &mut of.kind {
                Kind::Array(id) | Kind::Map(id) => linked(id),
                Kind::Union(ids) => ids.iter_mut().for_each(linked),
                Kind::Record(of) => of.fields.iter_mut().for_each(|field| linked(&mut field.id)),
                _ => {}
            }
        }
        Ok(targets.get(&root).copied().unwrap_or(root))
    }

    /// Checks that the branches of every union can be told apart (section "Unions").
    fn check_unions(&self) -> Result<(), SchemaError> {
        for (id, place) in &self.unions {
            let Kind::Union(branches) = &self.types[id.0 as usize].kind else { continue };
            let mut seen = HashSet::new();
            for branch in branches {
                let kind = &self.types[branch.0 as usize].kind;
                if matches!(kind, Kind::Union(_)) {
                    return Err(SchemaProblem::NestedUnion.at(place.clone()));
                }
                let identity = match kind.named() {
                    Some(named) => named.name.as_str(),
                    None => kind.word(),
                };
                if !seen.insert(identity) {
                    let problem = SchemaProblem::SameBranch(identity.to_owned());
                    return Err(problem.at(place.clone()));
                }
            }
        }
        Ok(())
    }
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

/// The logical type, if it is one that counts and fits the type. One that does not fit is to be
/// ignored (section "Logical Types").
fn logical(object: &Object, kind: &Kind) -> Option<Logical> {
    let name = object.get("logicalType")?.as_str()?;
    match (name, kind) {
        ("decimal", Kind::Bytes | Kind::Fixed(..)) => decimal(object, kind),
        ("date", Kind::Int) => Some(Logical::Date),
        ("timestamp-millis", Kind::Long) => Some(Logical::TimestampMillis),
        ("timestamp-micros", Kind::Long) => Some(Logical::TimestampMicros),
        ("local-timestamp-millis", Kind::Long) => Some(Logical::LocalTimestampMillis),
        ("local-timestamp-micros", Kind::Long) => Some(Logical::LocalTimestampMicros),
        _ => None,
    }
}

/// The logical type, if it is one of time that [`logical`] does not know.
fn other_time(object: &Object, kind: &Kind) -> Option<OtherTime> {
    let (name, counts) = match (object.get("logicalType")?.as_str()?, kind) {
        ("time-millis", Kind::Int) => ("time-millis", "milliseconds since midnight"),
        ("time-micros", Kind::Long) => ("time-micros", "microseconds since midnight"),
        ("timestamp-nanos", Kind::Long) => ("timestamp-nanos", "nanoseconds since 1970"),
        ("local-timestamp-nanos", Kind::Long) => {
            ("local-timestamp-nanos", "nanoseconds since 1970")
        }
        _ => return None,
    };
    Some(OtherTime { name, counts })
}

fn decimal(object: &Object, kind: &Kind) -> Option<Logical> {
    let precision = object.get("precision")?.as_u64()?;
    let scale = match object.get("scale") {
        None => 0,
        Some(scale) => scale.as_u64()?,
    };
    let fits = match kind {
        // So many digits fit into the bits but the sign's: floor(log10(2^(8 n - 1) - 1)).
        Kind::Fixed(_, size) => *size > 0 && precision <= digits(*size as u64 * 8 - 1),
        _ => true,
    };
    let is_valid = precision > 0 && scale <= precision && fits;
    is_valid.then_some(Logical::Decimal { precision: precision as usize, scale: scale as usize })
}

fn digits(bits: u64) -> u64 {
    (bits as f64 * std::f64::consts::LOG10_2).floor() as u64
}

fn member(member: &'static str, expected: &'static str) -> SchemaProblem {
    SchemaProblem::Member { member, expected }
}

fn text<'v>(object: &'v Object, name: &'static str, place: &str) -> Result<&'v str, SchemaError> {
    let text = object.get(name).and_then(Value::as_str);
    text.ok_or_else(|| member(name, "a string").at(place))
}

fn texts(object: &Object, name: &'static str, place: &str) -> Result<Vec<String>, SchemaError> {
    let texts = object.get(name).and_then(Value::as_array).and_then(|texts| {
        texts.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    texts.ok_or_else(|| member(name, "an array of strings").at(place))
}

fn aliases(object: &Object, space: &str, place: &str) -> Result<Vec<String>, SchemaError> {
    if !object.contains_key("aliases") {
        return Ok(Vec::new());
    }
    let place = format!("{place}.aliases");
    let aliases = texts(object, "aliases", &place)?;
    aliases.iter().map(|alias| full_name(alias, space, &place)).collect()
}

/// The name with its namespace: its own if it has dots, else the given one (section "Names").
fn full_name(name: &str, space: &str, place: &str) -> Result<String, SchemaError> {
    let full = match name.strip_prefix('.') {
        Some(name) => name.to_owned(),
        None if name.contains('.') || space.is_empty() => name.to_owned(),
        None => format!("{space}.{name}"),
    };
    full.split('.').try_for_each(|part| check_name(part, place))?;
    Ok(full)
}

fn check_name(name: &str, place: &str) -> Result<(), SchemaError> {
    let starts = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    if starts && name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Ok(());
    }
    Err(SchemaProblem::Name(name.to_owned()).at(place))
}
