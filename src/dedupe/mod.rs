//! Duplicates: sketches propose, the full text decides, evidence is kept.
