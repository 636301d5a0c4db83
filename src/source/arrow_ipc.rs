//! Arrow IPC, the file format and the stream format, told apart by the first bytes.

use super::arrow_sizes::{self, SizeProblem};
use super::columns::{RowReader, wanted};
use super::compression::{self, Compression};
use super::{FoundFile, InputSpec, Slice, SourceError};
use crate::contained::contained;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

const FORMAT: &str = "arrow";
const FILE_MAGIC: &[u8] = b"ARROW1";

/// Opens a whole file.
pub(super) fn open(
    file: &FoundFile,
    slice: &Slice,
    spec: &InputSpec,
) -> Result<RowReader, SourceError> {
    if *slice != Slice::Whole {
        return Err(SourceError::NoSuchSlice {
            path: file.path.clone(),
            slice: slice.to_string(),
        });
    }
    let (mut handle, compression) = compression::open(file)?;
    if compression != Compression::None {
        return Err(SourceError::Wrapped {
            path: file.path.clone(),
            compression: compression.name(),
            format: FORMAT,
        });
    }
    let failed = |source| SourceError::Read {
        path: file.path.clone(),
        source,
    };
    let mut first = Vec::with_capacity(FILE_MAGIC.len());
    Read::by_ref(&mut handle)
        .take(FILE_MAGIC.len() as u64)
        .read_to_end(&mut first)
        .map_err(failed)?;
    handle.seek(SeekFrom::Start(0)).map_err(failed)?;

    let projection = |schema: &Schema| -> Result<Vec<usize>, SourceError> {
        let mut roots: Vec<usize> = wanted(schema.fields(), spec, &file.path)?
            .iter()
            .filter_map(|way| way.first().copied())
            .collect();
        roots.sort_unstable();
        roots.dedup();
        Ok(roots)
    };
    let damaged = |problem: &dyn ToString| damaged(file, problem);
    let refused = |result: Result<_, ArrowError>| result.map_err(|error| damaged(&error));
    let again = || handle.try_clone().map(BufReader::new).map_err(failed);
    let rewind = || (&handle).seek(SeekFrom::Start(0)).map_err(failed);

    // The reader makes room for what a file says of itself before it looks, so sizes come first.
    let is_file = first == FILE_MAGIC;
    arrow_sizes::check(&handle, file.bytes, is_file).map_err(|problem| match problem {
        SizeProblem::Io(source) => failed(source),
        SizeProblem::Lie(problem) => damaged(&problem),
    })?;
    rewind()?;
    // The schema is read next: which columns are wanted is known only then.
    type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;
    let open = |roots: Option<Vec<usize>>| -> Result<(Arc<Schema>, Batches), SourceError> {
        let input = again()?;
        let opened = contained(|| -> Result<(Arc<Schema>, Batches), ArrowError> {
            if is_file {
                let reader = FileReader::try_new(input, roots)?;
                Ok((reader.schema(), Box::new(reader)))
            } else {
                let reader = StreamReader::try_new(input, roots)?;
                Ok((reader.schema(), Box::new(reader)))
            }
        });
        refused(opened.map_err(|panic| damaged(&panic))?)
    };
    let (schema, _) = open(None)?;
    let roots = projection(&schema)?;
    rewind()?;
    let (_, mut batches) = open(Some(roots))?;
    let file = file.clone();
    let batches = std::iter::from_fn(move || match contained(|| batches.next()) {
        Ok(batch) => batch.map(|batch| batch.map_err(|error| self::damaged(&file, &error))),
        Err(panic) => Some(Err(self::damaged(&file, &panic))),
    });
    Ok(RowReader::new(0, Box::new(batches)))
}

fn damaged(file: &FoundFile, problem: &dyn ToString) -> SourceError {
    SourceError::Damaged {
        path: file.path.clone(),
        format: FORMAT,
        problem: problem.to_string(),
    }
}
