//! Lines and columns of a text, as people and sqlparser count them, from bytes and back.

use datafusion::sql::sqlparser::tokenizer::Location;

/// Turns byte offsets into lines and columns and back, in a time that does not depend on how long
/// a line is: a file may be one line of a megabyte.
pub struct LineIndex {
    /// By line, its first byte and how many characters come before it.
    starts: Vec<(usize, usize)>,
    /// The first byte of every [`CHARACTERS_PER_MARK`]th character.
    marks: Vec<usize>,
}

const CHARACTERS_PER_MARK: usize = 64;

impl LineIndex {
    /// The lines of `text`.
    pub fn new(text: &str) -> Self {
        let (mut starts, mut marks) = (vec![(0, 0)], Vec::new());
        for (number, (at, character)) in text.char_indices().enumerate() {
            if number % CHARACTERS_PER_MARK == 0 {
                marks.push(at);
            }
            if character == '\n' {
                starts.push((at + 1, number + 1));
            }
        }
        Self { starts, marks }
    }

    /// Line and column of a byte, both from 1; columns count characters.
    pub fn line_and_column(&self, text: &str, byte: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|(start, _)| *start <= byte);
        let (_, before_line) = self.start(line);
        let mark = self.marks.partition_point(|mark| *mark <= byte).saturating_sub(1);
        let from = self.marks.get(mark).copied().unwrap_or(0);
        let since_mark = text.get(from..byte).unwrap_or("").chars().count();
        (line, (mark * CHARACTERS_PER_MARK + since_mark).saturating_sub(before_line) + 1)
    }

    /// The first byte of a line, counted from 1.
    pub fn line_start(&self, line: usize) -> usize {
        self.start(line).0
    }

    fn start(&self, line: usize) -> (usize, usize) {
        self.starts[line.clamp(1, self.starts.len()) - 1]
    }

    /// The byte at sqlparser's line and column.
    pub(crate) fn byte(&self, text: &str, at: Location) -> usize {
        let (_, before_line) = self.start(usize::try_from(at.line).unwrap_or(1));
        let column = usize::try_from(at.column.saturating_sub(1)).unwrap_or(0);
        let number = before_line.saturating_add(column);
        let Some(from) = self.marks.get(number / CHARACTERS_PER_MARK).copied() else {
            return text.len();
        };
        let rest = &text[from..];
        let after = rest.char_indices().nth(number % CHARACTERS_PER_MARK);
        from + after.map_or(rest.len(), |(at, _)| at)
    }
}
