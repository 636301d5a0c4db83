//! Usefulness as measured in a pilot run: any estimator, its values led through a fitted curve.

use super::{DocumentScores, Estimator, ModelOrigin, TokenDocument, TokenExplanation, TokenScores};
use crate::algo::isotonic::Curve;
use std::path::Path;

/// An estimator behind a curve. The document's score is the mean of what comes out of the curve.
pub struct Calibrated {
    inner: Box<dyn Estimator>,
    curve: Curve,
    about: serde_json::Value,
}

impl Calibrated {
    /// `about` are the entries that the description gets or has replaced.
    pub fn new(inner: Box<dyn Estimator>, curve: Curve, about: serde_json::Value) -> Calibrated {
        Calibrated {
            inner,
            curve,
            about,
        }
    }
}

impl Estimator for Calibrated {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        let scores = self.inner.score(document, out)?;
        let mut sum = 0.0;
        for usefulness in &mut out.usefulness {
            if !usefulness.is_finite() {
                return Err(format!(
                    "a usefulness is {usefulness}, not a number from 0 to 1"
                ));
            }
            *usefulness = self.curve.at(*usefulness);
            sum += f64::from(*usefulness);
        }
        Ok(DocumentScores {
            score: sum / out.usefulness.len().max(1) as f64,
            ..scores
        })
    }

    fn explain(
        &self,
        document: &TokenDocument<'_>,
    ) -> Result<Option<Vec<TokenExplanation>>, String> {
        let mut explained = self.inner.explain(document)?;
        for token in explained.iter_mut().flatten() {
            token.usefulness = self.curve.at(token.usefulness);
        }
        Ok(explained)
    }

    /// The models alone: whoever reads them leads them through the calibration again.
    fn save(&self, path: &Path, origin: &ModelOrigin) -> std::io::Result<()> {
        self.inner.save(path, origin)
    }

    fn describe(&self) -> serde_json::Value {
        let mut description = self.inner.describe();
        for (name, value) in self.about.as_object().into_iter().flatten() {
            description[name] = value.clone();
        }
        description
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<f32>);

    impl Estimator for Fixed {
        fn score(
            &self,
            _document: &TokenDocument<'_>,
            out: &mut TokenScores,
        ) -> Result<DocumentScores, String> {
            out.usefulness = self.0.clone();
            Ok(DocumentScores {
                score: 9.0,
                excess_nats: 1.0,
                difficulty: 2.0,
            })
        }
        fn describe(&self) -> serde_json::Value {
            serde_json::json!({ "calibration": "uncalibrated", "kept": 1 })
        }
    }

    #[test]
    fn tokens_and_their_mean_go_through_the_curve() {
        // Half of the usefulness, nothing below a half.
        let points = (0..256)
            .map(|byte| (byte as f32 / 255.0 - 0.5).max(0.0))
            .collect();
        let curve = Curve::new(points).expect("it rises");
        let about = serde_json::json!({ "calibration": "isotonic" });
        let calibrated = |values: &[f32]| {
            Calibrated::new(
                Box::new(Fixed(values.to_vec())),
                curve.clone(),
                about.clone(),
            )
        };
        let document = TokenDocument {
            number: 0,
            sample_key: 0,
            fold_key: 0,
            content: 0,
            tokens: &[1, 1],
            id: "",
            text: "",
        };
        let mut out = TokenScores::default();
        let scores = calibrated(&[0.25, 1.0])
            .score(&document, &mut out)
            .expect("scores");
        assert_eq!(out.usefulness, [0.0, 0.5]);
        assert_eq!((scores.score, scores.difficulty), (0.25, 2.0));
        assert_eq!(
            calibrated(&[]).describe(),
            serde_json::json!({ "calibration": "isotonic", "kept": 1 })
        );
        assert!(
            calibrated(&[f32::NAN, 0.0])
                .score(&document, &mut out)
                .is_err()
        );
    }
}
