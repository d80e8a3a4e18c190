//! An outcome for the terminal: a sentence, the tables with columns that line up, the figures, and what was checked.

use super::document::Document;
use super::outcome::{Entry, Table, Unit};
use crate::cli::table::{right, wrapped};
use std::fmt::Write;

/// Columns of the terminal that running text takes.
const WIDTH: usize = 100;

/// The whole result.
pub(super) fn text(document: &Document) -> String {
    let outcome = &document.outcome;
    let mut text = wrapped(&outcome.title, "", WIDTH) + "\n";
    let settings: Vec<String> =
        outcome.settings.iter().map(|entry| format!("{} {}", entry.label, value(entry))).collect();
    text += &(wrapped(&settings.join(", "), "  ", WIDTH) + "\n");
    let machine = &document.machine;
    let load = |load: Option<f64>| load.map_or("?".into(), |load| format!("{load:.1}"));
    let cpu = machine.cpu.as_deref().unwrap_or("unknown CPU");
    let (before, after) = (load(machine.load_before), load(machine.load_after));
    line(&mut text, format_args!("  {cpu}, {} CPUs, load {before} to {after}", machine.cores));
    if document.program.has_debug_assertions {
        text += "  built with assertions on: a release is faster\n";
    }
    for table in &outcome.tables {
        line(&mut text, format_args!("\n{}", table.title));
        text += &lines_of(table);
    }
    if !outcome.figures.is_empty() {
        text += "\nFigures\n";
        let width = outcome.figures.iter().map(|entry| entry.label.chars().count()).max().unwrap_or(0);
        for entry in &outcome.figures {
            let pad = " ".repeat(width - entry.label.chars().count());
            line(&mut text, format_args!("  {}{pad}  {}", entry.label, right(&value(entry), 12)));
        }
    }
    text += "\nVerdict\n";
    for check in &outcome.checks {
        let mark = if check.is_good { "ok   " } else { "WRONG" };
        line(&mut text, format_args!("  {mark}  {}", check.found));
    }
    if outcome.is_interrupted {
        text += "  It was ended early: the figures are of what was done by then.\n";
    }
    for note in &outcome.notes {
        text += &format!("\n{}\n", wrapped(note, "  ", WIDTH));
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("to a text nothing fails");
}

fn value(entry: &Entry) -> String {
    entry.value.text(entry.unit)
}

/// Texts stand at the left of their column, numbers at the right.
fn lines_of(table: &Table) -> String {
    let cells: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| row.iter().zip(&table.columns).map(|(cell, column)| cell.text(column.unit)).collect())
        .collect();
    let width = |at: usize| {
        let head = table.columns[at].name.chars().count();
        cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0).max(head)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let put = |text: &str, at: usize| match table.columns[at].unit {
        Unit::None => format!("{text}{}", " ".repeat(widths[at] - text.chars().count())),
        _ => right(text, widths[at]),
    };
    let row = |texts: &mut dyn Iterator<Item = &str>| {
        let put: Vec<String> = texts.enumerate().map(|(at, text)| put(text, at)).collect();
        format!("  {}\n", put.join("  ").trim_end())
    };
    let mut lines = row(&mut table.columns.iter().map(|column| column.name.as_str()));
    cells.iter().for_each(|cells| lines += &row(&mut cells.iter().map(String::as_str)));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::sample;
    use super::*;

    #[test]
    fn columns_line_up_and_checks_are_told() {
        let text = text(&sample());
        assert!(text.contains("  who            P99\n  fencepost  8.50 ms\n  raw              -\n"), "{text}");
        assert!(text.contains("  ok     nothing is lost\n"), "{text}");
        assert!(text.contains("drained") && text.contains("133,372/s") || text.contains("133,373/s"), "{text}");
        assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    }
}
