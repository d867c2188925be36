//! Runs a plan's program over a record's bytes.
//!
//! Nothing is checked twice: that a column has the type its instruction appends is the plan's
//! promise, and the one branch that finds it broken makes the record malformed, so that a mistake
//! in a plan cannot become a panic.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};

use super::cursor::{Cursor, Fault, Outcome, Problem, unscaled};
use super::error::{LayoutError, RecordError, RecordProblem};
use super::layout::Layout;
use super::plan::Plan;
use super::program::{Node, NullBranch, Op, Program, Skip, Span};
use crate::columns::Column;

/// How many bytes of records and defaults a batch takes: offsets within columns are 32 bits.
const ROOM: usize = 1 << 30;

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// Decodes records into the columns of a layout.
pub struct Decoder {
    layout: Layout,
    columns: Vec<Column>,
    rows: usize,
    room: usize,
}

impl Decoder {
    /// A decoder into these columns, of which those of `projection` are decoded, in its order.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn new(columns: &ArrowSchema, projection: &[usize]) -> Result<Self, LayoutError> {
        Self::with_layout(&Layout::new(columns, projection)?)
    }

    /// A decoder with a layout that others may have as well, to share their plans.
    ///
    /// # Errors
    /// A type of which there are no columns.
    pub fn with_layout(layout: &Layout) -> Result<Self, LayoutError> {
        let columns = layout.projected().fields().iter().map(|field| {
            Column::new(field.data_type())
                .map_err(|data_type| LayoutError::Type { column: field.name().clone(), data_type })
        });
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(Self { layout: layout.clone(), columns, rows: 0, room: ROOM })
    }

    /// What plans for this decoder are made for.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The columns that are decoded.
    pub fn schema(&self) -> &SchemaRef {
        self.layout.projected()
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends a record as one row. `record` is the bare record: no frame before it, and nothing
    /// after it.
    ///
    /// # Errors
    /// The rows are as before. [`Full`](RecordError::Full) is no fault of the record's.
    pub fn append(&mut self, plan: &Plan, record: &[u8]) -> Result<(), RecordError> {
        self.append_to(plan, record, all_read)
    }

    /// Appends a record as one row, whatever comes after it: Spark's from_avro reads no further
    /// than the schema leads it.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_beginning(&mut self, plan: &Plan, bytes: &[u8]) -> Result<(), RecordError> {
        self.append_to(plan, bytes, |_| Ok(()))
    }

    fn append_to(
        &mut self,
        plan: &Plan,
        record: &[u8],
        end: impl FnOnce(&Cursor<'_>) -> Outcome,
    ) -> Result<(), RecordError> {
        if !plan.is_for(&self.layout) {
            return Err(RecordError::ForeignPlan);
        }
        let Some(room) = self.room.checked_sub(record.len()) else {
            return Err(RecordError::Full { rows: self.rows });
        };
        let mut input = Cursor::new(record, room);
        let program = &*plan.program;
        let outcome = program.root(program.root, &mut self.columns, &mut input);
        match outcome.and_then(|()| end(&input)) {
            Ok(()) => {
                self.room = input.room;
                self.rows += 1;
                Ok(())
            }
            Err(fault) => Err(self.undo(*fault)),
        }
    }

    #[cold]
    fn undo(&mut self, fault: Fault) -> RecordError {
        self.columns.iter_mut().for_each(|column| column.truncate(self.rows));
        match fault.problem {
            Problem::Full => RecordError::Full { rows: self.rows },
            Problem::Record(problem) => {
                let field: Vec<&str> = fault.path.iter().rev().map(|name| &**name).collect();
                RecordError::Malformed { problem, field: field.join("."), at: fault.at }
            }
        }
    }

    /// Appends a row of nulls.
    ///
    /// # Errors
    /// A column that must not be null; the rows are as before.
    pub fn append_null(&mut self) -> Result<(), RecordError> {
        if let Some(field) = self.schema().fields().iter().find(|field| !field.is_nullable()) {
            return Err(RecordError::NotNull { column: field.name().clone() });
        }
        self.columns.iter_mut().for_each(Column::append_null);
        self.rows += 1;
        Ok(())
    }

    /// The rows so far; the decoder is empty then. Without columns the batch still knows how many
    /// rows there were.
    pub fn finish(&mut self) -> RecordBatch {
        let columns = self.columns.iter_mut().map(Column::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.room = ROOM;
        RecordBatch::try_new_with_options(self.schema().clone(), columns, &options)
            .expect("columns are made by the layout, and plans let no null into NOT NULL ones")
    }
}

fn all_read(input: &Cursor<'_>) -> Outcome {
    match input.left() {
        0 => Ok(()),
        left => Err(input.fault(input.at(), RecordProblem::LeftOver(left))),
    }
}

impl Program {
    /// A whole record into all columns.
    fn root(&self, node: Node, columns: &mut [Column], input: &mut Cursor<'_>) -> Outcome {
        if node.null != NullBranch::Never && is_null(node.null, input)? {
            columns.iter_mut().for_each(Column::append_null);
            return Ok(());
        }
        match node.op {
            Op::Record(span) => self.record(span, columns, input),
            Op::Union(span) => self.root(self.branch(span, input)?, columns, input),
            Op::Fail(reason) => Err(self.no_place(reason, input)),
            _ => {
                columns.iter_mut().for_each(Column::append_null);
                Ok(())
            }
        }
    }

    fn record(&self, span: Span, columns: &mut [Column], input: &mut Cursor<'_>) -> Outcome {
        for step in span.of(&self.steps) {
            let outcome = match columns.get_mut(step.column as usize) {
                Some(column) => self.value(step.node, column, input),
                // `NO_COLUMN`: no struct has so many.
                None => self.skip_step(step.node, input),
            };
            if let Err(fault) = outcome {
                return Err(fault.within(&self.names[step.name as usize]));
            }
        }
        Ok(())
    }

    /// One value. What columns mostly are is inlined into the loops over fields and items.
    #[inline(always)]
    fn value(&self, node: Node, column: &mut Column, input: &mut Cursor<'_>) -> Outcome {
        if node.null != NullBranch::Never && is_null(node.null, input)? {
            column.append_null();
            return Ok(());
        }
        match (node.op, column) {
            (Op::Int64, Column::Int64(flat)) => flat.append(input.long()?),
            (Op::Int32, Column::Int32(flat)) | (Op::Date, Column::Date(flat)) => {
                flat.append(input.int()?);
            }
            (Op::Text, Column::Text(bytes)) => bytes.append(input.text()?),
            (Op::Double, Column::Float64(flat)) => flat.append(f64::from_le_bytes(input.array()?)),
            (Op::Boolean, Column::Boolean(flat)) => flat.append(input.boolean()?),
            (Op::Timestamp(micros), Column::Timestamp(flat, _)) => {
                let at = input.at();
                flat.append(scaled(input.long()?, micros, at, input)?);
            }
            (Op::Float, Column::Float32(flat)) => flat.append(f32::from_le_bytes(input.array()?)),
            (Op::Binary, Column::Binary(bytes)) => bytes.append(input.counted()?),
            (Op::Fixed(size), Column::Binary(bytes)) => bytes.append(input.take(size as usize)?),
            (op, column) => return self.rare(op, column, input),
        }
        Ok(())
    }

    #[inline(never)]
    fn rare(&self, op: Op, column: &mut Column, input: &mut Cursor<'_>) -> Outcome {
        match (op, column) {
            (Op::IntAsLong, Column::Int64(flat)) => flat.append(input.int()?.into()),
            (Op::IntAsFloat, Column::Float32(flat)) => flat.append(input.int()? as f32),
            (Op::LongAsFloat, Column::Float32(flat)) => flat.append(input.long()? as f32),
            (Op::IntAsDouble, Column::Float64(flat)) => flat.append(input.int()?.into()),
            (Op::LongAsDouble, Column::Float64(flat)) => flat.append(input.long()? as f64),
            (Op::FloatAsDouble, Column::Float64(flat)) => {
                flat.append(f32::from_le_bytes(input.array()?).into());
            }
            (Op::Int8, Column::Int8(flat)) => flat.append(narrow(input, "TINYINT")?),
            (Op::Int16, Column::Int16(flat)) => flat.append(narrow(input, "SMALLINT")?),
            (Op::MillisAsDate, Column::Date(flat)) => {
                let at = input.at();
                let days = input.long()? / MILLIS_PER_DAY;
                let days = i32::try_from(days).map_err(|_| out_of_range(input, at, days, "DATE"));
                flat.append(days?);
            }
            (Op::IntAsTimestamp(micros), Column::Timestamp(flat, _)) => {
                let at = input.at();
                flat.append(scaled(input.int()?.into(), micros, at, input)?);
            }
            (Op::Enum(table), Column::Text(bytes)) => {
                let symbol = self.symbol(table, input)?;
                input.spend(symbol.len())?;
                bytes.append(symbol.as_bytes());
            }
            (Op::Decimal(power), Column::Decimal(flat, precision, _)) => {
                let at = input.at();
                flat.append(decimal(input.counted()?, power, *precision, at, input)?);
            }
            (Op::FixedDecimal(size, power), Column::Decimal(flat, precision, _)) => {
                let at = input.at();
                flat.append(decimal(input.take(size as usize)?, power, *precision, at, input)?);
            }
            (op, column) => return self.nested(op, column, input),
        }
        Ok(())
    }

    #[inline(never)]
    fn nested(&self, op: Op, column: &mut Column, input: &mut Cursor<'_>) -> Outcome {
        match (op, column) {
            (Op::Null, column) => column.append_null(),
            (Op::Union(span), column) => {
                return self.value(self.branch(span, input)?, column, input);
            }
            (Op::Record(span), Column::Struct(row)) => {
                self.record(span, &mut row.columns, input)?;
                row.close();
            }
            (Op::List(node), Column::List(list)) => {
                let node = self.nodes[node as usize];
                self.items(node, &mut list.items, input).map_err(|f| f.within("element"))?;
                list.close(true);
            }
            (Op::Map(node), Column::Map(map)) => {
                let node = self.nodes[node as usize];
                let (keys, values) = (&mut map.keys, &mut map.values);
                self.entries(node, keys, values, input).map_err(|f| f.within("value"))?;
                map.close_distinct();
            }
            (Op::Constant(at), column) => {
                let constant = &self.constants[at as usize];
                input.spend(constant.bytes.len().max(1))?;
                let mut bytes = Cursor::new(&constant.bytes, input.room);
                let outcome = self.value(constant.node, column, &mut bytes);
                input.room = bytes.room;
                return outcome.map_err(|fault| Box::new(Fault { at: input.at(), ..*fault }));
            }
            (Op::Member(member, node), Column::Struct(row)) => {
                let node = self.nodes[node as usize];
                for (at, column) in row.columns.iter_mut().enumerate() {
                    match at == member as usize {
                        true => self.value(node, column, input)?,
                        false => column.append_null(),
                    }
                }
                row.close();
            }
            (Op::Dropped(skip), Column::Struct(row)) => {
                self.skip(skip, input)?;
                row.columns.iter_mut().for_each(Column::append_null);
                row.close();
            }
            (Op::Fail(reason), _) => return Err(self.no_place(reason, input)),
            (op, _) => {
                let problem = format!("a plan that puts {op:?} into a column of another type");
                return Err(input.fault(input.at(), RecordProblem::NoPlace(problem)));
            }
        }
        Ok(())
    }

    fn items(&self, node: Node, items: &mut Column, input: &mut Cursor<'_>) -> Outcome {
        loop {
            let (count, _) = input.block()?;
            if count == 0 {
                return Ok(());
            }
            for _ in 0..count {
                let before = input.at();
                self.value(node, items, input)?;
                input.item_done(before)?;
            }
        }
    }

    fn entries(
        &self,
        node: Node,
        keys: &mut Column,
        values: &mut Column,
        input: &mut Cursor<'_>,
    ) -> Outcome {
        loop {
            let (count, _) = input.block()?;
            if count == 0 {
                return Ok(());
            }
            for _ in 0..count {
                self.value(Op::Text.node(), keys, input)?;
                self.value(node, values, input)?;
            }
        }
    }

    #[inline]
    fn branch(&self, span: Span, input: &mut Cursor<'_>) -> Outcome<Node> {
        let at = input.at();
        let index = input.short()?;
        let branches = span.of(&self.nodes);
        match usize::try_from(index).ok().and_then(|index| branches.get(index)) {
            Some(node) => Ok(*node),
            None => {
                let branches = branches.len();
                Err(input.fault(at, RecordProblem::Branch { index, branches }))
            }
        }
    }

    fn symbol(&self, table: u32, input: &mut Cursor<'_>) -> Outcome<&str> {
        let at = input.at();
        let index = i64::from(input.int()?);
        let symbols = &self.symbols[table as usize];
        match usize::try_from(index).ok().and_then(|index| symbols.get(index)) {
            Some(Some(symbol)) => Ok(symbol),
            Some(None) => Err(input.fault(at, RecordProblem::UnknownSymbol(index))),
            None => {
                let symbols = symbols.len();
                Err(input.fault(at, RecordProblem::Symbol { index, symbols }))
            }
        }
    }

    #[cold]
    fn no_place(&self, reason: u32, input: &Cursor<'_>) -> Box<Fault> {
        let reason = self.failures[reason as usize].to_string();
        input.fault(input.at(), RecordProblem::NoPlace(reason))
    }

    /// A step without a column. One that appends a constant or null to a column that is not
    /// decoded is never compiled.
    fn skip_step(&self, node: Node, input: &mut Cursor<'_>) -> Outcome {
        match node.op {
            Op::Skip(entry) => self.skip(entry, input),
            _ => Ok(()),
        }
    }

    fn skip(&self, entry: u32, input: &mut Cursor<'_>) -> Outcome {
        match self.skips[entry as usize] {
            Skip::Varint => input.long().map(|_| ()),
            Skip::Counted => input.counted().map(|_| ()),
            Skip::Bytes(count) => input.take(count as usize).map(|_| ()),
            nested => {
                if input.levels == 0 {
                    let problem = RecordProblem::TooDeep(super::cursor::MAX_LEVELS);
                    return Err(input.fault(input.at(), problem));
                }
                input.levels -= 1;
                self.skip_nested(nested, input)?;
                input.levels += 1;
                Ok(())
            }
        }
    }

    fn skip_nested(&self, skip: Skip, input: &mut Cursor<'_>) -> Outcome {
        match skip {
            Skip::Record(span) => {
                span.of(&self.skip_lists).iter().try_for_each(|&entry| self.skip(entry, input))
            }
            Skip::Union(span) => {
                let at = input.at();
                let index = input.short()?;
                let branches = span.of(&self.skip_lists);
                match usize::try_from(index).ok().and_then(|index| branches.get(index)) {
                    Some(&entry) => self.skip(entry, input),
                    None => {
                        let branches = branches.len();
                        Err(input.fault(at, RecordProblem::Branch { index, branches }))
                    }
                }
            }
            Skip::Items(item) => self.skip_blocks(false, item, input),
            Skip::Entries(value) => self.skip_blocks(true, value, input),
            Skip::Varint | Skip::Counted | Skip::Bytes(_) => Ok(()),
        }
    }

    /// Skips an array, or with a key before each item a map. Whole blocks, if the writer says of
    /// how many bytes they are.
    fn skip_blocks(&self, has_keys: bool, item: u32, input: &mut Cursor<'_>) -> Outcome {
        loop {
            let (count, size) = input.block()?;
            match (count, size) {
                (0, None) => return Ok(()),
                (_, Some(size)) => {
                    input.take(size)?;
                }
                (count, None) => {
                    for _ in 0..count {
                        let before = input.at();
                        if has_keys {
                            input.counted()?;
                        }
                        self.skip(item, input)?;
                        input.item_done(before)?;
                    }
                }
            }
        }
    }
}

/// Reads which branch of a union with null there is.
#[inline(always)]
fn is_null(null: NullBranch, input: &mut Cursor<'_>) -> Outcome<bool> {
    let at = input.at();
    match input.short()? {
        0 => Ok(null == NullBranch::First),
        1 => Ok(null == NullBranch::Second),
        index => Err(input.fault(at, RecordProblem::Branch { index, branches: 2 })),
    }
}

#[inline]
fn scaled(value: i64, micros: i64, at: usize, input: &Cursor<'_>) -> Outcome<i64> {
    value.checked_mul(micros).ok_or_else(|| out_of_range(input, at, value, "TIMESTAMP"))
}

fn narrow<T: TryFrom<i32>>(input: &mut Cursor<'_>, data_type: &'static str) -> Outcome<T> {
    let at = input.at();
    let value = input.int()?;
    T::try_from(value).map_err(|_| out_of_range(input, at, value.into(), data_type))
}

#[cold]
fn out_of_range(input: &Cursor<'_>, at: usize, value: i64, data_type: &'static str) -> Box<Fault> {
    input.fault(at, RecordProblem::OutOfRange { value, data_type })
}

fn decimal(bytes: &[u8], power: u8, precision: u8, at: usize, input: &Cursor<'_>) -> Outcome<i128> {
    if bytes.is_empty() {
        return Err(input.fault(at, RecordProblem::EmptyDecimal));
    }
    let factor = 10i128.checked_pow(power.into());
    let value = unscaled(bytes).zip(factor).and_then(|(value, factor)| value.checked_mul(factor));
    let fits = |value: &i128| value.unsigned_abs() < 10u128.pow(precision.into());
    value.filter(fits).ok_or_else(|| input.fault(at, RecordProblem::Decimal(precision)))
}
