//! What brokers made for testing share: how requests are read and answers are sent.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use super::write::Writer;

/// What is left of a request.
pub struct Request<'a>(&'a [u8]);

/// Waits for the next request of a connection; `None` at its end.
pub fn next(connection: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    connection.read_exact(&mut length).ok()?;
    let mut request = vec![0; i32::from_be_bytes(length) as usize];
    connection.read_exact(&mut request).ok()?;
    Some(request)
}

/// Begins the answer to the request `number`.
pub fn answer_to(number: i32) -> Writer {
    let mut answer = Writer::default();
    // In place of the length.
    answer.i32(0);
    answer.i32(number);
    answer.end();
    answer
}

/// Sends an answer.
pub fn send(mut answer: Writer, connection: &mut TcpStream) -> io::Result<()> {
    answer.replace_i32(0, (answer.len() - 4) as i32);
    connection.write_all(answer.as_slice())
}

impl<'a> Request<'a> {
    /// Of its bytes: the API that it asks, its number, and its body.
    pub fn read(bytes: &'a [u8]) -> (i16, i32, Self) {
        let mut request = Self(bytes);
        let (key, _version, number) = (request.i16(), request.i16(), request.i32());
        let client = request.i16();
        request.take(client as usize);
        request.end();
        (key, number, request)
    }

    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    /// A number of elements or bytes, which is stored plus one, as seven bits a byte.
    pub fn count(&mut self) -> usize {
        let (mut count, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            count |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return count - 1;
            }
        }
    }

    pub fn text(&mut self) -> String {
        let count = self.count();
        String::from_utf8(self.take(count).to_vec()).unwrap()
    }

    pub fn text_or_null(&mut self) -> Option<String> {
        if self.0[0] == 0 {
            self.take(1);
            return None;
        }
        Some(self.text())
    }

    pub fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.count()).map(|_| each(self)).collect()
    }

    /// The end of a structure without tagged fields.
    pub fn end(&mut self) {
        assert_eq!(self.take(1), [0]);
    }
}
