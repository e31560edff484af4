//! The checksums of rows in databases. Stable format.
//!
//! Start at [`row_sum`].

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A value of a row.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// An integer or a truth value.
    Integer(i64),
    /// A float.
    Real(f64),
    /// A text.
    Text(&'a [u8]),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// Adds a value to the checksum of a row: XXH3 with 64 bits, seeded with the checksum of the values before it.
pub fn add_cell(sum: u64, cell: Cell<'_>) -> u64 {
    // Equal bytes of another type are another value.
    let seed = |kind: u64| sum.wrapping_add(kind);
    match cell {
        Cell::Null => xxh3_64_with_seed(&[], seed(0)),
        Cell::Integer(number) => xxh3_64_with_seed(&number.to_le_bytes(), seed(1)),
        Cell::Real(number) => xxh3_64_with_seed(&number.to_bits().to_le_bytes(), seed(2)),
        Cell::Text(text) => xxh3_64_with_seed(text, seed(3)),
        Cell::Bytes(bytes) => xxh3_64_with_seed(bytes, seed(4)),
    }
}

/// Returns the checksum of a row, whose first value names its table.
pub fn row_sum(cells: &[Cell<'_>]) -> i64 {
    cells.iter().fold(0, |sum, cell| add_cell(sum, *cell)).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_row_is_stable() {
        let row = [
            Cell::Text(b"task"),
            Cell::Integer(4_294_967_297),
            Cell::Integer(0),
            Cell::Text(br#"{"end":"cancelled"}"#),
        ];
        assert_eq!(row_sum(&row), 8_245_100_590_163_630_612);
    }
}
