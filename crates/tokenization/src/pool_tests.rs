use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};

use futures_util::future::{join_all, poll_immediate};

use super::*;

/// A job that runs until its sender is dropped, so that a test decides what waits.
fn blocked() -> (mpsc::Sender<()>, impl FnOnce() + Send + 'static) {
    let (release, wait) = mpsc::channel();
    (release, move || {
        let _ = wait.recv();
    })
}

#[tokio::test]
async fn jobs_run_on_named_threads_of_the_pool() {
    let pool = Pool::new(2, "tokenizer", 4).unwrap();
    let name = || thread::current().name().map(str::to_owned);
    let name = pool.run(name).await.unwrap().unwrap();
    assert!(name == "tokenizer-0" || name == "tokenizer-1", "{name}");
}

#[tokio::test]
async fn all_threads_work_at_once() {
    let pool = Pool::new(3, "t", 4).unwrap();
    // Nobody passes the barrier before three are there.
    let barrier = Arc::new(Barrier::new(3));
    let jobs = (0..3).map(|_| {
        let barrier = Arc::clone(&barrier);
        pool.run(move || {
            barrier.wait();
        })
    });
    assert_eq!(join_all(jobs).await, vec![Ok(()); 3]);
}

#[tokio::test]
async fn a_panic_is_the_job_s_alone() {
    let pool = Pool::new(1, "t", 1).unwrap();
    for _ in 0..3 {
        let error = pool
            .run(|| -> u32 { panic!("job {}", 7) })
            .await
            .unwrap_err();
        assert_eq!(error, PoolError::Panicked("job 7".to_owned()));
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let pool = Pool::new(1, "t", 2).unwrap();
    let (release, job) = blocked();
    let mut running = Box::pin(pool.run(job));
    assert!(poll_immediate(&mut running).await.is_none());
    // The only thread is busy once the place of its job is free again.
    while pool.places.available_permits() < 2 {
        tokio::task::yield_now().await;
    }
    let mut waiting: Vec<_> = (0..3)
        .map(|index| Box::pin(pool.run(move || index)))
        .collect();
    for job in &mut waiting {
        assert!(poll_immediate(job).await.is_none());
    }
    assert_eq!(pool.jobs.len(), 2, "the third waits outside");
    drop(release);
    assert_eq!(running.await, Ok(()));
    assert_eq!(join_all(waiting).await, [Ok(0), Ok(1), Ok(2)]);
}

#[tokio::test]
async fn an_abandoned_job_does_not_run() {
    let pool = Pool::new(1, "t", 4).unwrap();
    let (release, job) = blocked();
    let mut running = Box::pin(pool.run(job));
    assert!(poll_immediate(&mut running).await.is_none());
    let runs = Arc::new(AtomicUsize::new(0));
    let count = |runs: &Arc<AtomicUsize>| {
        let runs = Arc::clone(runs);
        move || runs.fetch_add(1, Ordering::SeqCst)
    };
    let mut abandoned = Box::pin(pool.run(count(&runs)));
    assert!(poll_immediate(&mut abandoned).await.is_none());
    drop(abandoned);
    let mut wanted = Box::pin(pool.run(count(&runs)));
    assert!(poll_immediate(&mut wanted).await.is_none());
    drop(release);
    assert_eq!(wanted.await, Ok(0));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_closed_pool_refuses_what_comes_and_what_waits() {
    let pool = Pool::new(1, "t", 1).unwrap();
    let (release, job) = blocked();
    let mut running = Box::pin(pool.run(job));
    assert!(poll_immediate(&mut running).await.is_none());
    while pool.places.available_permits() < 1 {
        tokio::task::yield_now().await;
    }
    let mut queued = Box::pin(pool.run(|| ()));
    let mut outside = Box::pin(pool.run(|| ()));
    assert!(poll_immediate(&mut queued).await.is_none());
    assert!(poll_immediate(&mut outside).await.is_none());
    pool.close();
    assert_eq!(outside.await, Err(PoolError::Closed));
    assert_eq!(pool.run(|| ()).await, Err(PoolError::Closed));
    drop(release);
    assert_eq!(running.await, Ok(()), "what runs ends normally");
    assert_eq!(queued.await, Err(PoolError::Closed));
}

#[tokio::test]
async fn dropping_the_pool_ends_its_threads() {
    struct Last(Option<oneshot::Sender<()>>);
    impl Drop for Last {
        fn drop(&mut self) {
            drop(self.0.take());
        }
    }
    thread_local!(static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) });
    let pool = Pool::new(1, "t", 1).unwrap();
    let (sender, ended) = oneshot::channel();
    pool.run(move || LAST.set(Some(Last(Some(sender)))))
        .await
        .unwrap();
    drop(pool);
    assert!(
        ended.await.is_err(),
        "dropped with its thread, nothing sent"
    );
}

#[test]
fn a_pool_has_threads_and_places() {
    for (threads, capacity, name) in [(0, 1, "threads"), (1, 0, "queue_capacity")] {
        let error = Pool::new(threads, "t", capacity).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(name), "{error}");
    }
}
