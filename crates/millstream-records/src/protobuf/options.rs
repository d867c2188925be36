//! Spark's options of from_protobuf.

/// How Protobuf becomes columns. Named as in Spark, with underscores for dots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `recursive.fields.max.depth`, -1 or 1 to 10: how often a message may occur within itself
    /// before its fields are left out: 1 leaves out the first recursion already, 2 the second.
    /// Otherwise a recursive message is an error.
    pub recursive_fields_max_depth: i32,
    /// `enums.as.ints`: enums become INT, not STRING.
    pub enums_as_ints: bool,
    /// `upcast.unsigned.ints`: uint32 becomes BIGINT and uint64 DECIMAL(20,0), not INT and BIGINT,
    /// where large values are negative.
    pub upcast_unsigned_ints: bool,
    /// `unwrap.primitive.wrapper.types`: google.protobuf.Int32Value and its like become the type
    /// in them, not a STRUCT around it.
    pub unwrap_primitive_wrapper_types: bool,
    /// `retain.empty.message.types`: a message without fields becomes a STRUCT with a field that
    /// is always null. Otherwise it is left out.
    pub retain_empty_message_types: bool,
    /// `emit.default.values`: a proto3 field that has no presence and is absent has its default
    /// value; otherwise it is null.
    pub emit_default_values: bool,
    /// `convert.any.fields.to.json`: refused when a field is google.protobuf.Any.
    pub convert_any_fields_to_json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            recursive_fields_max_depth: -1,
            enums_as_ints: false,
            upcast_unsigned_ints: false,
            unwrap_primitive_wrapper_types: false,
            retain_empty_message_types: false,
            emit_default_values: false,
            convert_any_fields_to_json: false,
        }
    }
}

/// An option with a value that it cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the option {name} cannot be \"{value}\": it takes {takes}")]
pub struct OptionError {
    /// Its name in Spark.
    pub name: &'static str,
    /// What was given.
    pub value: String,
    /// What can be given.
    pub takes: &'static str,
}

const DEPTH: &str = "recursive.fields.max.depth";

impl Options {
    /// Sets an option by its name in Spark, in any case. False if there is none of that name.
    ///
    /// # Errors
    /// When the value is not one of the option.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, OptionError> {
        let flags: [(&'static str, &mut bool); 6] = [
            ("enums.as.ints", &mut self.enums_as_ints),
            ("upcast.unsigned.ints", &mut self.upcast_unsigned_ints),
            ("unwrap.primitive.wrapper.types", &mut self.unwrap_primitive_wrapper_types),
            ("retain.empty.message.types", &mut self.retain_empty_message_types),
            ("emit.default.values", &mut self.emit_default_values),
            ("convert.any.fields.to.json", &mut self.convert_any_fields_to_json),
        ];
        for (flag, target) in flags {
            if name.eq_ignore_ascii_case(flag) {
                *target = match value.to_ascii_lowercase().as_str() {
                    "true" => true,
                    "false" => false,
                    _ => {
                        let (value, takes) = (value.to_owned(), "true or false");
                        return Err(OptionError { name: flag, value, takes });
                    }
                };
                return Ok(true);
            }
        }
        if !name.eq_ignore_ascii_case(DEPTH) {
            return Ok(false);
        }
        self.recursive_fields_max_depth = value.parse().map_err(|_| OptionError {
            name: DEPTH,
            value: value.to_owned(),
            takes: "-1, or a number from 1 to 10",
        })?;
        Ok(true)
    }
}
