use super::*;
use crate::cost::CostModel;
use crate::job::{JobOutput, Submission};
use tokio::sync::oneshot;

type Reply = oneshot::Receiver<Result<JobOutput>>;

fn config(max_batch_tokens: usize, max_queued_tokens: u64) -> SchedulerConfig {
    SchedulerConfig {
        max_batch_cost: max_batch_tokens as u64,
        max_batch_tokens,
        max_whole_request_tokens: 0,
        max_batch_sequences: 64,
        max_queued_tokens,
        bulk_share: 0.25,
        cost: CostModel::TOKENS,
        max_steps_in_flight: 2,
        spin: Duration::ZERO,
    }
}

fn submit(scheduler: &mut Scheduler, priority: Priority, lengths: &[usize]) -> (Arc<Job>, Reply) {
    let sequences = lengths
        .iter()
        .map(|&length| vec![1; length].into())
        .collect();
    let submission = Submission {
        sequences,
        priority,
        deadline: None,
    };
    let (job, reply) = Job::new(submission, Instant::now());
    let job = Arc::new(job);
    scheduler.admit(Arc::clone(&job), 0.0).unwrap();
    (job, reply)
}

fn lengths(batch: &Batch) -> Vec<usize> {
    batch
        .sequences()
        .map(|sequence| sequence.num_tokens())
        .collect()
}

#[test]
fn first_come_first_served_stops_at_the_first_that_does_not_fit() {
    let mut scheduler = Scheduler::new(config(10, 1000));
    let _a = submit(&mut scheduler, Priority::Interactive, &[4, 4]);
    let _b = submit(&mut scheduler, Priority::Interactive, &[5, 1]);
    let now = Instant::now();
    // The 1 would fit beside the fours, but the 5 came first.
    assert_eq!(lengths(&scheduler.next_batch(now).unwrap()), [4, 4]);
    assert_eq!(lengths(&scheduler.next_batch(now).unwrap()), [5, 1]);
    assert!(scheduler.next_batch(now).is_none());
    assert_eq!(
        (scheduler.queued_tokens(), scheduler.queued_sequences()),
        (0, 0)
    );
}

#[test]
fn a_request_larger_than_a_batch_is_split_in_order() {
    let mut scheduler = Scheduler::new(config(10, 1000));
    let _a = submit(&mut scheduler, Priority::Interactive, &[6, 3, 7, 2, 1]);
    let now = Instant::now();
    let mut seen = Vec::new();
    while let Some(batch) = scheduler.next_batch(now) {
        seen.push(lengths(&batch));
    }
    assert_eq!(seen, [vec![6, 3], vec![7, 2, 1]]);
}

/// What the batches of a scheduler that keeps requests of up to 15 tokens whole hold.
fn batches(whole: &SchedulerConfig, jobs: &[(Priority, &[usize])]) -> Vec<Vec<usize>> {
    let mut scheduler = Scheduler::new(whole.clone());
    let _waiting: Vec<_> = jobs
        .iter()
        .map(|&(priority, lengths)| submit(&mut scheduler, priority, lengths))
        .collect();
    let now = Instant::now();
    std::iter::from_fn(|| scheduler.next_batch(now))
        .map(|batch| lengths(&batch))
        .collect()
}

#[test]
fn a_request_a_little_larger_than_a_batch_stays_whole() {
    let whole = SchedulerConfig {
        max_whole_request_tokens: 15,
        ..config(10, 1000)
    };
    let interactive = Priority::Interactive;
    // Whole, and nothing else beside it.
    let seen = batches(&whole, &[(interactive, &[5, 5, 5]), (interactive, &[1])]);
    assert_eq!(seen, [vec![5, 5, 5], vec![1]]);
    // A full batch, then a rest that may stay whole.
    let seen = batches(&whole, &[(interactive, &[5; 5])]);
    assert_eq!(seen, [vec![5, 5], vec![5, 5, 5]]);
    // Who comes second gets what is left of a batch, no more.
    let seen = batches(&whole, &[(interactive, &[4]), (interactive, &[5, 5, 5])]);
    assert_eq!(seen, [vec![4, 5], vec![5, 5]]);
    let seen = batches(&whole, &[(Priority::Bulk, &[5, 5, 5])]);
    assert_eq!(seen, [vec![5, 5], vec![5]]);
    let seen = batches(&whole, &[(interactive, &[5, 5, 6])]);
    assert_eq!(seen, [vec![5, 5], vec![6]]);
}

#[test]
fn sequences_and_cost_limit_what_stays_whole() {
    let mut whole = SchedulerConfig {
        max_whole_request_tokens: 15,
        max_batch_sequences: 3,
        ..config(10, 1000)
    };
    let request: (Priority, &[usize]) = (Priority::Interactive, &[4, 4, 2, 2]);
    assert_eq!(batches(&whole, &[request]), [vec![4, 4, 2], vec![2]]);
    whole.max_batch_sequences = 4;
    assert_eq!(batches(&whole, &[request]), [vec![4, 4, 2, 2]]);
    // cost(4) = 6, cost(2) = 3: 18 together, of 15; 12 without the first.
    whole.cost = CostModel { attention: 0.125 };
    assert_eq!(batches(&whole, &[request]), [vec![4], vec![4, 2, 2]]);
}

#[test]
fn a_sequence_above_the_budget_runs_alone() {
    let mut scheduler = Scheduler::new(config(10, 1000));
    let _a = submit(&mut scheduler, Priority::Interactive, &[2, 50, 3]);
    let now = Instant::now();
    let mut seen = Vec::new();
    while let Some(batch) = scheduler.next_batch(now) {
        seen.push(lengths(&batch));
    }
    assert_eq!(seen, [vec![2], vec![50], vec![3]]);
}

#[test]
fn attention_cost_closes_a_batch_before_its_tokens_do() {
    let mut config = config(1000, 10_000);
    config.cost = CostModel { attention: 0.1 };
    let mut scheduler = Scheduler::new(config);
    // cost(50) = 50 + 250 = 300: three fit into 1,000, although 20 would by tokens.
    let _a = submit(&mut scheduler, Priority::Interactive, &[50; 4]);
    assert_eq!(
        scheduler
            .next_batch(Instant::now())
            .unwrap()
            .num_sequences(),
        3
    );
}

#[test]
fn a_full_queue_refuses_and_keeps_its_bound() {
    let mut scheduler = Scheduler::new(config(10, 20));
    let _a = submit(&mut scheduler, Priority::Interactive, &[10, 5]);
    let refused = Submission {
        sequences: vec![vec![1; 6].into()],
        priority: Priority::Interactive,
        deadline: None,
    };
    let (job, _reply) = Job::new(refused, Instant::now());
    let error = scheduler.admit(Arc::new(job), 100.0).unwrap_err();
    let expected = Error::QueueFull {
        request_tokens: 6,
        queued_tokens: 15,
        max_queued_tokens: 20,
        retry_after: Duration::from_millis(10),
    };
    assert_eq!(error, expected);
    assert_eq!(scheduler.queued_tokens(), 15);
}

#[test]
fn what_can_never_fit_is_refused_at_once() {
    let mut scheduler = Scheduler::new(config(10, 20));
    let submission = Submission {
        sequences: vec![vec![1; 21].into()],
        priority: Priority::Interactive,
        deadline: None,
    };
    let (job, _reply) = Job::new(submission, Instant::now());
    let error = scheduler.admit(Arc::new(job), 0.0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "request: has 21 tokens, limit max_queued_tokens=20"
    );
}

#[test]
fn abandoned_jobs_never_reach_a_batch() {
    let mut scheduler = Scheduler::new(config(10, 1000));
    let (_gone, reply) = submit(&mut scheduler, Priority::Interactive, &[3]);
    let _kept = submit(&mut scheduler, Priority::Interactive, &[4]);
    drop(reply);
    assert_eq!(lengths(&scheduler.next_batch(Instant::now()).unwrap()), [4]);
    assert_eq!(scheduler.queued_tokens(), 0);
}

#[test]
fn expired_jobs_never_reach_a_batch() {
    let mut scheduler = Scheduler::new(config(10, 1000));
    let now = Instant::now();
    let submission = Submission {
        sequences: vec![vec![1; 3].into()],
        priority: Priority::Interactive,
        deadline: Some(now + Duration::from_millis(5)),
    };
    let (job, mut reply) = Job::new(submission, now);
    scheduler.admit(Arc::new(job), 0.0).unwrap();
    assert!(
        scheduler
            .next_batch(now + Duration::from_millis(7))
            .is_none()
    );
    let error = reply.try_recv().unwrap().unwrap_err();
    assert_eq!(error, Error::DeadlineExceeded { waited_ms: 7 });
    assert!(scheduler.is_empty());
}

#[test]
fn a_forgotten_job_gives_its_tokens_back() {
    let mut scheduler = Scheduler::new(config(4, 1000));
    let (job, _reply) = submit(&mut scheduler, Priority::Interactive, &[4, 4, 4]);
    scheduler.next_batch(Instant::now()).unwrap();
    assert_eq!(scheduler.queued_tokens(), 8);
    scheduler.forget(&job);
    assert_eq!(
        (scheduler.queued_tokens(), scheduler.queued_sequences()),
        (0, 0)
    );
    assert!(scheduler.is_empty());
}

#[test]
fn interactive_goes_first_and_bulk_keeps_its_share() {
    let mut scheduler = Scheduler::new(config(10, 100_000));
    let _bulk = submit(&mut scheduler, Priority::Bulk, &[10; 100]);
    let _interactive = submit(&mut scheduler, Priority::Interactive, &[9; 100]);
    let now = Instant::now();
    let order: Vec<usize> = (0..80)
        .map(|_| scheduler.next_batch(now).unwrap().num_tokens())
        .collect();
    assert_eq!(order[0], 9, "interactive goes first");
    let bulk_tokens: usize = order.iter().filter(|&&tokens| tokens == 10).sum();
    let share = bulk_tokens as f64 / order.iter().sum::<usize>() as f64;
    assert!(
        (0.2..=0.3).contains(&share),
        "bulk got {share} of the tokens, 0.25 are guaranteed"
    );
}

#[test]
fn bulk_keeps_its_share_beside_requests_that_stay_whole() {
    let mut scheduler = Scheduler::new(SchedulerConfig {
        max_whole_request_tokens: 175,
        bulk_share: 0.45,
        ..config(100, 1 << 40)
    });
    let _bulk = submit(&mut scheduler, Priority::Bulk, &[10; 4000]);
    let _interactive: Vec<_> = (0..200)
        .map(|_| submit(&mut scheduler, Priority::Interactive, &[17; 10]))
        .collect();
    let now = Instant::now();
    let (mut bulk, mut all) = (0, 0);
    for _ in 0..150 {
        let batch = scheduler.next_batch(now).unwrap();
        let tokens = batch.num_tokens();
        all += tokens;
        bulk += tokens * usize::from(tokens == 100);
    }
    let share = bulk as f64 / all as f64;
    assert!((0.43..=0.47).contains(&share), "bulk got {share}, not 0.45");
}

#[test]
fn a_bulk_sequence_above_the_budget_has_its_turn() {
    let mut scheduler = Scheduler::new(config(10, 100_000));
    let _bulk = submit(&mut scheduler, Priority::Bulk, &[11]);
    let _interactive = submit(&mut scheduler, Priority::Interactive, &[9; 100]);
    let now = Instant::now();
    let at = (0..80).position(|_| scheduler.next_batch(now).unwrap().num_tokens() == 11);
    assert!(at.is_some(), "it never ran");
}

#[test]
fn bulk_jobs_one_by_one_keep_their_share_whatever_they_cost() {
    let mut scheduler = Scheduler::new(config(10, 1 << 40));
    let _interactive = submit(&mut scheduler, Priority::Interactive, &[10; 20_000]);
    let now = Instant::now();
    let (mut bulk, mut all) = (0, 0);
    let mut waiting = submit(&mut scheduler, Priority::Bulk, &[1000]);
    for _ in 0..10_000 {
        let tokens = scheduler.next_batch(now).unwrap().num_tokens();
        all += tokens;
        if tokens == 1000 {
            bulk += tokens;
            waiting = submit(&mut scheduler, Priority::Bulk, &[1000]);
        }
    }
    drop(waiting);
    let share = bulk as f64 / all as f64;
    assert!((0.23..=0.27).contains(&share), "bulk got {share}, not 0.25");
}

#[test]
fn absurd_costs_are_no_overflow() {
    let mut scheduler = Scheduler::new(SchedulerConfig {
        max_batch_cost: u64::MAX,
        max_whole_request_tokens: usize::MAX,
        cost: CostModel { attention: 1e300 },
        ..config(10, 1000)
    });
    // The first stays whole; the others fill a batch.
    let _a = submit(&mut scheduler, Priority::Interactive, &[4, 4, 4, 4]);
    let _b = submit(&mut scheduler, Priority::Interactive, &[1, 1]);
    let _c = submit(&mut scheduler, Priority::Bulk, &[1, 1]);
    let seen: usize = std::iter::from_fn(|| scheduler.next_batch(Instant::now()))
        .map(|batch| batch.num_sequences())
        .sum();
    assert_eq!(seen, 8);
}

#[test]
fn bulk_alone_does_not_run_into_debt() {
    let mut scheduler = Scheduler::new(config(10, 100_000));
    let _bulk = submit(&mut scheduler, Priority::Bulk, &[10; 100]);
    let now = Instant::now();
    for _ in 0..50 {
        scheduler.next_batch(now).unwrap();
    }
    let _interactive = submit(&mut scheduler, Priority::Interactive, &[9; 100]);
    let order: Vec<usize> = (0..20)
        .map(|_| scheduler.next_batch(now).unwrap().num_tokens())
        .collect();
    assert!(
        order.contains(&10),
        "bulk starves after it ran alone: {order:?}"
    );
}
