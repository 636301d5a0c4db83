//! From what there was to what is left: a table whose bars float where something is lost.

use super::table::{Segment, bars, number, table, words};

/// A line of a waterfall.
pub enum Step {
    /// What there is now: name, amount, class of its bar.
    Sum(String, f64, &'static str),
    /// What goes from there: name, amount. It is taken from the sum above and the losses since.
    Loss(String, f64),
}

/// Writes a waterfall. `shown` writes amounts; shares are of the first sum. Amounts must be finite, and sums 0 or more.
pub fn waterfall(out: &mut String, what: &str, shown: &dyn Fn(f64) -> String, steps: &[Step]) {
    let widest = steps.iter().fold(0.0_f64, |most, step| match step {
        Step::Sum(_, amount, _) => most.max(*amount),
        Step::Loss(..) => most,
    });
    let first = steps.iter().find_map(|step| match step {
        Step::Sum(_, amount, _) => Some(*amount),
        Step::Loss(..) => None,
    });
    let first = first.unwrap_or(0.0);
    let of = |amount: f64, whole: f64| if whole > 0.0 { amount / whole } else { 0.0 };
    let share = |amount: f64| format!("{:.2} %", 100.0 * of(amount, first));
    let mut left = 0.0;
    let rows = steps.iter().map(|step| match step {
        Step::Sum(name, amount, class) => {
            left = *amount;
            let bar = Segment {
                from: 0.0,
                to: of(*amount, widest),
                class: (*class).to_string(),
                title: format!("{name}: {}", shown(*amount)),
            };
            vec![
                words(name),
                bars(&[bar]),
                number(shown(*amount)),
                number(share(*amount)),
            ]
        }
        Step::Loss(name, amount) => {
            let before = left;
            left = (left - amount).max(0.0);
            // A loss below 0 is a gain: an edit may make a text longer in tokens.
            let (sign, class) = match *amount < 0.0 {
                true => ('+', "gain"),
                false => ('\u{2212}', "loss"),
            };
            let bar = Segment {
                from: of(left.min(before), widest),
                to: of(left.max(before), widest),
                class: class.to_string(),
                title: format!("{name}: {sign}{}", shown(amount.abs())),
            };
            vec![
                words(&format!("{sign} {name}")),
                bars(&[bar]),
                number(format!("{sign}{}", shown(amount.abs()))),
                number(share(amount.abs())),
            ]
        }
    });
    let heads = ["", "", &format!("#{what}"), "#share of the first"];
    table(out, &heads, rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_floats_below_the_sum_and_shares_are_of_the_first() {
        let mut out = String::new();
        let steps = [
            Step::Sum("all <b>".to_string(), 200.0, "k1"),
            Step::Loss("lost".to_string(), 50.0),
            Step::Loss("more".to_string(), 50.0),
            Step::Sum("left".to_string(), 100.0, "k0"),
            Step::Sum("worth".to_string(), 400.0, "k2"),
        ];
        waterfall(&mut out, "tokens", &|amount| format!("{amount:.0}"), &steps);
        // The widest is the last: 400 is 1000 units.
        for bar in [
            "class=\"k1\" x=\"0.00\" width=\"500.00\"",
            "class=\"loss\" x=\"375.00\" width=\"125.00\"",
            "class=\"loss\" x=\"250.00\" width=\"125.00\"",
            "class=\"k2\" x=\"0.00\" width=\"1000.00\"",
        ] {
            assert!(out.contains(bar), "{bar} in {out}");
        }
        assert!(out.contains(">25.00 %<") && out.contains(">200.00 %<"));
        assert!(out.contains("all &lt;b&gt;") && !out.contains("<b>"));
    }

    #[test]
    fn a_loss_below_nothing_is_a_gain() {
        let mut out = String::new();
        let steps = [
            Step::Sum("read".to_string(), 10.0, "k1"),
            Step::Loss("cut".to_string(), -5.0),
            Step::Sum("kept".to_string(), 15.0, "k0"),
        ];
        waterfall(&mut out, "tokens", &|amount| format!("{amount:.0}"), &steps);
        assert!(
            out.contains("class=\"gain\" x=\"666.67\" width=\"333.33\""),
            "{out}"
        );
        assert!(out.contains(">+5<"), "{out}");
    }

    #[test]
    fn nothing_of_nothing_is_no_share() {
        let mut out = String::new();
        let steps = [
            Step::Sum("read".to_string(), 0.0, "k1"),
            Step::Loss("rejected".to_string(), 0.0),
        ];
        waterfall(&mut out, "tokens", &|amount| format!("{amount:.0}"), &steps);
        assert!(!out.contains("NaN") && out.contains(">0.00 %<"), "{out}");
    }
}
