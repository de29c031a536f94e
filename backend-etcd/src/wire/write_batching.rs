//! [`WriteBatching`]: a connection that holds written bytes until the other ready tasks
//! have run.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Sleep, sleep};

/// The number of times that other tasks may run before the bytes are sent.
const TURNS: u8 = 2;
/// The maximum number of bytes held.
const HELD: usize = 16 << 10;

/// The start of the answer to an HTTP/2 ping, and its length.
const PONG: ([u8; 9], usize) = ([0, 0, 8, 6, 1, 0, 0, 0, 0], 17);
/// The time that such an answer waits for other bytes to be sent with: servers ping at each request
/// to estimate the bandwidth.
const PATIENCE: Duration = Duration::from_millis(2);
/// The largest previous write after which the answer to a ping is not urgent.
const LITTLE: usize = 4 << 10;

/// A connection that holds written bytes for some polls of its driver.
///
/// It reports that everything is flushed when bytes are only held, and wakes its driver: the driver
/// then reads and flushes again, after other tasks have run and may have written.
pub(super) struct WriteBatching<T> {
    io: T,
    held: Vec<u8>,
    /// The number of its bytes that have been sent already.
    gone: usize,
    turns: u8,
    /// The size of the previous write.
    last: usize,
    /// The time at which the answer to a ping is sent alone.
    patience: Option<Pin<Box<Sleep>>>,
    /// The connection currently accepts no more bytes, and wakes the writer when it does.
    full: bool,
}

impl<T: Write + Unpin> WriteBatching<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, held: Vec::new(), gone: 0, turns: 0, last: 0, patience: None, full: false }
    }

    /// Returns `true` if only the answer to a ping is held, which is not urgent.
    fn is_pong(&self) -> bool {
        let (start, size) = PONG;
        self.last <= LITTLE && self.held.len() == size && self.held.starts_with(&start)
    }

    /// Decides whether the held bytes may stay, for at most this many turns. If so, the driver is
    /// woken again.
    fn poll_hold(&mut self, cx: &mut Context<'_>, turns: u8) -> bool {
        if self.full {
            return false;
        }
        if self.is_pong() {
            let patience = self.patience.as_mut();
            return patience.is_some_and(|patience| patience.as_mut().poll(cx).is_pending());
        }
        if self.turns < turns {
            cx.waker().wake_by_ref();
        }
        self.turns < turns
    }

    /// Writes the held bytes.
    fn write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.full = true;
        while self.gone < self.held.len() {
            let wrote = ready!(Pin::new(&mut self.io).poll_write(cx, &self.held[self.gone..]))?;
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gone += wrote;
        }
        if self.gone > 0 {
            self.last = self.gone;
        }
        self.held.clear();
        (self.gone, self.turns, self.full) = (0, 0, false);
        Poll::Ready(Ok(()))
    }

    /// Starts another turn. Held bytes are sent even without a flush.
    fn turn(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        if self.poll_hold(cx, TURNS + 1) {
            self.turns += u8::from(!self.is_pong());
            return Ok(());
        }
        match self.write_out(cx) {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()),
        }
    }
}

impl<T: Read + Write + Unpin> Read for WriteBatching<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // The driver of a connection always reads first.
        self.turn(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: Write + Unpin> Write for WriteBatching<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        if self.held.len() + size > HELD {
            ready!(self.write_out(cx))?;
        }
        if size > HELD {
            self.last = size;
            return Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        }
        for buf in bufs {
            self.held.extend_from_slice(buf);
        }
        if self.is_pong() && self.patience.as_ref().is_none_or(|patience| patience.is_elapsed()) {
            self.patience = Some(Box::pin(sleep(PATIENCE)));
        }
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() && self.poll_hold(cx, TURNS) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.write_out(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_out(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    /// Accepts bytes while there is room, and has nothing to read.
    #[derive(Default)]
    struct Far {
        room: usize,
        taken: Vec<Vec<u8>>,
    }

    impl Read for Far {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl Write for Far {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = buf.len().min(self.room);
            if taken == 0 {
                return Poll::Pending;
            }
            self.room -= taken;
            self.taken.push(buf[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The driver of a connection.
    struct Driver {
        wire: WriteBatching<Far>,
        woken: Arc<Woken>,
    }

    impl Driver {
        fn new(room: usize) -> Self {
            Self { wire: WriteBatching::new(Far { room, ..Far::default() }), woken: Arc::default() }
        }

        fn act<T>(
            &mut self,
            act: impl FnOnce(Pin<&mut WriteBatching<Far>>, &mut Context<'_>) -> T,
        ) -> T {
            let waker = Waker::from(self.woken.clone());
            act(Pin::new(&mut self.wire), &mut Context::from_waker(&waker))
        }

        fn write(&mut self, text: &[u8]) {
            let wrote = self.act(|wire, cx| wire.poll_write(cx, text));
            assert!(matches!(wrote, Poll::Ready(Ok(count)) if count == text.len()));
        }

        /// Reads, without a flush afterwards.
        fn read(&mut self) {
            let mut room = [0; 8];
            let mut buf = hyper::rt::ReadBuf::new(&mut room);
            assert!(self.act(|wire, cx| wire.poll_read(cx, buf.unfilled())).is_pending());
        }

        fn flush(&mut self) -> bool {
            self.act(Write::poll_flush).is_ready()
        }

        /// Continues until nothing is held.
        fn written(&mut self) {
            while !self.wire.held.is_empty() {
                self.read();
                assert!(self.flush());
            }
        }

        fn taken(&self) -> Vec<&[u8]> {
            self.wire.io.taken.iter().map(Vec::as_slice).collect()
        }

        fn woken(&self) -> usize {
            self.woken.0.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn what_is_written_within_some_turns_goes_out_at_once() {
        let mut driver = Driver::new(100);
        for piece in [&b"head"[..], b"body"] {
            driver.read();
            driver.write(piece);
            assert!(driver.flush());
            assert_eq!(driver.taken(), [b""; 0], "another task may have more");
            assert!(driver.woken() > 0, "else it would stay here");
        }
        driver.read();
        assert!(driver.flush());
        assert_eq!(driver.taken(), [b"headbody"]);

        driver.woken();
        driver.read();
        assert!(driver.flush());
        assert_eq!((driver.taken().len(), driver.woken()), (1, 0), "then there is rest");
    }

    #[test]
    fn held_bytes_are_sent_without_another_flush() {
        let mut driver = Driver::new(100);
        driver.write(b"ping");
        assert!(driver.flush());
        let mut turns = 0;
        while driver.taken().is_empty() {
            assert!(driver.woken() > 0, "turn {turns}");
            driver.read();
            turns += 1;
        }
        assert_eq!((driver.taken(), turns), (vec![&b"ping"[..]], usize::from(TURNS) + 2));
    }

    #[test]
    fn a_blocked_writer_waits_for_its_peer_and_for_nothing_else() {
        let mut driver = Driver::new(3);
        driver.write(b"hello");
        while driver.flush() {
            driver.read();
        }
        assert_eq!(driver.taken(), [b"hel"]);
        driver.woken();
        driver.read();
        assert!(!driver.flush());
        assert_eq!(driver.woken(), 0, "it would turn in circles");

        driver.wire.io.room = 100;
        driver.read();
        assert_eq!(driver.taken(), [&b"hel"[..], b"lo"]);
    }

    #[test]
    fn no_more_is_held_than_fits() {
        let mut driver = Driver::new(usize::MAX);
        driver.write(&vec![1; HELD]);
        assert_eq!(driver.taken().len(), 0);
        driver.write(&[2]);
        assert_eq!(driver.taken().len(), 1);
        driver.write(&vec![3; HELD + 1]);
        let taken: Vec<usize> = driver.taken().iter().map(|piece| piece.len()).collect();
        assert_eq!(taken, [HELD, 1, HELD + 1], "in order");
    }

    fn pong() -> Vec<u8> {
        [&PONG.0[..], b"echo it!"].concat()
    }

    #[tokio::test]
    async fn the_answer_to_a_ping_goes_with_what_is_written_next() {
        let mut driver = Driver::new(1_000);
        driver.write(&pong());
        for _ in 0..10 {
            driver.read();
            assert!(driver.flush());
        }
        assert_eq!((driver.taken().len(), driver.woken()), (0, 0), "the driver does not spin");

        driver.write(b"request");
        while driver.taken().is_empty() {
            assert!(driver.flush());
            assert!(driver.woken() > 0 || !driver.taken().is_empty());
            driver.read();
        }
        assert_eq!(driver.taken(), [[&pong()[..], b"request"].concat()]);
    }

    #[tokio::test]
    async fn the_answer_to_a_ping_does_not_wait_for_ever() {
        let mut driver = Driver::new(1_000);
        for round in 1..=2 {
            driver.write(&pong());
            driver.read();
            assert!(driver.flush());
            assert_eq!(driver.taken().len(), round - 1);
            while driver.woken() == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            driver.read();
            assert_eq!(driver.taken(), vec![pong(); round]);
        }
    }

    #[tokio::test]
    async fn a_server_that_is_sent_much_is_answered_soon() {
        for much in [LITTLE + 1, HELD + 1] {
            let mut driver = Driver::new(usize::MAX);
            driver.write(&vec![1; much]);
            driver.written();
            driver.write(&pong());
            assert!(driver.flush() && driver.woken() > 0);
            driver.written();
            assert_eq!(driver.taken().last().map(|last| last.len()), Some(PONG.1));
        }
    }

    #[test]
    fn a_shutdown_leaves_no_bytes_unsent() {
        let mut driver = Driver::new(100);
        driver.write(b"bye");
        assert!(driver.act(Write::poll_shutdown).is_ready());
        assert_eq!(driver.taken(), [b"bye"]);
    }
}
