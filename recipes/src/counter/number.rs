//! [`Number`]: the types of numbers that a counter has, and their bytes.

use std::fmt;

use bytes::Bytes;

/// A number that a [`Counter`](crate::value::Counter) holds: `i64`, `u64` or `i32`. It is stored
/// with its most significant byte first, in eight or four bytes.
pub trait Number: Layout {}

/// The operations that a counter needs. No other crate can implement them.
pub trait Layout:
    Copy + PartialEq + fmt::Debug + fmt::Display + Default + Send + Sync + 'static
{
    /// One, for increments.
    const ONE: Self;

    /// Reads a number. `None` if the length is wrong.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Returns the bytes of the number.
    fn write(self) -> Bytes;

    /// The sum, if it fits.
    fn plus(self, other: Self) -> Option<Self>;

    /// The difference, if it fits.
    fn minus(self, other: Self) -> Option<Self>;

    /// The sum, wrapped around at the limits of the type.
    #[cfg(feature = "mutants")]
    fn wrapped(self, other: Self) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Number for $number {}

        impl Layout for $number {
            const ONE: Self = 1;

            fn read(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_be_bytes(bytes.try_into().ok()?))
            }

            fn write(self) -> Bytes {
                Bytes::copy_from_slice(&self.to_be_bytes())
            }

            fn plus(self, other: Self) -> Option<Self> {
                self.checked_add(other)
            }

            fn minus(self, other: Self) -> Option<Self> {
                self.checked_sub(other)
            }

            #[cfg(feature = "mutants")]
            fn wrapped(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )*};
}

numbers!(i64 u64 i32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stored_as_curator_stores_them() {
        assert_eq!(&0x0102_0304_0506_0708_i64.write()[..], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(&(-2_i64).write()[..], [255, 255, 255, 255, 255, 255, 255, 254]);
        assert_eq!(&7_i32.write()[..], [0, 0, 0, 7]);
        assert_eq!(&u64::MAX.write()[..], [255; 8]);
        for number in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert_eq!(i64::read(&number.write()), Some(number));
        }
    }

    #[test]
    fn bytes_of_another_length_are_no_number() {
        for bytes in [&b""[..], b"7", b"1234567", b"123456789"] {
            assert_eq!((i64::read(bytes), u64::read(bytes)), (None, None), "{bytes:?}");
        }
        assert_eq!((i32::read(b"12345678"), i64::read(b"1234")), (None, None));
    }

    #[test]
    fn a_sum_that_does_not_fit_is_none() {
        assert_eq!((i64::MAX.plus(1), i64::MIN.minus(1)), (None, None));
        assert_eq!((u64::MAX.plus(1), 0_u64.minus(1)), (None, None));
        assert_eq!((i32::MAX.plus(1), i32::MIN.plus(-1)), (None, None));
        assert_eq!((1_i64.minus(i64::MIN), (-1_i64).minus(i64::MIN)), (None, Some(i64::MAX)));
    }
}
