//! The protocol of MariaDB and MySQL, as far as the driver needs it: a login, and statements as text. One message has
//! one or several statements, and the server carries them out in order up to the first that fails.

use super::{
    ServerError,
    rows::{Fields, malformed},
};
use crate::drivers::{
    connection::Stream,
    sql::{
        errors::DriverError,
        rows::{AnswerLimit, Row, StatementResult, StatementResults},
    },
};
use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream, ReadBuf};

/// What the client can do. `FOUND_ROWS`: a write counts rows that met its condition, also those that it left unchanged.
mod capability {
    pub(super) const LONG_PASSWORD: u32 = 1;
    pub(super) const FOUND_ROWS: u32 = 1 << 1;
    pub(super) const WITH_DATABASE: u32 = 1 << 3;
    pub(super) const PROTOCOL_41: u32 = 1 << 9;
    pub(super) const TLS: u32 = 1 << 11;
    pub(super) const TRANSACTIONS: u32 = 1 << 13;
    pub(super) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(super) const MULTI_STATEMENTS: u32 = 1 << 16;
    pub(super) const MULTI_RESULTS: u32 = 1 << 17;
    pub(super) const PLUGINS: u32 = 1 << 19;
    pub(super) const OURS: u32 = LONG_PASSWORD
        | FOUND_ROWS
        | WITH_DATABASE
        | PROTOCOL_41
        | TRANSACTIONS
        | SECURE_CONNECTION
        | MULTI_STATEMENTS
        | MULTI_RESULTS
        | PLUGINS;
}

/// The status bit that says that the answer to another statement of the message follows.
const MORE_RESULTS: u16 = 8;

/// `utf8mb4_general_ci`, which both know.
const CHARSET: u8 = 45;

/// The longest packet. Longer messages would be split, which no message of the driver needs.
pub(super) const LONGEST: usize = (1 << 24) - 2;

pub(super) struct Greeting {
    /// The number of the connection in the server, unless a pooler answers.
    pub(super) connection: u32,
    pub(super) offers_tls: bool,
    scramble: Vec<u8>,
    plugin: String,
}

/// Packets on a stream. After an error it can't be used.
pub(super) struct Wire {
    stream: BufStream<Box<dyn Stream>>,
    sequence: u8,
    limit: AnswerLimit,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self::resumed(stream, 0)
    }

    pub(super) async fn greeting(&mut self) -> Result<Greeting, DriverError> {
        let packet = self.receive().await?;
        if packet.first() == Some(&0xff) {
            return Err(refusal(&packet).into());
        }
        let mut fields = Fields(&packet);
        if fields.byte()? != 10 {
            return Err(malformed("another protocol than MySQL's"));
        }
        fields.text()?;
        let connection = fields.u32()?;
        let mut scramble = fields.take(8)?.to_vec();
        fields.take(1)?;
        let low = fields.u16()?;
        fields.take(3)?;
        let capabilities = u32::from(low) | u32::from(fields.u16()?) << 16;
        fields.take(11)?;
        scramble.extend(fields.take(12)?);
        fields.take(1)?;
        let plugin = if fields.0.is_empty() { "mysql_native_password".into() } else { fields.text()? };
        Ok(Greeting { connection, offers_tls: capabilities & capability::TLS != 0, scramble, plugin })
    }

    /// Requests TLS. The handshake follows on the stream that is returned.
    pub(super) async fn request_tls(mut self) -> Result<(Box<dyn Stream>, u8), DriverError> {
        let request = head(capability::OURS | capability::TLS);
        self.send(&request).await?;
        Ok((self.stream.into_inner(), self.sequence))
    }

    pub(super) fn resumed(stream: Box<dyn Stream>, sequence: u8) -> Self {
        Self { stream: BufStream::new(stream), sequence, limit: AnswerLimit::new() }
    }

    /// Logs in. `is_secret`: the connection has TLS, so that no other host can read what is sent.
    pub(super) async fn log_in(
        &mut self,
        greeting: &Greeting,
        user: &str,
        password: &str,
        database: &str,
        is_secret: bool,
    ) -> Result<(), DriverError> {
        // Another method than these is negotiated, from the first one.
        let plugin = if proof(&greeting.plugin, "", &[], false).is_some() {
            &*greeting.plugin
        } else {
            "mysql_native_password"
        };
        let first = proof(plugin, password, &greeting.scramble, is_secret).unwrap_or_default();
        let mut packet = head(capability::OURS | if is_secret { capability::TLS } else { 0 });
        packet.extend([user.as_bytes(), &[0, first.len() as u8], &first].concat());
        packet.extend([database.as_bytes(), &[0], plugin.as_bytes(), &[0]].concat());
        self.send(&packet).await?;
        loop {
            let packet = self.receive().await?;
            let mut fields = Fields(&packet);
            match fields.byte()? {
                0 => return Ok(()),
                0xff => return Err(refusal(&packet).into()),
                0xfe => {
                    let plugin = fields.text()?;
                    let scramble = fields.0.get(..20).unwrap_or_default();
                    let answer = proof(&plugin, password, scramble, is_secret).ok_or_else(|| {
                        DriverError::Login(format!(
                            "the login needs `{plugin}`, which this driver lacks{}: let it use \
                             mysql_native_password or caching_sha2_password",
                            if is_secret { "" } else { " without TLS" }
                        ))
                    })?;
                    self.send(&answer).await?;
                }
                // The server knows the password, and the login goes on.
                1 if fields.0 == [3] => {}
                1 if fields.0 == [4] && is_secret => {
                    self.send(&[password.as_bytes(), &[0]].concat()).await?;
                }
                1 if fields.0 == [4] => {
                    return Err(DriverError::Login(
                        "the server has not seen this password since it started, and asks for it: use TLS \
                         (tls_ca=PATH)"
                            .into(),
                    ));
                }
                _ => return Err(malformed("a login that goes on in an unknown way")),
            }
        }
    }

    /// Sends statements as one message, once, and returns their answers.
    /// Dropped, they may be carried out, now or later. The connection can't be used again.
    pub(super) async fn ask(&mut self, text: &str) -> Result<StatementResults, DriverError> {
        if text.len() >= LONGEST {
            return Err(DriverError::Refused(format!("a message of {} bytes", text.len())));
        }
        (self.sequence, self.limit) = (0, AnswerLimit::new());
        self.send(&[&[3], text.as_bytes()].concat()).await?;
        let mut answers = Vec::new();
        loop {
            let (answered, status) = self.answer().await?;
            answers.push(answered);
            if status & MORE_RESULTS == 0 {
                return Ok(StatementResults(answers));
            }
        }
    }

    async fn answer(&mut self) -> Result<(StatementResult, u16), DriverError> {
        let packet = self.receive().await?;
        let mut fields = Fields(&packet);
        match fields.byte()? {
            0 => {
                let affected = fields.number()?;
                fields.number()?;
                Ok((StatementResult { rows: Vec::new(), affected }, fields.u16()?))
            }
            0xff => Err(refusal(&packet).into()),
            0xfb => Err(malformed("a request for a local file")),
            _ => {
                let columns = Fields(&packet).number()?;
                // Their descriptions, and a packet that ends them.
                for _ in 0..=columns {
                    self.receive().await?;
                }
                let mut rows = Vec::new();
                loop {
                    let packet = self.receive().await?;
                    let mut fields = Fields(&packet);
                    match packet.first() {
                        Some(0xff) => return Err(refusal(&packet).into()),
                        Some(0xfe) if packet.len() < 9 => {
                            fields.take(3)?;
                            let affected = rows.len() as u64;
                            return Ok((StatementResult { rows, affected }, fields.u16()?));
                        }
                        _ => {
                            let columns = (0..columns).map(|_| fields.value());
                            rows.push(Row::plain(columns.collect::<Result<Vec<_>, _>>()?));
                        }
                    }
                }
            }
        }
    }

    /// Whether the server has kept the connection, and said nothing since the last answer.
    pub(super) fn poll_is_open(&mut self, context: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let read = Pin::new(&mut self.stream).poll_read(context, &mut ReadBuf::new(&mut byte));
        matches!(read, Poll::Pending)
    }

    pub(super) async fn end(mut self) {
        self.sequence = 0;
        // The server closes the connection in any case.
        let _best_effort = self.send(&[1]).await;
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), DriverError> {
        let length = (payload.len() as u32).to_le_bytes();
        let sent = async {
            self.stream.write_all(&[length[0], length[1], length[2], self.sequence]).await?;
            self.stream.write_all(payload).await?;
            self.stream.flush().await
        };
        sent.await.map_err(DriverError::Broken)?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    async fn receive(&mut self) -> Result<Vec<u8>, DriverError> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).await.map_err(DriverError::Broken)?;
        let [a, b, c, sequence] = head;
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        self.limit.count(length)?;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.map_err(DriverError::Broken)?;
        if payload.len() > LONGEST {
            return Err(malformed("an answer of 16 MiB"));
        }
        self.sequence = sequence.wrapping_add(1);
        Ok(payload)
    }
}

/// Reads bytes as all that a server says. For tests of damaged input.
#[cfg(feature = "testing")]
pub fn decodes(bytes: &[u8]) -> bool {
    let server = tokio::io::join(std::io::Cursor::new(bytes.to_vec()), tokio::io::sink());
    let talks = async {
        let mut wire = Wire::new(Box::new(server));
        let greeting = wire.greeting().await?;
        wire.log_in(&greeting, "user", "password", "database", true).await?;
        wire.ask("SELECT 1").await
    };
    // Nothing in it waits.
    futures_util::FutureExt::now_or_never(talks).is_some_and(|answer| answer.is_ok())
}

impl fmt::Debug for Wire {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Wire")
    }
}

/// The begin of a login, which is also the request for TLS.
fn head(capabilities: u32) -> Vec<u8> {
    let mut head = capabilities.to_le_bytes().to_vec();
    head.extend((LONGEST as u32).to_le_bytes());
    head.push(CHARSET);
    head.extend([0; 23]);
    head
}

/// What proves that we know the password; `None` for a method that is not known, or not to be used here.
fn proof(plugin: &str, password: &str, scramble: &[u8], is_secret: bool) -> Option<Vec<u8>> {
    let hashed = |algorithm: &'static Algorithm, parts: [&[u8]; 2]| digest(algorithm, &parts.concat());
    let mixed = |algorithm: &'static Algorithm, turned: bool| {
        if password.is_empty() {
            return Vec::new();
        }
        let once = hashed(algorithm, [password.as_bytes(), &[]]);
        let twice = hashed(algorithm, [once.as_ref(), &[]]);
        let parts = if turned { [twice.as_ref(), scramble] } else { [scramble, twice.as_ref()] };
        let mask = hashed(algorithm, parts);
        once.as_ref().iter().zip(mask.as_ref()).map(|(once, mask)| once ^ mask).collect()
    };
    match plugin {
        "mysql_native_password" => Some(mixed(&SHA1_FOR_LEGACY_USE_ONLY, false)),
        "caching_sha2_password" => Some(mixed(&SHA256, true)),
        "mysql_clear_password" if is_secret => Some([password.as_bytes(), &[0]].concat()),
        _ => None,
    }
}

fn refusal(packet: &[u8]) -> ServerError {
    let code = packet.get(1..3).map_or(0, |code| u16::from_le_bytes([code[0], code[1]]));
    let text = packet.get(3..).unwrap_or_default();
    // A mark and the five letters of SQLSTATE.
    let text = if text.first() == Some(&b'#') { text.get(6..).unwrap_or_default() } else { text };
    ServerError { code, text: String::from_utf8_lossy(text).into_owned() }
}

#[cfg(test)]
impl Greeting {
    pub(super) fn of(connection: u32) -> Self {
        Self { connection, offers_tls: false, scramble: Vec::new(), plugin: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_values_are_read_and_half_packets_are_refused() {
        let mut fields =
            Fields(&[7, 0xfc, 1, 2, 0xfd, 1, 0, 1, 0xfe, 1, 0, 0, 0, 0, 0, 0, 1, 0xfb, 2, b'a', 0, 3, b'x']);
        let numbers: Vec<u64> = (0..4).map(|_| fields.number().unwrap()).collect();
        assert_eq!(numbers, [7, 0x201, 0x1_0001, 0x100_0000_0000_0001]);
        assert_eq!(fields.value().unwrap(), None);
        assert_eq!(fields.value().unwrap().as_deref(), Some(&b"a\0"[..]));
        assert!(fields.value().is_err());
    }

    /// A server that sends packets of this kind without an end, after the head of an answer with two columns.
    async fn flood(packet: &[u8]) -> DriverError {
        let (server, client) = tokio::io::duplex(1 << 16);
        let flooding = async {
            let mut server = server;
            let column = [&[1, 0, 0, 1, 2], &[0, 0, 0, 2][..], &[0, 0, 0, 3], &[1, 0, 0, 4, 0xfe]].concat();
            let mut sent = server.write_all(&column).await;
            while sent.is_ok() {
                sent = server.write_all(packet).await;
            }
        };
        let mut wire = Wire::new(Box::new(client));
        let asking = async move { wire.ask("SELECT 1").await };
        tokio::join!(flooding, asking).1.unwrap_err()
    }

    #[tokio::test]
    async fn answer_without_an_end_is_refused_with_the_limit() {
        let [empty, long] = [vec![2, 0, 0, 5, 0xfb, 0xfb], [&[0, 0, 1, 5][..], &[0; 1 << 16]].concat()];
        for packet in [empty, long] {
            let error = flood(&packet).await;
            assert!(matches!(error, DriverError::Unanswered(_)), "{error}");
            assert!(error.to_string().contains("more than 33554432 bytes"), "{error}");
        }
    }

    #[test]
    fn unknown_method_and_open_password_without_tls_have_no_proof() {
        assert_eq!(proof("dialog", "a", &[0; 20], true), None);
        assert_eq!(proof("mysql_clear_password", "a", &[], false), None);
        assert_eq!(proof("mysql_clear_password", "a", &[], true), Some(b"a\0".to_vec()));
        assert_eq!(proof("caching_sha2_password", "", &[0; 20], false), Some(Vec::new()));
        assert_eq!(proof("mysql_native_password", "a", &[0; 20], false).unwrap().len(), 20);
    }
}
