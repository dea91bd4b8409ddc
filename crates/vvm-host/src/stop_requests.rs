//! [`StopRequests`]: tells a second stop request from an echo of the first.
//!
//! A service manager signals every process of a unit, so guardian and host both get one TERM. `timeout`
//! signals a process and then its group, so one process gets it twice. Neither means "kill at once", as a
//! second Ctrl-C does.

use std::time::Duration;
use vvm_clock::Instant;

/// Two requests to one process within this time count as one: a person is slower, and a program needs far
/// less between two calls of kill(2).
const ECHO: Duration = Duration::from_millis(100);

/// The process that was signalled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// The outer process of `vvm run`.
    Guardian,
    /// The process that leads.
    Host,
}

/// What a request means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Stop.
    Stop,
    /// A repetition of an earlier request.
    Echo,
    /// Stop waiting, and kill.
    Kill,
}

/// The stop requests so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct StopRequests {
    at_guardian: Option<Instant>,
    at_host: Option<Instant>,
}

impl StopRequests {
    /// Returns the meaning of a request that arrives now.
    pub fn on(&mut self, now: Instant, at: At) -> Request {
        let is_first = self.at_guardian.is_none() && self.at_host.is_none();
        let place = match at {
            At::Guardian => &mut self.at_guardian,
            At::Host => &mut self.at_host,
        };
        match *place {
            None => {
                *place = Some(now);
                if is_first { Request::Stop } else { Request::Echo }
            }
            Some(earlier) if now.since(earlier) < ECHO => Request::Echo,
            Some(_) => Request::Kill,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_of_a_request_counts_once_and_a_second_request_kills() {
        use {At::*, Request::*};
        let table = [
            ("a second request", [(0, Guardian, Stop), (150, Guardian, Kill), (400, Guardian, Kill)]),
            ("one to each process", [(0, Guardian, Stop), (300, Host, Echo), (500, Host, Kill)]),
            (
                "one to a process and its group",
                [(0, Guardian, Stop), (1, Guardian, Echo), (101, Guardian, Kill)],
            ),
        ];
        for (what, arrivals) in table {
            let mut requests = StopRequests::default();
            for (millis, at, meaning) in arrivals {
                let now = Instant::ORIGIN.after(Duration::from_millis(millis));
                assert_eq!(requests.on(now, at), meaning, "{what}, at {millis} ms");
            }
        }
    }
}
