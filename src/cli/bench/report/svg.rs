//! Markup, written piece by piece. Whatever comes from outside goes through [`escape`].

use std::fmt::Write;

/// A text that may stand anywhere in HTML or SVG, within an attribute too.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            // What no document may hold.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// An SVG under way.
pub(super) struct Svg(String);

/// Where a text's given point lies on it.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// Of that size in its own units; the page scales it to its width.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Svg {
        let title = escape(title);
        Svg(format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n"
        ))
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ));
    }

    /// With a text that shows when the pointer rests on it.
    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), tip: &str) {
        let ((x, y), (width, height)) = (at, size);
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">"
        ));
        self.tip(tip);
        self.0 += "</rect>\n";
    }

    pub(super) fn polyline(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        self.push(format_args!("<polyline class=\"{class}\" points=\""));
        points.for_each(|(x, y)| self.push(format_args!("{x:.1},{y:.1} ")));
        self.0 += "\"/>\n";
    }

    pub(super) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, tip: &str) {
        let (x, y) = at;
        self.push(format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\">"));
        self.tip(tip);
        self.0 += "</circle>\n";
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let ((x, y), text) = (at, escape(text));
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    pub(super) fn finish(mut self) -> String {
        self.0 += "</svg>\n";
        self.0
    }

    fn tip(&mut self, tip: &str) {
        if !tip.is_empty() {
            let tip = escape(tip);
            self.push(format_args!("<title>{tip}</title>"));
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("to a text nothing fails");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        assert_eq!(escape("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
        assert_eq!(escape("µs → 5\n"), "µs → 5\n");
        assert_eq!(escape("\u{1}\0"), "\u{fffd}\u{fffd}");
        let mut svg = Svg::new(10.0, 10.0, "\"><script>");
        svg.text("tick", (1.0, 2.0), Anchor::End, "</text><script>");
        svg.rect("band", (0.0, 0.0), (1.0, 1.0), "<b>");
        let text = svg.finish();
        assert!(!text.contains("<script") && !text.contains("<b>"), "{text}");
    }
}
