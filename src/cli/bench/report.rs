//! The HTML report: one page that needs nothing else, no network and no script. It shows a [`Document`] and adds nothing to
//! it but what is drawn.

mod chart;
pub(super) mod date;
pub(super) mod flame;
mod scale;
mod svg;

use super::document::Document;
use super::outcome::{Table, Unit};
use svg::escape;

/// The page's looks, light and dark.
const STYLE: &str = include_str!("report/style.css");

/// The page.
pub(super) fn page(document: &Document) -> String {
    let outcome = &document.outcome;
    let title = format!("fencepost bench {}", outcome.bench);
    let mut body = format!("<h1>{}</h1>\n<p class=\"soft\">{}</p>\n", escape(&title), escape(&outcome.title));
    body += &format!("<p class=\"meta\">{}</p>\n", escape(&when(document)));
    body += &verdict(document);
    let figures: Vec<String> =
        outcome.figures.iter().map(|entry| figure(&entry.value.text(entry.unit), &entry.label)).collect();
    body += &section("Figures", &format!("<div class=\"figures\">\n{}</div>\n", figures.concat()));
    for chart in &outcome.charts {
        body += &section(&chart.title, &chart::draw(chart));
    }
    if let Some(flame) = &document.flame {
        let graph = match &flame.why_not {
            None => flame::draw(flame),
            Some(why) => format!("<p>There is none: {}.</p>\n", escape(why)),
        };
        body += &section("Where the CPU time went", &graph);
    }
    for table in &outcome.tables {
        body += &section(&table.title, &rows(table));
    }
    for note in &outcome.notes {
        body += &format!("<p>{}</p>\n", escape(note));
    }
    let settings = outcome.settings.iter().map(|entry| (entry.label.as_str(), entry.value.text(entry.unit)));
    body += &section("Settings", &facts(settings));
    body += &section("Machine", &facts(machine(document)));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(&title)
    )
}

fn when(document: &Document) -> String {
    let took = Unit::Seconds.text(document.took_seconds);
    let program = &document.program;
    let commit = program.commit.as_deref().map_or(String::new(), |commit| format!(", commit {commit}"));
    let build = if program.has_debug_assertions { ", built with assertions on" } else { "" };
    format!("{}, {took} · {} {}{commit}{build}", document.began, program.name, program.version)
}

fn verdict(document: &Document) -> String {
    let outcome = &document.outcome;
    let (class, head) = if outcome.is_good() { ("", "All is well.") } else { (" bad", "Something is wrong.") };
    let checks: Vec<String> = outcome
        .checks
        .iter()
        .map(|check| {
            format!("<li{}>{}</li>\n", if check.is_good { "" } else { " class=\"bad\"" }, escape(&check.found))
        })
        .collect();
    let early = if outcome.is_interrupted {
        "<p>It was ended early: the figures are of what was done by then.</p>\n"
    } else {
        ""
    };
    format!("<div class=\"verdict{class}\"><strong>{head}</strong>\n<ul>\n{}</ul>\n{early}</div>\n", checks.concat())
}

fn figure(value: &str, label: &str) -> String {
    format!("<div class=\"figure\"><b>{}</b><span>{}</span></div>\n", escape(value), escape(label))
}

fn section(title: &str, content: &str) -> String {
    format!("<h2>{}</h2>\n{content}", escape(title))
}

fn rows(table: &Table) -> String {
    let class = |unit: Unit| if unit == Unit::None { " class=\"text\"" } else { "" };
    let head: String =
        table.columns.iter().map(|column| format!("<th{}>{}</th>", class(column.unit), escape(&column.name))).collect();
    let row = |cells: &Vec<super::outcome::Cell>| {
        let cells = cells.iter().zip(&table.columns);
        let cells: String = cells
            .map(|(cell, column)| format!("<td{}>{}</td>", class(column.unit), escape(&cell.text(column.unit))))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = table.rows.iter().map(row).collect();
    format!("<div class=\"wide\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n")
}

fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let row = |(name, value): (&str, String)| {
        format!("<tr><th class=\"text\">{}</th><td>{}</td></tr>\n", escape(name), escape(&value))
    };
    format!("<table class=\"facts\"><tbody>\n{}</tbody></table>\n", facts.into_iter().map(row).collect::<String>())
}

fn machine(document: &Document) -> Vec<(&'static str, String)> {
    let machine = &document.machine;
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "not told".into());
    let load = |value: Option<f64>| value.map_or("not told".into(), |value| format!("{value:.2}"));
    vec![
        ("CPU", text(&machine.cpu)),
        ("CPUs that may be used", machine.cores.to_string()),
        ("memory", machine.memory_bytes.map_or("not told".into(), |bytes| Unit::Bytes.text(bytes as f64))),
        ("kernel", text(&machine.kernel)),
        ("governor", text(&machine.governor)),
        ("load, before and after", format!("{}, {}", load(machine.load_before), load(machine.load_after))),
        ("librdkafka", document.program.librdkafka.clone()),
        ("command", document.command.join(" ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::sample;
    use super::*;

    #[test]
    fn the_page_is_whole_needs_nothing_and_escapes_what_it_shows() {
        let document = sample();
        let page = page(&document);
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(!page.contains("<script") && !page.contains("<link") && !page.contains("src="), "nothing is fetched");
        assert!(!page.contains("url(") && !page.contains("@import"), "by the style neither");
        assert!(page.contains("Brokers &lt;frozen&gt; for 2 s &amp; thawed"));
        assert!(page.contains("--html=&lt;a&amp;b&gt;.html") && !page.contains("<frozen>") && !page.contains("<a&b>"));
        assert_eq!(page.matches("<svg").count(), document.outcome.charts.len());
        for tag in ["div", "table", "tr", "td", "th", "ul", "li", "svg", "p", "h2", "text"] {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn what_is_wrong_stands_out() {
        let mut document = sample();
        document.outcome.check("lost", false, "1 trigger is lost");
        document.outcome.is_interrupted = true;
        document.flame = Some(flame::Flame { why_not: Some("no <perf>".into()), ..flame::Flame::default() });
        let page = page(&document);
        assert!(page.contains("class=\"verdict bad\"") && page.contains("<li class=\"bad\">1 trigger is lost</li>"));
        assert!(page.contains("ended early") && page.contains("no &lt;perf&gt;"));
    }
}
