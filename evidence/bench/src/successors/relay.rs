//! Datagrams between two machines: lost, late, doubled, reordered. Not every kernel has a device for it (netem).

use crate::{lost_machines::Lan, report::Failure, takeovers::Machine};
use fastrand::Rng;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::File,
    net::UdpSocket,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};
use vvm_clock::SystemClock;

/// Stands for each machine at the other one's network, with its address. Dropping it ends it.
pub(super) struct Relay {
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    _namespaces: [Machine; 2],
}

impl Relay {
    pub(super) fn between(
        machines: &[Machine; 2],
        [for_second, for_first]: [Machine; 2],
        port: u16,
    ) -> Result<(Self, [String; 2]), Failure> {
        let addresses = Lan::between([&machines[0], &for_second])?.addresses;
        Lan::between([&for_first, &machines[1]])?;
        let is_over = Arc::new(AtomicBool::new(false));
        let places = [(&for_second.namespace, &addresses[1]), (&for_first.namespace, &addresses[0])];
        let places = places.map(|(namespace, address)| (namespace.clone(), format!("{address}:{port}")));
        let thread = Builder::new().name("relay".into()).spawn({
            let is_over = Arc::clone(&is_over);
            move || relay(&places, &is_over).unwrap_or_else(|why| eprintln!("no relay: {why}"))
        })?;
        Ok((Self { thread: Some(thread), is_over, _namespaces: [for_second, for_first] }, addresses))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

fn relay(places: &[(String, String); 2], is_over: &AtomicBool) -> Result<(), Failure> {
    let bind = |(namespace, address): &(String, String)| {
        let file = File::open(format!("/run/netns/{namespace}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok::<_, Failure>(socket)
    };
    let sockets = [bind(&places[0])?, bind(&places[1])?];
    let (mut rng, mut late) = (Rng::new(), Vec::new());
    let mut datagram = [0; 1 << 11];
    while !is_over.load(Ordering::Relaxed) {
        let now = SystemClock::read();
        for (socket, to) in sockets.iter().zip([1, 0]) {
            while let Ok(length) = socket.recv(&mut datagram) {
                let copies = usize::from(rng.u8(..100) >= 20) * (1 + usize::from(rng.u8(..100) < 10));
                for _ in 0..copies {
                    // One in four passes those before it.
                    let delay = if rng.u8(..4) == 0 { 0 } else { rng.u64(10..=90) };
                    late.push((now.after(Duration::from_millis(delay)), to, datagram[..length].to_vec()));
                }
            }
        }
        late.retain(|(at, to, bytes)| {
            if *at <= now {
                // The address of the machine that it stands for is the other socket's own.
                let _cut_off = sockets[*to].send_to(bytes, &places[1 - *to].1);
            }
            *at > now
        });
        SystemClock::block_for(Duration::from_millis(1));
    }
    Ok(())
}
