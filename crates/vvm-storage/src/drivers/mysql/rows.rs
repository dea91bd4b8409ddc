//! How values and rows are read from packets.

use crate::drivers::sql::errors::DriverError;
use std::io;

pub(super) fn malformed(what: &str) -> DriverError {
    DriverError::Broken(io::Error::new(io::ErrorKind::InvalidData, format!("the server answers with {what}")))
}

/// The fields of a packet, and the values of a row.
pub(super) struct Fields<'packet>(pub(super) &'packet [u8]);

impl<'packet> Fields<'packet> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'packet [u8], DriverError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| malformed("half a packet"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, DriverError> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, DriverError> {
        Ok(self.little(2)? as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DriverError> {
        Ok(self.little(4)? as u32)
    }

    fn little(&mut self, bytes: usize) -> Result<u64, DriverError> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn number(&mut self) -> Result<u64, DriverError> {
        match self.byte()? {
            0xfc => self.little(2),
            0xfd => self.little(3),
            0xfe => self.little(8),
            number => Ok(number.into()),
        }
    }

    pub(super) fn value(&mut self) -> Result<Option<Vec<u8>>, DriverError> {
        if self.0.first() == Some(&0xfb) {
            self.take(1)?;
            return Ok(None);
        }
        let length = usize::try_from(self.number()?).map_err(|_| malformed("a value of great length"))?;
        Ok(Some(self.take(length)?.to_vec()))
    }

    /// Up to a byte 0, or to the end.
    pub(super) fn text(&mut self) -> Result<String, DriverError> {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = String::from_utf8_lossy(self.take(end)?).into_owned();
        self.0 = self.0.get(1..).unwrap_or_default();
        Ok(text)
    }
}
