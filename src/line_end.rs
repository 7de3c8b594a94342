//! Where the lines of a file end: what a crash cut off has no line break.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

/// Length up to the last line break.
pub(crate) fn whole_lines(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    line_end_before(file, length)
}

/// The place behind the last line break before `end`; 0: there is none.
pub(crate) fn line_end_before(file: &mut File, mut end: u64) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut block = Vec::new();
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        block.clear();
        io::Read::by_ref(file).take(end - begin).read_to_end(&mut block)?;
        if let Some(at) = memchr::memrchr(b'\n', &block) {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}
