//! A chart: axes with ticks and labels, a grid, shaded spans, curves, and a legend above.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::cli::bench::outcome::{Chart, ScaleKind};

const WIDTH: f64 = 880.0;
const PLOT_HEIGHT: f64 = 260.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 28.0;
const LEGEND_LINE: f64 = 22.0;
const BELOW: f64 = 52.0;
/// A character of the legend, about.
const CHARACTER: f64 = 7.4;
/// A curve of so many points has a dot at each, which tells its value.
const DOTS_MAX: usize = 130;
/// A curve of so few shows them.
const DOTS_SHOWN: usize = 12;
/// Colours and dashes that the style knows; further curves begin again.
const STYLES: usize = 6;

/// The chart as SVG.
pub(super) fn draw(chart: &Chart) -> String {
    let points = || chart.series.iter().flat_map(|series| series.points.iter().copied());
    let bounds = |of: fn((f64, f64)) -> f64| {
        points()
            .map(of)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)))
    };
    let ((x_least, x_most), (y_least, y_most)) = (bounds(|point| point.0), bounds(|point| point.1));
    let x_most = chart.bands.iter().map(|band| band.to).fold(x_most, f64::max);
    let x = Scale::new(&chart.x, x_least, x_most, false);
    let y = Scale::new(&chart.y, y_least, y_most, true);
    let places = legend(chart);
    let top = LEGEND_LINE * (1.0 + places.iter().map(|place| place.1).fold(0.0, f64::max)) + 10.0;
    let bottom = top + PLOT_HEIGHT;
    let at_x = |value: f64| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
    let at_y = |value: f64| bottom - y.place(value) * PLOT_HEIGHT;
    let mut svg = Svg::new(WIDTH, bottom + BELOW, &chart.title);

    for band in &chart.bands {
        let (from, to) = (at_x(band.from), at_x(band.to));
        svg.rect(band_class(&band.label), (from, top), ((to - from).max(1.0), PLOT_HEIGHT), &band.label);
    }
    for (value, text) in &y.ticks {
        svg.line("grid", (LEFT, at_y(*value)), (WIDTH - RIGHT, at_y(*value)));
        svg.text("tick", (LEFT - 8.0, at_y(*value) + 4.0), Anchor::End, text);
    }
    for (value, text) in &x.ticks {
        if chart.x.scale != ScaleKind::Linear {
            svg.line("grid", (at_x(*value), top), (at_x(*value), bottom));
        }
        svg.line("axis", (at_x(*value), bottom), (at_x(*value), bottom + 5.0));
        svg.text("tick", (at_x(*value), bottom + 19.0), Anchor::Middle, text);
    }
    svg.line("axis", (LEFT, bottom), (WIDTH - RIGHT, bottom));
    svg.text("label", ((LEFT + WIDTH - RIGHT) / 2.0, bottom + 40.0), Anchor::Middle, &chart.x.label);
    svg.text("label", (0.0, 14.0), Anchor::Start, &chart.y.label);
    // Names of shaded spans stand above the curves, and none on the one before it.
    let mut free = LEFT;
    for band in &chart.bands {
        let from = at_x(band.from).max(free);
        svg.text("note", (from + 5.0, top + 14.0), Anchor::Start, &band.label);
        free = from + 10.0 + band.label.chars().count() as f64 * CHARACTER * 0.9;
    }
    for (nth, (series, (left, line))) in chart.series.iter().zip(&places).enumerate() {
        let style = nth % STYLES + 1;
        let height = 10.0 + line * LEGEND_LINE;
        svg.line(&format!("curve s{style}"), (*left, height), (left + 24.0, height));
        svg.text("legend", (left + 30.0, height + 4.0), Anchor::Start, &series.name);
        svg.polyline(&format!("curve s{style}"), series.points.iter().map(|point| (at_x(point.0), at_y(point.1))));
        if series.points.len() <= DOTS_MAX {
            let is_shown = series.points.len() <= DOTS_SHOWN;
            let class = if is_shown { format!("dot d{style}") } else { "dot hidden".into() };
            for (x, y) in &series.points {
                let tip = format!("{}: {} at {}", series.name, chart.y.unit.text(*y), chart.x.unit.text(*x));
                svg.dot(&class, (at_x(*x), at_y(*y)), if is_shown { 3.5 } else { 5.0 }, &tip);
            }
        }
    }
    svg.finish()
}

/// Where each name of the legend stands: its left end, and on which line. To the right of the axis' own label.
fn legend(chart: &Chart) -> Vec<(f64, f64)> {
    let begin = LEFT.max(24.0 + chart.y.label.chars().count() as f64 * CHARACTER);
    let (mut left, mut line) = (begin, 0.0);
    let mut place = |name: &str| {
        let width = 30.0 + name.chars().count() as f64 * CHARACTER + 18.0;
        if left + width > WIDTH && left > begin {
            (left, line) = (begin, line + 1.0);
        }
        let place = (left, line);
        left += width;
        place
    };
    chart.series.iter().map(|series| place(&series.name)).collect()
}

/// An outage is marked more strongly than what follows it.
fn band_class(label: &str) -> &'static str {
    if label == "frozen" { "band outage" } else { "band" }
}

#[cfg(test)]
mod tests {
    use super::super::super::document::tests::sample;
    use super::*;

    #[test]
    fn a_chart_has_its_curves_its_bands_and_its_names() {
        let document = sample();
        let text = draw(&document.outcome.charts[0]);
        assert_eq!(text.matches("<polyline").count(), 1);
        assert_eq!(text.matches("class=\"band outage\"").count(), 1);
        for name in ["accepted", "frozen", "since the beginning", "rate", "1k"] {
            assert!(text.contains(&format!(">{name}</text>")), "{name}: {text}");
        }
        assert!(text.contains("aria-label=\"Throughput &quot;over&quot; time\""), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn a_chart_without_points_is_drawn_all_the_same() {
        let mut chart = sample().outcome.charts.remove(0);
        chart.series.clear();
        chart.bands.clear();
        let text = draw(&chart);
        assert!(text.contains("</svg>") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
