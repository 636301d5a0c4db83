//! Which files there are and how the work on them is cut.

use super::{EngineError, Stop};
use crate::plan::{OnError, Plan, Problem, Problems};
use crate::record::{FieldSpec, FieldType};
use crate::source::{self, Entry, Format, FoundFile, InputSpec, Reader, Slice};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Bytes of files that are looked through at once for a document.
const LOOKED_THROUGH_BYTES: u64 = 16 << 20;

/// An input, ready to be read.
#[derive(Clone, Debug)]
pub struct Input {
    /// Name in the ledger.
    pub source: String,
    /// How records are read.
    pub spec: InputSpec,
    /// What a bad record does.
    pub on_error: OnError,
}

/// A file of an input.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Number of the input.
    pub input: u16,
    /// The file.
    pub found: FoundFile,
    /// Whether places are row numbers rather than byte offsets.
    pub places_are_rows: bool,
}

/// Everything that will be read, in reading order.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The inputs in the order of the pipeline file.
    pub inputs: Vec<Input>,
    /// Their files: by input, then name.
    pub files: Vec<InputFile>,
}

/// A stretch of work: consecutive pieces of consecutive files.
#[derive(Clone, Debug)]
pub struct Task {
    /// File number and what to read of it.
    pub pieces: Vec<(u32, Slice)>,
    /// Bytes of the files, roughly.
    pub bytes: u64,
}

impl Inputs {
    /// Finds the files of a pipeline's inputs.
    pub fn find(plan: &Plan) -> Result<Inputs, EngineError> {
        let mut problems = Vec::new();
        let mut inputs = Vec::new();
        let mut files: Vec<InputFile> = Vec::new();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (number, input) in plan.inputs.iter().enumerate() {
            let fields = plan
                .fields
                .iter()
                .map(|field| {
                    input
                        .fields
                        .iter()
                        .find(|mine| mine.name == field.name)
                        .cloned()
                })
                .collect::<Vec<Option<FieldSpec>>>();
            let spec = InputSpec {
                format: input.format.as_deref().and_then(Format::by_name),
                text: input.text.clone(),
                id: input.id.clone(),
                fields,
                max_document_bytes: input.max_document_bytes,
                join_lists: false,
            };
            let mut report = |message: String| problems.push(plan.problem(input.place, message));
            match source::find_files(&plan.base, &input.globs) {
                Ok(found) => {
                    for file in found {
                        match spec.format_of(&file) {
                            Ok(format) => {
                                if input.id.is_none()
                                    && let Some(other) = seen.insert(file.name.clone(), number)
                                    && other != number
                                {
                                    report(format!(
                                        "file '{}' has the same name in inputs {other} and {number}, so its documents would have the same ids; \
                                         write globs whose fixed part ends higher up, or name an `id:` field",
                                        file.name
                                    ));
                                }
                                let places_are_rows =
                                    matches!(format, Format::Parquet | Format::Arrow);
                                files.push(InputFile {
                                    input: number as u16,
                                    found: file,
                                    places_are_rows,
                                });
                            }
                            Err(error) => report(error.to_string()),
                        }
                    }
                }
                Err(error) => report(error.to_string()),
            }
            inputs.push(Input {
                source: input.source.clone(),
                spec,
                on_error: input.on_error,
            });
        }
        if problems.is_empty() {
            Ok(Inputs { inputs, files })
        } else {
            Err(EngineError::Problems(Problems(problems)))
        }
    }

    /// The files named by `reference`, or by another option `name` that is read likewise: text under `text`, the format guessed from the name, and the field
    /// that names a document's domain, where there is one, as the only declared field.
    pub fn reference(
        plan: &Plan,
        name: &str,
        globs: &[String],
        domain: Option<&str>,
        problem: impl Fn(String) -> Problem,
    ) -> Result<Inputs, EngineError> {
        let mut spec = InputSpec::with_text("text");
        spec.fields = domain
            .map(|path| {
                Some(FieldSpec {
                    name: "domain".to_string(),
                    path: path.to_string(),
                    kind: FieldType::String,
                })
            })
            .into_iter()
            .collect();
        let globs: Vec<String> = globs.iter().map(|glob| plan.glob(glob)).collect();
        let bad = |error: source::SourceError| {
            EngineError::Problems(Problems(vec![problem(format!("{name}: {error}"))]))
        };
        let found = source::find_files(&plan.base, &globs).map_err(bad)?;
        let mut files = Vec::new();
        for file in found {
            let format = spec.format_of(&file).map_err(bad)?;
            let places_are_rows = matches!(format, Format::Parquet | Format::Arrow);
            files.push(InputFile {
                input: 0,
                found: file,
                places_are_rows,
            });
        }
        let input = Input {
            source: name.to_string(),
            spec,
            on_error: OnError::Quarantine,
        };
        Ok(Inputs {
            inputs: vec![input],
            files,
        })
    }

    /// Bytes of all files as they lie on disk.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.found.bytes).sum()
    }

    /// The input of a file.
    pub fn input_of(&self, file: u32) -> &Input {
        &self.inputs[self.files[file as usize].input as usize]
    }

    /// Whether any document can be read of these files; `None` where they are too large to say at once. One that
    /// begins with a document is never too large.
    pub fn holds_a_document(&self) -> Result<Option<bool>, EngineError> {
        for file in &self.files {
            let spec = &self.inputs[file.input as usize].spec;
            for slice in source::slices(&file.found, spec, u64::MAX)? {
                let mut reader = Reader::open(&file.found, &slice, spec)?;
                while let Some(chunk) = reader.next_chunk()? {
                    let mut found = false;
                    chunk.decode(spec, &mut |entry| {
                        found |= matches!(entry, Entry::Document(_));
                    });
                    if found {
                        return Ok(Some(true));
                    }
                    if self.bytes() > LOOKED_THROUGH_BYTES {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(false))
    }

    /// Checksums of all files, in order.
    pub fn checksums(
        &self,
        advance: &(dyn Fn(u64) + Sync),
        stop: &Stop,
    ) -> Result<Vec<String>, EngineError> {
        self.files
            .par_iter()
            .map(|file| {
                stop.check()?;
                let _item = stop.at(format!("reading {}", file.found.path.display()));
                let checksum = source::file_checksum(&file.found.path, &|bytes| {
                    stop.alive();
                    advance(bytes);
                })?;
                file.found.unchanged()?;
                Ok(format!("{checksum:032x}"))
            })
            .collect()
    }

    /// Cuts the work into tasks of about `target_bytes`: large files into slices, small ones together.
    pub fn tasks(&self, target_bytes: u64) -> Result<Vec<Task>, EngineError> {
        let mut tasks: Vec<Task> = Vec::new();
        for (number, file) in self.files.iter().enumerate() {
            let spec = &self.inputs[file.input as usize].spec;
            let slices = source::slices(&file.found, spec, target_bytes)?;
            let bytes = file.found.bytes / slices.len() as u64;
            for slice in slices {
                let piece = (number as u32, slice);
                match tasks.last_mut() {
                    Some(task) if task.bytes + bytes <= target_bytes => {
                        task.pieces.push(piece);
                        task.bytes += bytes;
                    }
                    _ => tasks.push(Task {
                        pieces: vec![piece],
                        bytes,
                    }),
                }
            }
        }
        Ok(tasks)
    }
}

/// Bytes of a task where nobody asked for others: small enough to share out and to redo, large
/// enough that even 10 TB make two thousand, whose files are all mapped at a time, in each segment of the
/// chain: Linux lets a process have 65,530 maps. No result depends on it.
pub fn default_task_bytes(total_bytes: u64) -> u64 {
    (total_bytes / 64)
        .clamp(1 << 20, 64 << 20)
        .max(total_bytes / 2_048)
}
