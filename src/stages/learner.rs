//! What a stage must be given before it judges.

/// Files of texts that a stage wants to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTexts {
    /// The option that names them.
    pub option: &'static str,
    /// Globs as written.
    pub globs: Vec<String>,
    /// Fields that make the text of a record, at least one; joined by line ends.
    pub text_fields: Vec<String>,
    /// The option that names these fields, where the user can.
    pub text_option: Option<&'static str>,
    /// The field that holds the id; without one the name of the file and the place in it are the id.
    pub id_field: Option<String>,
}

/// A stage that is given texts before it judges. It is asked what it wants, then given all texts of
/// each list, file by file in the order of their names, then told that there are no more.
pub trait Learner {
    /// The lists of files that it wants.
    fn wanted(&self) -> Vec<WantedTexts>;

    /// A file begins; `list` is a place in [`Learner::wanted`], 0 before 1.
    fn begin_file(&mut self, list: usize, name: &str);

    /// A text of that file.
    ///
    /// # Errors
    /// When there is no room for it.
    fn take(&mut self, id: &str, text: &str) -> Result<(), String>;

    /// There are no more.
    ///
    /// # Errors
    /// When a file gave nothing to judge by, naming the file, what it gave and what is needed.
    fn finish(&mut self) -> Result<Learnt, String>;
}

/// What a stage has made of its texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// By [`crate::record::Overlap::item`]: what the texts are called.
    pub items: Vec<Vec<ItemName>>,
    /// Counts for the ledger: a note that the stage's kind declares, and how often.
    pub notes: Vec<(&'static str, u64)>,
    /// What the user should know, each with something to do.
    pub warnings: Vec<String>,
}

/// What a text is called in one of the files that hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemName {
    /// Name of the file.
    pub set: String,
    /// Id of the first record of that file with this text.
    pub id: String,
    /// Records of that file with this text.
    pub items: u32,
}
