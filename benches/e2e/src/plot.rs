//! A plot of throughput: tailpost's beside the yardsticks'.

use std::fmt::Write;

use crate::results::Comparison;

const WIDTH: f64 = 900.0;
const LABELS: f64 = 330.0;
const VALUES: f64 = 150.0;
const BAR: f64 = 14.0;
const GAP: f64 = 12.0;
const OURS: &str = "#1f6f8b";
const THEIRS: &str = "#b9bec4";

/// Horizontal bars, as parts of the fastest side of each row: rows differ too much to share a scale.
pub fn throughput(comparisons: &[Comparison]) -> String {
    let mut bars = String::new();
    let mut y = GAP;
    for comparison in comparisons {
        // What is only shown for the scale would make the others unreadable.
        let sides = comparison.sides.iter().take(2);
        let most = sides
            .clone()
            .map(|side| comparison.events as f64 / side.seconds())
            .fold(0.0, f64::max);
        for (at, side) in sides.enumerate() {
            let rate = comparison.events as f64 / side.seconds();
            let (width, text_y) = (rate / most * (WIDTH - LABELS - VALUES), y + BAR - 3.0);
            let (label, colour) = if at == 0 {
                (comparison.title.as_str(), OURS)
            } else {
                ("", THEIRS)
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                bars,
                "<text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{label}</text>\
                 <rect x=\"{LABELS}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{text_y}\">{:.0} k/s {}</text>",
                LABELS - 8.0,
                LABELS + width + 6.0,
                rate / 1e3,
                side.name
            );
            y += BAR + 2.0;
        }
        y += GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{bars}</svg>\n"
    )
}
