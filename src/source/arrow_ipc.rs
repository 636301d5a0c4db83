//! Arrow IPC, the file format and the stream format, told apart by the first bytes.

use super::columns::{RowReader, wanted};
use super::compression::{self, Compression};
use super::{FoundFile, InputSpec, Slice, SourceError};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use std::io::{BufReader, Read, Seek, SeekFrom};

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
    let damaged = |error: ArrowError| damaged(file, &error);
    let again = || handle.try_clone().map(BufReader::new).map_err(failed);
    let rewind = || (&handle).seek(SeekFrom::Start(0)).map_err(failed);

    // The schema is read first: which columns are wanted is known only then.
    let batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send> =
        if first == FILE_MAGIC {
            let reader = FileReader::try_new(again()?, None).map_err(damaged)?;
            let roots = projection(&reader.schema())?;
            rewind()?;
            Box::new(FileReader::try_new(again()?, Some(roots)).map_err(damaged)?)
        } else {
            let reader = StreamReader::try_new(again()?, None).map_err(damaged)?;
            let roots = projection(&reader.schema())?;
            rewind()?;
            Box::new(StreamReader::try_new(again()?, Some(roots)).map_err(damaged)?)
        };
    let file = file.clone();
    let batches = batches.map(move |batch| batch.map_err(|error| self::damaged(&file, &error)));
    Ok(RowReader::new(0, Box::new(batches)))
}

fn damaged(file: &FoundFile, error: &ArrowError) -> SourceError {
    SourceError::Damaged {
        path: file.path.clone(),
        format: FORMAT,
        problem: error.to_string(),
    }
}
