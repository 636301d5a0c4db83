//! A picture of a few lines and points: a logarithmic axis to the right, a linear one up.
//!
//! Written by hand rather than by a library of charts: those that write SVG set fixed colours and sizes, where this
//! takes the colours of the page, light, dark and printed, gives each point its title, and larger letters on a
//! narrow page.

use super::escape;
use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 58.0;
/// Least distance of two labels, one above the other.
const LABEL_HEIGHT: f64 = 16.0;
/// Ticks of the linear axis, about.
const TICKS: f64 = 8.0;

/// Points and a line of one name.
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Its colour: 0 to 11.
    pub colour: usize,
    /// Points: x, y, what is shown where a pointer rests.
    pub points: Vec<(f64, f64, String)>,
    /// A line through these; none where empty.
    pub line: Vec<(f64, f64)>,
    /// Lines of the same that are less certain.
    pub beyond: Vec<Vec<(f64, f64)>>,
}

/// A distance along the logarithmic axis.
pub struct Arrow {
    /// Where it begins: x.
    pub from: f64,
    /// Where it ends: x.
    pub to: f64,
    /// Its height.
    pub y: f64,
    /// The interval of its end.
    pub interval: Option<(f64, f64)>,
    /// What stands at its end.
    pub label: String,
    /// Its colour: 0 to 11.
    pub colour: usize,
}

/// A picture. What is not finite, or not above 0 on the logarithmic axis, is left out.
pub struct Plot<'a> {
    /// What it shows, for those who do not see it.
    pub description: String,
    /// What the logarithmic axis counts.
    pub x: &'a str,
    /// What the linear axis counts.
    pub y: &'a str,
    /// Points and lines.
    pub series: Vec<Series>,
    /// Distances.
    pub arrows: Vec<Arrow>,
}

impl Plot<'_> {
    /// Writes the picture and what its signs mean; nothing where no point can be shown.
    pub fn write(&self, out: &mut String) {
        let shown = |x: f64, y: f64| x > 0.0 && x.is_finite() && y.is_finite();
        let points = self.series.iter().flat_map(|series| {
            let points = series.points.iter().map(|(x, y, _)| (*x, *y));
            let lines = series.beyond.iter().chain([&series.line]);
            points.chain(lines.flatten().copied())
        });
        let ends = self.arrows.iter().flat_map(|arrow| {
            let (lower, upper) = arrow.interval.unwrap_or((arrow.to, arrow.to));
            [arrow.from, arrow.to, lower, upper].map(|x| (x, arrow.y))
        });
        let all: Vec<(f64, f64)> = points.chain(ends).filter(|(x, y)| shown(*x, *y)).collect();
        if all.is_empty() {
            return;
        }
        let scales = Scales::of(&all);
        let _ = writeln!(
            out,
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.description)
        );
        self.axes(out, &scales);
        for (at, series) in self.series.iter().enumerate() {
            let lines = series.beyond.iter().map(|line| (line, " beyond"));
            for (line, class) in lines.chain([(&series.line, "")]) {
                let line: Vec<String> = line
                    .iter()
                    .filter(|(x, y)| shown(*x, *y))
                    .map(|(x, y)| format!("{:.1},{:.1}", scales.x(*x), scales.y(*y)))
                    .collect();
                if line.len() > 1 {
                    let _ = writeln!(
                        out,
                        "<polyline class=\"curve{class} s{}\" points=\"{}\"/>",
                        series.colour,
                        line.join(" ")
                    );
                }
            }
            for (x, y, title) in series.points.iter().filter(|(x, y, _)| shown(*x, *y)) {
                let _ = writeln!(
                    out,
                    "<path class=\"mark k{}\" d=\"{}\" transform=\"translate({:.1} {:.1})\"><title>{}</title></path>",
                    series.colour,
                    sign(at),
                    scales.x(*x),
                    scales.y(*y),
                    escape(title)
                );
            }
        }
        self.arrows(out, &scales);
        out.push_str("</svg>\n<ul class=\"key\" aria-label=\"signs\">");
        for (at, series) in self.series.iter().enumerate() {
            let _ = write!(
                out,
                "<li><svg viewBox=\"-6 -6 12 12\" aria-hidden=\"true\"><path class=\"k{}\" d=\"{}\"/></svg>{}</li>",
                series.colour,
                sign(at),
                escape(&series.name)
            );
        }
        out.push_str("</ul>\n");
    }

    fn axes(&self, out: &mut String, scales: &Scales) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (y, label) in scales.y_ticks() {
            let at = scales.y(y);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                at + 4.5
            );
        }
        for (x, label, class) in scales.x_ticks() {
            let at = scales.x(x);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
                 <text{class} x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                bottom + 20.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <text x=\"18\" y=\"{TOP}\" transform=\"rotate(-90 18 {TOP})\" text-anchor=\"end\">{}</text>",
            HEIGHT - 10.0,
            escape(&format!("{}, logarithmic", self.x)),
            escape(self.y)
        );
    }

    fn arrows(&self, out: &mut String, scales: &Scales) {
        let finite = |arrow: &&Arrow| {
            [arrow.from, arrow.to]
                .iter()
                .all(|x| *x > 0.0 && x.is_finite())
                && arrow.y.is_finite()
        };
        let mut arrows: Vec<&Arrow> = self.arrows.iter().filter(finite).collect();
        arrows.sort_by(|a, b| b.y.total_cmp(&a.y));
        let mut above = f64::NEG_INFINITY;
        out.push_str("<g class=\"arrows\">\n");
        for arrow in arrows {
            let (from, to, y) = (scales.x(arrow.from), scales.x(arrow.to), scales.y(arrow.y));
            if let Some((lower, upper)) = arrow
                .interval
                .filter(|(lower, upper)| *lower > 0.0 && upper.is_finite())
            {
                let _ = writeln!(
                    out,
                    "<line class=\"whisker s{}\" x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
                    arrow.colour,
                    scales.x(lower),
                    scales.x(upper)
                );
            }
            let head = if to >= from { -6.0 } else { 6.0 };
            let _ = writeln!(
                out,
                "<line class=\"arrow s{0}\" x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\"/>\
                 <path class=\"k{0}\" d=\"M0 0L{head} -4V4z\" transform=\"translate({to:.1} {y:.1})\"/>",
                arrow.colour
            );
            // A label stands above its arrow, or below the label before it.
            let label = (y - 11.0).max(above + LABEL_HEIGHT);
            above = label;
            let (x, anchor) = match (from + to) / 2.0 > WIDTH / 2.0 {
                true => (from.max(to), "end"),
                false => (from.min(to), "start"),
            };
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{label:.1}\" text-anchor=\"{anchor}\">{}</text>",
                escape(&arrow.label)
            );
        }
        out.push_str("</g>\n");
    }
}

/// Signs that differ without their colour.
fn sign(at: usize) -> &'static str {
    const SIGNS: [&str; 5] = [
        "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
        "M-4.5 -4.5h9v9h-9z",
        "M0 -6L5.5 4.5h-11z",
        "M0 -6.5L6 0L0 6.5L-6 0z",
        "M0 6L5.5 -4.5h-11z",
    ];
    SIGNS[at % SIGNS.len()]
}

struct Scales {
    /// ln of both ends.
    x: (f64, f64),
    y: (f64, f64),
    step: f64,
}

impl Scales {
    fn of(points: &[(f64, f64)]) -> Scales {
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let x = ends(&mut points.iter().map(|point| libm::log(point.0)));
        let margin = (0.06 * (x.1 - x.0)).max(0.1);
        let (low, high) = ends(&mut points.iter().map(|point| point.1));
        // All at one height: a little room above and below.
        let margin_y = match high - low {
            none if none <= 1e-9 * high.abs() => 0.05 * high.abs().max(1e-3),
            range => 0.06 * range,
        };
        let (low, high) = (low - margin_y, high + margin_y);
        let step = round_step((high - low) / TICKS);
        Scales {
            x: (x.0 - margin, x.1 + margin),
            y: (low, high),
            step,
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (libm::log(value) - self.x.0) / (self.x.1 - self.x.0)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (HEIGHT - TOP - BOTTOM) * (self.y.1 - value) / (self.y.1 - self.y.0)
    }

    fn y_ticks(&self) -> Vec<(f64, String)> {
        let digits = (-libm::log10(self.step).floor()).max(0.0) as usize;
        let (first, last) = (
            (self.y.0 / self.step).ceil() as i64,
            (self.y.1 / self.step).floor() as i64,
        );
        (first..=last)
            .map(|at| {
                let value = at as f64 * self.step;
                (value, format!("{value:.digits$}"))
            })
            .collect()
    }

    /// Powers of ten; where there are few, 2 and 5 times them; where there are many, some.
    fn x_ticks(&self) -> Vec<(f64, String, &'static str)> {
        let decades = (self.x.1 - self.x.0) / std::f64::consts::LN_10;
        let skip = (decades / 7.0).ceil().max(1.0) as i32;
        let factors: &[i32] = match decades {
            0.0..1.2 => &[1, 2, 3, 5, 7],
            1.2..4.0 => &[1, 2, 5],
            _ => &[1],
        };
        let (low, high) = (libm::exp(self.x.0), libm::exp(self.x.1));
        let (first, last) = (
            libm::log10(low).floor() as i32,
            libm::log10(high).ceil() as i32,
        );
        let mut ticks = Vec::new();
        for exponent in (first..=last).filter(|exponent| exponent % skip == 0) {
            for &factor in factors {
                let value = f64::from(factor) * 10f64.powi(exponent);
                if (low..=high).contains(&value) {
                    let class = match factor {
                        1 => "",
                        _ => " class=\"minor\"",
                    };
                    ticks.push((value, format!("{factor}e{exponent}"), class));
                }
            }
        }
        // Of the minor ones so many must stay on a narrow page that an axis can be read.
        if ticks.iter().filter(|tick| tick.2.is_empty()).count() < 2 {
            for at in [0, ticks.len().saturating_sub(1)] {
                if let Some(tick) = ticks.get_mut(at) {
                    tick.2 = "";
                }
            }
        }
        ticks
    }
}

/// 1, 2 or 5 times a power of ten, at least this much.
fn round_step(least: f64) -> f64 {
    let power = libm::exp10(libm::log10(least).floor());
    let times = [1.0, 2.0, 5.0, 10.0];
    let found = times
        .into_iter()
        .find(|times| times * power >= least * (1.0 - 1e-9));
    found.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(f64, f64)], arrows: Vec<Arrow>) -> String {
        let series = Series {
            name: "<i>base".to_string(),
            colour: 1,
            points: points
                .iter()
                .map(|(x, y)| (*x, *y, "a<b".to_string()))
                .collect(),
            line: points.to_vec(),
            beyond: Vec::new(),
        };
        let mut out = String::new();
        Plot {
            description: "loss".to_string(),
            x: "FLOP",
            y: "bits per byte",
            series: vec![series],
            arrows,
        }
        .write(&mut out);
        out
    }

    #[test]
    fn more_compute_is_to_the_right_and_less_loss_is_down() {
        let scales = Scales::of(&[(1e18, 1.2), (1e20, 0.8)]);
        assert!(scales.x(1e18) < scales.x(1e19) && scales.x(1e19) < scales.x(1e20));
        let middle = (scales.x(1e18) + scales.x(1e20)) / 2.0;
        assert!(
            (scales.x(1e19) - middle).abs() < 1e-9,
            "the axis is logarithmic"
        );
        assert!(scales.y(0.8) > scales.y(1.2));
        for y in [scales.y(0.8), scales.y(1.2)] {
            assert!((TOP..=HEIGHT - BOTTOM).contains(&y));
        }
        let labels: Vec<String> = scales.x_ticks().into_iter().map(|tick| tick.1).collect();
        assert!(
            labels.contains(&"1e18".to_string()) && labels.contains(&"2e19".to_string()),
            "{labels:?}"
        );
    }

    #[test]
    fn one_point_or_none_is_no_trouble() {
        assert_eq!(plot(&[], Vec::new()), "");
        assert_eq!(plot(&[(0.0, 1.0), (1.0, f64::NAN)], Vec::new()), "");
        for one in [(1e18, 1.0), (1.0, 0.0), (5e-3, -2.0)] {
            let out = plot(&[one], Vec::new());
            assert!(
                out.contains("class=\"mark k1\"") && !out.contains("NaN") && !out.contains("inf"),
                "{out}"
            );
        }
    }

    #[test]
    fn names_are_text_and_labels_do_not_cover_each_other() {
        let arrow = |y| Arrow {
            from: 1e18,
            to: 2e18,
            y,
            interval: Some((1.5e18, 2.5e18)),
            label: "m 2 <s>".to_string(),
            colour: 2,
        };
        let out = plot(&[(1e18, 1.2), (4e18, 0.8)], vec![arrow(1.0), arrow(1.0)]);
        assert!(
            out.contains("&lt;i&gt;base") && out.contains("m 2 &lt;s&gt;") && !out.contains("<i>")
        );
        let heights: Vec<f64> = out
            .split("<g class=\"arrows\">")
            .nth(1)
            .expect("arrows")
            .split("<text ")
            .skip(1)
            .map(|text| {
                let y = text.split("y=\"").nth(1).expect("a height");
                y.split('"')
                    .next()
                    .expect("quoted")
                    .parse()
                    .expect("a number")
            })
            .collect();
        assert!(
            (heights[1] - heights[0]).abs() >= LABEL_HEIGHT,
            "{heights:?}"
        );
    }

    #[test]
    fn steps_are_round() {
        for (least, step) in [
            (0.013, 0.02),
            (0.02, 0.02),
            (3.0, 5.0),
            (6.0, 10.0),
            (1.0, 1.0),
        ] {
            assert!((round_step(least) / step - 1.0).abs() < 1e-9, "{least}");
        }
    }
}
