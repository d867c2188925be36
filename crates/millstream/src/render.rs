//! Draws what is wrong with a pipeline file: the place in the file, the line itself with the span
//! underlined, and what to write instead.

use std::io::IsTerminal;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Element, Group, Level, Renderer, Snippet};
use millstream_sql::diagnostic::{Diagnostic, Diagnostics, Span};
use millstream_store::secrets;

/// Whether the drawing may use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Text only: a file or a pipe.
    Plain,
    /// Escape sequences for a terminal.
    Coloured,
}

impl Paint {
    /// Colour where a person looks at `stream`.
    pub fn for_stream(stream: &impl IsTerminal) -> Self {
        if stream.is_terminal() { Self::Coloured } else { Self::Plain }
    }
}

/// All diagnostics, one below the other, each with a line feed at its end. Secrets in the lines
/// that are shown are stars.
pub fn render(found: &Diagnostics, file_name: &str, text: &str, paint: Paint) -> String {
    let renderer = match paint {
        Paint::Plain => Renderer::plain(),
        Paint::Coloured => Renderer::styled(),
    };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    let text = &secrets::masked(text);
    let drawn = found.0.iter().map(|diagnostic| {
        let mut drawn = renderer.render(&[group(diagnostic, file_name, text)]);
        drawn.push('\n');
        drawn
    });
    drawn.collect::<Vec<_>>().join("\n")
}

fn group<'a>(diagnostic: &'a Diagnostic, file_name: &'a str, text: &'a str) -> Group<'a> {
    let title = Level::ERROR.primary_title(diagnostic.message.as_str());
    let mut elements: Vec<Element<'a>> = Vec::new();
    let placed = diagnostic.notes.iter().filter_map(|note| Some((note, note.span?)));
    if let Some(span) = diagnostic.span {
        let primary = AnnotationKind::Primary.span(within(text, span));
        let label = diagnostic.label.as_deref();
        let notes = placed.clone().map(|(note, span)| {
            AnnotationKind::Context.span(within(text, span)).label(note.message.as_str())
        });
        let snippet = Snippet::source(text)
            .path(file_name)
            .annotation(primary.label(label))
            .annotations(notes);
        elements.push(snippet.into());
    }
    let stands_in_snippet = diagnostic.span.is_some();
    for note in &diagnostic.notes {
        if note.span.is_none() || !stands_in_snippet {
            elements.push(Level::NOTE.message(note.message.as_str()).into());
        }
    }
    if let Some(help) = &diagnostic.help {
        elements.push(Level::HELP.message(help.as_str()).into());
    }
    if elements.is_empty() { Group::with_title(title) } else { title.elements(elements) }
}

/// The span as a range of whole characters of `text`, at least one wide where there is one.
fn within(text: &str, span: Span) -> std::ops::Range<usize> {
    let start = text.floor_char_boundary(span.start.min(text.len()));
    let end = text.ceil_char_boundary(span.end.clamp(start, text.len()));
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "CREATE TABLE logs USING kafak;\nSELECT servce\nFROM STREAM logs;\n";

    fn at(words: &str) -> Span {
        let start = TEXT.find(words).expect("the words are in the text");
        Span::new(start, start + words.len())
    }

    #[test]
    fn a_diagnostic_shows_its_line_its_notes_and_its_help() {
        let diagnostic = Diagnostic::at(at("servce"), "there is no column `servce`")
            .label("not a column of `logs`")
            .note_at(at("logs USING"), "declared here")
            .note("columns are found whatever their case")
            .help("did you mean `service`?");
        let drawn = render(&diagnostic.into(), "p.sql", TEXT, Paint::Plain);
        let wanted = "\
error: there is no column `servce`
 --> p.sql:2:8
  |
1 | CREATE TABLE logs USING kafak;
  |              ---------- declared here
2 | SELECT servce
  |        ^^^^^^ not a column of `logs`
  |
  = note: columns are found whatever their case
  = help: did you mean `service`?
";
        assert_eq!(drawn, wanted);
    }

    #[test]
    fn each_diagnostic_has_a_drawing_of_its_own() {
        let found = Diagnostics(vec![
            Diagnostic::at(at("kafak"), "there is no connector `kafak`"),
            Diagnostic::nowhere("--set x: the option has no table").help("say which"),
        ]);
        let drawn = render(&found, "p.sql", TEXT, Paint::Plain);
        assert!(drawn.contains(" --> p.sql:1:25\n"), "{drawn}");
        let second = "\n\nerror: --set x: the option has no table\n |\n = help: say which\n";
        assert!(drawn.ends_with(second), "{drawn}");
    }

    #[test]
    fn colour_is_for_terminals_only() {
        let found: Diagnostics = Diagnostic::at(at("servce"), "there is no column `servce`").into();
        assert!(render(&found, "p.sql", TEXT, Paint::Coloured).contains('\u{1b}'));
        assert!(!render(&found, "p.sql", TEXT, Paint::Plain).contains('\u{1b}'));
    }

    #[test]
    fn a_span_at_the_end_of_the_file_is_drawn() {
        let found = Diagnostic::at(Span::new(TEXT.len(), TEXT.len()), "the file ends here");
        let drawn = render(&found.into(), "p.sql", TEXT, Paint::Plain);
        assert!(drawn.contains("p.sql:"), "{drawn}");
    }
}
