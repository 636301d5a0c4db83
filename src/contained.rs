//! Decoders of other libraries, called so that a panic on damaged bytes becomes an error.
//!
//! Readers of Parquet and Arrow trust the numbers in a file in many places: an offset that lies is an
//! index out of bounds there, not an error. A hostile file must not end the program, so their calls go
//! through [`contained`]. Our own code is not called through it: its panics are faults to be seen.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Calls a decoder. What it was reading with must be dropped after an error.
///
/// # Errors
/// What the decoder said when it panicked; nothing of it is printed.
pub fn contained<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_CONTAINED.get() {
                before(info);
            }
        }));
    });
    IS_CONTAINED.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(decode));
    IS_CONTAINED.set(false);
    result.map_err(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no reason given");
        format!("its numbers do not fit together ({text})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_words_and_the_next_call_is_fresh() {
        let numbers = [1, 2, 3];
        let at = std::hint::black_box(7);
        let error = contained(|| numbers[at]).expect_err("out of bounds");
        assert!(error.contains("the index is 7"), "{error}");
        assert!(!IS_CONTAINED.get());
        assert_eq!(contained(|| numbers[at - 6]), Ok(2));
    }
}
