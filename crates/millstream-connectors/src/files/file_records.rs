//! The records of a file once more, each with its line, where a plan fails with one of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_engine::api::dead_letter::{Letter, Place};
use millstream_engine::api::source::{Failure, Records, Traced};

use super::error::FileError;
use super::listing::FileStatus;
use super::options::Format;
use super::read::FileReader;

/// The records of one file. Their numbers are those of their lines, or of a Parquet file its rows.
pub(super) struct FileRecords {
    pub(super) reader: FileReader,
    pub(super) file: FileStatus,
}

impl Records for FileRecords {
    fn read(&self, projection: &[usize], apart: bool) -> Result<Vec<Traced>, Failure> {
        if self.reader.options.format == Format::Parquet {
            let mut first = 0;
            let rows = self.reader.read(self.file.clone(), projection).map(|rows| {
                let traced = Traced::in_order(rows?, first);
                first += traced.numbers.len() as u64;
                Ok(traced)
            });
            return rows.collect();
        }
        // What is counted was counted when the file was read first.
        let counters = &self.reader.counters;
        let malformed = counters.rows_malformed.load(Ordering::Relaxed);
        let skipped = counters.files_skipped.load(Ordering::Relaxed);
        let reader = if apart { self.reader.apart().0 } else { self.reader.clone() };
        let mut traced = Vec::new();
        let read = self.read_lines(&reader, projection, &mut traced);
        let outcome = match read {
            Err(error) if !reader.skips(&error) => Err(error.into()),
            _ => Ok(traced),
        };
        counters.rows_malformed.store(malformed, Ordering::Relaxed);
        counters.files_skipped.store(skipped, Ordering::Relaxed);
        outcome
    }

    fn letter(&self, number: u64) -> Result<Letter, Failure> {
        let file: Arc<str> = self.file.path.display().to_string().into();
        if self.reader.options.format == Format::Parquet {
            let place = Place::Row { of: file, row: number };
            return Ok(Letter { place: Some(place), ..Letter::default() });
        }
        let mut lines = self.reader.lines_of(&self.file)?;
        while let Some(block) =
            lines.next_block().map_err(|error| self.reader.line_error(&self.file, error))?
        {
            if let Ok(index) = block.numbers.binary_search(&number) {
                return Ok(block.letter(&file, index, String::new()));
            }
        }
        Err(FileError::NoSuchLine { path: self.file.path.clone(), line: number }.into())
    }
}

impl FileRecords {
    fn read_lines(
        &self,
        reader: &FileReader,
        projection: &[usize],
        traced: &mut Vec<Traced>,
    ) -> Result<(), FileError> {
        let mut lines = reader.lines_of(&self.file)?;
        let path = self.file.path.as_path();
        let mut decoder = reader.decoder(projection);
        while let Some(block) =
            lines.next_block().map_err(|error| reader.line_error(&self.file, error))?
        {
            let (numbers, whole) = (block.numbers.clone(), block.clone());
            let rows = decoder.decode(block, path)?;
            if rows.num_rows() == numbers.len() {
                traced.push(Traced { rows, numbers });
                continue;
            }
            // Which ones were left out shows only one by one.
            for (at, number) in numbers.into_iter().enumerate() {
                let rows = decoder.decode(whole.only(at), path)?;
                if rows.num_rows() > 0 {
                    traced.push(Traced { rows, numbers: vec![number] });
                }
            }
        }
        Ok(())
    }
}
