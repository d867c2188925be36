//! `sentences`: a text as an array of sentences, each an array of its words.
//!
//! A language decides nothing but for Thai, whose words Java finds in a dictionary. So texts of it
//! are refused, and what is said of any other language is passed over, as it is in Spark.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::builder::{ListBuilder, StringBuilder};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};

use super::define::{Arguments, Function, Param, within_column};
use crate::types::list_of;
use crate::values::sentences::{sentences, words};

use Param::Text;

pub(super) const FUNCTIONS: &[Function] =
    &[Function::new("sentences", &[Text, Text, Text], returns_sentences, sentences_of).required(1)];

fn returns_sentences(_: &[DataType]) -> Result<DataType> {
    Ok(list_of(list_of(DataType::Utf8)))
}

fn sentences_of(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    let (language, country) = (1, 2);
    let given = [language, country].map(|at| (args.len() > at).then(|| args.text(at)));
    let mut out = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
    let mut total = 0;
    for row in 0..args.rows {
        let Some(text) = texts.get(row) else {
            out.append_null();
            continue;
        };
        // A language without a country is that language, unless the country is NULL.
        let [language, country] =
            given.each_ref().map(|of| of.as_ref().map_or(Some(""), |of| of.get(row)));
        if let (Some(language), Some(_)) = (language, country)
            && language.eq_ignore_ascii_case("th")
        {
            return exec_err!("sentences knows no words of Thai, which need a dictionary");
        }
        within_column(&mut total, text.len())?;
        for sentence in sentences(text) {
            let found = out.values();
            words(sentence).for_each(|word| found.values().append_value(word));
            found.append(true);
        }
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}
