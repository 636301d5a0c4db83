//! Usefulness in one byte: value times 255, rounded half to even.

/// The byte that stands for a usefulness; what lies outside of 0 to 1 counts as the nearer bound.
pub fn byte_of(usefulness: f32) -> u8 {
    (usefulness.clamp(0.0, 1.0) * 255.0).round_ties_even() as u8
}

/// The usefulness that a byte stands for. Off by at most 1/510.
pub fn value_of(byte: u8) -> f32 {
    f32::from(byte) / 255.0
}

/// What bytes say of values before they were rounded, against a threshold from 0 to 1: bytes below the first number
/// stand for values that were all below it, bytes from the second on for values that were not. The two
/// differ by one where the threshold lies inside the range of a byte.
///
/// ```
/// use goodput::algo::quantise::certain;
/// assert_eq!(certain(0.25), (64, 65)); // 0.25 * 255 = 63.75, and 64 stands for 63.5 to 64.5
/// assert_eq!(certain(0.1), (26, 26)); // 25.5 is the border between 25 and 26
/// assert_eq!(certain(0.0), (0, 0)); // nothing is below 0
/// ```
pub fn certain(threshold: f64) -> (u16, u16) {
    // Rounding keeps the order, so the byte of the largest value below is the last that can hold one,
    // and the byte of the smallest value that is not below is the first that can hold such a one.
    let nearest = threshold as f32;
    let at = if f64::from(nearest) >= threshold {
        nearest
    } else {
        nearest.next_up()
    };
    let below = at.next_down();
    let end = if below < 0.0 {
        0
    } else {
        u16::from(byte_of(below)) + 1
    };
    (u16::from(byte_of(at)).min(end), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_goes_to_even() {
        assert_eq!([0.0, 1.0, 0.5].map(byte_of), [0, 255, 128]);
        assert_eq!([0.5 / 255.0, 1.5 / 255.0].map(byte_of), [0, 2]);
        assert!((0..=255).all(|byte| byte_of(value_of(byte)) == byte));
    }

    /// Every value around a threshold is on the side that its byte says, and no byte is called
    /// uncertain without values on both sides.
    #[test]
    fn bytes_never_say_more_than_they_know() {
        for step in 0..=5100u32 {
            let threshold = f64::from(step) / 5100.0;
            let (certain, end) = certain(threshold);
            assert!(certain <= end && end - certain <= 1, "{threshold}");
            let mut sides = [false; 2];
            for offset in -40..=40 {
                let value = (threshold + f64::from(offset) / 20_000.0).clamp(0.0, 1.0) as f32;
                let byte = u16::from(byte_of(value));
                let below = f64::from(value) < threshold;
                assert!(byte >= certain || below, "{value} {threshold}");
                assert!(byte < end || !below, "{value} {threshold}");
                if byte == certain {
                    sides[usize::from(below)] = true;
                }
            }
            assert!(end == certain || sides[1], "{threshold}");
        }
        assert_eq!(super::certain(1.0), (255, 256));
    }
}
