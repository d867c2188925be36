//! Asking a running query to stop.

use tokio::sync::watch;

/// The asking side. Cheap to clone.
#[derive(Clone)]
pub struct Stopper {
    sender: watch::Sender<bool>,
}

/// The side that is asked. Cheap to clone.
#[derive(Clone)]
pub struct Stop {
    receiver: watch::Receiver<bool>,
}

/// A stopper and what it stops.
pub fn stop_pair() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper { sender }, Stop { receiver })
}

impl Stopper {
    /// Asks every holder of the [`Stop`] to end after the micro-batch in hand.
    pub fn stop(&self) {
        self.sender.send_replace(true);
    }
}

impl Stop {
    /// True once stopping was asked for.
    pub fn is_requested(&self) -> bool {
        *self.receiver.borrow()
    }

    /// Completes when stopping is asked for; never, if the stopper is gone without asking.
    pub async fn requested(&mut self) {
        if self.receiver.wait_for(|requested| *requested).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
