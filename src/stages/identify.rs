//! The language of a document, identified once and shared by the stages whose rules depend on it.

use crate::algo::language;
use crate::record::{Document, Language};

/// The language of a document: as a stage before has found it, else by the embedded identifier,
/// whose answer is kept with the document.
pub(super) fn language_of(document: &mut Document) -> Language {
    match document.language {
        Some((language, _)) => language,
        None => {
            let (code, probability) = language::identify(&document.text, language::SAMPLE_BYTES);
            let language = Language::new(code).expect("the identifier's codes are short and ASCII");
            document.language = Some((language, probability));
            language
        }
    }
}

/// Whether rules that count words hold for a document: not where its language is written without
/// spaces. They do hold where the language is unknown.
pub(super) fn is_written_with_spaces(document: &mut Document) -> bool {
    // Without a character of such a script the identifier names no such language; to look is cheap.
    if document.language.is_none()
        && !language::has_unspaced_script(&document.text, language::SAMPLE_BYTES)
    {
        return true;
    }
    language::is_written_with_spaces(language_of(document).code())
}
